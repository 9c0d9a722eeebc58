"""Overload at the target: does the queue grow while the load stays the same?

Rule W120 of question W, which `workload_shape` asks; in a passive audit from the engine's gauge of waiting requests.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.theory import judging
from auditor.units import quantity
from auditor.watch import Observed, Slice
from checks import passive

__all__ = ["RULES"]

FIX = ("add replicas, or bound the queue so that users get an early refusal instead of a late answer",)
UNDER_LOAD = ("K305 says what they wait for: cache, a place in the batch or compute", *FIX)
WORKERS = "if the users are a fixed number of workers that wait for their replies: traffic.arrivals: closed"


def w120_overload(evidence: Evidence) -> Iterable[Finding]:
    """Both the queue and TTFT grow while the load stays the same: the service does less than it is asked."""
    window = passive.seen(evidence)
    if window is not None:
        yield _standing(evidence, window)
        return
    measured = [m for m in evidence.loads("slo") if len(m.judged) >= 9]
    if not measured:
        yield _PART.skip("W120", "a measured load at the target", deciding=True)
    for m in measured:
        confidence = evidence.profile.probe.confidence
        ttft = judging.growth(m.first_waits, confidence)
        spans = [(s.start, s.start + s.stay) for s in m.judged]
        queue = judging.growth(m.gauge("waiting") or judging.in_flight(spans), confidence)
        numbers = tuple(
            Number.of(f"{name} {when}", value, unit, "measured")
            for name, unit, g in (("TTFT", "s", ttft), ("queue", "requests", queue))
            if g is not None
            for when, value in (("at first", g.first), ("at the end", g.last))
        )
        where = evidence.where("traffic.target_concurrency")
        rest: dict[str, Any] = {"deciding": True, "numbers": numbers, "where": where, "severity": "high"}
        rest["subject"] = m.load.id
        if ttft is None:
            yield _PART.skip("W120", "enough requests with a first token", **rest)
        elif not ttft.grows:
            yield _PART.finding("W120", "pass", "TTFT does not grow while the load stays the same.", **rest)
        elif queue is not None and queue.grows and queue.last >= 1:
            why = "The queue and TTFT grow together while the load stays the same: arrivals outrun the service."
            bursts = m.load.arrivals and not evidence.profile.traffic.request_rate
            fix = (*UNDER_LOAD, WORKERS) if bursts else UNDER_LOAD
            yield _PART.finding("W120", "fail", why, remedies=fix, **rest)
        elif judging.settles(m.first_waits, confidence):
            why = (
                f"TTFT rises from {quantity(ttft.first, 's')} to {quantity(ttft.last, 's')} and settles, with no queue "
            )
            why += "to be seen: no overload."
            yield _PART.finding("W120", "pass", why, **rest)
        else:
            why = "TTFT grows while the load stays the same, with no queue to be seen: it has not settled yet."
            yield _PART.finding("W120", "warn", why, remedies=("measure for longer (probe.budget)",), **rest)


def _standing(evidence: Evidence, window: Observed) -> Finding:
    """A queue that is never empty for a stretch of the window, and whether it grows over it."""
    rest: dict[str, Any] = {"deciding": True, "where": evidence.where("traffic"), "severity": "high"}
    known = [s for s in window.slices if "waiting_least" in s.values]
    stretch = _longest(known)
    queue = judging.growth([(s.start, s.values["waiting_least"]) for s in stretch], evidence.profile.probe.confidence)
    rest["numbers"] = (Number.of("most waiting", window.values.get("waiting"), "requests", "served"),)
    if not known:
        return _PART.skip("W120", "the engine's gauge of waiting requests in Prometheus", deciding=True)
    if queue is not None and queue.grows:
        why = f"The queue grows from {quantity(queue.first, '')} to {quantity(queue.last, 'requests')} over "
        why += f"{_time(stretch)} without ever being empty: arrivals outrun the service."
        return _PART.finding("W120", "fail", why, remedies=FIX, **rest)
    if stretch:
        why = f"Requests waited without a pause for {_time(stretch)}; the queue does not grow beyond doubt."
        return _PART.finding("W120", "warn", why, remedies=FIX, **rest)
    missing = passive.doubtful(evidence, window)
    if missing is None and not passive.busy(evidence, window):
        missing = "no slice had the target's load"
    if missing is not None:
        why = f"The queue was empty at some time in every slice, but {missing}."
        return _PART.finding("W120", "inconclusive", why, missing=missing, **rest)
    return _PART.finding("W120", "pass", f"The queue was empty in every slice of {_time(known[:1])}.", **rest)


def _longest(slices: Sequence[Slice]) -> list[Slice]:
    """The longest run of slices in which at least one request waited all the time."""
    runs = (list(run) for waits, run in groupby(slices, lambda s: s.values["waiting_least"] >= 1) if waits)
    return max(runs, key=len, default=[])


def _time(slices: Sequence[Slice]) -> str:
    return passive.lasting(sum(s.seconds for s in slices))


RULES = (Rule("W120", "Overload at the target", w120_overload),)
_PART = Check(question="W", title="", rules=RULES)
