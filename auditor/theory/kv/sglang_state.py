"""SGLang's slots for recurrent states: taken off the memory before the token pool, and a bound on running requests.

Sources: handle_max_mamba_cache in srt/model_executor/model_runner.py (0.5.4) and model_runner_kv_cache_mixin.py (0.5.7
to 0.5.16), srt/mem_cache/kv_cache_configurator.py (from 0.5.17); shapes and formats in srt/configs/mamba_utils.py.
"""

from dataclasses import dataclass, replace

from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry, Recurrent
from auditor.theory.kv.releases import release
from auditor.theory.kv.state import conv_bytes, matrix_bytes
from auditor.theory.settings import Settings

__all__ = ["States", "asked_requests", "slot_bytes", "slots_per_request", "states"]

_SHARED = (0, 5, 4)  # from here on slots share memory with tokens by --mamba-full-memory-ratio, and prefixes keep some
_MAMBA2_PREFIXES = (0, 5, 7)  # prefix caching for Mamba-2 models too; drafts' states are reserved before the share
_BUFFERED = (0, 5, 13)  # strategy "auto" tracks with two more slots a request ("extra_buffer")
_PADDED = (0, 5, 17)  # the padding slot and the drafts' states are counted in the share

_CONV_BYTES = 2.0  # SGLANG_MAMBA_CONV_DTYPE is bfloat16 whatever the model computes in
_MATRIX_BYTES = 4.0  # --mamba-ssm-dtype is float32 where neither flag nor config says otherwise
_UNLIMITED = 2048  # max_running_requests that SGLang falls back to: a value from here on was not asked for
_SPECULATIVE_REQUESTS = 48  # max_running_requests under speculation where no flag sets it
_FIXED_SLOTS = 512  # before slots shared memory, where no flag limited the requests


@dataclass(frozen=True, slots=True)
class States:
    """State slots of one rank, the bytes that they take (padding slot and drafts' states included) and what is left
    for tokens.
    """

    slots: int | None
    bytes: float
    left: float | None


def slot_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of one slot on one device: every recurrent layer of the stage that holds most of them."""
    stages = settings.pipeline_parallel
    return sum(-(-layer.count // stages) * _layer_bytes(layer, settings) for layer in geometry.recurrent)


def slots_per_request(geometry: Geometry, settings: Settings) -> int:
    """Slots that a running request may need: one, three where prefixes keep states, five with tracking buffers.

    _calculate_mamba_ratio: max_running_requests is at most slots / this.
    """
    at = release(settings.engine_version)
    mamba2 = any(layer.kind == "mamba2" for layer in geometry.recurrent)
    if not settings.prefix_caching or at < _SHARED or (mamba2 and at < _MAMBA2_PREFIXES):
        return 1
    short = all(layer.kind == "short_conv" for layer in geometry.recurrent)
    return 5 if at >= _BUFFERED and not short else 3


def asked_requests(settings: Settings) -> int | None:
    """--max-running-requests of one rank, where the value is a flag's and not the engine's fallback."""
    asked = settings.max_num_seqs
    return asked if asked and asked < _UNLIMITED else None


def states(geometry: Geometry, settings: Settings, room: float | None) -> States:
    """Slots out of `room` bytes of static memory, or as a flag sets them.

    `kv_pool_bytes`, where set, are the tokens' alone as SGLang logs them, so `room` is then not divided.
    """
    per = slot_bytes(geometry, settings)
    if not per:
        return States(None, 0.0, room)
    logged = settings.kv_pool_bytes is not None
    whole = None if room is None else room * (1 + settings.mamba_full_ratio) if logged else room
    slots, drafts = _slots(geometry, settings, per, whole)
    if slots is None:
        return States(None, 0.0, room)
    taken = (slots + 1) * per + drafts
    if room is None or logged:
        return States(slots, taken, room)
    padding = per if release(settings.engine_version) >= _PADDED else 0.0
    return States(slots, taken, max(0.0, room - slots * per - padding - drafts))


def _slots(geometry: Geometry, settings: Settings, per: float, room: float | None) -> tuple[int | None, float]:
    """Slots and the bytes of states that drafts keep for verification."""
    at, drafted = release(settings.engine_version), settings.speculative_tokens
    asked = asked_requests(settings)
    running = asked or _SPECULATIVE_REQUESTS
    ratio = slots_per_request(geometry, settings)
    fixed = settings.mamba_slots // _inner_ranks(settings) if settings.mamba_slots else None
    if fixed is None and (ratio == 1 and asked):
        fixed = asked
    if fixed is None and at < _SHARED:
        fixed = _FIXED_SLOTS
    if fixed is not None:
        kept = min(running, fixed // ratio) + 1 if at >= _PADDED else running
        return fixed, per * kept * drafted
    if room is None:
        return None, 0.0
    return _fitted(settings, per, room, running, ratio)


def _fitted(settings: Settings, per: float, room: float, running: int, ratio: int) -> tuple[int, float]:
    """Slots that the states' share of memory holds, ratio / (1 + ratio) of it, and the drafts' bytes."""
    at, drafted = release(settings.engine_version), settings.speculative_tokens
    part = settings.mamba_full_ratio / (1 + settings.mamba_full_ratio)
    if at < _MAMBA2_PREFIXES:
        slots = max(0, int(room * part // (per * (1 + drafted))))
        return slots, per * slots * drafted
    if at < _PADDED:
        drafts = per * running * drafted
        return max(0, int((room - drafts) * part // per)), drafts
    slots = max(0, int((room * part - per * (1 + drafted)) // (per * (1 + drafted / ratio))))
    return slots, per * (min(running, slots // ratio) + 1) * drafted if drafted else 0.0


def _layer_bytes(layer: Recurrent, settings: Settings) -> float:
    """One layer's window of conv_kernel - 1 columns, drafts or not, and its matrix, in SGLang's own formats."""
    element = settings.state_bytes or layer.state_bytes or _MATRIX_BYTES
    window = settings.conv_bytes or _CONV_BYTES
    own = replace(settings, speculative_tokens=0, state_bytes=element, conv_bytes=window)
    return conv_bytes(layer, own) + matrix_bytes(layer, own)


def _inner_ranks(settings: Settings) -> int:
    """Data-parallel ranks inside the TP group, which share --max-mamba-cache-size."""
    return max(1, settings.tensor_parallel // attention_parallel(settings))
