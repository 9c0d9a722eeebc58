"""llama.cpp's KV cells: a fixed context for each slot, allocated in full at start.

Sources: src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp and
llama_model::create_memory; builds at which a rule changed are those of the pull requests named beside them, give or
take a few. ik_llama.cpp, a fork, keeps sliding layers in full (src/llama.cpp, llama_kv_cache_init).
"""

import math
from dataclasses import dataclass, replace

from auditor.theory.kv.cells import KvPool, kv_heads, stage_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.releases import build
from auditor.theory.kv.state import conv_bytes, matrix_bytes
from auditor.theory.settings import Settings

__all__ = ["STEP_CELLS", "UBATCH", "capacity", "cells_at_once", "pool"]

UBATCH = 512
"""Tokens of a micro-batch where no flag says so (-ub)."""
STEP_CELLS = 256
"""Cells in steps of which a context is padded."""


_LATENTS = 5139  # MLA keeps latents instead of every head (#12801)
_WINDOWS = 5430  # sliding layers keep their window (#13194)
_STREAMS = 5913  # a buffer for each slot (#14363); before, all slots share one
_UNPADDED = (6868, 6977)  # no padding (#16812), until it came back (#17046)
_VALUELESS = 7830  # latents are kept once (#19067); before, their first part was kept as values too
_INDEXES = 9411  # index keys of sparse attention

# Architectures that have windows in llama.cpp (load_arch_hparams sets swa_type); Phi-3, Mistral and Qwen are in full.
_WINDOWED = frozenset(
    {
        "AfmoeForCausalLM",
        "Cohere2ForCausalLM",
        "Cohere2MoeForCausalLM",
        "Dots3NoteForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteSWAForCausalLM",
        "LagunaForCausalLM",
        "Lfm2ForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "MellumForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "Olmo3ForCausalLM",
        "Plamo3ForCausalLM",
        "SmallThinkerForCausalLM",
        "Step3p5ForCausalLM",
        "Step3p7FlashForCausalLM",
        "Step3p7ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)

_QUANT_BLOCK = 32  # values of one block of a quantised cache type
_PLAIN = (2.0, 4.0)
_ROTARY = 64  # rotary values in a latent where the model's own rank is not known
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes of one cell on one device: keys and values, of full and of sliding layers."""

    keys: float = 0.0
    values: float = 0.0
    sliding_keys: float = 0.0
    sliding_values: float = 0.0

    @property
    def full(self) -> float:
        return self.keys + self.values

    @property
    def sliding(self) -> float:
        return self.sliding_keys + self.sliding_values


@dataclass(frozen=True, slots=True)
class _Buffers:
    """`count` buffers of `cells` for full and `sliding` for sliding layers; all slots share one where it is one."""

    count: int
    cells: int
    sliding: int


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """Cells of all slots and the bytes that they take: the context is fixed by flags, `pool_bytes` is not asked.

    Where only `kv_pool_bytes` is known, the keys and values as llama.cpp logs them, the cells follow from it. Recurrent
    states (fp32, one a slot and one more for each drafted token) stand beside them. Raises ValueError with neither a
    context nor bytes.
    """
    cell = _cell_bytes(geometry, settings)
    context = settings.max_model_len or (None if settings.kv_pool_bytes is not None else geometry.max_position)
    if context:
        buffers = _allocated(geometry, settings, context)
    elif settings.kv_pool_bytes is not None:
        buffers = _filled(geometry, settings, cell, settings.kv_pool_bytes)
    else:
        raise ValueError("llama.cpp's cells need the context length")
    del pool_bytes
    slots = max(1, settings.slots or 1)
    states = slots * _state_bytes(geometry, settings)
    size = buffers.count * (buffers.cells * cell.full + buffers.sliding * cell.sliding)
    return KvPool(
        tokens=buffers.cells * buffers.count,
        blocks=None,
        block_size=None,
        bytes=size + states,
        bytes_per_token=cell.full + cell.sliding,
        rule=_rule(buffers, cell, slots, states),
        sliding_tokens=buffers.sliding * buffers.count if cell.sliding else None,
        state_slots=slots if geometry.recurrent else None,
        state_bytes=states,
        refusal=_refusal(geometry, settings),
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


# --------------------------------------------------------------------------------------------------------------- cells


def cells_at_once(geometry: Geometry, settings: Settings) -> int:
    """Cells of one buffer, all of which a step's attention goes over; 0 where the context is not known."""
    context = settings.max_model_len or geometry.max_position
    return _allocated(geometry, settings, context).cells if context else 0


def _allocated(geometry: Geometry, settings: Settings, context: int) -> _Buffers:
    """A context for each slot, or one for all; before buffers of their own, slots took their part of one."""
    slots = max(1, settings.slots or 1)
    at = build(settings.engine_version)
    cells = _pad(context, settings)
    if settings.kv_unified or at < _STREAMS:
        whole = cells if settings.kv_unified else cells * slots
        return _Buffers(1, whole, min(whole, _window_cells(geometry, settings, slots)))
    return _Buffers(slots, cells, min(cells, _window_cells(geometry, settings, 1)))


def _filled(geometry: Geometry, settings: Settings, cell: _Bytes, size: float) -> _Buffers:
    """The cells of which the engine logged the bytes."""
    slots = max(1, settings.slots or 1)
    count = 1 if settings.kv_unified or build(settings.engine_version) < _STREAMS else slots
    window = _window_cells(geometry, settings, 1 if count > 1 else slots)
    room = size / count
    if not cell.full + cell.sliding:
        return _Buffers(count, 0, 0)
    cells = round(max(0.0, room - window * cell.sliding) / cell.full) if cell.full else 0
    if cells < window:
        cells = round(room / (cell.full + cell.sliding))
    return _Buffers(count, cells, min(cells, window))


def _window_cells(geometry: Geometry, settings: Settings, sequences: int) -> int:
    """Cells of sliding layers: the window of each sequence that shares the buffer and one micro-batch, padded."""
    window = max((group.window or 0 for group in geometry.layers), default=0)
    return _pad(window * sequences + (settings.ubatch or UBATCH), settings)


def _pad(cells: int, settings: Settings) -> int:
    """Cells in steps of 256; of 32 in older builds without flash attention."""
    at = build(settings.engine_version)
    step = STEP_CELLS
    if at < _UNPADDED[1]:
        step = 1 if at >= _UNPADDED[0] else STEP_CELLS if settings.fused_attention else 32
    return math.ceil(cells / step) * step


# --------------------------------------------------------------------------------------------------------------- bytes


def _cell_bytes(geometry: Geometry, settings: Settings) -> _Bytes:
    keys = values = sliding_keys = sliding_values = 0.0
    for group in geometry.layers:
        one, other = _sides(group, geometry, settings)
        layers = stage_layers(group, settings)
        if _slides(group, geometry, settings):
            sliding_keys, sliding_values = sliding_keys + layers * one, sliding_values + layers * other
        else:
            keys, values = keys + layers * one, values + layers * other
    return _Bytes(keys + _index_bytes(geometry, settings), values, sliding_keys, sliding_values)


def _sides(group: Layers, geometry: Geometry, settings: Settings) -> tuple[float, float]:
    """Bytes of a cell's keys and values in one layer. Latents are keys; every head has its own where there are none."""
    key = settings.key_bytes or settings.kv_bytes
    value = settings.value_bytes or settings.kv_bytes
    at = build(settings.engine_version)
    if group.latent_dim is None:
        heads = kv_heads(group, settings)
        return heads * group.qk_head_dim * key, _value_width(group, geometry, settings) * value
    if not settings.latent_cache or at < _LATENTS:
        heads = geometry.attention_heads
        return heads * group.qk_head_dim * key, heads * group.v_head_dim * value
    rank = geometry.extra.get("kv_lora_rank", group.latent_dim - _ROTARY)
    return group.latent_dim * key, rank * value if at < _VALUELESS else 0.0


def _value_width(group: Layers, geometry: Geometry, settings: Settings) -> int:
    """Values of one cell; without flash attention they are stored across cells, in every layer as in the widest."""
    widths = [kv_heads(g, settings) * g.v_head_dim for g in geometry.layers if g.latent_dim is None]
    return kv_heads(group, settings) * group.v_head_dim if settings.fused_attention else max(widths)


def _index_bytes(geometry: Geometry, settings: Settings) -> float:
    """Index keys as wide as the model's, in the format of all keys."""
    if geometry.indexer is None or build(settings.engine_version) < _INDEXES:
        return 0.0
    layers = -(-geometry.indexer.count // settings.pipeline_parallel)
    return layers * geometry.indexer.width * (settings.key_bytes or settings.kv_bytes)


def _slides(group: Layers, geometry: Geometry, settings: Settings) -> bool:
    if group.window is None or settings.full_swa_cache or build(settings.engine_version) < _WINDOWS:
        return False
    mixed = any(other.window is None for other in geometry.layers)
    return geometry.architecture in _WINDOWED or (not geometry.architecture and mixed)


def _state_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of one slot's states: windows and matrices in fp32, and a copy for each drafted token that may be rolled
    back.
    """
    own = replace(settings, speculative_tokens=0, state_bytes=4.0, conv_bytes=4.0)
    stages = settings.pipeline_parallel
    one = sum(-(-r.count // stages) * (conv_bytes(r, own) + matrix_bytes(r, own)) for r in geometry.recurrent)
    return one * (1 + settings.speculative_tokens)


def _refusal(geometry: Geometry, settings: Settings) -> str | None:
    """llama_init_from_model refuses quantised keys or values whose heads are no multiple of a block."""
    sides = (("K", settings.key_bytes or settings.kv_bytes), ("V", settings.value_bytes or settings.kv_bytes))
    for name, size in sides:
        if size in _PLAIN:
            continue
        for group in geometry.layers:
            head = group.latent_dim or (group.qk_head_dim if name == "K" else group.v_head_dim)
            if head % _QUANT_BLOCK:
                return f"llama.cpp refuses a quantised {name} cache: heads of {head} are no multiple of {_QUANT_BLOCK}"
    return None


def _rule(buffers: _Buffers, cell: _Bytes, slots: int, states: float) -> str:
    def mebibytes(cells: int, keys: float, values: float) -> str:
        size = cells * buffers.count / _MIB
        return f"K {size * keys:,.2f} MiB, V {size * values:,.2f} MiB"

    shared = f" x {slots} slots" if buffers.count > 1 else f" shared by {slots} slots" if slots > 1 else ""
    text = f"llama.cpp: {buffers.cells:,} cells{shared}, {mebibytes(buffers.cells, cell.keys, cell.values)}"
    if cell.sliding:
        sides = mebibytes(buffers.sliding, cell.sliding_keys, cell.sliding_values)
        text += f"; sliding layers {buffers.sliding:,} cells, {sides}"
    return text + (f"; states {states / _MIB:,.2f} MiB" if states else "")
