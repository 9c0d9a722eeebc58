"""A pool as its engine tells it, held against the arithmetic: how far apart they are, and what would explain it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.theory.carrying import PoolRange, pool_range
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import KvPool, capacity, kv_pool
from auditor.theory.memory import memory
from auditor.theory.settings import Settings

__all__ = ["AGREES", "Cause", "Figure", "Told", "as_told", "causes", "compare", "implied_share"]

AGREES = 0.02
"""How far computed and told may differ: logs round, and blocks are the minimum over ranks."""

_EXPLAINS = 0.005  # within which a changed setting explains a difference
_LARGE = 1 << 44  # bytes that hold any model's blocks
_SMALL = 100 * 2**20  # bytes below which a size told in GiB with three digits is too coarse
_STEPS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_BLOCKS = (16, 32, 64, 128)
_MODES = ("none", "align", "all")
_RATIOS = (0.1, 0.5, 0.8, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an engine tells of the pool of one rank, `bytes` on one device: of which size it is, and how many requests
    of `length` tokens it holds at once.
    """

    tokens: int | None = None
    blocks: int | None = None
    block_size: int | None = None
    bytes: int | None = None
    requests: float | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure by arithmetic and as told; `low` to `high` is the range of the computed one, the same where it is
    exact. `rule` says how it was computed.
    """

    name: str
    unit: str
    ours: float
    told: float
    low: float
    high: float
    rule: str

    @property
    def off(self) -> float:
        """How much more is computed than told, as a share of what is told."""
        return self.ours / self.told - 1

    @property
    def exact(self) -> bool:
        """Whether nothing in the computed figure is an estimate."""
        return self.low == self.high

    @property
    def agrees(self) -> bool:
        """Whether they differ by no more than 2 %, or than the range of an estimate."""
        return abs(self.off) <= AGREES or (not self.exact and self.low <= self.told <= self.high)


@dataclass(frozen=True, slots=True)
class Cause:
    """A setting that, had it this value, would make the figures agree."""

    field: str
    value: str


def as_told(geometry: Geometry, settings: Settings, told: Told) -> KvPool | None:
    """The pool that is told, with what the engine's own rule adds to it (bytes, sliding tokens, states).

    None where its size is not told or the rule does not take these settings.
    """
    try:
        if settings.engine == "vllm" and told.blocks:
            unit = settings.block_size or kv_pool(geometry, settings, _LARGE).block_size or 1
            return kv_pool(geometry, replace(settings, kv_pool_tokens=told.blocks * unit), None)
        if told.tokens:
            return kv_pool(geometry, replace(settings, kv_pool_tokens=told.tokens, kv_pool_bytes=None), None)
    except ValueError:
        return None
    return None


def compare(geometry: Geometry, settings: Settings, device: Device | None, told: Told) -> tuple[Figure, ...]:
    """The size of the pool and the requests that it holds, computed and told; those of them that both sides give.

    The size is exact where the pool's bytes are known, by a flag or as told, else within the range of memory overheads.
    The requests rest on the blocks that are told, so that they test the arithmetic alone.
    """
    found = _computed(geometry, settings, device, told)
    size = _size(found, told) if found is not None else None
    requests = _requests(geometry, settings, found, told)
    return tuple(figure for figure in (size, requests) if figure is not None)


def _computed(geometry: Geometry, settings: Settings, device: Device | None, told: Told) -> PoolRange | None:
    if told.bytes is not None and told.bytes > _SMALL and not settings.pins_pool:
        settings = replace(settings, kv_pool_bytes=told.bytes)
    try:
        return pool_range(geometry, settings, device)
    except ValueError:
        return None


def _size(found: PoolRange, told: Told) -> Figure | None:
    pools = found.kv, found.low, found.high
    if told.blocks and found.kv.blocks is not None and told.block_size in (None, found.kv.block_size):
        ours, low, high = (float(kv.blocks or 0) for kv in pools)
        return _figure("KV pool", "blocks", (ours, low, high), told.blocks, found.kv.rule)
    if told.tokens:
        ours, low, high = (float(kv.tokens) for kv in pools)
        return _figure("KV pool", "tokens", (ours, low, high), told.tokens, found.kv.rule)
    return None


def _requests(geometry: Geometry, settings: Settings, found: PoolRange | None, told: Told) -> Figure | None:
    if not told.requests or not told.length:
        return None
    own = replace(settings, max_model_len=told.length)
    kv = as_told(geometry, own, told)
    if kv is not None:
        found = PoolRange(kv, kv, kv, True)
    if found is None:
        return None
    try:
        pools = (found.kv, found.low, found.high)
        ours, low, high = (capacity(geometry, own, pool, told.length) / settings.data_parallel for pool in pools)
    except ValueError:
        return None
    blocks = found.kv.blocks
    each = f"{blocks:,} blocks, {blocks / ours:.4g} for each" if blocks and ours else "by the pool's tokens"
    return _figure("at once", f"requests of {told.length:,} tokens", (ours, low, high), told.requests, each)


def _figure(name: str, unit: str, ours: tuple[float, float, float], told: float, rule: str) -> Figure:
    return Figure(name=name, unit=unit, ours=ours[0], low=ours[1], high=ours[2], told=told, rule=rule)


# --------------------------------------------------------------------------------------------------------------- causes


def causes(geometry: Geometry, settings: Settings, device: Device | None, told: Told) -> tuple[Cause, ...]:
    """The settings of which one, changed alone, makes every figure agree, the best fit first; at most two."""
    found: list[tuple[float, int, Cause]] = []
    for cause, changed in _changes(geometry, settings, told):
        figures = compare(geometry, changed, device, told)
        if figures and all(f.agrees if not f.exact else abs(f.off) <= _EXPLAINS for f in figures):
            found.append((max(abs(f.off) for f in figures), len(found), cause))
    return tuple(cause for _, _, cause in sorted(found, key=lambda one: one[:2])[:2])


def _changes(geometry: Geometry, settings: Settings, told: Told) -> Iterator[tuple[Cause, Settings]]:
    """One setting changed at a time: those that people overlook most."""
    if settings.kv_pool_bytes and told.bytes and told.bytes != settings.kv_pool_bytes:
        yield Cause("kv_pool_bytes", str(told.bytes)), replace(settings, kv_pool_bytes=told.bytes)
    yield from _formats(settings)
    yield from _cuts(geometry, settings)
    yield from _states(geometry, settings)
    yield from _devices(settings)
    if settings.speculative_tokens:
        yield Cause("speculative", "off"), replace(settings, speculative_tokens=0, draft_layers=0)
    else:
        yield Cause("speculative", "on"), replace(settings, speculative_tokens=1, draft_layers=1)


def _formats(settings: Settings) -> Iterator[tuple[Cause, Settings]]:
    word, size = ("fp8", 1.0) if settings.kv_bytes > 1.1 else ("auto", 2.0)
    plain = replace(settings, kv_bytes=size, kv_cache_dtype=word, key_bytes=None, value_bytes=None)
    yield Cause("kv_cache_dtype", word), plain
    for name, bits in (("fp8", 8.0), ("awq", 4.156), ("none", 16.0)):
        if abs(bits - settings.weight_bits) > 1 and not settings.pins_pool:
            method = None if name == "none" else name
            yield Cause("quantization", name), replace(settings, weight_bits=bits, quantization=method)


def _cuts(geometry: Geometry, settings: Settings) -> Iterator[tuple[Cause, Settings]]:
    for size in _BLOCKS:
        if size != settings.block_size and settings.engine != "llamacpp":
            yield Cause("block_size", str(size)), replace(settings, block_size=size)
    if all(group.window is None for group in geometry.layers):
        return
    for tokens in _STEPS if settings.engine == "vllm" else ():
        if tokens != settings.max_num_batched_tokens:
            yield Cause("max_num_batched_tokens", str(tokens)), replace(settings, max_num_batched_tokens=tokens)
    for steps in (1, 2) if settings.engine == "vllm" else ():
        if steps != settings.steps_in_flight:
            yield Cause("async_scheduling", "off" if steps == 1 else "on"), replace(settings, steps_in_flight=steps)
    for ratio in _RATIOS if settings.engine == "sglang" else ():
        if ratio != settings.swa_full_tokens_ratio:
            yield Cause("swa_full_tokens_ratio", f"{ratio:g}"), replace(settings, swa_full_tokens_ratio=ratio)
    turned = not settings.hybrid_kv_manager
    yield Cause("hybrid_kv_manager", "on" if turned else "off"), replace(settings, hybrid_kv_manager=turned)


def _states(geometry: Geometry, settings: Settings) -> Iterator[tuple[Cause, Settings]]:
    if not geometry.recurrent:
        return
    for mode in _MODES if settings.engine == "vllm" else ():
        if mode != settings.mamba_cache_mode:
            yield Cause("mamba_cache_mode", mode), replace(settings, mamba_cache_mode=mode)
    for name, size in (("float32", 4.0), ("bfloat16", 2.0)):
        if size != settings.state_bytes:
            yield Cause("mamba_ssm_cache_dtype", name), replace(settings, state_bytes=size)


def _devices(settings: Settings) -> Iterator[tuple[Cause, Settings]]:
    for degree in (settings.tensor_parallel * 2, settings.tensor_parallel // 2):
        if degree and settings.engine != "llamacpp":
            devices = settings.devices * degree // settings.tensor_parallel
            yield Cause("tensor_parallel", str(degree)), replace(settings, tensor_parallel=degree, devices=devices)


def implied_share(geometry: Geometry, settings: Settings, device: Device | None, told: Told) -> float | None:
    """The share of the memory (gpu_memory_utilization, mem_fraction_static) at which the computed pool would be the
    told one, with the overhead that is expected; None where no share does, or a flag fixes the pool.
    """
    kv = as_told(geometry, settings, told)
    if kv is None or device is None or settings.pins_pool or not settings.memory_fraction:
        return None
    found = memory(geometry, settings, device)
    share = settings.memory_fraction + (kv.bytes - found.pool) / found.usable
    return share if 0.05 < share < 1 else None
