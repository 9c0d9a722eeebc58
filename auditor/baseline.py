"""The runs before this one: read from their folders, refused where they measured something else, held against it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from auditor import store
from auditor.compare import Against, compare, other_traffic
from auditor.errors import UsageError
from auditor.evidence import Evidence

__all__ = ["beside", "read"]


def read(folders: Sequence[Path], evidence: Evidence | None = None) -> tuple[Against, ...]:
    """The runs saved in these folders; with `evidence` only those that asked the same of the service.

    Raises UsageError in one line for a folder that holds no run, one without requests at the target, or other traffic.
    """
    found = tuple(Against(str(folder), store.load(folder)) for folder in folders)
    for base in found:
        if not base.evidence.requests():
            raise UsageError(f"{base.name}: this run measured no request at the target load; choose another one")
        if evidence is not None and (differs := other_traffic(base.evidence, evidence)) is not None:
            raise UsageError(f"{base.name}: {_unlike(differs, evidence)}")
    return found


def _unlike(differs: str, evidence: Evidence) -> str:
    """What of a baseline is not as in the run, and what to do."""
    if differs == "metrics_version":
        return "its numbers mean something else (metrics_version) than this program's; measure the baseline again"
    place = evidence.where(differs) or "the run"
    return f"{differs} is not that of {place}; choose a baseline of the same traffic"


def beside(evidence: Evidence, baselines: Sequence[Against], min_effect: float) -> Evidence:
    """The evidence with what it comes to beside these runs; as it is where there are none."""
    if not baselines:
        return evidence
    return replace(evidence, compared=compare(baselines, evidence, min_effect))
