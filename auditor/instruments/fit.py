"""`audit fit`: what a deployment's memory holds, from the inputs alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.errors import UsageError
from auditor.instruments.inputs import Inputs, inputs
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.memory import Memory, memory
from auditor.theory.weights import per_device_bytes

__all__ = ["brief"]

_GIB = 1 << 30


def brief(row: Mapping[str, Any], base: Path | None = None) -> dict[str, Any]:
    """The figures of one row: weights_gib, kv_pool_gib with its band, num_blocks, kv_tokens, max_concurrency.

    Of one device and one data-parallel rank, as engines log them. What cannot be computed is left out, and `error` says
    why. Raises UsageError where the row itself is wrong.
    """
    found = inputs(row, base)
    answer: dict[str, Any] = {}
    weights = weights_of(found)
    if weights is not None:
        answer["weights_gib"] = _gib(weights)
    try:
        return answer | _pool(found)
    except UsageError as error:
        return answer | {"error": str(error)}


def weights_of(found: Inputs) -> float | None:
    """Bytes of weights on one device; None where only the layers of the cache are known."""
    if found.settings.weight_bytes is None and not found.geometry.parameters:
        return None
    return per_device_bytes(found.geometry, found.settings)


def _pool(found: Inputs) -> dict[str, Any]:
    geometry, settings = found.geometry, found.settings
    try:
        split = None if settings.pins_pool else _memory(found)
        kv = kv_pool(geometry, settings, None if split is None else max(0.0, split.pool))
        length = settings.max_model_len or geometry.max_position
        requests = capacity(geometry, settings, kv, length) / settings.data_parallel if length else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    answer: dict[str, Any] = {"kv_pool_gib": _gib(settings.kv_pool_bytes or kv.bytes)}
    if split is not None:
        answer = {
            "kv_pool_gib": _gib(split.pool),
            "kv_pool_gib_low": _gib(split.pool_low),
            "kv_pool_gib_high": _gib(split.pool_high),
        }
    told = {"num_blocks": kv.blocks, "kv_tokens": kv.tokens, "max_concurrency": requests}
    return answer | {key: value for key, value in told.items() if value is not None}


def _memory(found: Inputs) -> Memory:
    """Memory of one device. Raises UsageError where an input lacks."""
    if found.device is None:
        raise UsageError(found.no_device)
    if weights_of(found) is None:
        raise UsageError("weights_gib: needed where the model is given by kv_layers alone (or give kv_pool_gib)")
    if not found.geometry.vocab_size:
        raise UsageError("model_facts.vocab: needed for the engine's overhead (or give kv_pool_gib)")
    return memory(found.geometry, found.settings, found.device)


def _gib(size: float) -> float:
    return size / _GIB
