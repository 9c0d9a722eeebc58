"""The KV pool by the rules of the engine in use, and how many requests it carries."""

from collections.abc import Callable

from auditor.theory.kv import llamacpp, lmdeploy, sglang, trtllm, vllm
from auditor.theory.kv.cells import KvPool, all_bytes_per_token
from auditor.theory.kv.compressed import refused
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["KvPool", "capacity", "kv_pool", "residents"]

_PAGE = 32
_COMPRESSING = ("vllm", "sglang")  # engines whose pools for compressed caches are known

_Pool = Callable[[Geometry, Settings, float | None], KvPool]
_Capacity = Callable[[Geometry, Settings, KvPool, int], float]


def kv_pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """The pool of one data-parallel rank. Without `pool_bytes` (per device) the settings must fix it.

    Raises ValueError where the engine's rule lacks an input (no bytes, no tokens and no context) or is not known.
    """
    size = pool_bytes if pool_bytes is not None else settings.kv_pool_bytes
    if settings.engine not in _COMPRESSING:
        refused(geometry, settings.engine)
    return _POOLS.get(settings.engine, _paged)(geometry, settings, size)


def capacity(geometry: Geometry, settings: Settings, pool: KvPool, length: int) -> float:
    """How many requests of `length` tokens (prompt and reply) fit at once in the instance, over all its DP ranks.

    Below one where a single request does not fit in a rank.
    """
    rank = _CAPACITIES.get(settings.engine, _paged_capacity)(geometry, settings, pool, length)
    return rank * settings.data_parallel


def residents(geometry: Geometry, settings: Settings, pool: KvPool, length: int) -> float:
    """How many requests of `length` tokens live at once in the instance, over all its DP ranks, as it serves them.

    Of vLLM's sliding layers a request takes more while its prompt is read than once it decodes, and few read at a time;
    `capacity` counts each at its peak, as vLLM's log does. The other engines' rules know no such peak.
    """
    if settings.engine != "vllm":
        return capacity(geometry, settings, pool, length)
    return vllm.residents(geometry, settings, pool, length) * settings.data_parallel


def _paged(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """Plain paging, every layer in full: engines whose own rule is unknown."""
    page = settings.block_size or _PAGE
    token = all_bytes_per_token(geometry, settings)
    if settings.kv_pool_tokens is not None:
        blocks = settings.kv_pool_tokens // page
    elif pool_bytes is not None:
        blocks = max(0, int(pool_bytes // (token * page)))
    else:
        raise ValueError("the pool needs its bytes or its number of tokens")
    return KvPool(
        tokens=blocks * page,
        blocks=blocks,
        block_size=page,
        bytes=blocks * page * token,
        bytes_per_token=token,
        rule=f"plain paging (not checked on a running engine): pool / {token * page:,.0f} bytes = {blocks:,} blocks",
    )


def _paged_capacity(geometry: Geometry, settings: Settings, pool: KvPool, length: int) -> float:
    del geometry
    page = settings.block_size or _PAGE
    return pool.tokens / (-(-max(1, length) // page) * page)


_POOLS: dict[str, _Pool] = {
    "vllm": vllm.pool,
    "sglang": sglang.pool,
    "llamacpp": llamacpp.pool,
    "trtllm": trtllm.pool,
    "lmdeploy": lmdeploy.pool,
}
_CAPACITIES: dict[str, _Capacity] = {
    "vllm": vllm.capacity,
    "sglang": sglang.capacity,
    "llamacpp": llamacpp.capacity,
    "trtllm": trtllm.capacity,
    "lmdeploy": lmdeploy.capacity,
}
