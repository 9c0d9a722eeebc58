"""Where a service that failed under load would pass: what was measured below the target, and what arithmetic adds."""

from collections.abc import Iterator
from typing import Any

from auditor.evidence import Evidence, Number, Status

__all__ = ["below_the_target"]


def below_the_target(evidence: Evidence) -> Iterator[tuple[Status, str, dict[str, Any]]]:
    """Status, why and the rest of the finding; nothing where no lighter load was sought. It never decides."""
    nearest = evidence.nearest
    if nearest is None:
        return
    numbers = tuple(
        Number(
            name=f"{reading.path} at {point.level}",
            value=reading.value,
            unit=reading.unit,
            provenance="measured",
            low=reading.low,
            high=reading.high,
            n=reading.n,
            note=f"limit {reading.limit:g}, {reading.status}",
        )
        for point in nearest.points
        for reading in point.readings
    )
    sentence = nearest.sentence
    rest: dict[str, Any] = {
        "numbers": numbers,
        "where": evidence.where("traffic.target_concurrency"),
        "severity": "low",
    }
    if nearest.found is None:
        rest["missing"] = "a level that passes: raise probe.budget, or run audit capacity"
    yield (
        "pass" if nearest.found is not None else "inconclusive",
        f"{sentence[:1].upper()}{sentence[1:]}",
        rest,
    )
