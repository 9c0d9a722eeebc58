"""Fits of measured ladders: what a prompt token, a sequence and a cached token cost, seen from outside.

Least squares with relative weights and non-negative coefficients: every part costs time, none gives it back.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.efficiency import decode_band, prefill_band
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["NOISY", "DecodeFit", "PrefillFit", "band", "fit_decode", "fit_prefill"]

# Relative RMS error beyond which a fit's parts are noise. Fifteen to twenty-five requests that scatter by 0.2 leave a
# part that takes half of the time uncertain by about 0.2 x 2 / sqrt(15) = 0.1, well within the 1.3 that names a leader.
NOISY = 0.2
_KV_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFit:
    """TTFT = t0 + per_token N + per_token_squared N^2, in seconds; `residual` is the relative RMS error.

    `points` counts distinct prompt lengths. 1 / per_token is the prefill rate; the quadratic term is attention's.
    """

    t0: float
    per_token: float
    per_token_squared: float
    residual: float
    points: int

    @property
    def noisy(self) -> bool:
        """Whether the points scatter too widely around the law for its parts to be read."""
        return self.residual > NOISY


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFit:
    """Step = base + per_sequence B + per_cached_token B C, in seconds; `residual` is the relative RMS error.

    base is weights and overhead, per_cached_token the KV cache's cost, per_sequence compute. `identifiable` says that
    batch and context varied enough to tell them apart: at least two batches and two contexts, and a cache that costs at
    least 0.3 of base at the largest point.
    """

    base: float
    per_sequence: float
    per_cached_token: float
    identifiable: bool
    residual: float

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
    (t0, linear, quadratic), residual = _non_negative(rows, [seconds for _, seconds in points])
    return PrefillFit(t0=t0, per_token=linear, per_token_squared=quadratic, residual=residual, points=lengths)


def fit_decode(points: Sequence[tuple[float, float, float]]) -> DecodeFit | None:
    """Fit (batch, context, step seconds), steps in which the whole batch decodes; None with fewer than two batches."""
    points = [point for point in points if point[2] > 0]
    if len({batch for batch, _, _ in points}) < 2:
        return None
    crossed = _crossed(points)
    rows = [[1.0, batch, batch * context if crossed else 0.0] for batch, context, _ in points]
    (base, sequence, cached), residual = _non_negative(rows, [seconds for _, _, seconds in points])
    largest = max(batch * context for batch, context, _ in points)
    return DecodeFit(
        base=base,
        per_sequence=sequence,
        per_cached_token=cached,
        identifiable=crossed and cached * largest >= _KV_SHARE * base > 0,
        residual=residual,
    )


def _crossed(points: Sequence[tuple[float, float, float]]) -> bool:
    """Whether some batch was measured at two contexts that differ at least twofold."""
    contexts: dict[float, list[float]] = {}
    for batch, context, _ in points:
        contexts.setdefault(batch, []).append(context)
    return any(max(seen) >= 2 * max(1.0, min(seen)) for seen in contexts.values())


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


# -------------------------------------------------------------------------------------------------------- least squares


def _non_negative(rows: list[list[float]], seconds: list[float]) -> tuple[tuple[float, ...], float]:
    """Weights 1 / seconds (relative errors), coefficients >= 0: the best of all subsets of columns.

    With three columns trying every subset is exact and simpler than an active-set method (Lawson and Hanson, 1974).
    """
    columns = len(rows[0])
    scaled = [[value / second for value in row] for row, second in zip(rows, seconds, strict=True)]
    best: tuple[float, ...] = (0.0,) * columns
    best_error = math.inf
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            solved = _solve([[row[i] for i in chosen] for row in scaled])
            if solved is None or min(solved) < 0:
                continue
            full = [0.0] * columns
            for i, value in zip(chosen, solved, strict=True):
                full[i] = value
            error = math.fsum((math.fsum(a * x for a, x in zip(row, full, strict=True)) - 1) ** 2 for row in scaled)
            if error < best_error * (1 - 1e-9):
                best, best_error = tuple(full), error
    return best, math.sqrt(best_error / len(rows)) if math.isfinite(best_error) else math.inf


def _solve(rows: list[list[float]]) -> list[float] | None:
    """Least squares of rows x = 1 by normal equations on unit columns; None where the columns are dependent."""
    size = len(rows[0])
    norms = [math.sqrt(math.fsum(row[i] ** 2 for row in rows)) for i in range(size)]
    if min(norms) <= 0 or len(rows) < size:
        return None
    unit = [[row[i] / norms[i] for i in range(size)] for row in rows]
    matrix = [
        [math.fsum(row[i] * row[j] for row in unit) for j in range(size)] + [math.fsum(row[i] for row in unit)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        if abs(matrix[pivot][i]) < 1e-10:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(size):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][size] / matrix[i][i] / norms[i] for i in range(size)]
