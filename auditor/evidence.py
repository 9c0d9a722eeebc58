"""The data that flows through an audit. Frozen, plain, and everything a check may look at.

    Measurements + Coverage + facts -> Evidence -> Finding -> Report

All times are seconds, all rates per second, all shares 0..1. None means "not observed", never 0.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from auditor.compared import Comparison
from auditor.loads import Plan, Purpose
from auditor.measurement import Measurement, Sample, Served, accepted_length
from auditor.points import Nearest
from auditor.profile import Conflict, Profile
from auditor.theory import levers
from auditor.theory.carrying import PoolRange, computed_pool, known_pool
from auditor.theory.device import Device
from auditor.theory.idle import idle
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ranking import Ranked
from auditor.theory.settings import Settings
from auditor.theory.shape import at
from auditor.theory.statistics import Interval
from auditor.watch import Agreement, Coverage, CoverageItem, Observed, Watch

__all__ = [
    "METRICS_VERSION",
    "Check",
    "Conflict",
    "Coverage",
    "CoverageItem",
    "Evidence",
    "Finding",
    "Location",
    "Number",
    "QuestionResult",
    "Report",
    "Rule",
    "Waived",
]

Provenance = Literal["declared", "served", "measured", "computed", "catalogue"]
Status = Literal["pass", "warn", "fail", "skip", "inconclusive"]
Severity = Literal["high", "medium", "low"]
Confidence = Literal["high", "medium", "low"]
Verdict = Literal["READY", "NOT READY", "INCONCLUSIVE"]

METRICS_VERSION = 1
"""What measured numbers mean: TTFT from the request's last byte on, TPOT over the tokens after the first event, failed
requests infinitely slow. A changed definition raises it, and numbers of two versions are not compared.
"""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in one of the user's files, 1-based."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# ------------------------------------------------------------------------------------------------------------ evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a check may look at. Absent parts are None or empty and make the rules that need them skip.

    `lines` maps profile paths ("slo.ttft.p95", "traffic.classes.0.share") to places; `settings` are the values used by
    theory with `setting_sources` saying where each came from; `flags` maps profile fields to the flag of the engine in
    use; `candidates` are other catalogue accelerators for remedies, `ranking` how they would serve the target;
    `metric_names` maps concepts to the engine's own metric names; `today` is the ISO date of the run; `nearest` says
    where an audit that failed under load would pass; `compared` how it stands to the runs before; `watch` is what a
    live Prometheus says, `truth` the server's numbers beside the client's, `observed` what users sent;
    `metrics_version` says what the measured numbers mean.
    """

    profile: Profile
    today: str
    offline: bool = False
    lines: Mapping[str, Location] = field(default_factory=dict)
    geometry: Geometry | None = None
    geometry_error: str | None = None
    device: Device | None = None
    device_error: str | None = None
    settings: Settings | None = None
    setting_sources: Mapping[str, str] = field(default_factory=dict)
    served: Served | None = None
    plan: Plan | None = None
    measurements: tuple[Measurement, ...] = ()
    coverage: Coverage | None = None
    watch: Watch | None = None
    truth: tuple[Agreement, ...] = ()
    observed: Observed | None = None
    conflicts: tuple[Conflict, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    candidates: tuple[Device, ...] = ()
    ranking: tuple[Ranked, ...] = ()
    metric_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    nearest: Nearest | None = None
    compared: Comparison | None = None
    metrics_version: int = METRICS_VERSION

    def loads(self, purpose: Purpose) -> tuple[Measurement, ...]:
        """The measurements of one purpose, in the order in which they ran."""
        return tuple(m for m in self.measurements if m.load.purpose == purpose)

    def requests(self, purpose: Purpose = "slo", cls: str | None = None) -> tuple[Sample, ...]:
        """The requests of one purpose on which verdicts rest, in start order, failed ones included."""
        return tuple(s for m in self.loads(purpose) for s in m.judged if cls in (None, s.cls))

    @property
    def target(self) -> int | None:
        """Requests in flight at the target, over all replicas; for a rate by Little's law, and no less than planned."""
        traffic = self.profile.traffic
        if traffic.target_concurrency or not traffic.request_rate:
            return traffic.target_concurrency
        loads = [*(self.plan.loads if self.plan else ()), *(m.load for m in self.measurements)]
        taken = [math.ceil(traffic.request_rate * m.stay) for m in self.loads("slo") if m.stay is not None]
        return max([*taken, *(load.concurrency for load in loads if load.purpose == "slo")], default=None)

    @property
    def share_of_target(self) -> int | None:
        """Requests in flight on the busiest replica (over all its data-parallel ranks) at the target load."""
        return math.ceil(self.target / max(1, self.profile.deployment.replicas)) if self.target else None

    @property
    def batch(self) -> int | None:
        """Streams that decode together on one replica at the target load: its share, up to the batch limits."""
        ranks = self.settings.data_parallel if self.settings else 1
        said = ((place, name) for place in (self.served, self.settings) for name in ("max_num_seqs", "slots"))
        limits = (getattr(place, name, None) for place, name in said)
        return min([self.share_of_target, *(limit * ranks for limit in limits if limit)]) if self.target else None

    @property
    def prefill_points(self) -> list[tuple[int, float]]:
        """(prompt tokens, seconds to the first token without the network) of the idle ladder, one a request."""
        trip = (self.served.round_trip if self.served else None) or 0.0
        return [point for m in self.loads("prefill") for point in m.first_tokens(trip)]

    @property
    def decode_points(self) -> list[tuple[int, int, float]]:
        """(streams on a replica, context, seconds a step) of the decode ladder, while all its streams decode."""
        replicas, loads = max(1, self.profile.deployment.replicas), self.loads("decode")
        return [(m.load.concurrency // replicas or 1, m.mean_context, s.seconds) for m in loads if (s := m.steps)]

    @property
    def accept_length(self) -> float | None:
        """Tokens that a decode step gives a stream: 1 without speculation; None where its yield is unknown."""
        return accepted_length(self.measurements) if self.speculates else 1.0

    @property
    def speculates(self) -> bool:
        """Whether speculative decoding is declared or served."""
        return bool((self.settings and self.settings.speculative_tokens) or (self.served and self.served.speculative))

    @property
    def engine(self) -> str:
        """The flavour in use: as recognised, else as declared."""
        return (self.served and self.served.engine) or (self.settings and self.settings.engine) or "generic"

    @property
    def context(self) -> int | None:
        """The context length: as served, else as declared or defaulted."""
        served = self.served.max_model_len if self.served else None
        return served or (self.settings.max_model_len if self.settings else None)

    def origin(self, setting: str) -> Provenance:
        """Where a setting comes from; defaults of engines and models are catalogue knowledge, not declarations."""
        known: dict[str, Provenance] = {"served": "served", "declared": "declared", "launch": "declared"}
        return known.get(self.setting_sources.get(setting, "declared").partition(" ")[0], "catalogue")

    def idle_ttft(self, prompt_tokens: float) -> float | None:
        """Seconds to the first token of a prompt that has the engine to itself, by the ladder; None without one."""
        found = idle(self.prefill_points)
        return found.reckoned(prompt_tokens) if found is not None else None

    @property
    def served_pool(self) -> PoolRange | None:
        """The KV pool of one replica as the engine tells it."""
        served = self.served
        return known_pool(served.kv_tokens, served.kv_blocks, served.block_size) if served else None

    @property
    def of_others(self) -> float | None:
        """Seconds for which other users' prompts may stop a stream, three of the longest alone; None without a ladder.

        Engines read the prompts that came together in one step, and chunks of a long one in several.
        """
        longest = max((at(c.prompt_tokens.curve, 1) for c in self.profile.traffic.classes), default=0)
        alone = self.idle_ttft(longest) if longest else None
        return 3 * alone if alone is not None else None

    def pool(self, settings: Settings | None = None) -> tuple[PoolRange, Provenance] | None:
        """The KV pool of one replica, served or else computed; with `settings` what these would give."""
        served = self.served_pool
        if served is not None and settings is None:
            return served, "served"
        pool = computed_pool(self.geometry, settings or self.settings, self.device)
        return (pool, "declared" if pool.exact else "computed") if pool is not None else None

    @property
    def theory(self) -> tuple[Geometry, Settings, Device] | None:
        """What arithmetic takes, in the order in which it takes it; None where a part is missing (`lacking`)."""
        if self.geometry is None or self.settings is None or self.device is None:
            return None
        return self.geometry, self.settings, self.device

    @property
    def lacking(self) -> str | None:
        """One line that says what arithmetic lacks of the model's geometry, the device and the engine's settings."""
        parts = (
            (self.geometry, self.geometry_error or "the model's geometry (deployment.model)"),
            (self.device, self.device_error or "the hardware (deployment.accelerator)"),
            (self.settings, "the engine's settings"),
        )
        return "; ".join(word for part, word in parts if part is None) or None

    def where(self, path: str) -> Location | None:
        """The profile line of `path`, or of its nearest parent that is written down."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path.rpartition(".")[0]
        return None

    def flag(self, name: str, fallback: str | None = None) -> str:
        """The engine's flag for a profile field; where it has none `fallback`, else the field in plain words."""
        return levers.flag(self.flags, name) or fallback or levers.spell(self.flags, f"{{{name}}}")

    def spell(self, text: str) -> str:
        """`text` with each {field} replaced by the engine's flag for it, in plain words where it has none."""
        return levers.spell(self.flags, text)

    def levers(self, *texts: str) -> tuple[str, ...]:
        """Those of the remedies that the engine in use has flags for, spelled out, less what is done already."""
        return levers.levers(self.flags, texts, levers.spent(self.settings, speculates=self.speculates))

    def has(self, name: str) -> bool:
        """Whether the engine in use has a flag for a profile field; true where the engine is not known."""
        return levers.name(self.flags, name) is not None


# ------------------------------------------------------------------------------------------------------------ findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number with its unit and where it comes from; `low`..`high` its interval, `n` how many requests it rests on."""

    name: str
    value: float | None
    unit: str
    provenance: Provenance
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, value: float | None, unit: str, provenance: Provenance, n: int | None = None) -> "Number":
        """A number without an interval."""
        return cls(name=name, value=value, unit=unit, provenance=provenance, n=n)

    @classmethod
    def measured(cls, name: str, value: Interval, unit: str, n: int, note: str = "") -> "Number":
        """A measured number with its interval; a bound or a value that is infinite (a failed request) is None."""
        point, low, high = (x if math.isfinite(x) else None for x in (value.point, value.low, value.high))
        failed = "this percentile falls on failed requests" if point is None else ""
        note = "; ".join(part for part in (note, failed) if part)
        return cls(name=name, value=point, unit=unit, provenance="measured", low=low, high=high, n=n, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waived:
    """The waiver that covers a finding."""

    reason: str
    expires: str
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule's outcome, for one subject ("rag", "p95") where the rule looks at several.

    `voids` (T rules only) names what this finding makes untrustworthy, as "W110:pass" or "K:fail": a rule id or a
    question letter, and the status that it could have faked.
    """

    rule: str
    status: Status
    title: str
    why: str
    deciding: bool = False
    severity: Severity = "medium"
    confidence: Confidence = "high"
    subject: str | None = None
    measured: Number | None = None
    required: Number | None = None
    numbers: tuple[Number, ...] = ()
    where: Location | None = None
    remedies: tuple[str, ...] = ()
    missing: str | None = None
    voids: tuple[str, ...] = ()
    voided_by: tuple[str, ...] = ()
    waived: Waived | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a check: id, title, and the pure function that judges it (zero, one or several findings)."""

    id: str
    title: str
    judge: Callable[[Evidence], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question's rules, registered through the entry-point group `auditor.checks`; `api` is its version.

    `question` is one upper-case letter that starts its rule ids; `pages` the package folder that holds `<id>.md`.
    `answers` names the findings that answer the question in words, whatever their status: "W102", or "K302 mix" for
    the finding of one subject.
    """

    question: str
    title: str
    rules: tuple[Rule, ...]
    answers: tuple[str, ...] = ()
    pages: str = "checks/rules"
    api: int = 1

    def finding(self, rule: str, status: Status, why: str, **rest: Any) -> Finding:
        """A finding of one of this check's rules, under the rule's title. Raises KeyError for a rule it has not."""
        titles = {r.id: r.title for r in self.rules}
        return Finding(rule=rule, title=titles[rule], status=status, why=why, **rest)

    def skip(self, rule: str, missing: str, *, deciding: bool = False, **rest: Any) -> Finding:
        """The finding of a rule that could not look: never a pass, and inconclusive for its question if deciding."""
        return self.finding(rule, "skip", f"Not judged: {missing}.", missing=missing, deciding=deciding, **rest)


# -------------------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionResult:
    """One question's verdict, the rules that decided it, and its answer in words; `asked` False if it was left out."""

    question: str
    title: str
    status: Status
    asked: bool = True
    decided_by: tuple[str, ...] = ()
    headline: str = ""
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole result. One verdict function made it; every format and the exit code read it."""

    schema_version: int
    tool_version: str
    name: str
    date: str
    verdict: Verdict
    verdict_line: str
    exit_code: int
    questions: tuple[QuestionResult, ...]
    findings: tuple[Finding, ...]
    evidence: Evidence
    unused_waivers: tuple[str, ...] = ()
    expired_waivers: tuple[str, ...] = ()
    interrupted: str | None = None
