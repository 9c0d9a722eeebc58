"""What all T rules share: their titles, the loads they look at, and the ways in which they say what they found."""

from collections.abc import Iterable, Iterator
from typing import Any

from auditor import slo
from auditor.evidence import Evidence, Finding, Status
from auditor.measurement import Measurement

__all__ = ["LATENCY", "LOADED", "TITLES", "doubt", "each_load", "finding", "fine", "skip", "voids"]

LATENCY = tuple(slo.LATENCY)
LOADED = (*LATENCY, "W113", "W120", "H210", "H212", "K304", "K305", "K306", "K307")
TITLES = {
    "T501": "Cached prompts",
    "T502": "Lengths as asked",
    "T503": "Concurrency reached",
    "T504": "Client as the bottleneck",
    "T505": "Rate limit",
    "T506": "Faster than physics",
    "T507": "Buffered stream",
    "T508": "Foreign traffic",
    "T509": "Steady state",
    "T510": "Estimated tokens",
    "T511": "Speculation on synthetic text",
    "T512": "Stopped early",
    "T513": "What the client adds",
    "T514": "Sent on time",
    "T515": "Balance of the load",
    "T516": "Independent requests",
    "T517": "Answer reached",
}


def each_load(evidence: Evidence) -> Iterator[tuple[Measurement, dict[str, Any]]]:
    """The SLO loads that sent something, each with its name as the subject: the same whatever else was sent."""
    for m in evidence.loads("slo"):
        if m.samples:
            yield m, {"subject": m.load.id, "where": evidence.where("traffic")}


def voids(rules: Iterable[str], status: str) -> tuple[str, ...]:
    """The outcomes of `rules` that could have been faked: "W110:pass"."""
    return tuple(f"{rule}:{status}" for rule in rules)


def finding(rule: str, status: Status, why: str, **rest: Any) -> Finding:
    """A finding under the rule's title."""
    return Finding(rule=rule, title=TITLES[rule], status=status, why=why, **rest)


def doubt(rule: str, why: str, voids: tuple[str, ...], missing: str, **rest: Any) -> Finding:
    """The finding that voids what could have been faked; `missing` says what would settle it."""
    return finding(rule, "inconclusive", why, voids=voids, missing=missing, **rest)


def fine(rule: str, why: str, **rest: Any) -> Finding:
    """The finding that nothing was faked."""
    return finding(rule, "pass", why, **rest)


def skip(rule: str, missing: str, **rest: Any) -> Finding:
    """The finding of a rule that could not look."""
    return finding(rule, "skip", f"Not judged: {missing}.", missing=missing, **rest)
