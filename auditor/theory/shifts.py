"""Did times grow from one run to another? Rank tests, shifts with intervals, and what dependence leaves of them.

Times enter as logarithms, so that a shift is a factor: 20 % slower is the same for short and for long prompts. A failed
request takes NEVER. Tests are distribution free:

    two runs of different requests   Mann-Whitney, Hodges-Lehmann shift (median of all differences)
    two runs of the same requests    Wilcoxon signed rank on the differences, median of their Walsh averages

(Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., sections 3.1-3.3 and 4.1-4.3.) Requests that
run together fare alike: the variance of both statistics is raised by 1 + 2 sum rho_j of the ranks in start order, and
Student's t with as many degrees of freedom as independent requests remain stands for the normal law. Failures come
together too, since what is in flight fails at once: they count as the few accidents they are.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

from auditor.theory.statistics import Interval, effective_size, t_quantile, t_tail

__all__ = ["NEVER", "Shift", "holm", "inflation", "of_pairs", "of_quantile", "of_samples", "of_shares"]

NEVER = 1e6
"""The logarithm of the time of a request that failed: later than all others."""

_RESAMPLES = 1000
_FEWEST_BLOCKS = 5  # of which a resampled run must be made up to be another one
_TAILS = 2  # times as many values as lie above a quantile are kept beside a run
_ABOVE = NormalDist().cdf(1)  # of a normal law's values lie below one deviation


@dataclass(frozen=True, slots=True)
class Shift:
    """How much longer: the factor with its two-sided interval, and how likely so much more (`worse`) or less (`better`)
    is by chance if nothing changed. `worth` is how many independent requests it rests on.
    """

    factor: Interval
    worse: float
    better: float
    worth: float


def of_samples(old: Sequence[float], new: Sequence[float], risk: float) -> Shift:
    """The shift between two runs of different requests, in start order; `risk` is that of each end of the interval.

    Raises ValueError for a run of no requests.
    """
    if not old or not new:
        raise ValueError("a shift needs requests of both runs")
    ranks, total = _ranks([*old, *new]), len(old) + len(new)
    before, after = ranks[: len(old)], ranks[len(old) :]
    spread = math.fsum((r - (total + 1) / 2) ** 2 for r in ranks) / max(1, total - 1)
    sizes = [len(part) / _inflation(part) for part in (before, after)]
    deviation = math.sqrt(spread * sum(1 / size for size in sizes))
    difference = _mean(after) - _mean(before)
    freedom = _freedom(min(sizes) - 1)
    reach = t_quantile(1 - risk, freedom) * deviation * len(old) * len(new) / total
    middle = len(old) * len(new) / 2
    ordered = sorted(old), sorted(new)
    interval = _interval(lambda x: _differences_up_to(*ordered, x), middle, reach, len(old) * len(new))
    return _shift(interval, difference, deviation, freedom, min(sizes))


def of_pairs(differences: Sequence[float], risk: float) -> Shift:
    """The shift between two runs of the same requests, of the logarithms' differences (new less old) in start order.

    A request that failed in one run alone differs by NEVER. Raises ValueError without any.
    """
    if not differences:
        raise ValueError("a shift needs requests of both runs")
    n = len(differences)
    ranks = _ranks([abs(d) for d in differences])
    signed = [math.copysign(r, d) if d else 0.0 for r, d in zip(ranks, differences, strict=True)]
    inflation = _inflation(signed)
    deviation = math.sqrt(inflation * math.fsum(r * r for r in signed))
    freedom = _freedom(n / inflation - 1)
    reach = t_quantile(1 - risk, freedom) * deviation / 2
    averages = n * (n + 1) / 2
    ordered = sorted(differences)
    interval = _interval(lambda x: _averages_up_to(ordered, x), averages / 2, reach, averages)
    return _shift(interval, math.fsum(signed), deviation, freedom, n / inflation)


def _shift(interval: Interval, statistic: float, deviation: float, freedom: int, worth: float) -> Shift:
    if deviation <= 0:
        return Shift(interval, 1.0, 1.0, worth)
    t = statistic / deviation
    above = t_tail(abs(t), freedom)
    worse, better = (above, 1 - above) if t >= 0 else (1 - above, above)
    return Shift(interval, worse, better, worth)


def holm(chances: Sequence[float]) -> list[float]:
    """Each chance as it counts among so many: p_(i) (m - i + 1), never less than the one before (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda i: chances[i])
    adjusted, least = [0.0] * len(chances), 0.0
    for position, index in enumerate(order):
        least = max(least, min(1.0, chances[index] * (len(chances) - position)))
        adjusted[index] = least
    return adjusted


# --------------------------------------------------------------------------------------------------------------- ranks


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _ranks(values: Sequence[float]) -> list[float]:
    """1-based ranks, those that tie share their mean."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks, first = [0.0] * len(values), 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for position in range(first, last + 1):
            ranks[order[position]] = (first + last) / 2 + 1
        first = last + 1
    return ranks


def _inflation(series: Sequence[float]) -> float:
    """By how much dependence raises the variance of the series' mean, 1 at least.

    1 + 2 sum rho_j over the first lags with a positive rho (the initial positive sequence of Geyer, Statistical Science
    7, 1992); what taking off the series' own mean hides of it, one independent value's worth, is put back.
    """
    n, middle = len(series), _mean(series)
    centred = [value - middle for value in series]
    variance = math.fsum(value * value for value in centred)
    total = 0.0
    for lag in range(1, n // 2) if variance > 0 else ():
        rho = math.fsum(centred[i] * centred[i + lag] for i in range(n - lag)) / variance
        if rho <= 0:
            break
        total += rho
    raw = 1 + 2 * total
    return min(n / 2, raw / max(0.5, 1 - raw / n)) if n > 2 else float(n)


def _freedom(independent: float) -> int:
    return max(1, math.floor(independent))


# ------------------------------------------------------------------------------------------------------------- inverses


def _interval(up_to: Callable[[float], int], middle: float, reach: float, most: float) -> Interval:
    """The middle one of so many differences, and those as far on either side as chance may put it, as factors."""
    low = _nth(up_to, middle - reach) if middle - reach >= 1 else -NEVER
    high = _nth(up_to, middle + reach) if middle + reach < most else NEVER
    point = (_nth(up_to, math.floor(middle + 0.5)) + _nth(up_to, math.floor(middle) + 1)) / 2
    return Interval(_factor(low), _factor(point), _factor(high))


def _nth(up_to: Callable[[float], int], rank: float) -> float:
    """The least x up to which `rank` differences lie, within a billionth."""
    wanted, low, high = max(1.0, rank), -2 * NEVER, 2 * NEVER
    for edge in (1.0, 10.0, 1000.0):  # nearly all lie close to nothing: fewer halvings
        if up_to(-edge) < wanted <= up_to(edge):
            low, high = -edge, edge
            break
    while high - low > 1e-9 * max(1.0, abs(high)):
        middle = (low + high) / 2
        low, high = (low, middle) if up_to(middle) >= wanted else (middle, high)
    return (low + high) / 2


def _factor(logarithm: float) -> float:
    return math.inf if logarithm > 500 else 0.0 if logarithm < -500 else math.exp(logarithm)


def _differences_up_to(old: Sequence[float], new: Sequence[float], most: float) -> int:
    """How many of all new - old are at most `most`; both sorted."""
    count = position = 0
    for value in old:
        while position < len(new) and new[position] - value <= most:
            position += 1
        count += position
    return count


def _averages_up_to(ordered: Sequence[float], most: float) -> int:
    """How many of all means of two (each with itself too) are at most `most`."""
    count, last = 0, len(ordered) - 1
    for first, value in enumerate(ordered):
        while last >= first and value + ordered[last] > 2 * most:
            last -= 1
        if last < first:
            break
        count += last - first + 1
    return count


# ------------------------------------------------------------------------------------------------- quantiles and shares


def of_quantile(
    old: Sequence[float], new: Sequence[float], quantile: float, risk: float, block: int, *, paired: bool
) -> Shift | None:
    """The shift of a quantile by a moving-block bootstrap (Kuensch 1989) of `block` requests in a row, seeded.

    Runs of the same requests are resampled together. The chances are no less than Student's t gives with a degree of
    freedom for each block but one: few resamples tell no small chances apart. None where a run has too few blocks to be
    resampled.
    """
    if min(len(old), len(new)) < _FEWEST_BLOCKS * block:
        return None
    rng, runs = random.Random(len(old) * 1_000_003 + len(new)), (_Tail.of(old, quantile), _Tail.of(new, quantile))
    found = sorted(_resampled(*runs, quantile, block, rng, paired=paired) for _ in range(_RESAMPLES))
    cut, blocks = math.floor(risk * _RESAMPLES), min(len(old), len(new)) // block
    point = _nearest_rank(new, quantile) - _nearest_rank(old, quantile)
    deviation = (found[math.floor(_ABOVE * _RESAMPLES)] - found[math.floor((1 - _ABOVE) * _RESAMPLES)]) / 2
    by_t = t_tail(abs(point) / deviation, blocks - 1) if deviation > 0 else 0.0
    worse, better = (max(by_t, sum(holds(x) for x in found) / _RESAMPLES) for holds in (_not_above, _not_below))
    interval = Interval(_factor(found[cut]), _factor(point), _factor(found[-1 - cut]))
    return Shift(interval, worse, better, min(len(old), len(new)) / block)


def _not_above(x: float) -> bool:
    return x <= 0


def _not_below(x: float) -> bool:
    return x >= 0


@dataclass(frozen=True, slots=True)
class _Tail:
    """A run and its largest values in start order: a high quantile of a resampled run is nearly always one of them.

    `before[i]` counts those among the first i values.
    """

    values: Sequence[float]
    largest: Sequence[float]
    before: Sequence[int]

    @classmethod
    def of(cls, values: Sequence[float], quantile: float) -> "_Tail":
        kept = min(len(values), math.ceil(_TAILS * (1 - quantile) * len(values)) + 1)
        level = sorted(values)[-kept]
        return cls(values, [x for x in values if x >= level], [0, *accumulate(int(x >= level) for x in values)])

    def quantile(self, starts: Sequence[int], block: int, quantile: float) -> float:
        """That of the blocks which begin at `starts`, put together."""
        total = len(starts) * block
        from_the_top = total - _rank(total, quantile) + 1
        largest = [x for start in starts for x in self.largest[self.before[start] : self.before[start + block]]]
        if len(largest) < from_the_top:
            largest = [x for start in starts for x in self.values[start : start + block]]
        return sorted(largest)[-from_the_top]


def _resampled(old: _Tail, new: _Tail, quantile: float, block: int, rng: random.Random, *, paired: bool) -> float:
    before = _starts(len(old.values), block, rng)
    after = before if paired else _starts(len(new.values), block, rng)
    return new.quantile(after, block, quantile) - old.quantile(before, block, quantile)


def _starts(n: int, block: int, rng: random.Random) -> list[int]:
    return [rng.randrange(n - block + 1) for _ in range(math.ceil(n / block))]


def _nearest_rank(values: Sequence[float], quantile: float) -> float:
    return sorted(values)[_rank(len(values), quantile) - 1]


def _rank(n: int, quantile: float) -> int:
    return min(n, max(1, math.ceil(quantile * n - 1e-9)))


def inflation(failed: Sequence[bool]) -> float:
    """By how much failures that come together raise the variance of their share, 1 at least; in start order."""
    return len(failed) / effective_size(failed) if failed else 1.0


def of_shares(
    old: tuple[int, int], new: tuple[int, int], risk: float, alike: float = 1.0
) -> tuple[Interval, float, float]:
    """The difference of two shares (bad, of so many), and how likely so much more and so much less is by chance.

    Interval by Newcombe's hybrid score (Statistics in Medicine 17, 1998, method 10), chances by Fisher's exact test;
    `alike` requests count as one.
    """
    (bad_old, n_old), (bad_new, n_new) = ((bad / alike, n / alike) for bad, n in (old, new))
    low_old, high_old = _wilson(bad_old, n_old, risk)
    low_new, high_new = _wilson(bad_new, n_new, risk)
    before, after = bad_old / n_old, bad_new / n_new
    low = after - before - math.hypot(after - low_new, high_old - before)
    high = after - before + math.hypot(high_new - after, before - low_old)
    counts = [(round(bad), max(1, round(n))) for bad, n in ((bad_old, n_old), (bad_new, n_new))]
    return Interval(low, after - before, high), _fisher(*counts[1], *counts[0]), _fisher(*counts[0], *counts[1])


def _wilson(bad: float, n: float, risk: float) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927)."""
    z = NormalDist().inv_cdf(1 - risk)
    middle = bad / n + z * z / (2 * n)
    reach = z * math.sqrt(bad / n * (1 - bad / n) / n + z * z / (4 * n * n))
    return max(0.0, (middle - reach) / (1 + z * z / n)), min(1.0, (middle + reach) / (1 + z * z / n))


def _fisher(bad: int, n: int, other_bad: int, other_n: int) -> float:
    """P(so many or more of the bad ones among these n, had they been dealt at random)."""
    total = bad + other_bad
    ways = math.comb(n + other_n, total)
    return sum(math.comb(n, k) * math.comb(other_n, total - k) for k in range(bad, min(n, total) + 1)) / ways
