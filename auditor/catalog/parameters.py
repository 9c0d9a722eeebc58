"""How many parameters a model has, counted from its weight matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.catalog.architectures import Family
from auditor.catalog.feedforward import routed
from auditor.catalog.matrices import matrices
from auditor.theory.kv.geometry import Experts, Indexer, Layers, Recurrent
from auditor.theory.tensors import Part, Tensor

__all__ = ["Counts", "count"]

_ROWS: frozenset[Part] = frozenset({"embedding", "lookup", "head"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Parameters of a language model: `parameters` stored once, without multi-token-prediction layers, `active` those
    that one token passes through in the layer stack.
    """

    tensors: tuple[Tensor, ...]
    experts: Experts | None
    parameters: int
    active: int


def count(
    family: Family,
    facts: Mapping[str, Any],
    layers: Sequence[Layers],
    states: Sequence[Recurrent] = (),
    indexer: Indexer | None = None,
) -> Counts:
    """Count from config facts and the layers that were read from them."""
    tensors = matrices(family, facts, layers, states, indexer)
    own = [tensor for tensor in tensors if not tensor.draft]
    total = sum(tensor.parameters for tensor in own)
    stack = total - sum(tensor.parameters for tensor in own if tensor.part in _ROWS)
    in_experts = sum(tensor.parameters for tensor in own if tensor.part == "experts")
    experts = _experts(facts, in_experts)
    return Counts(
        tensors=tensors,
        experts=experts,
        parameters=total,
        active=stack - in_experts + (experts.parameters * experts.per_token * experts.layers if experts else 0),
    )


def _experts(facts: Mapping[str, Any], parameters: int) -> Experts | None:
    found = routed(facts)
    if found is None:
        return None
    return Experts(
        count=found.count,
        per_token=found.per_token,
        layers=found.layers,
        parameters=parameters // (found.count * found.layers),
    )
