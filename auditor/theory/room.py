"""Room for more requests in a KV pool: the flag that pins the pool at the size that would do, and the wider levers."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from auditor.theory.alternatives import alternatives
from auditor.theory.carrying import Mix, computed_pool, free_for_cache
from auditor.theory.device import Device
from auditor.theory.judging import largest
from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.llamacpp import STEP_CELLS
from auditor.theory.levers import name, spell
from auditor.theory.memory import memory
from auditor.theory.settings import Settings
from auditor.units import count

__all__ = ["Pinned", "enough", "pinned", "size", "ways"]

_MIB = 2**20
_MOST = 256  # times the present pool, beyond which nobody enlarges it


@dataclass(frozen=True, slots=True)
class Pinned:
    """A flag that fixes the pool: its field, the value that would do, and the pool that there is then.

    `sure` says that the device's memory holds it; else that is not known.
    """

    field: str
    value: int
    pool: KvPool
    sure: bool


def size(geometry: Geometry | None, engine: str, kv: KvPool) -> str:
    """A pool in the unit that requests take of it: of vLLM's several kinds of layers only blocks mean anything."""
    kinds = {(group.kind, group.window) for group in geometry.layers} if geometry is not None else set()
    if kv.blocks and engine == "vllm" and geometry is not None and (geometry.recurrent or len(kinds) > 1):
        return f"{kv.blocks} blocks"
    return f"{kv.tokens} tokens" + (f" and {kv.state_slots} states" if kv.state_slots is not None else "")


def enough(kv: KvPool, holds: Callable[[KvPool], bool]) -> KvPool | None:
    """The smallest pool of this kind, in whole blocks, that holds; None beyond 256 times the present one."""
    have = kv.blocks or kv.tokens // (kv.block_size or 1)

    def larger(more: int) -> KvPool:
        blocks = None if kv.blocks is None else have + more
        return replace(kv, tokens=math.floor(kv.tokens * (have + more) / have), blocks=blocks)

    top = (_MOST - 1) * have
    if have < 1 or not holds(larger(top)):
        return None
    return larger(0) if holds(larger(0)) else larger(1 + largest(lambda more: not holds(larger(more)), top))


def pinned(
    theory: tuple[Geometry | None, Settings, Device | None],
    kv: KvPool,
    target: int,
    length: float,
    holds: Callable[[KvPool], bool],
) -> Pinned | None:
    """The flag that pins this pool, at the size that carries the target; None where none does, or memory is too small.

    `length` are the tokens that one request holds, for llama.cpp, whose slots each need that much.
    """
    geometry, settings, device = theory
    if settings.engine == "llamacpp":
        cells = math.ceil(length / STEP_CELLS) * STEP_CELLS * max(target, settings.slots or 1)
        return Pinned("context", cells, replace(kv, tokens=cells), False) if cells > kv.tokens else None
    need = enough(kv, holds) if settings.pins_pool else None
    if need is None or need.tokens <= kv.tokens:
        return None
    ours = computed_pool(geometry, settings, device)
    taken = ours.kv.bytes * need.tokens / ours.kv.tokens if ours is not None and ours.kv.tokens else None
    room = (
        free_for_cache(memory(geometry, settings, device)).high if geometry is not None and device is not None else None
    )
    if room is not None and taken is not None and taken > room:
        return None
    sure = room is not None and taken is not None
    if settings.kv_pool_bytes:
        pool = math.ceil(settings.kv_pool_bytes * need.tokens / kv.tokens / _MIB) * _MIB
        return Pinned("kv_pool_bytes", pool, need, sure)
    if settings.engine == "vllm":
        return Pinned("kv_blocks", need.blocks or need.tokens // (settings.block_size or 1), need, sure)
    return Pinned("kv_pool_tokens", need.tokens, need, sure)


def ways(  # noqa: PLR0917 (the three parts of theory, pool, mix and target, and what each lever is called)
    geometry: Geometry | None,
    settings: Settings | None,
    device: Device | None,
    kv: KvPool,
    mix: Mix,
    target: int,
    total: int,
    flags: Mapping[str, str],
) -> Iterator[str]:
    """Levers for capacity, with the figure that each would give: first the flag that pins the pool, if one does.

    `target` requests on each replica, `total` on all. Other levers only where the device is known to have them.
    """
    if settings is not None:
        yield from _at_the_right_size((geometry, settings, device), kv, mix, target, flags)
    if settings is not None and device is not None:
        yield from _wider((geometry, settings, device), kv, mix, target, flags)
    fits = math.floor(mix.carried(geometry, settings, kv))
    if fits >= 1:
        carry = count(math.ceil(total / fits), "such replica")
        yield f"{carry} carry the target; one carries {fits}"
    yield spell(flags, "shorten what a request holds: cap prompts and max_tokens ({max_model_len})")


def _at_the_right_size(
    theory: tuple[Geometry | None, Settings, Device | None], kv: KvPool, mix: Mix, target: int, flags: Mapping[str, str]
) -> Iterator[str]:
    geometry, settings, _ = theory
    length = max((held for _, held in mix.parts), default=0.0)
    lever = pinned(theory, kv, target, length, lambda pool: mix.carried(geometry, settings, pool) >= target)
    if lever is not None and (flag := name(flags, lever.field)) is not None:
        slots = f"{name(flags, 'slots')} {target} with " if (settings.slots or target) < target else ""
        there = "" if lever.sure else ", if the device's memory holds that"
        made = size(geometry, settings.engine, lever.pool)
        yield f"{slots}{flag} {lever.value} makes a pool of {made}, which carries the target at p95{there}"


def _wider(
    theory: tuple[Geometry | None, Settings, Device], kv: KvPool, mix: Mix, target: int, flags: Mapping[str, str]
) -> Iterator[str]:
    """The levers that carry 5 % more requests or better: the pool grows as the computed one would."""
    geometry, settings, device = theory
    now = computed_pool(geometry, settings, device)
    for lever in alternatives(settings, device) if now is not None and now.kv.tokens > 0 else ():
        then, flag = computed_pool(geometry, lever.settings, device), name(flags, lever.field)
        if now is not None and then is not None and flag is not None:
            pool = _grown(kv, then.kv.tokens / now.kv.tokens)
            requests = mix.carried(geometry, lever.settings, pool)
            if requests > 1.05 * mix.carried(geometry, settings, kv):
                gain = f"{requests:.0f} requests at p95 ({requests / target:.2g}x the target)"
                also = "".join(f" {name(flags, field) or field} {value}" for field, value in lever.also)
                yield f"{flag} {lever.value}{also} makes a pool of {size(geometry, settings.engine, pool)}, {gain}"


def _grown(kv: KvPool, factor: float) -> KvPool:
    """The pool times a factor, in whole blocks."""
    block = kv.block_size or 1
    tokens = math.floor(kv.tokens * factor) // block * block
    return replace(kv, tokens=tokens, blocks=None if kv.blocks is None else math.floor(kv.blocks * factor))
