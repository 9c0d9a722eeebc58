"""The words that stand at an SLO's line."""

from auditor.profile import Objective
from auditor.report.harmless import clip
from auditor.units import quantity

__all__ = ["said"]


def said(objective: Objective) -> str:
    """`rag p95 1.5 s`: class, percentile and limit, short enough for a picture."""
    limit = quantity(objective.limit, "tokens/s" if objective.metric == "tps" else "s")
    return " ".join(part for part in (clip(objective.cls or "", 16), objective.percentile, limit) if part)
