"""Bottleneck, what hardware allows: can the SLOs be met on it at all?

Rule H201 of question H, which `bottleneck` asks.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.profile import Objective
from auditor.theory import roofline
from auditor.theory.alternatives import alternatives
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.limits import least_seconds
from auditor.theory.settings import Settings
from auditor.units import quantity

__all__ = ["RULES"]

WIDE = 2.0  # the margin with which an SLO passes on provisional hardware figures
_Theory = tuple[Geometry, Settings, Device]


def h201_physical_limit(evidence: Evidence) -> Iterable[Finding]:
    profile, batch = evidence.profile, evidence.batch
    objectives = (*profile.objectives("ttft"), *profile.objectives("tps"), *profile.objectives("e2e"))
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("slo"), "severity": "high"}
    if not objectives:
        yield _PART.skip("H201", "an SLO on TTFT, TPS or E2E to hold against the limit", **rest)
    elif evidence.theory is None or batch is None or not profile.traffic.classes:
        yield _PART.skip("H201", evidence.lacking or "traffic.classes and traffic.target_concurrency", **rest)
    else:
        yield from (_against_limit(evidence, evidence.theory, batch, o) for o in objectives)


def _against_limit(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Finding:
    """Whether the physical limit alone breaks an SLO; floors are compared as seconds a token."""
    floor, device = o.metric == "tps", theory[2]
    limit, allowed = _limit(evidence, theory, batch, o), o.seconds
    unit, shown = ("tok/s", 1 / limit if limit else None) if floor else ("s", limit)
    rest: dict[str, Any] = {
        "subject": f"{o.metric} {o.subject}",
        "deciding": True,
        "severity": "high",
        "where": evidence.where(o.path),
        "measured": Number.of("physical limit", shown, unit, "computed"),
        "required": Number.of(f"{o.metric} {o.percentile}", o.limit, unit, "declared"),
        "numbers": tuple(_arithmetic(evidence, theory, batch, o)),
    }
    provisional, least = device.confidence == "C", quantity(limit, "s")
    if limit * (WIDE if provisional else 1.0) <= allowed:
        return _PART.finding("H201", "pass", f"{_HOW[o.metric]} {least} at least: the SLO leaves room.", **rest)
    rest["remedies"] = tuple(_ways_under(evidence, theory, batch, o))
    why = f"{_HOW[o.metric]} {least} at least on this hardware, the SLO allows {quantity(allowed, 's')}"
    if provisional:
        missing = f"figures of {device.name} that two sources confirm"
        why += ", and the hardware's figures are provisional."
        return _PART.finding("H201", "inconclusive", why, missing=missing, confidence="low", **rest)
    if floor and _limit(evidence, theory, 1, o) <= allowed:
        why += f" with {batch} streams decoding at once: only fewer at once can meet it."
        return _PART.finding("H201", "warn", why, **rest)
    return _PART.finding("H201", "fail", f"{why}: no tuning meets it.", **rest)


_HOW = {
    "ttft": "Reading the prompt at this percentile takes",
    "tps": "A decode step at the target takes",
    "e2e": "Prompt and reply at this percentile take",
}


def _limit(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> float:
    """The physical limit that an SLO meets, in seconds; every drafted token counts as accepted, no prefix as read."""
    prompt, output = evidence.profile.traffic.mean_lengths
    drafted = theory[1].speculative_tokens or (8 if evidence.served and evidence.served.speculative else 0)
    step = roofline.decode_limit(*theory, batch, round(prompt + output / 2)).seconds / (1 + drafted)
    if o.metric == "tps":
        return step
    classes = [c for c in evidence.profile.traffic.classes if o.cls in (None, c.name)]
    mix = [(1.0 if o.cls else c.share, c.fresh, c.output_tokens.curve) for c in classes]
    return least_seconds(*theory, mix, o.share, step if o.metric == "e2e" else None)


def _arithmetic(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Iterator[Number]:
    prompt, output = evidence.profile.traffic.mean_lengths
    found = roofline.prefill_limit(*theory, max(1.0, prompt))
    if o.metric != "ttft":
        found = roofline.decode_limit(*theory, batch, prompt + output / 2)
    yield Number.of("work at the mean length", found.flops, "FLOP", "computed")
    yield Number.of("bytes moved at the mean length", found.bytes, "bytes", "computed")
    yield Number.of("bandwidth", theory[2].bandwidth, "bytes/s", "catalogue")


def _ways_under(evidence: Evidence, theory: _Theory, batch: int, o: Objective) -> Iterator[str]:
    (geometry, settings, device), allowed = theory, o.seconds
    for lever in (a for a in alternatives(settings, device) if evidence.has(a.field)):
        limit = _limit(evidence, (geometry, lever.settings, device), batch, o)
        if limit <= allowed:
            yield f"{evidence.flag(lever.field)} {lever.value} brings the limit to {quantity(limit, 's')}"
    for other in evidence.candidates:
        if other.confidence != "C" and (limit := _limit(evidence, (geometry, settings, other), batch, o)) <= allowed:
            yield f"{other.name} instead: the limit is {quantity(limit, 's')}"
    if o.metric == "tps":
        yield "fewer streams on each replica (more replicas), or a lower floor"
    else:
        yield "shorter prompts, a shared prefix that the cache holds, or a higher ceiling"


RULES = (Rule("H201", "SLO against the physical limit", h201_physical_limit),)
"""The rule of question H that holds SLOs against hardware."""

_PART = Check(question="H", title="Bottleneck", rules=RULES)
