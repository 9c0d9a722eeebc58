"""Weighted least squares whose coefficients may not be negative: their errors, and what keeps them apart. No numpy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Solution", "solve"]

_TUNING = 1.345  # scatters from which a point counts less: 95 % efficient on normal errors (Huber, Robust Statistics)
_ROUNDS = 5
_NORMAL = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
_DEPENDENT = 1e-10

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Coefficients with their standard errors and covariances; one that is held at 0 has the error infinity.

    `inflation` is how much larger the columns' likeness makes the error of each coefficient (the root of its variance
    inflation factor: Belsley, Kuh and Welsch, Regression Diagnostics, 1980; above 5 two columns can hardly be told
    apart). `scatter` is the RMS of the points around the law in units of their own errors, `freedom` how many points
    there are beyond coefficients.
    """

    coefficients: tuple[float, ...]
    errors: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    inflation: tuple[float, ...]
    scatter: float
    freedom: int

    def value(self, row: Sequence[float]) -> float:
        """What the law gives for a row."""
        return math.fsum(a * x for a, x in zip(row, self.coefficients, strict=True))

    def error(self, row: Sequence[float]) -> float:
        """The standard error of that; coefficients that are held at 0 count as 0."""
        return math.sqrt(
            max(
                0.0,
                math.fsum(
                    a * b * x
                    for a, line in zip(row, self.covariance, strict=True)
                    for b, x in zip(row, line, strict=True)
                ),
            )
        )


def solve(rows: Rows, values: Sequence[float], errors: Sequence[float]) -> Solution | None:
    """The coefficients c >= 0 that minimise sum(((row c - value) / error)^2), robust to few points that lie far off.

    Of few columns all subsets are tried, which is exact (the general case: Lawson and Hanson, Solving Least Squares
    Problems, 1974); then points far off the law count less (Huber). `errors` are those of the values; where the points
    scatter more than these say, the coefficients' errors grow likewise. Of columns that depend on each other some are
    left at 0; None where no column tells anything.
    """
    if not rows:
        return None
    trust = [1.0] * len(rows)
    found = _best(_scaled(rows, errors, trust), _over(values, errors, trust))
    for _ in range(_ROUNDS if len(rows) > len(rows[0]) else 0):
        if found is None:
            return None
        trust = _trust(rows, values, errors, found)
        found = _best(_scaled(rows, errors, trust), _over(values, errors, trust))
    return None if found is None else _solution(rows, values, errors, trust, found)


def _scaled(rows: Rows, errors: Sequence[float], trust: Sequence[float]) -> list[list[float]]:
    return [[x * w / e for x in row] for row, e, w in zip(rows, errors, trust, strict=True)]


def _over(values: Sequence[float], errors: Sequence[float], trust: Sequence[float]) -> list[float]:
    return [value * w / e for value, e, w in zip(values, errors, trust, strict=True)]


def _off(rows: Rows, values: Sequence[float], errors: Sequence[float], law: Sequence[float]) -> list[float]:
    """How far each point lies off the law, in units of its error."""
    return [
        (math.fsum(a * x for a, x in zip(row, law, strict=True)) - value) / error
        for row, value, error in zip(rows, values, errors, strict=True)
    ]


def _trust(rows: Rows, values: Sequence[float], errors: Sequence[float], law: Sequence[float]) -> list[float]:
    """Roots of Huber's weights; the scatter is judged by the middle of the points, and never below their errors."""
    sizes = [abs(off) for off in _off(rows, values, errors, law)]
    bound = _TUNING * max(1.0, _NORMAL * sorted(sizes)[len(sizes) // 2])
    return [1.0 if size <= bound else math.sqrt(bound / size) for size in sizes]


def _best(rows: Rows, values: Sequence[float]) -> tuple[float, ...] | None:
    """The best of all subsets of columns whose coefficients are positive: all of them where that is one."""
    columns, best, least = len(rows[0]), None, math.inf
    for size in range(columns, 0, -1):
        for chosen in combinations(range(columns), size):
            law = _law(rows, values, chosen)
            if law is None or min(law) < 0:
                continue
            if size == columns:
                return law
            error = math.fsum(off * off for off in _off(rows, values, [1.0] * len(rows), law))
            if error < least * (1 - 1e-9):
                best, least = law, error
    return best


def _law(rows: Rows, values: Sequence[float], chosen: tuple[int, ...]) -> tuple[float, ...] | None:
    """Least squares on some columns, 0 for the others; None where they depend on each other."""
    inverse = _inverse([[row[i] for i in chosen] for row in rows])
    if inverse is None:
        return None
    ends = [math.fsum(row[i] * value for row, value in zip(rows, values, strict=True)) for i in chosen]
    law = [0.0] * len(rows[0])
    for i, line in zip(chosen, inverse, strict=True):
        law[i] = math.fsum(a * b for a, b in zip(line, ends, strict=True))
    return tuple(law)


def _inverse(rows: Rows) -> list[list[float]] | None:
    """The inverse of rows^T rows, by elimination on columns of length one; None where they depend on each other."""
    size = len(rows[0])
    norms = [math.sqrt(math.fsum(row[i] ** 2 for row in rows)) for i in range(size)]
    if min(norms) <= 0:
        return None
    matrix = [
        [math.fsum(row[i] * row[j] for row in rows) / norms[i] / norms[j] for j in range(size)]
        + [float(i == j) for j in range(size)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(matrix[k][i]))
        if abs(matrix[pivot][i]) < _DEPENDENT:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for k in range(size):
            if k != i:
                matrix[k] = [a - matrix[k][i] * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [[matrix[i][size + j] / norms[i] / norms[j] for j in range(size)] for i in range(size)]


def _solution(
    rows: Rows, values: Sequence[float], errors: Sequence[float], trust: Sequence[float], law: tuple[float, ...]
) -> Solution:
    size = len(law)
    used = [i for i, value in enumerate(law) if value > 0]
    scaled = _scaled(rows, errors, trust)
    inverse = _inverse([[row[i] for i in used] for row in scaled]) if used else None
    freedom = len(rows) - len(used)
    offs = _off(rows, values, errors, law)
    squares = math.fsum((off * w) ** 2 for off, w in zip(offs, trust, strict=True))
    excess = max(1.0, squares / freedom) if freedom else 1.0
    covariance = [[0.0] * size for _ in law]
    for i, line in zip(used, inverse or (), strict=False):
        for j, value in zip(used, line, strict=True):
            covariance[i][j] = value * excess
    alone = [math.fsum(row[i] ** 2 for row in scaled) / excess for i in range(size)]
    return Solution(
        coefficients=law,
        errors=tuple(math.sqrt(covariance[i][i]) if i in used else math.inf for i in range(size)),
        covariance=tuple(map(tuple, covariance)),
        inflation=tuple(math.sqrt(covariance[i][i] * alone[i]) if i in used else 1.0 for i in range(size)),
        scatter=math.sqrt(math.fsum(off * off for off in offs) / len(offs)),
        freedom=freedom,
    )
