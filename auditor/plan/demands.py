"""How many requests the SLOs of a profile need to be decided."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.profile import Profile, Slo
from auditor.theory.statistics import needed

__all__ = ["SLO_OF", "Demand", "demands"]

MISSES_PLANNED = (2, 10)  # requests over an SLO that the planned n still lets pass: at least, and where cheap
CHEAP = 0.25  # of the budget's requests: what an SLO may take to bear more misses than the fewest
SLO_OF = {
    "W110": "slo.ttft",
    "W111": "slo.tps",
    "W112": "slo.e2e",
    "W113": "slo.error_rate",
    "W114": "slo.first_answer",
}


@dataclass(frozen=True, slots=True)
class Demand:
    """What one SLO needs: the rule, the class (None: all), the percentile as a share, and the fewest requests to
    pass.
    """

    rule: str
    cls: str | None
    quantile: float
    least: int
    wanted: int


def demands(profile: Profile) -> tuple[Demand, ...]:
    """What every SLO of the profile needs to be decided at the profile's confidence."""
    shares = {c.name: c.share for c in profile.traffic.classes}
    found: list[Demand] = []
    for cls, slo in ((None, profile.slo), *profile.slo.classes.items()):
        room = CHEAP * profile.probe.budget.requests * shares.get(cls or "", 1.0)
        for rule, quantile in _quantiles(slo):
            least, wanted = _sizes(quantile, profile.probe.confidence, room)
            found.append(Demand(rule, cls, quantile, least, wanted))
    return tuple(found)


def _quantiles(slo: Slo) -> Iterator[tuple[str, float]]:
    """Each deciding rule of an SLO with the share of requests that must meet it."""
    ceilings = (("W110", slo.ttft), ("W112", slo.e2e), ("W114", slo.first_answer))
    for rule, limits in ceilings:
        yield from ((rule, _share(name)) for name in limits or {})
    yield from (("W111", 1 - _share(name)) for name in slo.tps or {})
    if slo.error_rate:
        yield "W113", 1 - slo.error_rate


def _sizes(quantile: float, confidence: float, room: float) -> tuple[int, int]:
    """The fewest requests that can pass, and how many to send: enough to bear a few misses, more where `room` allows.

    The more misses an n bears, the less often a service that meets its SLO with a small margin ends inconclusive.
    """
    fewest, most = MISSES_PLANNED
    sizes = (needed(quantile, confidence, bad=misses) for misses in range(most, fewest, -1))
    wanted = next((size for size in sizes if size <= room), needed(quantile, confidence, bad=fewest))
    return needed(quantile, confidence), wanted


def _share(percentile: str) -> float:
    """The share that a percentile's name stands for: p95 is 0.95, p99.9 is 0.999, p05 is 0.05."""
    return float(percentile.removeprefix("p")) / 100
