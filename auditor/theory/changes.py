"""What to change, and what each change would give: every lever computed again with all that follows from it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from auditor.theory.alternatives import Alternative, alternatives, fewer_slots, further
from auditor.theory.answers import longest_alone, starts
from auditor.theory.carrying import Mix, PoolRange, computed_pool, free_for_cache
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.memory import memory
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.weights import per_device_bytes

__all__ = ["Change", "Settle", "Verdict", "changes", "measure"]

Settle = Callable[[Settings, Device | None], Settings]
"""Makes changed settings those that the engine would start with, as its defaults follow from them."""
Verdict = Literal["fits", "may fit", "does not fit"]

_WORTH = 1.02  # times the requests of now from which a change is worth a line
_ROUND = 256  # tokens to which a shorter context is rounded
_SHORTEST = 1024  # tokens of a context below which nobody serves
_STEPS = 3  # limits that are lowered one after the other before a lever is given up
_ROOMY = 2  # times the target from which nothing needs to change
_WORST: tuple[Verdict, ...] = ("does not fit", "may fit", "fits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The instance after one change. `field` and `value` are the lever's; both empty: as it is.

    `also` are further fields with their values that move with it. `requests` are held and run at once by all `devices`
    (of every replica), `pool_tokens` by one rank, `weights` in bytes by one device. `starts`: whether the engine starts
    at all; `fits`: whether memory holds a pool that a flag fixes; `verdict`: whether the target (or one request) fits
    within the band of the pool.
    """

    field: str = ""
    value: str = ""
    also: tuple[tuple[str, str], ...] = ()
    devices: int
    weights: float
    pool_bytes: float
    pool_tokens: int
    requests: float
    starts: bool
    fits: bool = True
    verdict: Verdict = "fits"


@dataclass(frozen=True, slots=True)
class _Case:
    """What is asked: requests of a `mix` (None: of the context limit), `target` of them, or as many as there is room
    for.
    """

    geometry: Geometry
    mix: Mix | None
    target: float | None
    settle: Settle

    @property
    def longest(self) -> float:
        return max((held for _, held in self.mix.parts), default=0.0) if self.mix is not None else _SHORTEST

    def limit(self, settings: Settings) -> int | None:
        return settings.max_model_len or self.geometry.max_position

    def serves(self, settings: Settings) -> bool:
        """Whether the context limit lets the longest request in; llama.cpp's slots may have more cells than the model
        takes.
        """
        model = self.geometry.max_position if settings.engine == "llamacpp" else None
        return self.mix is None or self.longest <= min(self.limit(settings) or math.inf, model or math.inf)

    def measure(self, settings: Settings, device: Device | None) -> Change | None:
        limit = float(self.limit(settings) or _SHORTEST)
        mix = self.mix or Mix(((1.0, limit),))
        if self.serves(settings):
            return measure(self.geometry, settings, device, mix, self.target)
        cut = replace(mix, parts=tuple((weight, min(held, limit)) for weight, held in mix.parts))
        found = measure(self.geometry, settings, device, cut, self.target)
        return found and replace(found, verdict="does not fit")


def measure(
    geometry: Geometry, settings: Settings, device: Device | None, mix: Mix, target: float | None = None
) -> Change | None:
    """What an instance holds; None where its pool cannot be computed, or the engine refuses the settings."""
    try:
        pool = computed_pool(geometry, settings, device)
        if pool is None:
            return None
        kv, room = pool.kv, _room(geometry, settings, device, pool)
        low, point, high = (
            _at_once(settings, one.tokens and mix.carried(geometry, settings, one)) for one in (pool.low, kv, pool.high)
        )
        needed = target or 1.0
        sure = pool.low.bytes <= room.low and low >= needed and starts(geometry, settings, pool.low)
        perhaps = pool.high.bytes <= room.high and high >= needed and starts(geometry, settings, pool.high)
        return Change(
            devices=settings.devices,
            weights=per_device_bytes(geometry, settings),
            pool_bytes=kv.bytes,
            pool_tokens=kv.tokens,
            requests=point,
            starts=starts(geometry, settings, kv),
            fits=kv.bytes <= room.high,
            verdict="fits" if sure else "may fit" if perhaps else "does not fit",
        )
    except ValueError:
        return None


def _room(geometry: Geometry, settings: Settings, device: Device | None, pool: PoolRange) -> Interval:
    """Bytes of a device that a pool which a flag fixes may take; without end where nothing limits it."""
    known = settings.weight_bytes is not None or geometry.parameters > 0
    if not (settings.pins_pool and pool.exact and known) or device is None:
        return Interval(math.inf, math.inf, math.inf)
    return free_for_cache(memory(geometry, settings, device))


def _at_once(settings: Settings, carried: float) -> float:
    """Requests that run at once: no more than the engine's batch limit, over all ranks."""
    limit = settings.slots if settings.engine == "llamacpp" else settings.max_num_seqs
    return min(carried, limit * settings.data_parallel) if limit else carried


def changes(
    theory: tuple[Geometry, Settings, Device | None],
    mix: Mix | None,
    target: float | None,
    larger: tuple[Device, Settings] | None = None,
    replicas: int = 1,
    *,
    settle: Settle = lambda settings, _device: settings,
) -> tuple[Change, ...]:
    """What each lever alone would give, the most first; only those that help, and none where there is room to spare.

    `mix` None: requests as long as the context limit. `target` requests on each of `replicas`; `larger` is the next
    accelerator up, with the settings there; `settle` derives defaults again. A lever helps where 2 % more requests fit
    or what was uncertain is sure. Where an instance does not start, limits with which it does come first, and levers
    that need a lower limit as well have it in `also`.
    """
    geometry, settings, device = theory
    case = _Case(geometry, mix, target, settle)
    now = case.measure(settings, device)
    if now is None or _at_ease(now, settings, target):
        return ()
    first = _able(case, Alternative("", "", settings, device))
    able = now.starts and now.fits and case.serves(settings)
    base = now if able else first and first[1]
    as_base = settings if base is now or first is None else first[0]
    levers = (
        *alternatives(settings, device, geometry),
        *further(settings, target, case.longest if mix else 0.0, larger),
    )
    found = (_after(case, settings, device, lever) for lever in levers)
    helpful = [c for c in found if c is not None and c.fits and c.starts and _helps(case, c, base)]
    every = [_everywhere(change, replicas) for change in _mildest(helpful)]
    start = first[1] if first is not None and first[1].also else None
    if base is not None:
        every.append(_replicas(case, base, (as_base, device), replicas))
    if start is None:
        return _ranked(every)
    (field, value), *rest = start.also
    leading = replace(_everywhere(start, replicas), field=field, value=value, also=tuple(rest))
    return tuple(dict.fromkeys((leading, *_ranked(every))))


def _at_ease(now: Change, settings: Settings, target: float | None) -> bool:
    """Whether the target fits so well that nothing needs to change; llama.cpp's slots are full when all are taken."""
    if target is None or now.verdict != "fits":
        return False
    return settings.engine == "llamacpp" or now.requests >= _ROOMY * target


def _helps(case: _Case, change: Change, base: Change | None) -> bool:
    if base is None or _WORST.index(change.verdict) > _WORST.index(base.verdict):
        return True
    if case.mix is None:
        return change.pool_tokens > _WORTH * base.pool_tokens
    return change.requests > _WORTH * base.requests


def _ranked(found: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(found, key=lambda change: (-change.requests, change.devices)))


def _everywhere(change: Change, replicas: int) -> Change:
    return replace(change, requests=change.requests * replicas, devices=change.devices * replicas)


def _after(case: _Case, settings: Settings, device: Device | None, lever: Alternative) -> Change | None:
    if lever.field == "tensor_parallel" and not _divides(case.geometry, lever.settings.tensor_parallel):
        return None
    there = lever.device or device
    try:
        changed = _with_weights(case.geometry, settings, case.settle(lever.settings, there))
        if lever.field == "gpu_memory_utilization" and changed and there and _crowded(case.geometry, changed, there):
            return None
    except ValueError:
        return None
    found = None if changed is None else _able(case, replace(lever, settings=changed, device=there))
    if found is None:
        return None
    also = dict(found[1].also)
    value = also.pop(lever.field, lever.value)  # a limit that had to be lower still
    return replace(found[1], field=lever.field, value=value, also=tuple(also.items()))


def _crowded(geometry: Geometry, settings: Settings, device: Device) -> bool:
    """Whether what the engine takes outside its budget (graphs, buffers) would find no room there."""
    found = memory(geometry, settings, device)
    return found.beyond > 0 and found.free <= 0


def _divides(geometry: Geometry, tensor_parallel: int) -> bool:
    """Whether engines would take this degree: it has to divide the attention heads, and heads of keys and values are
    divided or copied whole (verify_with_parallel_config in vllm/config/model.py).
    """
    kept = (group.kv_heads for group in geometry.layers if group.latent_dim is None)
    whole = all(heads % tensor_parallel == 0 or tensor_parallel % heads == 0 for heads in kept if heads)
    return whole and (not geometry.attention_heads or geometry.attention_heads % tensor_parallel == 0)


def _with_weights(geometry: Geometry, now: Settings, then: Settings) -> Settings | None:
    """Weights that were measured, as they would be then: in the proportion of the computed ones.

    None where nothing is computed and the lever moves them.
    """
    if now.weight_bytes is None:
        return then
    if not geometry.parameters:
        same = (now.weight_bits, now.tensor_parallel) == (then.weight_bits, then.tensor_parallel)
        return then if same else None
    before, after = (per_device_bytes(geometry, replace(s, weight_bytes=None)) for s in (now, then))
    return replace(then, weight_bytes=now.weight_bytes * after / before) if before > 0 else None


# -------------------------------------------------------------------------------------------------------------- limits


def _able(case: _Case, lever: Alternative) -> tuple[Settings, Change] | None:
    """The lever's settings with limits moved until the engine starts, memory holds its pool and the longest request may
    come, and what that gives; the limits are in `also`. None where no limit would do.
    """
    settings, also = lever.settings, dict(lever.also)
    for _ in range(_STEPS):
        step = _moved(case, settings, lever.device)
        if step is None:
            break
        settings = case.settle(step.settings, lever.device)
        also |= {step.field: step.value, **dict(step.also)}
    found = case.measure(settings, lever.device)
    if found is None or not (found.starts and found.fits and case.serves(settings)):
        return None
    return settings, replace(found, also=tuple(also.items()))


def _moved(case: _Case, settings: Settings, device: Device | None) -> Alternative | None:
    """The limit that is to be another: higher for the longest request, else lower for the pool."""
    if case.serves(settings) or settings.engine == "llamacpp":
        return _lower(case, settings, device)
    raised = math.ceil(case.longest / _ROUND) * _ROUND
    if raised > (case.geometry.max_position or math.inf):
        return None
    return Alternative("max_model_len", str(raised), replace(settings, max_model_len=raised))


def _lower(case: _Case, settings: Settings, device: Device | None) -> Alternative | None:
    """The limit that is to be lower: a context or a batch that the pool holds, at the low end of its band if it can."""
    try:
        pool = computed_pool(case.geometry, settings, device)
        if pool is None:
            return None
        if settings.engine == "llamacpp":
            return _fewer_cells(case, settings, device, pool)
    except ValueError:
        return None
    sure = starts(case.geometry, settings, pool.low)
    return None if sure else _limit(case, settings, pool)


def _limit(case: _Case, settings: Settings, pool: PoolRange) -> Alternative | None:
    geometry, kv = case.geometry, pool.kv
    if kv.refusal is not None:
        blocks = min((p.blocks for p in (pool.low, kv) if p.blocks), default=1)
        asked = math.ceil(case.target / settings.data_parallel) if case.target is not None else blocks
        fewer = max(1, min(asked, blocks))
        if fewer >= (settings.max_num_seqs or math.inf):
            return None
        return Alternative("max_num_seqs", str(fewer), replace(settings, max_num_seqs=fewer))
    ends = (pool.low,) if starts(geometry, settings, kv) else (pool.low, kv)
    for end in ends:
        alone = longest_alone(geometry, settings, end) // _ROUND * _ROUND if end.tokens > 0 else 0
        if alone >= max(case.longest, 1) and alone < (settings.max_model_len or math.inf):
            return Alternative("max_model_len", str(alone), replace(settings, max_model_len=alone))
    return None


def _fewer_cells(case: _Case, settings: Settings, device: Device | None, pool: PoolRange) -> Alternative | None:
    """llama.cpp: as many slots as memory holds of the longest request, or the longest context for the slots there
    are.
    """
    if pool.kv.bytes <= _room(case.geometry, settings, device, pool).low and case.serves(settings):
        return None
    if case.longest > (case.geometry.max_position or math.inf):
        return None

    def holds(changed: Settings, end: Literal["low", "point"]) -> bool:
        then = computed_pool(case.geometry, changed, device)
        return then is not None and then.kv.bytes <= getattr(_room(case.geometry, changed, device, then), end)

    asked = case.target if case.mix is not None else None
    limit = settings.max_model_len or case.geometry.max_position or _SHORTEST
    return fewer_slots(settings, asked, case.longest, limit, lambda changed: holds(changed, "low")) or fewer_slots(
        settings, asked, case.longest, limit, lambda changed: holds(changed, "point")
    )


def _replicas(case: _Case, base: Change, base_of: tuple[Settings, Device | None], replicas: int) -> Change:
    """As many replicas as carry the target, or one more; each then has its share of it."""
    total = case.target * replicas if case.target is not None else None
    need = math.ceil(total / base.requests) if total is not None and base.requests > 0 else 0
    number = max(need, replicas + 1)
    share = replace(case, target=None if total is None else math.ceil(total / number)).measure(*base_of)
    found = replace(base, verdict=share.verdict if share is not None else base.verdict)
    return replace(_everywhere(found, number), field="replicas", value=str(number))


def _mildest(found: Iterable[Change]) -> Iterable[Change]:
    """Of several values of one field no more than the first two."""
    by_field: dict[str, list[Change]] = {}
    for change in found:
        by_field.setdefault(change.field, []).append(change)
    for several in by_field.values():
        yield from several[:2]
