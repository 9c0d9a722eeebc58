"""llama.cpp's KV cells: a fixed context for each slot, allocated in full at start (src/llama-kv-cache*.cpp)."""

import math

from auditor.theory.kv.cells import KvPool, all_bytes_per_token, bytes_per_token
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

_PAD = 256
_UBATCH = 512


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """Cells of all slots and the bytes that they take; `pool_bytes` is not asked, the context is fixed by flags.

    Each slot has its context padded to 256 cells; with a unified cache all slots share one context. Sliding layers hold
    min(context, pad256(window + n_ubatch)) cells a slot unless --swa-full. Models whose layers all slide (Mistral 7B
    v0.1, Phi-3) are kept in full: llama.cpp knows windows only as a pattern of both kinds (set_swa_pattern in
    src/llama-hparams.cpp). Raises ValueError with no context known.
    """
    del pool_bytes
    context = settings.max_model_len or geometry.max_position
    if not context:
        raise ValueError("llama.cpp's cells need the context length")
    streams = 1 if settings.kv_unified else max(1, settings.slots or 1)
    cells = _pad(context)
    mixed = any(group.window is None for group in geometry.layers)
    size = sum(
        _cells(group.window if mixed else None, cells, settings) * bytes_per_token(group, settings)
        for group in geometry.layers
    )
    shared = "shared by all slots" if settings.kv_unified else f"x {streams} slots"
    return KvPool(
        tokens=cells * streams,
        blocks=None,
        block_size=None,
        bytes=size * streams,
        bytes_per_token=all_bytes_per_token(geometry, settings),
        rule=f"llama.cpp: {cells:,} cells {shared} = {cells * streams:,} cells, {size * streams:,.0f} bytes",
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens run at once: one a slot, none longer than a slot's context.

    With a unified cache the slots share the cells, so both the slots and the cells bound it.
    """
    del geometry
    slots = max(1, settings.slots or 1)
    if settings.kv_unified:
        return min(float(slots), kv.tokens / max(1, length))
    return float(slots) if length <= kv.tokens // slots else 0.0


def _cells(window: int | None, cells: int, settings: Settings) -> int:
    if window is None or settings.full_swa_cache:
        return cells
    sequences = max(1, settings.slots or 1) if settings.kv_unified else 1
    return min(cells, _pad(window * sequences + (settings.ubatch or _UBATCH)))


def _pad(cells: int) -> int:
    return math.ceil(cells / _PAD) * _PAD
