"""Fits of measured ladders: what a prompt token, a sequence and a cached token cost, seen from outside.

Least squares with relative weights and non-negative coefficients: every part costs time, none gives it back. They know
nothing of the model; `classify` reads the same ladders against what arithmetic knows of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.efficiency import decode_band, prefill_band
from auditor.theory.kv.geometry import Geometry
from auditor.theory.leastsquares import Solution, solve
from auditor.theory.settings import Settings
from auditor.theory.statistics import median

__all__ = ["NOISY", "DecodeFit", "PrefillFit", "band", "fit_decode", "fit_prefill"]

# Relative RMS error beyond which a fit's parts are noise. Fifteen to twenty-five requests that scatter by 0.2 leave a
# part that takes half of the time uncertain by about 0.2 x 2 / sqrt(15) = 0.1, well within the 1.3 that names a leader.
NOISY = 0.2
_KV_SHARE = 0.3
_ALIKE = 10.0  # times that likeness of the columns inflates an error, from which they cannot be told apart
_NORMAL = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
_LEAST_SPREAD = 0.005  # relative, of times that clocks tell


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFit:
    """TTFT = t0 + per_token N + per_token_squared N^2, in seconds; `residual` is the relative RMS error.

    `points` counts distinct prompt lengths. 1 / per_token is the prefill rate; the quadratic term is attention's.
    `errors` are the standard errors of the three, infinity where a coefficient is 0 and the points do not say how large
    it may be.
    """

    t0: float
    per_token: float
    per_token_squared: float
    residual: float
    points: int
    errors: tuple[float, float, float] = (math.inf, math.inf, math.inf)

    @property
    def noisy(self) -> bool:
        """Whether the points scatter too widely around the law for its parts to be read."""
        return self.residual > NOISY


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFit:
    """Step = base + per_sequence B + per_cached_token B C, in seconds; `residual` is the relative RMS error.

    base is weights and overhead, per_cached_token the KV cache's cost, per_sequence compute; `errors` are their
    standard errors. `lacking` says why batch and context cannot be told apart: fewer than two contexts of a batch,
    columns that are too much alike, or a cache that costs less than 0.3 of base at the largest point; None where they
    can.
    """

    base: float
    per_sequence: float
    per_cached_token: float
    residual: float
    errors: tuple[float, float, float] = (math.inf, math.inf, math.inf)
    lacking: str | None = None

    @property
    def identifiable(self) -> bool:
        """Whether batch and context varied enough to tell their costs apart."""
        return self.lacking is None

    @property
    def noisy(self) -> bool:
        """Whether the steps scatter too widely around the law for its parts to be read."""
        return self.residual > NOISY


def fit_prefill(points: Sequence[tuple[float, float]]) -> PrefillFit | None:
    """Fit (prompt tokens, seconds to the first token); None with fewer than two distinct lengths.

    The quadratic term needs four lengths; with fewer it stays 0.
    """
    points = [(tokens, seconds) for tokens, seconds in points if seconds > 0]
    lengths = len({tokens for tokens, _ in points})
    if lengths < 2:
        return None
    rows = [[1.0, tokens, tokens * tokens if lengths >= 4 else 0.0] for tokens, _ in points]
    found, residual = _fitted(rows, [seconds for _, seconds in points])
    t0, linear, quadratic = found.coefficients
    return PrefillFit(
        t0=t0, per_token=linear, per_token_squared=quadratic, residual=residual, points=lengths, errors=_three(found)
    )


def fit_decode(points: Sequence[tuple[float, float, float]]) -> DecodeFit | None:
    """Fit (batch, context, step seconds), steps in which the whole batch decodes; None with fewer than two batches."""
    points = [point for point in points if point[2] > 0]
    if len({batch for batch, _, _ in points}) < 2:
        return None
    crossed = _crossed(points)
    rows = [[1.0, batch, batch * context if crossed else 0.0] for batch, context, _ in points]
    found, residual = _fitted(rows, [seconds for _, _, seconds in points])
    base, sequence, cached = found.coefficients
    largest = max(batch * context for batch, context, _ in points)
    lacking = None
    if not crossed:
        lacking = "no batch was measured at two contexts"
    elif max(found.inflation) > _ALIKE:
        lacking = "batch and context grow together in it"
    elif cached * largest < _KV_SHARE * base or base <= 0:
        lacking = "the KV cache costs too little of a step in it"
    return DecodeFit(
        base=base,
        per_sequence=sequence,
        per_cached_token=cached,
        residual=residual,
        errors=_three(found),
        lacking=lacking,
    )


def _crossed(points: Sequence[tuple[float, float, float]]) -> bool:
    """Whether some batch was measured at two contexts that differ at least twofold."""
    contexts: dict[float, list[float]] = {}
    for batch, context, _ in points:
        contexts.setdefault(batch, []).append(context)
    return any(max(seen) >= 2 * max(1.0, min(seen)) for seen in contexts.values())


def _fitted(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[Solution, float]:
    """The law with weights 1 / seconds, and the relative RMS of the points around it.

    How far points usually lie off it, by the middle ones, is their error in a second pass: those far beyond count less.
    """
    first = _solved(rows, seconds, 1.0)
    spread = max(_LEAST_SPREAD, _NORMAL * median([abs(off) for off in _offs(first, rows, seconds)]))
    found = _solved(rows, seconds, spread)
    offs = _offs(found, rows, seconds)
    return found, math.sqrt(math.fsum(off * off for off in offs) / len(offs))


def _solved(rows: Sequence[Sequence[float]], seconds: Sequence[float], spread: float) -> Solution:
    found = solve(rows, seconds, [spread * second for second in seconds])
    assert found is not None  # the constant column tells something of any times
    return found


def _offs(found: Solution, rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    return [found.value(row) / second - 1 for row, second in zip(rows, seconds, strict=True)]


def _three(found: Solution) -> tuple[float, float, float]:
    a, b, c = found.errors
    return a, b, c


def band(
    phase: Literal["prefill", "decode"],
    device: Device,
    settings: Settings,
    batch: float,
    geometry: Geometry | None = None,
) -> tuple[float, float, str]:
    """The middle half of efficiencies published for this class: of the compute peak (prefill) or bandwidth (decode).

    Third comes what was measured. Below the band is worth a look; it never fails a service that meets its SLO.
    """
    if phase == "prefill":
        return prefill_band(settings, device)
    return decode_band(geometry, settings, device, batch)
