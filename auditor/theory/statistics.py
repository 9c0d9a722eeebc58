"""Distribution-free statistics of a verdict: exact binomial tests, order statistics, dependence, steady state.

Notation: n judged requests (failures included), k of them over the limit or failed ("bad"), p a quantile (0.95: 95 % of
requests must be within the limit), c a confidence. No numpy: sums run in log space and inverses by bisection.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

__all__ = [
    "Interval",
    "Outcome",
    "binomial_at_least",
    "binomial_at_most",
    "effective_size",
    "fails",
    "judge",
    "mean_interval",
    "median",
    "missing",
    "needed",
    "passes",
    "quantile_interval",
    "quantile_ranks",
    "share_interval",
    "slope",
    "steady_start",
    "t_quantile",
    "t_tail",
    "tolerance_factor",
]

Outcome = Literal["pass", "fail", "inconclusive"]
_LARGEST_N = 1 << 40


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate with its confidence bounds. `high` may be math.inf, `low` -math.inf: the data bound nothing."""

    low: float
    point: float
    high: float


# ------------------------------------------------------------------------------------------------------ binomial tails


def _log_pmf(n: int, k: int, q: float) -> float:
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(q) + (n - k) * math.log1p(-q)


def _sum_terms(n: int, q: float, start: int, step: int) -> float:
    """Sum the probabilities from `start` outwards (step -1 down to 0, +1 up to n) until they no longer count."""
    odds = q / (1 - q)
    term = total = math.exp(_log_pmf(n, start, q))
    k = start
    while 0 <= k + step <= n:
        term *= (k / (n - k + 1)) / odds if step < 0 else ((n - k) / (k + 1)) * odds
        k += step
        total += term
        if term < total * 1e-17 and (k - n * q) * step > 0:
            break
    return total


def binomial_at_most(n: int, k: int, q: float) -> float:
    """P(Bin(n, q) <= k), exact to rounding; the shorter tail is summed."""
    if k < 0:
        return 0.0
    if k >= n or q <= 0:
        return 1.0
    if q >= 1:
        return 0.0
    if k <= n * q:
        return min(1.0, _sum_terms(n, q, k, -1))
    return max(0.0, 1.0 - _sum_terms(n, q, k + 1, 1))


def binomial_at_least(n: int, k: int, q: float) -> float:
    """P(Bin(n, q) >= k), exact to rounding; the shorter tail is summed."""
    if k <= 0:
        return 1.0
    if k > n or q <= 0:
        return 0.0
    if q >= 1:
        return 1.0
    if k >= n * q:
        return min(1.0, _sum_terms(n, q, k, 1))
    return max(0.0, 1.0 - _sum_terms(n, q, k - 1, -1))


# ------------------------------------------------------------------------------------------------------------- verdict


def passes(n: int, bad: int, quantile: float, confidence: float) -> bool:
    """Whether `bad` or fewer of `n` would be seen in at most 1-c of all cases if more than the allowed were bad."""
    return n > 0 and binomial_at_most(n, bad, 1 - quantile) <= 1 - confidence


def fails(n: int, bad: int, quantile: float, confidence: float) -> bool:
    """Whether `bad` or more of `n` would be seen in at most 1-c of all cases if no more than the allowed were bad."""
    return n > 0 and binomial_at_least(n, bad, 1 - quantile) <= 1 - confidence


def judge(n: int, bad: int, quantile: float, confidence: float, effective: float | None = None) -> Outcome:
    """Does a share `quantile` of requests stay within the limit, when `bad` of `n` did not?

    pass if P(Bin(n, 1-p) <= bad) <= 1-c, fail if P(Bin(n, 1-p) >= bad) <= 1-c, else inconclusive: the one-sided
    binomial test, equal to comparing an order-statistic bound with the limit (the rule of MLPerf loadgen's early
    stopping, early_stopping.cc in mlcommons/inference). `effective` is the size of an independent sample of equal worth
    (`effective_size`): the counts are scaled to it, bad rounded up for the pass and down for the fail.
    """
    bad_up = bad_down = bad
    if effective is not None and effective < n:
        size = max(1, math.floor(effective))
        bad_up, bad_down = math.ceil(bad * size / n - 1e-9), math.floor(bad * size / n + 1e-9)
        n = size
    if passes(n, bad_up, quantile, confidence):
        return "pass"
    return "fail" if fails(n, bad_down, quantile, confidence) else "inconclusive"


def needed(quantile: float, confidence: float, bad: int = 0) -> int:
    """The smallest n that can pass with `bad` requests over the limit; for bad = 0 ceil(ln(1-c) / ln(p))."""
    tail, risk = 1 - quantile, 1 - confidence
    high = bad + 1
    while binomial_at_most(high, bad, tail) > risk:
        high *= 2
        if high > _LARGEST_N:
            raise ValueError(f"no number of requests can show quantile {quantile} with confidence {confidence}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if binomial_at_most(middle, bad, tail) > risk else (low, middle)
    return high


def missing(n: int, bad: int, quantile: float, confidence: float) -> int:
    """How many further requests, all good, until `judge` says pass; 0 if it already does."""
    return max(0, needed(quantile, confidence, bad) - n)


# ----------------------------------------------------------------------------------------------------------- intervals


def quantile_ranks(n: int, quantile: float, confidence: float) -> tuple[int, int | None]:
    """1-based ranks of the order statistics that bound a quantile two-sidedly; 0 or None where the data bound nothing.

    lower = max{l: P(Bin(n,p) <= l-1) <= a/2}, upper = min{u: P(Bin(n,p) >= u) <= a/2}, a = 1-c (distribution free,
    David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
    """
    half = (1 - confidence) / 2
    lower = _last(lambda rank: rank == 0 or binomial_at_most(n, rank - 1, quantile) <= half, n)
    upper = _last(lambda rank: rank == 0 or binomial_at_least(n, rank, quantile) > half, n) + 1
    return lower, upper if upper <= n else None


def _last(holds: Callable[[int], bool], n: int) -> int:
    """The largest rank in 0..n for which a predicate, true at first and false from some rank on, still holds."""
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def quantile_interval(values: Sequence[float], quantile: float, confidence: float) -> Interval:
    """Nearest-rank quantile with its order-statistic interval. Failed requests enter as math.inf.

    Values are times or rates: where no rank bounds the quantile from below, the lower bound is 0. Raises ValueError on
    no values.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    n = len(ordered)
    lower, upper = quantile_ranks(n, quantile, confidence)
    point = ordered[min(n, max(1, math.ceil(quantile * n - 1e-9))) - 1]
    return Interval(
        ordered[lower - 1] if lower else min(0.0, ordered[0]), point, ordered[upper - 1] if upper else math.inf
    )


def share_interval(n: int, bad: int, confidence: float) -> Interval:
    """Clopper-Pearson interval of a share, two-sided (Clopper and Pearson, Biometrika 26, 1934), by bisection."""
    if n <= 0:
        return Interval(0.0, 0.0, 1.0)
    half = (1 - confidence) / 2
    low = _bisect(lambda q: binomial_at_least(n, bad, q) <= half) if bad > 0 else 0.0
    high = _bisect(lambda q: binomial_at_most(n, bad, q) > half) if bad < n else 1.0
    return Interval(low, bad / n, high)


def _bisect(holds: Callable[[float], bool]) -> float:
    """The point of 0..1 up to which a predicate holds."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError on no values."""
    if not values:
        raise ValueError("a median needs at least one value")
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Mean with its Student-t interval. For dependent data pass the means of 20 to 30 equal time batches (batch means).

    Fewer than two values bound nothing. Raises ValueError on no values.
    """
    n = len(values)
    if not n:
        raise ValueError("a mean needs at least one value")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(-math.inf, mean, math.inf)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    reach = t_quantile((1 + confidence) / 2, n - 1) * deviation / math.sqrt(n)
    return Interval(mean - reach, mean, mean + reach)


def slope(xs: Sequence[float], ys: Sequence[float], confidence: float) -> Interval:
    """Ordinary least-squares slope with its Student-t interval; fewer than three distinct points bound nothing."""
    n = len(xs)
    if n < 2:
        return Interval(-math.inf, 0.0, math.inf)
    mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    if spread <= 0:
        return Interval(-math.inf, 0.0, math.inf)
    point = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    if n == 2:
        return Interval(-math.inf, point, math.inf)
    rest = math.fsum((y - mean_y - point * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    reach = t_quantile((1 + confidence) / 2, n - 2) * math.sqrt(rest / (n - 2) / spread)
    return Interval(point - reach, point, point + reach)


# ----------------------------------------------------------------------------------------------------------- Student t


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function (modified Lentz; Numerical Recipes, section 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(tiny, 1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, 500):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + numerator * d) or tiny)
            c = (1.0 + numerator / c) or tiny
            result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return result


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1 - x) / b


def tolerance_factor(means: float, deviations: float, quantile: float, confidence: float) -> float:
    """k such that mean + k deviations of normal values bound a quantile of their source from above, one-sided.

    k = (z_p + sqrt(z_p^2 - a b)) / a, a = 1 - z_c^2 / (2 (n-1)), b = z_p^2 - z_c^2 / n (NIST/SEMATECH e-Handbook of
    Statistical Methods, section 7.2.6.3, after Natrella); n in b is how many independent values the mean is worth, n in
    a how many the deviation is. Infinite where so few bound nothing.
    """
    z_p, z_c = NormalDist().inv_cdf(quantile), NormalDist().inv_cdf(confidence)
    a = 1 - z_c**2 / (2 * (deviations - 1)) if deviations > 1 else 0.0
    if a <= 0 or means <= 0:
        return math.inf
    return (z_p + math.sqrt(max(0.0, z_p**2 - a * (z_p**2 - z_c**2 / means)))) / a


def t_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's t with `freedom` degrees, for t >= 0."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2


def t_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t with `freedom` degrees, for 0.5 <= probability < 1, by bisection on its tail."""
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError("a t quantile needs 0.5 <= probability < 1 and at least one degree of freedom")
    high = 1.0
    while t_tail(high, freedom) > 1 - probability:
        high *= 2
    return high * _bisect(lambda share: t_tail(share * high, freedom) > 1 - probability)


# ---------------------------------------------------------------------------------------------- dependence, steady part


def effective_size(outcomes: Sequence[bool]) -> float:
    """How many independent requests the outcomes (over the limit or not, in start order) are worth.

    n / (1 + 2 sum rho_j), rho_j the autocorrelation of the indicator at lag j, summed up to the first lag where it is
    within its standard error, 1 / sqrt(n); at most n. Outcomes that are all alike carry no sign of dependence and count
    in full: what else the requests show of it is looked at in `deciding`.
    """
    n = len(outcomes)
    ones = sum(outcomes)
    if n < 3 or ones in (0, n):
        return float(n)
    mean = ones / n
    centred = [float(outcome) - mean for outcome in outcomes]
    variance = math.fsum(value * value for value in centred)
    total = 0.0
    for lag in range(1, n):
        rho = math.fsum(centred[i] * centred[i + lag] for i in range(n - lag)) / variance
        if rho < 1 / math.sqrt(n):
            break
        total += rho
    return min(float(n), n / (1 + 2 * total))


def steady_start(values: Sequence[float]) -> int:
    """Index at which the steady part of a series begins, by MSER-5; len(values) where it does not settle by half-way.

    Batches of five, d* = argmin_d sum_{i>d} (y_i - mean)^2 / (m-d)^2, rejected if d* > m/2 (White, Cobb and Spratt,
    Proc. Winter Simulation Conference 2000). At least five batches and a quarter must stay: a few are alike by chance.
    Fewer than 20 values say nothing: 0.
    """
    count = len(values) // 5
    if count < 4:
        return 0
    middle = median(values)
    batches = [math.fsum(values[i : i + 5]) / 5 - middle for i in range(0, count * 5, 5)]
    best, best_score = 0, math.inf
    total = squares = 0.0
    for start in range(count - 1, -1, -1):
        total += batches[start]
        squares += batches[start] ** 2
        size = count - start
        score = max(0.0, squares - total * total / size) / size**2
        if size >= max(5, count / 4) and score <= best_score:  # a tie goes to the earlier start
            best, best_score = start, score
    return best * 5 if best <= count / 2 else len(values)
