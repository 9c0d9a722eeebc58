"""LMDeploy's paged KV cache: rule with its source, not checked on a running engine.

Source: BlockManager::GetBlockCount in src/turbomind/models/llama/BlockManager.cc, CacheEngine.get_cache_block_size in
lmdeploy/pytorch/engine/cache_engine.py, TurbomindEngineConfig in lmdeploy/messages.py, 0.7 to 0.11.
"""

from auditor.theory.kv.cells import KvPool, kv_heads, layer_bytes, stage_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["capacity", "pool"]

_BLOCK = 64  # cache_block_seq_len
_QUANTISED = {"int4": 0.5, "int8": 1.0}  # quant_policy 4 and 8, bytes of a value
_SCALES = 4.0  # a 16-bit scale and zero point for each head and token, for keys and for values


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """blocks = pool / bytes of a block over all layers.

    The pool is cache_max_entry_count of what is free once the weights are there (since 0.2.2; of the total before).
    Sliding layers are kept in full. Raises ValueError where no size is known, or for recurrent states, which this rule
    does not cover.
    """
    if geometry.recurrent:
        raise ValueError("LMDeploy's memory for recurrent states is not known here; give a model without them")
    block = settings.block_size or _BLOCK
    token = sum(stage_layers(group, settings) * _layer_bytes(group, settings) for group in geometry.layers)
    if settings.kv_pool_tokens is not None:
        blocks = settings.kv_pool_tokens // block
    elif pool_bytes is not None:
        blocks = max(0, int(pool_bytes // (token * block)))
    else:
        raise ValueError("LMDeploy's pool needs its bytes or its number of tokens")
    return KvPool(
        tokens=blocks * block,
        blocks=blocks,
        block_size=block,
        bytes=blocks * block * token,
        bytes_per_token=token,
        rule=f"LMDeploy (not checked on a running engine): pool / {token * block:,.0f} bytes a block of {block}"
        f" = {blocks:,} blocks",
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit at once in one rank, each in whole blocks."""
    del geometry
    block = kv.block_size or settings.block_size or _BLOCK
    return kv.tokens / (-(-max(1, length) // block) * block)


def _layer_bytes(group: Layers, settings: Settings) -> float:
    """Bytes of one token in one layer: quantised values have a scale and a zero point for each head."""
    size = _QUANTISED.get(settings.kv_cache_dtype)
    if size is None:
        return layer_bytes(group, settings)
    if group.latent_dim is not None:
        return group.latent_dim * size + _SCALES
    return kv_heads(group, settings) * ((group.qk_head_dim + group.v_head_dim) * size + 2 * _SCALES)
