"""One row of a batch -> the figures that engines log at start-up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.errors import UsageError
from auditor.instruments.inputs import Inputs, inputs
from auditor.theory import answers
from auditor.theory.kv.pool import KvPool, capacity, kv_pool
from auditor.theory.memory import Memory, memory
from auditor.theory.weights import per_device_bytes
from auditor.units import GIB, in_gib

__all__ = ["brief", "doubt", "memory_of", "weights_of"]


def brief(row: Mapping[str, Any], base: Path | None = None) -> dict[str, Any]:
    """The figures of one row: weights_gib, kv_pool_gib with its band, num_blocks, kv_tokens, max_concurrency.

    Of one device and one data-parallel rank, as engines log them. What cannot be computed is left out, and `error` says
    why; `refusal` says why the engine would not start, `notes` what was assumed and what speaks against a pool that is
    known. Raises UsageError where the row itself is wrong.
    """
    found = inputs(row, base)
    weights = weights_of(found)
    answer: dict[str, Any] = {} if weights is None else {"weights_gib": weights / GIB}
    notes: list[str] = list(found.notes)
    try:
        answer |= _pool(found, notes)
    except (UsageError, ValueError) as error:
        answer["error"] = str(error)
    return answer | ({"notes": list(dict.fromkeys(notes))} if notes else {})


def _pool(found: Inputs, notes: list[str]) -> dict[str, Any]:
    """The figures of the pool; what they assume is added to `notes`."""
    geometry, settings = found.geometry, found.settings
    if found.misnamed and not found.started:
        raise UsageError(found.no_device)
    split = None if settings.pins_pool else memory_of(found)
    kv = kv_pool(geometry, settings, None if split is None else max(0.0, split.pool))
    length = settings.max_model_len or geometry.max_position
    answer: dict[str, Any] = {"kv_pool_gib": (settings.kv_pool_bytes or kv.bytes) / GIB}
    if split is not None:
        sizes = {"": split.pool, "_low": split.pool_low, "_high": split.pool_high}
        answer = {f"kv_pool_gib{end}": size / GIB for end, size in sizes.items()}
        notes += split.notes
    if kv.blocks is not None:
        answer["num_blocks"] = kv.blocks
    answer["kv_tokens"] = kv.tokens
    if length:
        answer["max_concurrency"] = capacity(geometry, settings, kv, length) / settings.data_parallel
    if (said := doubt(found, kv)) is not None:
        notes.append(said)
    elif (why := _refusal(found, kv, split)) is not None:
        answer["refusal"] = why
    return answer


def _refusal(found: Inputs, kv: KvPool, split: Memory | None) -> str | None:
    """Why the engine would not start; a pool that the row says it had proves that it did."""
    if found.started:
        return None
    if split is not None and (split.pool <= 0 or kv.tokens <= 0):
        parts = f"{in_gib(split.weights)} of weights and {in_gib(split.overhead)} for the engine"
        return f"{parts} leave no cache of the {in_gib(split.budget)} of a device that it may use"
    if found.refusal:
        return found.refusal
    if kv.refusal is not None or answers.starts(found.geometry, found.settings, kv):
        return kv.refusal
    length = found.settings.max_model_len or found.geometry.max_position or 0
    longest = answers.longest_alone(found.geometry, found.settings, kv)
    return f"one request of {length:,} tokens (max_model_len) needs more than the pool: {longest:,} tokens fit"


def doubt(found: Inputs, kv: KvPool) -> str | None:
    """The engine's refusal of a pool that the row says it had, which is then no refusal; None where there is none."""
    if kv.refusal is None or not found.started:
        return None
    return f"{kv.refusal} (it started with this pool, so fewer were asked)"


def weights_of(found: Inputs) -> float | None:
    """Bytes of weights on one device; None where only the layers of the cache are known."""
    if found.settings.weight_bytes is None and not found.geometry.parameters:
        return None
    return per_device_bytes(found.geometry, found.settings)


def memory_of(found: Inputs) -> Memory:
    """Memory of one device. Raises UsageError where an input lacks, ValueError where the engine refuses."""
    if found.device is None:
        raise UsageError(found.no_device)
    if weights_of(found) is None:
        raise UsageError("weights_gib: needed where the model is given by kv_layers alone (or give kv_pool_gib)")
    if not found.geometry.vocab_size:
        raise UsageError("model_facts.vocab: needed for the engine's overhead (or give kv_pool_gib)")
    return memory(found.geometry, found.settings, found.device)
