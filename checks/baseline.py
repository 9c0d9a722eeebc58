"""How a run stands to the saved ones it is held against."""

from collections.abc import Iterator
from typing import Any

from auditor.compared import Change, Comparison, Outcome
from auditor.evidence import Evidence, Number, Status

__all__ = ["judged"]

_STATUS: dict[Outcome, Status] = {"worse": "fail", "unclear": "inconclusive", "same": "pass", "better": "pass"}


def judged(evidence: Evidence) -> Iterator[tuple[Status, str, dict[str, Any]]]:
    """Status, why and the rest of the finding; nothing where no baseline was named."""
    found = evidence.compared
    if found is None:
        return
    rest: dict[str, Any] = {"deciding": True, "severity": "high", "where": evidence.where("traffic")}
    if found.telling:
        rest["measured"] = _number(found.telling[0])
        rest["required"] = Number.of("slower by less than", found.telling[0].counts, "share", "declared")
        told = [c for c in found.changes if (c.deciding or c.status == "worse") and c is not found.telling[0]]
        rest["numbers"] = tuple(map(_number, told))
    if found.status == "worse":
        rest["remedies"] = _remedies(found)
    yield _STATUS[found.status], found.why, rest | {"missing": found.missing}


def _number(change: Change) -> Number:
    return Number(
        name=change.name,
        value=change.change,
        unit="share",
        provenance="measured",
        low=change.low,
        high=change.high,
        n=min(change.n_old, change.n_new),
        note="not shown to be the same" if change.status == "unclear" else change.status,
    )


def _remedies(found: Comparison) -> tuple[str, ...]:
    """What differs is the first suspect; where nothing does, the machine or its other users."""
    if found.differences:
        return tuple(f"look at what changed: {text}" for text in found.differences[:3])
    return ("no setting differs: look at the machine, its other users and the software beneath the engine",)
