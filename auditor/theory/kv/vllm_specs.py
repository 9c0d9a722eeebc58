"""What vLLM keeps for each layer: a page of so many tokens and bytes (vllm/v1/kv_cache_interface.py)."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from auditor.theory.kv.cells import draft_layers, kv_heads, layer_bytes
from auditor.theory.kv.geometry import Geometry, Indexer, Layers, Recurrent
from auditor.theory.kv.releases import release
from auditor.theory.kv.state import state_bytes
from auditor.theory.settings import Settings

__all__ = ["FULL", "Kept", "Model", "Spec", "layers_kept", "on_stages", "token_bytes"]

FULL = frozenset({"full", "mla", "indexer"})
"""Kinds that keep every token of a request."""

_BLOCK = 16
_MLA_BLOCK = 64  # FlashMLA's page
_CHUNK = {"mamba1": 2048, "mamba2": 256}  # ModelConfig.get_mamba_chunk_size; mamba_ssm's default for Mamba-2

_WHOLE = Layers(kind="full", count=1, kv_heads=1, qk_head_dim=256, v_head_dim=256)

# First releases of rules.
_STATES_IN_BLOCKS = (0, 10)  # recurrent state lives in pages as keys and values do
_OWN_VALUE_SIZE = (0, 20)  # values may be narrower than keys; before, models padded them
_KERNEL_ASKS = (0, 20)  # a hybrid's block is a multiple of the kernel's instead of a fixed one
_WIDE_MLA_BLOCK = (0, 27)  # ... of 128 with MLA
_BLACKWELL_STEP = ((0, 11, 1), (0, 18))  # FlashInfer on Blackwell read heads of 256 in 32 tokens
_SLIDING_SMALLEST = ((0, 26), (0, 30))  # sliding layers start from the kernel's smallest block
_ONE_STATE_MODE = (0, 32)  # "all" is gone
_LATENTS = (0, 7, 1)  # before, MLA's keys and values were stored for every head, padded to FlashAttention's 256
_PACKED_BY_DEFAULT = (0, 11, 1)  # until here sparse MLA stored packed fp8 unless told otherwise


@dataclass(frozen=True, slots=True)
class Spec:
    """The cache of one layer: `block` tokens take `page` bytes. `shape` tells apart what has equal pages."""

    kind: str
    block: int
    page: int
    window: int | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """What of a geometry decides its pages: `length` is the longest request, `chunk` of the scan (0: not told),
    `drafts` layers that drafting adds.
    """

    layers: tuple[Layers, ...]
    recurrent: tuple[Recurrent, ...]
    indexer: Indexer | None
    heads: int
    length: int | None
    chunk: int
    drafts: int

    @classmethod
    def of(cls, geometry: Geometry, settings: Settings) -> "Model":
        """The model as served: a request is never longer than max_model_len."""
        length = settings.max_model_len or geometry.max_position
        chunk = geometry.extra.get("mamba_chunk_size", 0)
        heads, drafts = geometry.attention_heads, draft_layers(geometry, settings)
        return cls(geometry.layers, geometry.recurrent, geometry.indexer, heads, length, chunk, drafts)

    @property
    def depth(self) -> int:
        """Hidden layers that are known to the cache, those that only read another's included."""
        attention = sum(group.count + group.readers for group in self.layers)
        return attention + sum(layer.count for layer in self.recurrent)


@dataclass(frozen=True, slots=True)
class Kept:
    """`layers` of the model and `drafts` of its draft that share a spec."""

    spec: Spec
    layers: int
    drafts: int = 0

    @property
    def count(self) -> int:
        """Layers in all."""
        return self.layers + self.drafts


def layers_kept(model: Model, settings: Settings) -> list[Kept]:
    """Every layer's spec, attention first; none for a model without attention and state."""
    version = release(settings.engine_version)
    recurrent = model.recurrent if version >= _STATES_IN_BLOCKS else ()
    block = _block(model, settings, version)
    kept = [Kept(_attention(group, model, settings, version, block), group.count) for group in model.layers]
    if kept and model.drafts:
        first = next((i for i, layer in enumerate(kept) if layer.spec.kind in FULL), 0)
        kept[first] = replace(kept[first], drafts=model.drafts)
    if model.indexer is not None:
        keys = model.indexer.token_bytes
        kept.append(Kept(Spec("indexer", block, block * keys, None, (keys,)), model.indexer.count, model.drafts))
    kept += [Kept(_attention(group, model, settings, version, block), 0, group.count) for group in settings.draft]
    page = max((layer.spec.page for layer in kept if layer.spec.kind in FULL), default=0)
    kept += [Kept(_state(layer, model, settings, block, page), layer.count) for layer in recurrent]
    return [layer for layer in kept if layer.count]


def token_bytes(group: Layers, model: Model, settings: Settings) -> float:
    """Bytes that one token takes in one attention layer on one device, as this release stores it."""
    version = release(settings.engine_version)
    if group.latent_dim is not None:
        if version < _LATENTS and model.heads:
            return layer_bytes(replace(_WHOLE, kv_heads=model.heads), settings)
        return layer_bytes(group, _sparse(settings, version) if model.indexer else settings)
    wider = group.qk_head_dim - group.v_head_dim if version < _OWN_VALUE_SIZE else 0
    return layer_bytes(group, settings) + kv_heads(group, settings) * max(0, wider) * settings.kv_bytes


def _sparse(settings: Settings, version: tuple[int, ...]) -> Settings:
    """Sparse MLA serves fp8 in DeepSeek's packed format (DeepseekV32ForCausalLM in model_executor/models/config.py,
    later _canonicalize_sparse_mla_kv_cache_dtype); "fp8_e4m3" stands for the plain one of FlashInfer on Blackwell.
    """
    word = settings.kv_cache_dtype
    packed = word == "fp8" or (word == "auto" and version < _PACKED_BY_DEFAULT)
    return replace(settings, kv_cache_dtype="fp8_ds_mla") if packed else settings


def _attention(group: Layers, model: Model, settings: Settings, version: tuple[int, ...], block: int) -> Spec:
    sliding = group.kind == "sliding" and _SLIDING_SMALLEST[0] <= version < _SLIDING_SMALLEST[1]
    tokens = _BLOCK if sliding else block
    shape = (kv_heads(group, settings), group.qk_head_dim, group.v_head_dim, group.latent_dim or 0)
    return Spec(group.kind, tokens, round(tokens * token_bytes(group, model, settings)), group.window, shape)


def on_stages(layers: int, depth: int, stages: int) -> list[int]:
    """The pipeline stage of each of a kind's layers, which are taken to be spread evenly over the model's depth.

    get_pp_indices in vllm/distributed/utils.py: what does not divide goes to the stages before the last, from behind.
    """
    each, rest = divmod(depth, stages)
    sizes = [each + (stages - 1 - rest <= stage < stages - 1) for stage in range(stages)]
    ends = list(accumulate(sizes))
    return [bisect_right(ends, (2 * layer + 1) * depth // (2 * layers)) for layer in range(layers)]


# ------------------------------------------------------------------------------------------------------------- hybrids


def _block(model: Model, settings: Settings, version: tuple[int, ...]) -> int:
    """Tokens of an attention block: as set, in hybrids so many more that its page holds one recurrent state.

    HybridAttentionMambaModelConfig in vllm/model_executor/models/config.py, since 0.20 _align_hybrid_block_size in
    vllm/platforms/interface.py: multiples of the kernel's block (16, on Blackwell 32 with heads of 256; 64 or 128 with
    MLA), or of the scan's chunk where every block's state is kept ("all").
    """
    latent = any(group.kind == "mla" for group in model.layers)
    block = settings.block_size or (_MLA_BLOCK if latent else _BLOCK)
    if not model.recurrent or not model.layers or version < _STATES_IN_BLOCKS:
        return block
    full = [group for group in model.layers if group.kind in FULL] or model.layers
    primary = max(token_bytes(group, model, settings) for group in full)
    state = max(round(state_bytes(layer, settings)) for layer in model.recurrent)
    step = _alignment(block, version, latent, _reads_32(full, settings, version))
    if settings.mamba_cache_mode == "all" and version < _ONE_STATE_MODE:
        step = math.lcm(_chunk(model), step)
    return max(block, step * math.ceil(state / (step * primary))) if state else block


def _alignment(block: int, version: tuple[int, ...], latent: bool, twice: bool) -> int:
    if version < _KERNEL_ASKS:
        return _MLA_BLOCK if latent else _BLOCK * (1 + twice)
    return max(_BLOCK, block, 128 if latent and version >= _WIDE_MLA_BLOCK else 0)


def _reads_32(full: Sequence[Layers], settings: Settings, version: tuple[int, ...]) -> bool:
    """Whether FlashInfer, the default on Blackwell's data-centre GPUs, needs the wider step."""
    blackwell = settings.capability is not None and settings.capability[0] == 10
    since, until = _BLACKWELL_STEP
    return blackwell and since <= version < until and any(group.qk_head_dim == 256 for group in full)


def _chunk(model: Model) -> int:
    """The chunk of the scan, from the model's config where it says one."""
    return model.chunk or max(_CHUNK.get(layer.kind, _CHUNK["mamba1"]) for layer in model.recurrent)


def _state(layer: Recurrent, model: Model, settings: Settings, block: int, page: int) -> Spec:
    """A state in a page padded to the attention layers'."""
    shape = (layer.heads, layer.head_dim, layer.state_size, layer.groups, layer.conv_kernel)
    size = round(state_bytes(layer, settings))
    return Spec(layer.kind, _state_block(model, settings, block), max(size, page), None, shape)


def _state_block(model: Model, settings: Settings, block: int) -> int:
    """Tokens that one state stands for: a block where states are kept for prefixes, else the longest request."""
    if settings.mamba_cache_mode in ("all", "align"):
        return block
    return model.length or block
