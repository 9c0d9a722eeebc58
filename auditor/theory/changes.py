"""What to change, and what each change would give: every lever computed again with all that follows from it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from auditor.theory.alternatives import Alternative, alternatives, further
from auditor.theory.answers import longest_alone, starts
from auditor.theory.carrying import Mix, computed_pool, free_for_cache
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.memory import memory
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes

__all__ = ["Change", "changes", "measure"]

_WORTH = 1.02  # times the requests of now from which a change is worth a line
_ROUND = 256  # tokens to which a shorter context is rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The instance after one change. `field` and `value` are the lever's; both empty: as it is.

    `also` are further fields with their values that move with it. `requests` are held at once by all `devices` (of
    every replica), `pool_tokens` by one rank, `weights` in bytes by one device. `starts`: whether the engine starts at
    all; `fits`: whether memory holds a pool that a flag fixes.
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


def measure(geometry: Geometry, settings: Settings, device: Device | None, mix: Mix) -> Change | None:
    """What an instance holds; None where its pool cannot be computed, or the engine refuses the settings."""
    try:
        pool = computed_pool(geometry, settings, device)
        if pool is None:
            return None
        kv = pool.kv
        known = pool.exact and device is not None and (settings.weight_bytes is not None or geometry.parameters > 0)
        fits = not known or device is None or kv.bytes <= free_for_cache(memory(geometry, settings, device)).high
        return Change(
            devices=settings.devices,
            weights=per_device_bytes(geometry, settings),
            pool_bytes=kv.bytes,
            pool_tokens=kv.tokens,
            requests=mix.carried(geometry, settings, kv) if kv.tokens > 0 else 0.0,
            starts=starts(geometry, settings, kv),
            fits=fits,
        )
    except ValueError:
        return None


def changes(
    theory: tuple[Geometry, Settings, Device | None],
    mix: Mix,
    target: float | None,
    larger: tuple[Device, Settings] | None = None,
    replicas: int = 1,
) -> tuple[Change, ...]:
    """What each lever alone would give, the most first; only those that help.

    `target` requests on each of `replicas`; `larger` is the next accelerator up, with the settings there. A lever helps
    where 2 % more requests fit. Where a limit keeps the engine from starting, the first change is one with which it
    does, and the others come on top of it.
    """
    geometry, settings, device = theory
    longest = max((held for _, held in mix.parts), default=0.0)
    first = _repair(theory, longest, target)
    base = settings if first is None else first.settings
    now = measure(geometry, base, device, mix)
    if now is None:
        return ()
    if larger is not None and first is not None:
        larger = larger[0], replace(larger[1], **{first.field: getattr(base, first.field)})
    levers = (*alternatives(base, device), *further(base, target, longest, larger))
    found = [_after((geometry, base, device), lever, mix) for lever in levers]
    helpful = [c for c in found if c is not None and c.fits and c.starts and c.requests > _WORTH * now.requests]
    every = [_everywhere(change, replicas) for change in _mildest(helpful)]
    if now.starts and now.fits:
        every.append(_replicas(now, target, replicas))
    if first is None:
        return _ranked(every)
    moved = ((first.field, first.value),)
    start = replace(_everywhere(now, replicas), field=first.field, value=first.value)
    return (start, *_ranked([replace(change, also=(*change.also, *moved)) for change in every]))


def _ranked(found: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(found, key=lambda change: (-change.requests, change.devices)))


def _everywhere(change: Change, replicas: int) -> Change:
    return replace(change, requests=change.requests * replicas, devices=change.devices * replicas)


def _after(theory: tuple[Geometry, Settings, Device | None], lever: Alternative, mix: Mix) -> Change | None:
    geometry, settings, device = theory
    if lever.field == "tensor_parallel" and not _divides(geometry, lever.settings.tensor_parallel):
        return None
    if lever.field == "gpu_memory_utilization" and device is not None and _crowded(geometry, lever.settings, device):
        return None
    changed = _with_weights(geometry, settings, lever.settings)
    change = None if changed is None else measure(geometry, changed, lever.device or device, mix)
    return change and replace(change, field=lever.field, value=lever.value, also=lever.also)


def _crowded(geometry: Geometry, settings: Settings, device: Device) -> bool:
    """Whether what the engine takes outside its budget (graphs, buffers) would find no room there."""
    found = memory(geometry, settings, device)
    return found.beyond > 0 and found.free <= 0


def _divides(geometry: Geometry, tensor_parallel: int) -> bool:
    """Whether engines would take this degree: it has to divide the attention heads."""
    return not geometry.attention_heads or geometry.attention_heads % tensor_parallel == 0


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


def _repair(
    theory: tuple[Geometry, Settings, Device | None], longest: float, target: float | None
) -> Alternative | None:
    """The limit with which an engine starts that does not: a context or a batch that the pool holds."""
    geometry, settings, device = theory
    pool = computed_pool(geometry, settings, device)
    if pool is None or starts(geometry, settings, pool.kv):
        return None
    if pool.kv.refusal is not None:
        asked = math.ceil(target / settings.data_parallel) if target is not None else pool.kv.blocks or 1
        fewer = replace(settings, max_num_seqs=max(1, min(asked, pool.kv.blocks or asked)))
        found = measure(geometry, fewer, device, Mix(((1.0, 1.0),)))
        starting = found is not None and found.starts
        return Alternative("max_num_seqs", str(fewer.max_num_seqs), fewer) if starting else None
    alone = longest_alone(geometry, settings, pool.kv) // _ROUND * _ROUND
    if alone < max(longest, 1):
        return None
    return Alternative("max_model_len", str(alone), replace(settings, max_model_len=alone))


def _replicas(now: Change, target: float | None, replicas: int) -> Change:
    """As many replicas as carry the target, or one more."""
    need = math.ceil(target * replicas / now.requests) if target is not None and now.requests > 0 else 0
    number = max(need, replicas + 1)
    return replace(_everywhere(now, number), field="replicas", value=str(number))


def _mildest(found: Iterable[Change]) -> Iterable[Change]:
    """Of several values of one field no more than the first two."""
    by_field: dict[str, list[Change]] = {}
    for change in found:
        by_field.setdefault(change.field, []).append(change)
    for several in by_field.values():
        yield from several[:2]
