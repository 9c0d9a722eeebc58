"""What each request shows of an SLO's metric, failed ones included, and which outcomes stand whatever is in doubt."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from auditor.evidence import Evidence
from auditor.measurement import Measurement, Sample
from auditor.profile import Objective
from auditor.theory.deciding import (
    MEANS_TAIL,
    TAIL,
    Judged,
    Part,
    decide_ceiling,
    decide_share,
    look_confidences,
    with_silence,
)
from auditor.theory.judging import rank
from auditor.theory.statistics import Outcome

__all__ = [
    "LATENCY",
    "Favour",
    "doubtful",
    "error_outcomes",
    "every",
    "failed",
    "instead",
    "judged",
    "later",
    "looks",
    "outcomes",
    "readings",
    "readings_of",
    "unseen",
    "worst_class",
]

Metric = Literal["ttft", "tps", "e2e", "first_answer"]
LATENCY: Mapping[str, Metric] = {"W110": "ttft", "W111": "tps", "W112": "e2e", "W114": "first_answer"}
_TICK = 0.05  # seconds between two readings of the client's lag: what it may have missed

Favour = Callable[[Sample, float], float | None]


def looks(evidence: Evidence) -> tuple[float, ...]:
    """The confidence of each look at the SLOs: two where the plan keeps loads in reserve."""
    reserve = evidence.plan is not None and bool(evidence.plan.reserve)
    return look_confidences(evidence.profile.probe.confidence, reserve=reserve)


def judged(
    evidence: Evidence, objective: Objective, favour: Favour | None = None, more: Sequence[Part] = ()
) -> Judged | None:
    """How an SLO comes out over all loads at the target; None where no request shows its metric.

    `favour` makes of each reading what a doubt says; None of it leaves the request out. `more` are requests that were
    not sent.
    """
    outcome = _judge(evidence, objective, [*_parts(evidence, objective, favour), *more])
    if outcome is None or objective.metric != "error_rate" or favour is not None:
        return outcome
    return with_silence(outcome, evidence.loads("slo")[-1].silence)


def _judge(evidence: Evidence, objective: Objective, parts: Sequence[Part]) -> Judged | None:
    """The outcome over all parts."""
    if not any(part.values for part in parts):
        return None
    if objective.metric == "error_rate":
        return decide_share(parts, objective.share, looks(evidence))
    tail = MEANS_TAIL if objective.metric == "tps" else TAIL
    return decide_ceiling(parts, objective.seconds, objective.share, looks(evidence), tail=tail)


def failed(evidence: Evidence, more: Callable[[Objective], Sequence[Part]] = lambda _: ()) -> str | None:
    """The profile path of the first SLO that is missed beyond doubt, even with `more` requests; None where none is."""
    outcomes = ((o, judged(evidence, o, more=more(o))) for o in every(evidence))
    return next((o.path for o, outcome in outcomes if outcome is not None and outcome.status == "fail"), None)


def every(evidence: Evidence) -> Iterator[Objective]:
    """All declared SLOs that requests decide."""
    for metric in LATENCY.values():
        yield from evidence.profile.objectives(metric)
    yield from evidence.profile.objectives("error_rate")


def _parts(evidence: Evidence, objective: Objective, favour: Favour | None) -> Iterator[Part]:
    """The readings of each load."""
    later = {load.id for load in (evidence.plan.reserve if evidence.plan else ())}
    for m in evidence.loads("slo"):
        seen = ((favour(s, x) if favour else x) for s, x in readings_of(m, objective))
        values = tuple(x for x in seen if x is not None)
        yield Part(values, open=bool(m.load.arrivals), look=2 if m.load.id in later else 1)


def readings(evidence: Evidence, objective: Objective) -> list[tuple[Sample, float]]:
    """Each request with its seconds by an SLO's metric, load by load in start order; those that do not show it are left
    out.

    A failed request is infinitely slow. So is, for TPS, a reply that came all at once: its user saw no token before the
    end. So is, for the first answer, a reply that ended within its reasoning. So is one that the probe's own end cut
    off after the limit had passed: all requests that started so long before the end are known, hence leaving out the
    others favours nobody. In an open loop a request's time counts from when it was to be sent: its user waited from
    then on. For an error rate, good requests read 0.
    """
    return [pair for m in evidence.loads("slo") for pair in readings_of(m, objective)]


def readings_of(m: Measurement, objective: Objective) -> list[tuple[Sample, float]]:
    """`readings` of one load."""
    taken = [s for s in m.samples if objective.cls in (None, s.cls)]
    seen = ((s, _reading(s, objective)) for s in sorted(taken, key=lambda s: (s.start, s.index)))
    return [(s, value) for s, value in seen if value is not None]


def _reading(sample: Sample, objective: Objective) -> float | None:
    if objective.metric == "error_rate":
        return None if sample.error == "cancelled" else 0.0 if sample.good else math.inf
    late = sample.late or 0.0
    if sample.error == "cancelled":
        first = {"ttft": sample.ttft, "first_answer": sample.first_answer}.get(objective.metric)
        overdue = objective.metric != "tps" and (sample.closed or 0.0) + late > objective.limit
        return math.inf if first is None and overdue else _plus(first, late)
    if not sample.good:
        return math.inf
    if objective.metric == "tps":
        return math.inf if sample.buffered else sample.tpot
    if objective.metric == "first_answer" and sample.first_answer is None:
        return math.inf
    return _plus(getattr(sample, objective.metric), late)


def _plus(seconds: float | None, late: float) -> float | None:
    return None if seconds is None else seconds + late


def worst_class(evidence: Evidence, objective: Objective) -> tuple[str, float] | None:
    """The class that fares worst by an SLO on all requests, and its own percentile in seconds; None for one class.

    Long prompts among many short ones may miss an SLO that all together meet.
    """
    by_class: dict[str, list[float]] = {}
    for sample, seconds in readings(evidence, objective):
        by_class.setdefault(sample.cls, []).append(seconds)
    if objective.cls is not None or len(by_class) < 2:
        return None
    return max(((cls, rank(values, objective.share)) for cls, values in by_class.items()), key=lambda each: each[1])


def unseen(read: Iterable[tuple[Sample, float]]) -> str:
    """In words, the misses that are no failures: replies at once, where TPS is judged, those without an answer, and
    what the end cut off.
    """
    misses = [s for s, seconds in read if seconds == math.inf]
    at_once, late = sum(bool(s.buffered) for s in misses), sum(s.error == "cancelled" for s in misses)
    silent = sum(s.good and not s.buffered for s in misses)
    told = f" {at_once} of them came all at once, which is no stream." if at_once else ""
    told += f" {silent} of them ended before an answer came." if silent else ""
    return told + (f" {late} of them were under way, beyond the limit, when the probe ended." if late else "")


def outcomes(evidence: Evidence, rule: str, favour: Favour) -> Iterator[Outcome]:
    """How the SLOs of a rule come out when each reading is what `favour` makes of it; None leaves a request out."""
    found = (judged(evidence, objective, favour) for objective in evidence.profile.objectives(LATENCY[rule]))
    yield from (outcome.status for outcome in found if outcome is not None)


def doubtful(evidence: Evidence, favour: Callable[[str], Favour]) -> tuple[str, ...]:
    """The rules whose SLOs are not missed for certain once each reading is what the rule's `favour` makes of it."""
    return tuple(rule for rule in LATENCY if "fail" not in outcomes(evidence, rule, favour(rule)))


def error_outcomes(evidence: Evidence, without: Callable[[Sample], bool]) -> Iterator[Outcome]:
    """How the declared error rates come out over all requests but those `without`."""
    found = (judged(evidence, o, instead(None, without)) for o in evidence.profile.objectives("error_rate"))
    yield from (outcome.status for outcome in found if outcome is not None)


def instead(seconds: float | None, where: Callable[[Sample], bool]) -> Favour:
    """Takes `seconds` for the requests `where` a reading is in doubt, and the others' readings as they are."""
    return lambda sample, read: seconds if where(sample) else read


def later(rule: str, lag: float | None, tick: float = _TICK) -> Favour:
    """Takes off each reading what a client that read at most `lag` seconds late may have added; None: no bound.

    A lag that was read now and then may have been longer in between, by up to `tick` seconds.
    """

    def without(sample: Sample, seconds: float) -> float:
        if lag is None:
            return 0.0
        tokens = max(1, (sample.output_tokens or 1) - sample.first_tokens) if rule == "W111" else 1
        return seconds - (lag + tick) / tokens

    return without
