"""What decode steps cost, read off the ladder over batch and context.

    step(B, C) = level(B) + cost x cache(B, C)

`cache` is the time in which the KV cache's bytes cross the bus at full bandwidth (or attention's FLOPs run at the full
peak, where that takes longer). Each batch has a level of its own, so that whatever else grows with the batch cannot be
taken for the cache's cost: that shows in two contexts of one batch alone. Where nothing is known of model and device,
the cache is its tokens.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.idle import falls
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import NOISY, Step
from auditor.theory.leastsquares import Solution, solve
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.work import decode_attention_flops, decode_kv_bytes, linear_devices, rate

__all__ = ["APART", "READ", "StepCosts", "cache_seconds", "multiplies", "plain_costs", "step_costs"]

_LEAST_ERROR = 0.005  # of a step: what a batch's place in tiles and captured sizes makes of it
_NORMAL = 1.96
_DIFFER = 1.5  # times a context that another must be to tell what the cache costs

READ = 1 / 0.77
"""The inverse share of bandwidth that reading the cache usually reaches, whatever the engine: between the 0.90 and the
0.60 by which `priors` predicts served and other ones. Here it only says what is usual, the ladder tells the rest."""
APART = 0.22
"""Its relative spread, which takes both in."""
_MULTIPLIED = 1 / 0.4  # the inverse share of the peak that multiplying with the cache does


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """`cost` multiplies the cache's own time; `crossed` says whether contexts differ, `measured` is what the ladder
    alone says of the cost then (None where it says nothing). `levels` are (batch, seconds without the cache, standard
    error), the smallest batch first; `spread` is the relative RMS of the steps around the law, `falls` how far they lie
    off any law by which a step of more streams takes longer.
    """

    cost: Interval
    crossed: bool
    measured: Interval | None
    levels: tuple[tuple[float, float, float], ...]
    spread: float
    falls: float = 0.0

    @property
    def noise(self) -> float | None:
        """How far the steps lie off the law where that is too far for its parts to be read; None where it is not."""
        off = max(self.spread, self.falls)
        return off if off > NOISY else None

    @property
    def error(self) -> float:
        """The largest relative standard error of a level."""
        return max((error / level for _, level, error in self.levels if level > 0 and error < math.inf), default=0.0)

    def level(self, batch: float) -> float:
        """Seconds of a step without the cache, straight between the ladder's batches; its ends beyond them."""
        first, last = self.levels[0], self.levels[-1]
        if batch <= first[0]:
            return first[1]
        for (b0, t0, _), (b1, t1, _) in zip(self.levels, self.levels[1:], strict=False):
            if batch <= b1:
                return t0 + (t1 - t0) * (batch - b0) / (b1 - b0)
        return last[1]


def multiplies(geometry: Geometry, settings: Settings, device: Device, batch: float, context: float) -> bool:
    """Whether decode attention is bound by compute, as MLA's is where a device has many heads (and no other's)."""
    read, multiplied = _attention(geometry, settings, device, batch, context)
    return multiplied * _MULTIPLIED > read * READ


def cache_seconds(geometry: Geometry, settings: Settings, device: Device, batch: float, context: float) -> float:
    """Seconds that the cache costs a step where everything reaches what is usual."""
    read, multiplied = _attention(geometry, settings, device, batch, context)
    return max(read * READ, multiplied * _MULTIPLIED)


def _attention(
    geometry: Geometry, settings: Settings, device: Device, batch: float, context: float
) -> tuple[float, float]:
    """Seconds of reading the cache and of multiplying with it, at full bandwidth and peak."""
    peak = rate(device, "bf16") * linear_devices(settings)
    return (
        decode_kv_bytes(geometry, settings, batch, context) / device.bandwidth,
        decode_attention_flops(geometry, batch, context) / peak if peak else 0.0,
    )


def step_costs(geometry: Geometry, settings: Settings, device: Device, steps: Sequence[Step]) -> StepCosts | None:
    """Read the ladder; None without a step. `cost` is relative to `cache_seconds`: 1 is usual."""

    def cache(step: Step) -> float:
        return cache_seconds(geometry, settings, device, step.batch, step.context)

    return _read(steps, cache, usual=True)


def plain_costs(steps: Sequence[Step]) -> StepCosts | None:
    """The ladder by itself: `cost` is that of a cached token, 0 where no batch was measured at two contexts."""
    return _read(steps, lambda step: step.batch * step.context, usual=False)


def _read(steps: Sequence[Step], cache: Callable[[Step], float], *, usual: bool) -> StepCosts | None:
    """`usual`: that the cache costs 1 stands beside the steps."""
    steps = [step for step in steps if step.seconds > 0]
    if not steps:
        return None
    batches, crossed = sorted({step.batch for step in steps}), _crossed(steps)
    rows = [
        [*(float(step.batch == batch) for batch in batches), cache(step) if usual or crossed else 0.0] for step in steps
    ]
    values = [step.seconds for step in steps]
    errors = [max(step.error, _LEAST_ERROR * step.seconds) for step in steps]
    known = [0.0] * len(batches) + [1.0]
    fit = solve([*rows, known], [*values, 1.0], [*errors, APART]) if usual else solve(rows, values, errors)
    if fit is None:
        return None
    offs = [fit.value(row) / seconds - 1 for row, seconds in zip(rows, values, strict=True)]
    alone = solve(rows, values, errors) if crossed else None
    shortest, cost = min(step.context for step in steps), max(0.0, fit.coefficients[-1])
    alike = [fit.coefficients[i] + cost * cache(Step(batch, shortest, 0.0)) for i, batch in enumerate(batches)]
    return StepCosts(
        cost=_interval(fit, APART if usual else 0.0),
        crossed=crossed,
        measured=_interval(alone, APART) if alone is not None and math.isfinite(alone.errors[-1]) else None,
        levels=tuple((batch, fit.coefficients[i], fit.errors[i]) for i, batch in enumerate(batches)),
        spread=math.sqrt(math.fsum(off * off for off in offs) / len(offs)),
        falls=falls([seconds for seconds in alike if seconds > 0]),
    )


def _crossed(steps: Sequence[Step]) -> bool:
    """Whether some batch was measured at two contexts that differ by half."""
    contexts: dict[float, list[float]] = defaultdict(list)
    for step in steps:
        contexts[step.batch].append(step.context)
    return any(max(seen) >= _DIFFER * max(1.0, min(seen)) for seen in contexts.values())


def _interval(fit: Solution, known: float) -> Interval:
    """The last coefficient's 95 % interval; one that is held at 0 may still be as large as what is `known` of it."""
    point, error = fit.coefficients[-1], fit.errors[-1]
    reach = _NORMAL * (error if math.isfinite(error) else known)
    return Interval(max(0.0, point - reach), point, point + reach)
