"""TensorRT-LLM's paged KV cache: rule with its source, not checked on a running engine.

Source: tensorrt_llm/_torch/pyexecutor/resource_manager.py (KVCacheManager.calculate_max_num_blocks and
calculate_max_num_blocks_for_vswa, get_cache_bytes_per_token), 1.x.
"""

from auditor.theory.kv.cells import KvPool, attention_parallel, layer_bytes, stage_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

_PAGE = 32  # tokens_per_block of KvCacheConfig


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """blocks = pool / bytes of a block over all layers; max_tokens caps them.

    The pool is free_gpu_memory_fraction of what is free once weights and activations are there. With windows given
    (`window_pools`) each window size has an equal part of the memory for its own layers, and max_tokens is not looked
    at; the reported pool is then the full layers'. Raises ValueError where no size is known, or for recurrent states,
    which this rule does not cover.
    """
    if geometry.recurrent:
        raise ValueError("TensorRT-LLM's memory for recurrent states is not known here; give a model without them")
    page = settings.block_size or _PAGE
    windows = _windows(geometry, settings)
    full = windows[-1][1]
    part = None if pool_bytes is None else max(0.0, pool_bytes) / len(windows)
    counts = [] if part is None else [int(part // (full * page))]
    if settings.kv_pool_tokens is not None and len(windows) == 1:
        counts.append(settings.kv_pool_tokens // page)
    if not counts:
        raise ValueError("TensorRT-LLM's pool needs its bytes or its number of tokens")
    blocks = min(counts)
    sliding = [int((part or 0.0) // (size * page)) * page for _, size in windows[:-1]]
    token = sum(size for _, size in windows)
    others = sum(count * size for count, (_, size) in zip(sliding, windows[:-1], strict=True))
    return KvPool(
        tokens=blocks * page,
        blocks=blocks,
        block_size=page,
        bytes=blocks * page * full + others,
        bytes_per_token=token,
        rule=f"TensorRT-LLM (not checked on a running engine): pool / {len(windows)} / {full * page:,.0f} bytes a block"
        f" = {blocks:,} blocks",
        sliding_tokens=min(sliding) if sliding else None,
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit in one rank, each in whole blocks; the scarcest window decides."""
    page = kv.block_size or settings.block_size or _PAGE
    tokens = max(1, length)
    fits = kv.tokens / _paged(tokens, page)
    if kv.sliding_tokens is not None:
        window = max(window for window, _ in _windows(geometry, settings)[:-1] if window is not None)
        fits = min(fits, kv.sliding_tokens / _paged(min(tokens, window), page))
    return fits


def _windows(geometry: Geometry, settings: Settings) -> list[tuple[int | None, float]]:
    """Window sizes with the bytes of one token in their layers, the widest reach last."""
    sizes: dict[int | None, float] = {}
    for group in geometry.layers:
        reach = group.window if settings.window_pools else None
        sizes[reach] = sizes.get(reach, 0.0) + stage_layers(group, settings) * _layer_bytes(group, settings)
    widest = max(sizes, key=lambda window: (window is None, window or 0))
    if geometry.indexer is not None:
        sizes[widest] += -(-geometry.indexer.count // settings.pipeline_parallel) * geometry.indexer.token_bytes
    return sorted(sizes.items(), key=lambda item: (item[0] is None, item[0] or 0))


def _layer_bytes(group: Layers, settings: Settings) -> float:
    """Bytes of one token in one layer: heads are divided over TP and rounded up."""
    if group.latent_dim is not None:
        return layer_bytes(group, settings)
    heads = -(-group.kv_heads // attention_parallel(settings))
    return heads * (group.qk_head_dim + group.v_head_dim) * settings.kv_bytes


def _paged(tokens: int, page: int) -> int:
    return -(-tokens // page) * page
