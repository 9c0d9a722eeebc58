"""Asked of a KV cache: requests at once, what rounding wastes, which context fits, what grouped heads save."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from auditor.theory.carrying import Mix, PoolRange, at_once
from auditor.theory.judging import largest
from auditor.theory.kv.cells import all_bytes_per_token, layer_bytes, stage_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.pool import KvPool, capacity, residents
from auditor.theory.kv.state import all_state_bytes
from auditor.theory.memory import Memory
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval

__all__ = [
    "LONGEST",
    "Holding",
    "Saving",
    "Split",
    "Waste",
    "held_bytes",
    "longest_alone",
    "longest_together",
    "requests",
    "saving",
    "share_used",
    "split",
    "starts",
    "waste",
]

LONGEST = 1 << 24
"""Tokens beyond which no context is looked for: whatever fits this fits any request."""


def requests(geometry: Geometry, settings: Settings, pool: PoolRange, mix: Mix) -> Interval:
    """Requests of a mix that an instance holds at once, over all its ranks, with the band of its pool."""
    low, point, high = (mix.carried(geometry, settings, kv) for kv in (pool.low, pool.kv, pool.high))
    return Interval(low, point, high)


def share_used(geometry: Geometry, settings: Settings, kv: KvPool, mix: Mix, target: float) -> float:
    """The share of the pool that `target` requests of a mix hold; above 1 they do not fit."""
    fits = mix.carried(geometry, settings, kv)
    return target / fits if fits > 0 else math.inf


def starts(geometry: Geometry, settings: Settings, kv: KvPool) -> bool:
    """Whether the engine starts with this pool, by its own refusals (`KvPool.refusal`), and whether one request fits.

    vLLM also refuses a pool that does not hold a request of max_model_len (check_enough_kv_cache_memory in
    vllm/v1/core/kv_cache_utils.py); others cut requests to what fits.
    """
    if kv.refusal is not None:
        return False
    length = settings.max_model_len or geometry.max_position
    if settings.engine != "vllm" or not length:
        return kv.tokens > 0
    return capacity(geometry, settings, kv, length) >= settings.data_parallel


# --------------------------------------------------------------------------------------------------------------- waste


@dataclass(frozen=True, slots=True)
class Waste:
    """One request of `length` tokens, in bytes on one device: what its tokens and states need, and what is taken.

    `rounding` and `slack` are shares of what is taken: the unused end of the last block; and pages and layers made
    equal, windows kept for the steps in flight, or a slot's unused context.
    """

    length: int
    needed: float
    taken: float
    rounding: float
    slack: float


def held_bytes(geometry: Geometry, settings: Settings, length: int) -> float:
    """Bytes that `length` tokens of one request need on one device, each layer keeping no more than its window.

    Layers of a window keep min(length, window) tokens; recurrent layers one state.
    """
    cells = sum(
        stage_layers(group, settings) * layer_bytes(group, settings) * min(length, group.window or length)
        for group in geometry.layers
    )
    layers = all_bytes_per_token(replace(geometry, layers=()), settings) * length  # what is no attention layer's own
    return cells + layers + all_state_bytes(geometry, settings)


def waste(geometry: Geometry, settings: Settings, kv: KvPool, length: float) -> Waste | None:
    """What a request takes beyond what it needs; None where the pool holds none."""
    tokens = max(1, math.ceil(length))
    alone = at_once(geometry, settings, kv, tokens) / settings.data_parallel
    if alone <= 0 or kv.bytes <= 0:
        return None
    taken, needed = kv.bytes / alone, held_bytes(geometry, settings, tokens)
    block = kv.block_size or 1
    filled = held_bytes(geometry, settings, -(-tokens // block) * block)
    rounding = max(0.0, min(filled, taken) - needed)
    return Waste(tokens, needed, taken, rounding / taken, max(0.0, taken - needed - rounding) / taken)


# ------------------------------------------------------------------------------------------------------------- context


def longest_alone(geometry: Geometry, settings: Settings, kv: KvPool) -> int:
    """The longest request, prompt and reply, that fits when it is alone in its rank; 0 where none does."""
    return longest_together(geometry, settings, kv, settings.data_parallel)


def longest_together(geometry: Geometry, settings: Settings, kv: KvPool, target: float) -> int:
    """The length at which `target` requests of one length fit at once in the instance."""

    def holds(length: int) -> bool:
        return length == 0 or residents(geometry, settings, kv, length) >= target

    return largest(holds, LONGEST)


# -------------------------------------------------------------------------------------------------------------- saving


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes of one token on one device, as the model has it and with keys and values of every attention head.

    `kind` is what saves: MLA, MQA (one head), GQA, or MHA where nothing does.
    """

    kind: str
    now: float
    every_head: float

    @property
    def share(self) -> float:
        """What is saved of the cache, 0..1."""
        return 1 - self.now / self.every_head if self.every_head > 0 else 0.0


def saving(geometry: Geometry, settings: Settings) -> Saving | None:
    """What grouped or latent keys and values save against multi-head attention with the same heads.

    Ainslie et al., GQA (arXiv 2305.13245); MLA: DeepSeek-V2 (arXiv 2405.04434). None where heads are not known.
    """
    if not geometry.layers or not geometry.attention_heads:
        return None
    heads = geometry.attention_heads
    wide = replace(geometry, layers=tuple(_every_head(group, heads) for group in geometry.layers), indexer=None)
    now, then = (all_bytes_per_token(g, settings) for g in (geometry, wide))
    if any(group.kind == "compressed" for group in geometry.layers):
        return Saving("compressed attention", now, then)
    if any(group.latent_dim for group in geometry.layers):
        return Saving("MLA", now, then)
    fewest = min(group.kv_heads for group in geometry.layers)
    return Saving("MHA" if fewest >= heads else "MQA" if fewest == 1 else "GQA", now, then)


def _every_head(group: Layers, heads: int) -> Layers:
    kind: Any = "full" if group.kind in ("mla", "compressed") else group.kind
    return replace(group, kind=kind, kv_heads=max(heads, group.kv_heads), latent_dim=None)


# -------------------------------------------------------------------------------------------------------------- memory


@dataclass(frozen=True, slots=True)
class Holding:
    """What the requests of one class hold of the pool, in bytes on one device."""

    name: str
    requests: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Split:
    """The memory of one device, in bytes. The parts add up to `usable`, unless weights or requests need more.

    `beyond` is what the engine takes outside its budget; `idle` what it leaves (1 - utilisation, or beside a pinned
    pool); `classes` what requests hold; `free` the pool's rest, below 0 where they do not fit.
    """

    usable: float
    weights: float
    overhead: float
    beyond: float
    idle: float
    pool: float
    classes: tuple[Holding, ...]

    @property
    def free(self) -> float:
        """What the requests leave of the pool."""
        return self.pool - sum(held.bytes for held in self.classes)


def split(found: Memory, pool: float, classes: Iterable[Holding]) -> Split:
    """Where the memory of one device goes, with a pool of so many bytes; what no part takes is idle."""
    size = max(0.0, pool)
    idle = max(0.0, found.usable - found.weights - found.overhead - found.beyond - size)
    return Split(found.usable, found.weights, found.overhead, found.beyond, idle, size, tuple(classes))
