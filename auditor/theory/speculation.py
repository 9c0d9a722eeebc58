"""Speculative decoding: how many tokens a step yields, and what drafting them reads."""

from dataclasses import dataclass

from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings
from auditor.theory.work import streamed

__all__ = ["Yield", "drafting_bytes", "yield_of"]

# Chance that a drafted token is accepted once those before it were: 0.6 to 0.8 for trained drafters, and the ends of
# what traffic makes of it (Leviathan et al., arXiv 2211.17192, table 3; Li et al., EAGLE-3, arXiv 2503.01840, table 1).
_LIKELY, _LOW, _HIGH = 0.70, 0.50, 0.85


@dataclass(frozen=True, slots=True)
class Yield:
    """Tokens that a step yields for each sequence: likely, and the ends of an 80 % band; all 1 without drafting."""

    likely: float
    low: float
    high: float


def yield_of(settings: Settings) -> Yield:
    """(1 - a^(k + 1)) / (1 - a) for k drafted tokens accepted with chance a each (Leviathan et al., equation 1)."""
    drafted = settings.speculative_tokens
    return Yield(*((1 - chance ** (drafted + 1)) / (1 - chance) for chance in (_LIKELY, _LOW, _HIGH)))


def drafting_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes that one device reads to draft a step's tokens: for each the draft's layers, taken to be as wide as the
    model's own, and the head. Drafts without layers (n-grams) read none.
    """
    layers = settings.draft_layers if settings.draft_layers is not None else 1
    if settings.speculative_tokens <= 0 or layers <= 0:
        return 0.0
    dense, experts = streamed(geometry, settings)
    head = settings.plain_bytes * geometry.embedding_parameters / settings.tensor_parallel
    used = geometry.experts.per_token / geometry.experts.count if geometry.experts else 0.0
    stack = max(0.0, dense - head / settings.pipeline_parallel) + used * experts
    each = stack * settings.pipeline_parallel / max(1, geometry.layer_count)
    return settings.speculative_tokens * (layers * each + head)
