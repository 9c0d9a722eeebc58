"""Whether a load was in a steady state and in balance, and whether its requests are independent of each other."""

from collections.abc import Iterable
from typing import Any

from auditor.evidence import Evidence, Finding, Number
from auditor.measurement import Measurement
from auditor.theory import judging
from auditor.theory.deciding import worth
from auditor.theory.statistics import effective_size, median
from auditor.theory.streams import balance
from auditor.units import percent, plain, quantity
from auditor.validity.findings import LATENCY, LOADED, doubt, each_load, finding, fine, skip, voids

__all__ = ["t509_steady", "t515_balance", "t516_dependence"]

TURNOVERS = 4  # requests a slot of a closed loop, warm-up included, before it counts as steady
TURNOVERS_OPEN = 3  # of an open loop, which begins at the rate that the closed one reached
IMBALANCE = 0.05  # of the requests in flight
SURE = 3  # standard errors


def t509_steady(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        few = skip("T509", "requests with a first token", **rest)
        yield few if len(m.first_waits) < 3 else _steady(m, evidence.profile.probe.confidence, rest)


def _steady(m: Measurement, confidence: float, rest: dict[str, Any]) -> Finding:
    """Whether TTFT settles is told by the same rule as in W120."""
    points, turnovers = m.first_waits, TURNOVERS_OPEN if m.load.arrivals else TURNOVERS
    sent, wanted = len(m.warmup) + len(m.judged), turnovers * m.load.concurrency
    rest["numbers"] = (Number.of("requests, warm-up included", sent, "requests", "measured"),)
    if sent < wanted:
        why = f"{sent} requests over {m.load.concurrency} slots: fewer than {turnovers} a slot never settle."
        fix = ("raise probe.budget",)
        return doubt("T509", why, voids(LOADED, "pass"), f"{wanted - sent} more requests", remedies=fix, **rest)
    moving = judging.growth(points, confidence)
    if moving is None or not (moving.grows or moving.falls):
        return fine("T509", "The load is steady.", **rest)
    way = f"from {quantity(moving.first, 's')} to {quantity(moving.last, 's')}"
    if judging.settles(points, confidence):
        why = f"TTFT moves {way} and settles: the percentiles count the beginning too."
        return finding("T509", "warn", why, severity="low", **rest)
    word, status = ("rises", "pass") if moving.grows else ("falls", "fail")
    fix, why = ("raise probe.budget",), f"TTFT {word} {way} and never settles: the load is not steady."
    return doubt("T509", why, voids(LATENCY, status), "a longer load", remedies=fix, **rest)


def t515_balance(evidence: Evidence) -> Iterable[Finding]:
    """Little's law: requests in flight are what arrives a second times how long each stays."""
    for m, rest in each_load(evidence):
        starts = [s.start for s in m.samples]
        spans = [(s.start, s.start + s.closed) for s in (*m.warmup, *m.samples) if s.closed is not None]
        found = balance(spans, min(starts), max(starts))
        if found is None:
            yield skip("T515", "when requests began and ended", **rest)
            continue
        allowed = IMBALANCE + SURE * found.error + found.edge
        rest["measured"] = Number.of("in flight, mean", found.level, "requests", "measured", found.count)
        rest["required"] = Number.of("requests a second times time in flight", found.expected, "requests", "measured")
        rest["numbers"] = (
            Number.of("difference", found.off, "share", "measured"),
            Number.of("difference allowed", allowed, "share", "computed"),
        )
        level, expected = (plain(round(x, 1), 3) for x in (found.level, found.expected))
        held = f"{level} requests in flight, {expected} by Little's law"
        if abs(found.off) <= allowed:
            yield fine("T515", f"What comes goes: {held}.", **rest)
            continue
        why = (
            f"{held}, {percent(abs(found.off))} apart: the load is not in balance, or its times are not what they seem."
        )
        fix = ("raise probe.budget, and see W120 for a queue that grows",)
        yield doubt("T515", why, voids(LATENCY, "pass"), "a load in balance", remedies=fix, **rest)


def t516_dependence(evidence: Evidence) -> Iterable[Finding]:
    """Told of TTFT; each SLO counts the dependence of its own figures."""
    for m, rest in each_load(evidence):
        times = [ttft for _, ttft in m.first_waits]
        if len(times) < 3:
            yield skip("T516", "requests with a first token", **rest)
            continue
        middle, n = median(times), len(times)
        bulk, slowest = effective_size([t > middle for t in times]), worth(times)
        rest["numbers"] = (
            Number.of("independent requests they are worth, by the median", bulk, "requests", "measured", n),
            Number.of("likewise, by the slowest fifth", slowest, "requests", "measured", n),
        )
        if min(bulk, slowest) >= n / 2:
            yield fine("T516", "Requests fare independently of their neighbours.", **rest)
            continue
        why = f"Neighbours fare alike: {n} requests are worth {min(bulk, slowest):.0f} independent ones. "
        why += "The SLOs count theirs so."
        fix = ("raise probe.budget: more requests, of more waves",)
        yield finding("T516", "warn", why, severity="low", remedies=fix, **rest)
