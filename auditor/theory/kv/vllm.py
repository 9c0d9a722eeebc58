"""vLLM's paged KV cache: one block pool shared by groups of layers (vllm/v1/core/kv_cache_utils.py).

Blocks of all groups have the same number of bytes. A request takes blocks from the same pool for every group.
"""

import math
from dataclasses import dataclass

from auditor.theory.kv.cells import KvPool, all_bytes_per_token, layer_bytes, stage_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["blocks_needed", "capacity", "longest", "pool"]

_BLOCK = 16
_MLA_BLOCK = 64  # FlashMLA's page (vllm/platforms/cuda.py)
_BATCHED_TOKENS = 2048
_TOKENS_FROM_CONCURRENCY = (0, 20, 2)  # from here on the logged token count is concurrency x max_model_len


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers that vLLM manages alike: same reach into the past, same page."""

    group: Layers
    layers: int
    page: float
    block: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the pool is cut: `page_bytes` of all layers of a group for one block, and groups by kind."""

    kinds: tuple[_Kind, ...]
    groups: tuple[int, ...]
    group_size: int
    block_bytes: float


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """The pool that `pool_bytes` per device give; `kv_pool_tokens` (num_gpu_blocks_override x block) overrides it.

    Raises ValueError where neither is known.
    """
    layout = _layout(geometry, settings)
    block = layout.kinds[0].block
    if settings.kv_pool_tokens is not None:
        blocks = settings.kv_pool_tokens // block
    elif pool_bytes is not None:
        blocks = max(0, int(pool_bytes // layout.block_bytes))
    else:
        raise ValueError("vLLM's pool needs its bytes or its number of tokens")
    return KvPool(
        tokens=_tokens(geometry, settings, layout, blocks),
        blocks=blocks,
        block_size=block,
        bytes=blocks * layout.block_bytes,
        bytes_per_token=all_bytes_per_token(geometry, settings),
        rule=_rule(layout, blocks),
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit at once in one rank: blocks / blocks needed by one.

    One block is the null block and never serves a request, so a single request that needs them all does not fit.
    """
    need = blocks_needed(geometry, settings, length)
    blocks = kv.blocks or 0
    return blocks / need if need <= blocks - 1 else max(0, blocks - 1) / need


def blocks_needed(geometry: Geometry, settings: Settings, length: int) -> int:
    """Blocks that one request of `length` tokens takes at its peak, over all groups."""
    return _needed(_layout(geometry, settings), settings, max(1, length))


def longest(geometry: Geometry, settings: Settings, kv: KvPool) -> int:
    """The longest request that fits alone, in whole blocks (what vLLM's "estimated maximum model length" says)."""
    layout = _layout(geometry, settings)
    block = layout.kinds[0].block
    free = (kv.blocks or 0) - 1
    low, high = 0, max(1, free + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _needed(layout, settings, middle * block) <= free else (low, middle)
    return low * block


def _needed(layout: _Layout, settings: Settings, length: int) -> int:
    return sum(
        groups * _blocks_of(kind, settings, length) for kind, groups in zip(layout.kinds, layout.groups, strict=True)
    )


def _blocks_of(kind: _Kind, settings: Settings, length: int) -> int:
    """Full: all tokens. Sliding: window - 1 and the tokens of one step, plus one block because the window's start is
    rarely a block's start. Chunked: the chunk and one step (max_memory_usage_bytes in kv_cache_interface.py).
    """
    step = settings.max_num_batched_tokens or _BATCHED_TOKENS
    window = kind.group.window
    if kind.group.kind == "sliding" and window is not None:
        return math.ceil(min(window - 1 + step, length) / kind.block) + 1
    if kind.group.kind == "chunked" and window is not None:
        return math.ceil(min(window + step, length) / kind.block)
    return math.ceil(length / kind.block)


def _layout(geometry: Geometry, settings: Settings) -> _Layout:
    kinds = _kinds(geometry, settings)
    counts = [kind.layers for kind in kinds]
    group_size = _group_size(counts)
    groups = tuple(math.ceil(count / group_size) for count in counts)
    if len(kinds) == 1:
        return _Layout(kinds, groups, group_size, kinds[0].page)
    return _Layout(kinds, groups, group_size, group_size * max(kind.page / kind.layers for kind in kinds))


def _group_size(counts: list[int]) -> int:
    """Layers of a group: the smallest kind's, or the largest's where padding the others up costs less than half."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def _kinds(geometry: Geometry, settings: Settings) -> tuple[_Kind, ...]:
    """Kinds of layers with their blocks made equal in bytes; `page` is the bytes of one block of all its layers."""
    reaches: dict[tuple[str, int | None], list[Layers]] = {}
    for group in geometry.layers:
        reach = _reach(group, geometry, settings)
        reaches.setdefault(reach, []).append(group)
    base = _base_block(geometry, settings)
    sized = []
    for (kind, _), members in reaches.items():
        layers = sum(stage_layers(group, settings) for group in members)
        token = sum(stage_layers(group, settings) * layer_bytes(group, settings) for group in members)
        shown = members[0] if kind != "full" else _as_full(members[0])
        sized.append((shown, layers + (_draft_layers(settings) if kind == "full" else 0), token, layers))
    widest = max(token / layers for _, _, token, layers in sized)
    kinds = []
    for shown, padded, token, layers in sized:
        per_layer = token / layers
        block = base * max(1, math.floor(widest / per_layer)) if len(sized) > 1 else base
        kinds.append(_Kind(shown, padded, block * per_layer * padded, block))
    # The full kind first: its block is the one that the engine reports.
    return tuple(sorted(kinds, key=lambda kind: kind.group.window is not None))


def _reach(group: Layers, geometry: Geometry, settings: Settings) -> tuple[str, int | None]:
    """What vLLM tells layers apart by. With the hybrid manager off, mixed layers are all kept in full."""
    mixed = len({(g.kind, g.window) for g in geometry.layers}) > 1
    if group.window is None or (mixed and not settings.hybrid_kv_manager):
        return "full", None
    return group.kind, group.window


def _as_full(group: Layers) -> Layers:
    return Layers(
        kind="mla" if group.kind == "mla" else "full",
        count=group.count,
        kv_heads=group.kv_heads,
        qk_head_dim=group.qk_head_dim,
        v_head_dim=group.v_head_dim,
        latent_dim=group.latent_dim,
    )


def _draft_layers(settings: Settings) -> int:
    """MTP and EAGLE drafts keep one full layer of their own, shaped like the target's."""
    return 1 if settings.speculative_tokens > 0 else 0


def _base_block(geometry: Geometry, settings: Settings) -> int:
    if settings.block_size is not None:
        return settings.block_size
    return _MLA_BLOCK if any(group.kind == "mla" for group in geometry.layers) else _BLOCK


def _tokens(geometry: Geometry, settings: Settings, layout: _Layout, blocks: int) -> int:
    """The token count of the start-up log, whose meaning changed with the version."""
    length = settings.max_model_len or geometry.max_position
    if _version(settings.engine_version) >= _TOKENS_FROM_CONCURRENCY and length:
        return int(blocks / _needed(layout, settings, length) * length)
    return blocks // sum(layout.groups) * min(kind.block for kind in layout.kinds)


def _version(text: str | None) -> tuple[int, ...]:
    """ "v0.18.2rc1" -> (0, 18, 2); unknown counts as the newest."""
    if not text:
        return (999,)
    numbers = []
    for part in text.lstrip("v").split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers) or (999,)


def _rule(layout: _Layout, blocks: int) -> str:
    if len(layout.kinds) == 1:
        kind = layout.kinds[0]
        return (
            f"vLLM: pool / ({kind.layers} layers, {kind.page:,.0f} bytes a block of {kind.block}) = {blocks:,} blocks"
        )
    parts = ", ".join(
        f"{groups} x {kind.group.kind}" + (f"({kind.group.window})" if kind.group.window else "")
        for kind, groups in zip(layout.kinds, layout.groups, strict=True)
    )
    cut = f"groups of {layout.group_size} layers ({parts}), {layout.block_bytes:,.0f} bytes a block"
    return f"vLLM: pool / ({cut}) = {blocks:,} blocks"
