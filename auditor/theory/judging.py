"""Small judgements that several checks share: growth, jitter, tails. Pure, plain numbers."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from auditor.theory.shape import Curve, at
from auditor.theory.statistics import Interval, median, slope, steady_start

__all__ = [
    "Growth",
    "Jitter",
    "fits",
    "got",
    "growth",
    "held",
    "in_flight",
    "inverse",
    "jitter",
    "largest",
    "leading",
    "longest_at",
    "rank",
    "settles",
    "share_beyond",
    "share_over",
]

READINGS = 10  # of a gauge, at least, before its standstill means anything
MANY = 8  # places at once, of which one is often between two requests
HELD = 0.8  # of the readings that a gauge stands at its highest value when something holds it there
DOMINANT = 1.3  # the largest of several times names the bottleneck only from this ratio to the second on


# ------------------------------------------------------------------------------------------------------------- in time


@dataclass(frozen=True, slots=True)
class Growth:
    """How a series moves: its least-squares slope per second, the medians of its thirds, and `rise`, what the line
    rises from the middle of the first third to that of the last.
    """

    slope: Interval
    first: float
    middle: float
    last: float
    rise: float

    @property
    def grows(self) -> bool:
        """The slope is positive beyond doubt and the level rose by half or more."""
        return self.slope.low > 0 and self.last >= 1.5 * self.first and self.last > 0

    @property
    def falls(self) -> bool:
        """The slope is negative beyond doubt and the level fell by a third or more."""
        return self.slope.high < 0 and self.first >= 1.5 * self.last and self.first > 0

    @property
    def goes_on(self) -> bool:
        """It grows or falls, a quarter of the way or more from the middle third to the last.

        The line must rise half as far as the medians: these jump where waves of two levels alternate.
        """
        way = abs(self.last - self.first)
        moving = abs(self.rise) >= 0.5 * way and abs(self.last - self.middle) >= 0.25 * way
        return (self.grows or self.falls) and moving


def growth(points: Sequence[tuple[float, float]], confidence: float) -> Growth | None:
    """The growth of a series of (seconds, value); None for fewer than nine points."""
    if len(points) < 9:
        return None
    ordered = sorted(points)
    third = len(ordered) // 3
    xs, ys = [x for x, _ in ordered], [y for _, y in ordered]
    line = slope(xs, ys, confidence)
    thirds = median(ys[:third]), median(ys[third:-third]), median(ys[-third:])
    return Growth(line, *thirds, line.point * (median(xs[-third:]) - median(xs[:third])))


def settles(points: Sequence[tuple[float, float]], confidence: float) -> bool:
    """Whether (seconds, value) reach a part by half-way that is steady by MSER-5 and does not go on to grow or fall."""
    ordered = sorted(points)
    start = steady_start([y for _, y in ordered])
    if ordered and start >= len(ordered):
        return False
    rest = growth(ordered[start:], confidence)
    return rest is None or not rest.goes_on


def in_flight(spans: Sequence[tuple[float, float]], points: int = 60) -> tuple[tuple[float, float], ...]:
    """How many of the spans (start, end) are open, at evenly spaced times between the first and the last start."""
    if not spans:
        return ()
    starts, ends = sorted(a for a, _ in spans), sorted(b for _, b in spans)
    first, last = starts[0], starts[-1]
    times = [first + (last - first) * i / (points - 1) for i in range(points)]
    return tuple((t, float(bisect_right(starts, t) - bisect_right(ends, t))) for t in times)


def held(values: Sequence[float]) -> bool:
    """Whether a gauge stands at its highest value in most of enough readings.

    What runs at once varies when compute is short, and stands still when a limit holds it: of many places one may be
    empty, between the request that ended and the next.
    """
    top = max(values, default=0.0)
    least = top - 1 if top >= MANY else top
    return len(values) >= READINGS and sum(v >= least for v in values) >= HELD * len(values)


def longest_at(spans: Sequence[tuple[float, float]], level: float, dip: float = 0.0) -> tuple[float, float] | None:
    """The longest interval (begin, end) in which at least `level` of the spans are open; None if there is none.

    Dips of up to `dip` seconds do not end it: a slot that goes from one request to the next is busy.
    """
    events = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    stretches: list[tuple[float, float]] = []
    open_now = 0
    for (time, change), (later, _) in pairwise(events):
        open_now += change
        if open_now >= level and later > time:
            joins = stretches and time - stretches[-1][1] <= dip
            stretches.append((stretches.pop()[0] if joins else time, later))
    return max(stretches, key=lambda s: s[1] - s[0], default=None)


# ------------------------------------------------------------------------------------------------------------- lengths


def share_over(curve: Curve, tokens: float) -> float:
    """The share of requests longer than `tokens`."""
    return 1 - largest(lambda i: at(curve, i / 10_000) <= tokens, 10_000) / 10_000 if at(curve, 0) <= tokens else 1.0


def share_beyond(prompt: Curve, output: Curve, limit: float, steps: int = 200) -> float:
    """The share of requests whose prompt and output together exceed `limit`, the two lengths being independent."""
    outputs = sorted(at(output, (i + 0.5) / steps) for i in range(steps))
    over = 0
    for i in range(steps):
        over += steps - bisect_right(outputs, limit - at(prompt, (i + 0.5) / steps))
    return over / steps**2


def largest(holds: Callable[[int], bool], top: int) -> int:
    """The largest whole number in 0..top up to which a predicate holds that is true at first and false from some on."""
    low, high = 0, top + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# -------------------------------------------------------------------------------------------------------------- others


def inverse(value: Interval) -> Interval:
    """The interval of 1 / x: seconds a token as tokens a second. What is infinite becomes 0, and the reverse."""
    low, point, high = (math.inf if x == 0 else 1 / x for x in (value.high, value.point, value.low))
    return Interval(low, point, high)


@dataclass(frozen=True, slots=True)
class Jitter:
    """How evenly tokens come: the median gap between events, the p95 over requests of the largest gap, and `stalls`,
    the share of requests whose largest gap exceeds `limit` seconds.
    """

    median_gap: float
    largest_gap: float
    limit: float
    stalls: float
    n: int


def jitter(streams: Sequence[Sequence[float]], factor: float, least: float) -> Jitter | None:
    """The jitter of streams of arrival times; a stall is a gap over `factor` median gaps and over `least` seconds.

    None where no stream has two gaps or more.
    """
    gaps = [[b - a for a, b in pairwise(arrivals)] for arrivals in streams if len(arrivals) > 2]
    if not gaps:
        return None
    middle, tops = median([gap for of_one in gaps for gap in of_one]), [max(of_one) for of_one in gaps]
    limit = max(factor * middle, least)
    return Jitter(middle, rank(tops, 0.95), limit, sum(top > limit for top in tops) / len(tops), len(tops))


def rank(values: Sequence[float], quantile: float) -> float:
    """The nearest-rank quantile. Raises ValueError on no values."""
    if not values:
        raise ValueError("a quantile needs at least one value")
    return sorted(values)[max(1, math.ceil(quantile * len(values) - 1e-9)) - 1]


def leading(times: Mapping[str, float]) -> str:
    """The name of the largest time if it is at least 1.3 times the second, else "mixed"; "unknown" without any."""
    ordered = sorted(times.items(), key=lambda item: -item[1])
    if not ordered or ordered[0][1] <= 0:
        return "unknown"
    return ordered[0][0] if len(ordered) == 1 or ordered[0][1] >= DOMINANT * ordered[1][1] else "mixed"


def got(pairs: Iterable[tuple[int | None, int]]) -> float | None:
    """The share of what was asked that came, over (got, asked); what was not counted is left out, None without any."""
    known = [(came, asked) for came, asked in pairs if came is not None]
    return sum(came for came, _ in known) / max(1, sum(asked for _, asked in known)) if known else None


def fits(pool_tokens: int, length: float, block_size: int | None = None) -> float:
    """How many requests of `length` tokens a pool holds when each takes whole blocks and every layer keeps all."""
    block = block_size or 1
    return pool_tokens / (math.ceil(max(1.0, length) / block) * block)
