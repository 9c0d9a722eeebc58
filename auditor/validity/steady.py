"""Whether a load was in a steady state, and whether its requests are independent of each other."""

from collections.abc import Iterable
from typing import Any

from auditor.evidence import Evidence, Finding, Number
from auditor.measurement import Measurement
from auditor.theory import judging
from auditor.theory.statistics import effective_size, median
from auditor.units import quantity
from auditor.validity.findings import LATENCY, LOADED, doubt, each_load, finding, fine, skip, voids

__all__ = ["t509_steady"]

TURNOVERS = 5  # completions a slot before a load counts as steady


def t509_steady(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        few = skip("T509", "requests with a first token", **rest)
        yield few if len(m.first_waits) < 3 else _steady(m, evidence.profile.probe.confidence, rest)


def _steady(m: Measurement, confidence: float, rest: dict[str, Any]) -> Finding:
    """Whether TTFT settles is told by the same rule as in W120."""
    points, wanted = m.first_waits, TURNOVERS * m.load.concurrency
    times = [ttft for _, ttft in points]
    middle = median(times)
    worth = effective_size([t > middle for t in times])
    rest["numbers"] = (
        Number.of("requests", len(points), "requests", "measured"),
        Number.of("independent requests they are worth", worth, "requests", "measured"),
    )
    if len(m.judged) < wanted:
        why = f"{len(m.judged)} requests over {m.load.concurrency} slots: fewer than {TURNOVERS} a slot never settle."
        missing = f"{wanted - len(m.judged)} more requests"
        fix = ("raise probe.budget",)
        return doubt("T509", why, voids(LOADED, "pass"), missing, remedies=fix, **rest)
    moving = judging.growth(points, confidence)
    way = f"from {quantity(moving.first, 's')} to {quantity(moving.last, 's')}" if moving is not None else ""
    if moving is not None and (moving.grows or moving.falls) and not judging.settles(points, confidence):
        word, status = ("rises", "pass") if moving.grows else ("falls", "fail")
        fix, why = ("raise probe.budget",), f"TTFT {word} {way} and never settles: the load is not steady."
        return doubt("T509", why, voids(LATENCY, status), "a longer load", remedies=fix, **rest)
    if worth < len(points) / 2:
        why = f"Neighbours fare alike: judged at the median, {len(points)} are worth {worth:.0f} independent requests."
        return finding("T509", "warn", why, severity="low", **rest)
    if moving is not None and (moving.grows or moving.falls):
        why = f"TTFT moves {way} and settles: the percentiles count the beginning too."
        return finding("T509", "warn", why, severity="low", **rest)
    return fine("T509", "The load is steady.", **rest)
