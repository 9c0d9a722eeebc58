"""What decode steps cost, read off the ladder over batch and context.

    step(B, C) = level(B) + cost x cache(B, C)

`cache` is the time in which the KV cache's bytes cross the bus at full bandwidth (or attention's FLOPs run at the full
peak, where that takes longer). Each batch has a level of its own, so that whatever else grows with the batch cannot be
taken for the cache's cost: that shows in two contexts of one batch alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import Step
from auditor.theory.leastsquares import Solution, solve
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.work import decode_attention_flops, decode_kv_bytes, linear_devices, rate

__all__ = ["READ", "StepCosts", "cache_seconds", "multiplies", "step_costs"]

_LEAST_ERROR = 0.005  # of a step: what a batch's place in tiles and captured sizes makes of it
_NORMAL = 1.96

READ = 1 / 0.77
"""The inverse share of bandwidth that reading the cache usually reaches."""
_MULTIPLIED = 1 / 0.4  # of the peak that multiplying with it does
_APART = 0.22  # their relative spread


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """`cost` multiplies the cache's own time; `measured` is what the ladder alone says of it, None where contexts do
    not differ. `levels` are (batch, seconds without the cache, standard error), the smallest batch first; `spread` is
    the relative RMS of the steps around the law.
    """

    cost: Interval
    measured: Interval | None
    levels: tuple[tuple[float, float, float], ...]
    spread: float

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
    steps = [step for step in steps if step.seconds > 0]
    if not steps:
        return None
    batches = sorted({step.batch for step in steps})
    rows = [
        [
            *(float(step.batch == batch) for batch in batches),
            cache_seconds(geometry, settings, device, step.batch, step.context),
        ]
        for step in steps
    ]
    values = [step.seconds for step in steps]
    errors = [max(step.error, _LEAST_ERROR * step.seconds) for step in steps]
    known = [0.0] * len(batches) + [1.0]
    fit = solve([*rows, known], [*values, 1.0], [*errors, _APART])
    if fit is None:
        return None
    offs = [fit.value(row) / seconds - 1 for row, seconds in zip(rows, values, strict=True)]
    alone = solve(rows, values, errors) if len(steps) > len(batches) else None
    return StepCosts(
        cost=_interval(fit),
        measured=_interval(alone) if alone is not None and math.isfinite(alone.errors[-1]) else None,
        levels=tuple((batch, fit.coefficients[i], fit.errors[i]) for i, batch in enumerate(batches)),
        spread=math.sqrt(math.fsum(off * off for off in offs) / len(offs)),
    )


def _interval(fit: Solution) -> Interval:
    """The last coefficient's 95 % interval; one that is held at 0 may still be as large as what is known beforehand."""
    point, error = fit.coefficients[-1], fit.errors[-1]
    reach = _NORMAL * (error if math.isfinite(error) else _APART)
    return Interval(max(0.0, point - reach), point, point + reach)
