"""What a KV pool carries: the pool with its plausible range, and requests at once over a mix of classes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from auditor.theory.device import Device
from auditor.theory.judging import fits
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import KvPool, kv_pool, residents
from auditor.theory.memory import Memory, memory
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval

__all__ = ["Mix", "PoolRange", "at_once", "carried", "computed_pool", "free_for_cache", "known_pool", "pool_range"]


@dataclass(frozen=True, slots=True)
class PoolRange:
    """The pool of one rank with its lowest and highest plausible size; all the same where it is `exact`."""

    kv: KvPool
    low: KvPool
    high: KvPool
    exact: bool


def known_pool(tokens: int | None, blocks: int | None, block_size: int | None) -> PoolRange | None:
    """The pool that an engine reports, in tokens or in blocks; None where it reports neither."""
    size = tokens or (blocks or 0) * (block_size or 0)
    if not size:
        return None
    cut = blocks or (size // block_size if block_size else None)
    kv = KvPool(tokens=size, blocks=cut, block_size=block_size, bytes=0.0, bytes_per_token=0.0, rule="as served")
    return PoolRange(kv, kv, kv, True)


def computed_pool(geometry: Geometry | None, settings: Settings | None, device: Device | None) -> PoolRange | None:
    """The pool by arithmetic, as `pool_range`; None where an input lacks or the engine refuses the settings."""
    if geometry is None or settings is None:
        return None
    try:
        return pool_range(geometry, settings, device)
    except ValueError:
        return None


def pool_range(geometry: Geometry, settings: Settings, device: Device | None) -> PoolRange:
    """The pool by arithmetic: exact where a flag or the context fixes it, else within the band of memory overheads.

    Raises ValueError where the engine's rule lacks an input, or refuses these settings, in words.
    """
    capped = settings.engine == "sglang" and settings.kv_pool_bytes is None  # its --max-total-tokens only caps
    if device is None or (settings.pins_pool and not capped):
        fixed = kv_pool(geometry, settings, None)
        return PoolRange(fixed, fixed, fixed, True)
    found = memory(geometry, settings, device)
    kv = kv_pool(geometry, settings, max(0.0, found.pool))
    low, high = (_bound(geometry, settings, kv, size) for size in (found.pool_low, found.pool_high))
    return PoolRange(kv, low, high, exact=settings.pins_pool and low.tokens == high.tokens)


def free_for_cache(found: Memory) -> Interval:
    """Bytes of a device that a pool pinned by a flag may take: all that is usable beside weights and overhead."""
    left = found.usable - found.weights
    return Interval(left - found.overhead_high, left - found.overhead, left - found.overhead_low)


def _bound(geometry: Geometry, settings: Settings, kv: KvPool, size: float) -> KvPool:
    """An end of the band; a pool with which the engine would not start holds nothing."""
    try:
        return kv_pool(geometry, settings, max(0.0, size))
    except ValueError:
        return replace(kv, tokens=0, blocks=None if kv.blocks is None else 0, bytes=0.0)


def at_once(geometry: Geometry | None, settings: Settings | None, kv: KvPool, length: float) -> float:
    """How many requests of `length` tokens an instance holds at once: by the engine's own rule where the model is
    known, else by whole blocks of a pool, on each data-parallel rank, that keeps every token in every layer.
    """
    tokens = math.ceil(max(1.0, length))
    if geometry is not None and settings is not None and (settings.engine != "vllm" or kv.blocks is not None):
        return residents(geometry, settings, kv, tokens)
    return fits(kv.tokens, tokens, kv.block_size) * (settings.data_parallel if settings else 1)


def carried(parts: Iterable[tuple[float, float]], shared: float = 0.0) -> float:
    """Requests at once over a mix, from (share of the requests in flight, how many of this kind alone fit).

    In-flight shares are shares of requests weighted by how long they stay (Little's law). `shared` is the share of the
    pool that common prefixes take.
    """
    pairs = list(parts)
    total = sum(weight for weight, _ in pairs)
    if total <= 0 or any(alone <= 0 for weight, alone in pairs if weight > 0):
        return 0.0
    return max(0.0, 1 - shared) / sum(weight / total / alone for weight, alone in pairs if weight > 0)


@dataclass(frozen=True, slots=True)
class Mix:
    """The requests in flight: `parts` are (share of them, tokens that one holds), `prefixes` the tokens kept once."""

    parts: tuple[tuple[float, float], ...]
    prefixes: float = 0.0

    def carried(self, geometry: Geometry | None, settings: Settings | None, kv: KvPool) -> float:
        """How many of them a pool holds at once."""
        alone = [(weight, at_once(geometry, settings, kv, held)) for weight, held in self.parts]
        return carried(alone, self.prefixes / max(1, kv.tokens))
