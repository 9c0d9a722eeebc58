"""What to change, and what each change would give: every lever computed again with all that follows from it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from auditor.theory.alternatives import Alternative, alternatives, further
from auditor.theory.answers import longest_alone, starts
from auditor.theory.carrying import Mix, computed_pool
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

    `requests` are held at once by all `devices` (of every replica), `pool_tokens` by one rank, `weights` in bytes by
    one device. `starts`: whether the engine would start at all; `fits`: whether memory holds a pool that a flag fixes.
    """

    field: str = ""
    value: str = ""
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
        fits = not pool.exact or device is None or kv.bytes <= memory(geometry, settings, device).pool_high
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
    candidates: Sequence[Device] = (),
    replicas: int = 1,
) -> tuple[Change, ...]:
    """What each lever alone would give, the most first; only those that help.

    `target` requests on each of `replicas`. A lever helps where 2 % more requests fit, or the engine starts only then.
    """
    geometry, settings, device = theory
    now = measure(geometry, settings, device, mix)
    if now is None:
        return ()
    longest = max((held for _, held in mix.parts), default=0.0)
    levers = (*alternatives(settings, device), *further(settings, device, candidates, target, longest))
    found = [_after(theory, lever, mix, replicas) for lever in (*levers, *_shorter(theory, longest))]
    known = [change for change in found if change is not None and change.fits]
    helpful = [c for c in known if c.requests > _WORTH * now.requests * replicas or (c.starts and not now.starts)]
    more = _replicas(now, target, replicas) if now.starts and now.fits else ()
    return tuple(sorted((*_distinct(helpful), *more), key=lambda c: (not c.starts, -c.requests, c.devices)))


def _after(
    theory: tuple[Geometry, Settings, Device | None], lever: Alternative, mix: Mix, replicas: int
) -> Change | None:
    geometry, settings, device = theory
    if lever.field == "tensor_parallel" and not _divides(geometry, lever.settings.tensor_parallel):
        return None
    changed = _with_weights(geometry, settings, lever.settings)
    change = None if changed is None else measure(geometry, changed, lever.device or device, mix)
    if change is None:
        return None
    every = replace(change, requests=change.requests * replicas, devices=change.devices * replicas)
    return replace(every, field=lever.field, value=lever.value)


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


def _shorter(theory: tuple[Geometry, Settings, Device | None], longest: float) -> Iterable[Alternative]:
    """A context limit that the pool holds, where the present one keeps vLLM from starting."""
    geometry, settings, device = theory
    pool = computed_pool(geometry, settings, device)
    if pool is None or starts(geometry, settings, pool.kv):
        return
    alone = longest_alone(geometry, settings, pool.kv) // _ROUND * _ROUND
    if alone >= max(longest, 1):
        yield Alternative("max_model_len", str(alone), replace(settings, max_model_len=alone))


def _replicas(now: Change, target: float | None, replicas: int) -> Iterable[Change]:
    """As many replicas as carry the target, or one more."""
    if now.requests <= 0:
        return
    need = math.ceil(target * replicas / now.requests) if target is not None else 0
    count = max(need, replicas + 1)
    yield replace(now, field="replicas", value=str(count), requests=now.requests * count, devices=now.devices * count)


def _distinct(found: Iterable[Change]) -> Iterable[Change]:
    """Of several values of one field the most effective and the mildest: no more than two."""
    by_field: dict[str, list[Change]] = {}
    for change in found:
        by_field.setdefault(change.field, []).append(change)
    for several in by_field.values():
        yield from several[:2]
