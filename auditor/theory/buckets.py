"""What a Prometheus histogram knows: counts at its bounds, and nothing between them.

`buckets` are (upper bound, cumulative count) in ascending order, the last bound infinite; a bound belongs to its bucket
(`le`). Between two bounds any distribution is possible, so that each answer is an interval.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.theory.statistics import Outcome, fails, passes

__all__ = [
    "FEWEST",
    "Beyond",
    "Buckets",
    "added",
    "beyond",
    "clean",
    "decide",
    "design_effect",
    "holding",
    "interpolated",
    "scatter",
]

Buckets = Sequence[tuple[float, float]]

FEWEST = 10
"""Groups of slices from which a spread between them is read off; fewer show none, whatever there is."""

_NEAR = 1e-6  # of a bound: an SLO of 0.1 s lies on the bound 0.1 however either was parsed
_HIGH = 0.2  # of the requests: the slowest, which show how misses would cluster where there are too few of them


@dataclass(frozen=True, slots=True)
class Beyond:
    """How many of `n` requests took longer than a limit: from `least` to `most`, as it lies within `low`..`high`."""

    n: float
    least: float
    most: float
    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether the limit lies on a bound (or all requests lie on one side of its bucket)."""
        return self.least == self.most


def clean(buckets: Buckets, count: float) -> tuple[tuple[float, float], ...]:
    """Ascending bounds with counts that never fall and end at `count` for infinity: as a scrape should show them."""
    rising: list[tuple[float, float]] = []
    most = 0.0
    for bound, value in sorted(b for b in buckets if not math.isnan(b[0])):
        most = min(count, max(most, value))
        if bound < math.inf:
            rising.append((bound, most))
    return (*rising, (math.inf, count))


def added(tables: Iterable[Buckets]) -> tuple[tuple[float, float], ...]:
    """The sum of histograms; bounds that one of them lacks are left out. Those without a bound say nothing."""
    total: tuple[tuple[float, float], ...] = ()
    for table in tables:
        more = dict(table)
        total = tuple((b, c + more[b]) for b, c in total if b in more) if total and more else total or tuple(table)
    return total


def beyond(buckets: Buckets, limit: float) -> Beyond:
    """Requests beyond `limit`: all of its bucket may be, or none. Raises ValueError on no buckets."""
    if not buckets:
        raise ValueError("a histogram without buckets knows no times")
    n = buckets[-1][1]
    below = [(b, c) for b, c in buckets if b <= limit * (1 + _NEAR)]
    above = [(b, c) for b, c in buckets if b >= limit * (1 - _NEAR)]
    low, under = below[-1] if below else (0.0, 0.0)
    high, within = above[0] if above else (math.inf, n)
    return Beyond(n, n - within, n - under, low, high)


def holding(buckets: Buckets, quantile: float) -> tuple[float, float] | None:
    """The bucket (low, high] that holds the nearest-rank quantile; None where nothing was counted."""
    n = buckets[-1][1] if buckets else 0.0
    if n <= 0:
        return None
    rank, low = max(1.0, math.ceil(quantile * n - 1e-9)), 0.0
    for bound, count in buckets:
        if count >= rank:
            return low, bound
        low = bound
    return low, math.inf


def interpolated(buckets: Buckets, quantile: float) -> float | None:
    """What histogram_quantile draws: a straight line through the bucket, the highest finite bound above it.

    None where nothing was counted, or no bound is finite (Prometheus documentation, Query functions,
    histogram_quantile()).
    """
    n = buckets[-1][1] if buckets else 0.0
    finite = [bound for bound, _ in buckets if bound < math.inf]
    if n <= 0 or not finite:
        return None
    rank, low, under = quantile * n, 0.0, 0.0
    for position, (bound, count) in enumerate(buckets):
        if count >= rank:
            if bound == math.inf:
                return finite[-1]
            if position == 0 and bound <= 0:
                return bound
            return low + (bound - low) * (rank - under) / (count - under) if count > under else bound
        low, under = bound, count
    return finite[-1]


# ------------------------------------------------------------------------------------------------------------- verdict


def design_effect(slices: Sequence[tuple[float, float]], *, joined: bool = True) -> float:
    """How many times more a share scatters between slices of time than independent requests would, at least 1.

    `slices` are (requests, those beyond a bound) in order of time. The share is a ratio of two sums, whose variance is
    m / (m-1) sum (k_i - p n_i)^2 / N^2 over m slices (Cochran, Sampling Techniques, 3rd ed., sections 2.11 and 9A.1);
    bad hours are longer than a slice, hence neighbours are also `joined`, by twos, fours ... while ten groups are left,
    and the highest counts. A request counts for 1 / this. Requests that are all alike show no scatter.
    """
    groups, worst = [(n, k) for n, k in slices if n > 0], 1.0
    while len(groups) >= FEWEST:
        total, bad = (math.fsum(column) for column in zip(*groups, strict=True))
        share = bad / total
        if not 0 < share < 1:
            break
        m = len(groups)
        spread = m / (m - 1) * math.fsum((k - share * n) ** 2 for n, k in groups)
        worst = max(worst, spread / (total * share * (1 - share)))
        groups = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(groups[::2], groups[1::2], strict=False)] if joined else []
    return worst


def scatter(slices: Sequence[Buckets], limit: float) -> float:
    """The design effect at the limit's bucket, or of the slowest fifth where that scatters more.

    Misses that are few show no crowds, the slowest fifth does: slice by slice, where at worst all of a slice fare alike
    and each counts as one request. It is not joined: days are busier than nights, and that is no chance.
    """
    taken = [s for s in slices if s and s[-1][1] > 0]
    total = math.fsum(s[-1][1] for s in taken)
    bounds = [b for b, _ in taken[0]][:-1] if taken else []
    over = {b: [beyond(s, b) for s in taken] for b in bounds}
    shares = {b: math.fsum(x.least for x in found) / total for b, found in over.items()}
    level = min((b for b in bounds if 0 < shares[b] < 1), key=lambda b: abs(shares[b] - _HIGH), default=None)
    at_limit = [beyond(s, limit) for s in taken]
    found = [design_effect([(x.n, x.most) for x in at_limit]), design_effect([(x.n, x.least) for x in at_limit])]
    if level is not None:
        found.append(design_effect([(x.n, x.least) for x in over[level]], joined=False))
    return max(found)


def decide(seen: Beyond, quantile: float, confidence: float, effect: float = 1.0) -> Outcome:
    """pass only if all that may be beyond the limit are too few to doubt it, fail only if those that certainly are
    are too many: the binomial test of `statistics.judge` at both ends of the bucket, counts divided by `effect`.
    """
    n = math.floor(seen.n / max(1.0, effect))
    if n <= 0:
        return "inconclusive"
    scale = n / seen.n
    if passes(n, math.ceil(seen.most * scale - 1e-9), quantile, confidence):
        return "pass"
    return "fail" if fails(n, math.floor(seen.least * scale + 1e-9), quantile, confidence) else "inconclusive"
