"""Does a service meet an SLO? Three outcomes over all requests of several loads, whose requests may depend on each
other.

A closed loop and independent arrivals ("bursts") are pooled for a pass, which also needs the share of misses of each
within the allowed one. For a fail they are judged together and each alone, and share the risk: half of it for both
together, a quarter for each. Chance of a pass and of a fail in per cent by the true shares of misses, p95 at confidence
0.95 over 250 independent requests of each:

| closed loop | 5 % | 0 | 0 | 0 | 1 % | 2 % | 2 % | 10 % |
|---|---|---|---|---|---|---|---|---|
| bursts | 5 % | 6 % | 8 % | 10 % | 3 % | 2 % | 8 % | 10 % |
| pass, fail | 3, 3 | 26, 5 | 3, 35 | 0, 77 | 95, 0 | 97, 0 | 2, 35 | 0, 99 |

Requests that fare alike in waves are worth less than their number. Where few of them miss the limit, the misses cannot
show it, so that the slowest fifth stands in for them: how strongly excesses over a high level cluster changes little
from one high level to the next (the extremal index: Leadbetter, Lindgren and Rootzen, Extremes and Related Properties
of Random Sequences and Processes, 1983, section 3.7). A p95 at the limit (5 % miss, so that 5 % may pass and 5 % fail),
and the power where 1 % miss, in per cent of 400 simulated loads of 200 requests (`tests/unit/waves.py`):

| requests | pass by misses alone | pass | fail | pass at 1 % |
|---|---|---|---|---|
| independent | 2 | 2 | 4 | 92 |
| waves of 3 that are alike | 4 | 2 | 2 | 41 |
| waves of 10 that are alike | 36 | 0 | 0 | 0 |
| waves of 10, four fifths of the variance common | 20 | 2 | 3 | 5 |
| waves of 10, half of it common | 12 | 4 | 6 | 34 |
| waves of 40 that are alike | 72 | 0 | 1 | 2 |
| autoregressive, 0.5 | 5 | 0 | 3 | 51 |
| autoregressive, 0.95 | 39 | 1 | 2 | 2 |
| waves of 10 whose level has a heavy tail | 33 | 1 | 3 | 7 |
| times in a queue, busy half of the time | 18 | 8 | 1 | 28 |
| times in a queue, busy for four fifths | 66 | 1 | 2 | 2 |
| waves of 10 whose requests all miss or show nothing | 37 | 37 | 0 | 82 |

The last row is what no look at the requests can tell: a bad wave that none of them met and none foreshadowed. Others
count as the few waves they are, which a count of misses may never pass. They may pass by their level too, far from the
limit: a normal tolerance bound on the logarithms of the slower half, for as many independent requests as they are
worth, at a hundredth of the allowed share. Times per token always come in waves, since streams that run together share
their steps; each is a mean of many steps, with light tails, and is bound at a tenth. In the rows above that
adds at most 2 % to a pass at the limit.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from auditor.theory.statistics import (
    Interval,
    Outcome,
    effective_size,
    fails,
    median,
    missing,
    passes,
    quantile_interval,
    share_interval,
    tolerance_factor,
)
from auditor.units import count

__all__ = [
    "GONE",
    "MEANS_TAIL",
    "TAIL",
    "Judged",
    "Part",
    "decide_ceiling",
    "decide_share",
    "judge_ceiling",
    "judge_share",
    "look_confidences",
    "with_silence",
    "worth",
]

GONE = 15  # failures in a row, at the end, that no chance explains: the service is gone
HIGH = 0.2  # of the requests: the slowest, which show how misses would cluster
FIRST_LOOK = 0.8  # of the risk of a wrong outcome, where a second look at more requests is planned
TAIL, MEANS_TAIL = 0.01, 0.1  # of the allowed share: how far out a bound by levels must hold, as tails are heavier than
# normal; those of figures that are themselves means of many steps less so
UNKNOWN = Interval(-math.inf, math.nan, math.inf)
FEWEST = 3  # independent requests without which levels bound nothing
MEDIAN_COSTS = math.pi / 2  # as many values give a median what a mean has, of normal ones


@dataclass(frozen=True, slots=True)
class Part:
    """Requests of one load in start order: their seconds, failed ones as math.inf.

    `open` tells independent arrivals from a closed loop; `look` 2 is a load that ran because the others did not decide.
    """

    values: tuple[float, ...]
    open: bool = False
    look: int = 1

    def bad(self, limit: float) -> int:
        """How many are over the limit."""
        return sum(x > limit for x in self.values)


@dataclass(frozen=True, slots=True)
class Judged:
    """An SLO's outcome over `n` requests of which `bad` broke it.

    `effective` is the size of an independent sample of equal worth, `value` the quantile (or the share of bad requests)
    with its interval, `missing` how many more good requests would make it pass; None: no number would. `allowed` is the
    share that may be bad. `gone` counts the requests at the end that failed one and all, where they are too many for
    chance. `kinds` are (name, requests, bad ones) of the closed loop and the bursts where there are both, `alone` names
    the one that fails by itself. `by_level` says that requests depend too much on each other to be counted, and that
    the level of all of them lies far enough within the limit. `each` is what an undecided outcome
    would be, had each request fared by itself.
    """

    status: Outcome
    n: int
    bad: int
    effective: float
    value: Interval
    missing: int | None
    allowed: float
    gone: int = 0
    kinds: tuple[tuple[str, int, int], ...] = ()
    alone: str | None = None
    by_level: bool = False
    each: Outcome = "inconclusive"

    @property
    def on_course(self) -> bool:
        """Undecided for want of requests alone: their share of bad ones is one that the SLO allows."""
        shares = ((self.n, self.bad), *((n, bad) for _, n, bad in self.kinds))
        within = all(bad <= self.allowed * n for n, bad in shares)
        return self.status == "inconclusive" and self.missing is not None and within

    @property
    def verdict(self) -> str:
        """The status in words."""
        if self.gone:
            return f"the last {self.gone} all failed, the service stopped answering"
        words = {"pass": "few enough to be sure", "fail": "too many beyond doubt", "inconclusive": "too close to call"}
        if self.by_level:
            return f"few, and the level of the {self.effective:.0f} independent ones they are worth is far from it"
        if self.each == "fail":
            return "too many, had each missed it by itself, but they missed it together, in too few crowds to be sure"
        if self.each == "pass":
            return f"few, but requests fare alike, worth {self.effective:.0f} independent ones: too few to be sure"
        return words[self.status] + (f" ({self.alone})" if self.alone else "")

    @property
    def apart(self) -> str:
        """How many of each kind broke it, where there are two: "closed loop 3 of 250, bursts 9 of 250"."""
        return ", ".join(f"{name} {bad} of {n}" for name, n, bad in self.kinds)

    @property
    def more(self) -> str | None:
        """What an inconclusive outcome lacks: "37 more good requests"."""
        if self.status != "inconclusive":
            return None
        if self.each == "fail":
            return "a longer load, which tells whether such crowds come again"
        if self.missing is None:
            return "a limit that a finite number of requests can prove (0 % is none)"
        return f"{self.missing:,} more good requests"

    def how_to_decide(self, cls: str | None, stopped: Iterable[str | None]) -> tuple[str, ...]:
        """What helps where only requests (of a class) are missing; `stopped` says why loads ended early."""
        more, of = self.missing or 0, f" of class {cls}" if cls else ""
        ended = next((why for why in stopped if why and "time budget" in why), None)
        field = f"probe.budget.duration ({ended})" if ended else "probe.budget"
        return (f"measure {count(more, 'more request')}{of} at the target, {self.n + more:,} in all: raise {field}",)


def look_confidences(confidence: float, *, reserve: bool) -> tuple[float, ...]:
    """The confidence of each look: one look takes all of the risk; with a reserve the first takes four fifths of it.

    Bonferroni with weights: whatever is seen at the first look, both together are wrong at most as often as one.
    """
    risk = 1 - confidence
    return (1 - FIRST_LOOK * risk, 1 - (1 - FIRST_LOOK) * risk) if reserve else (confidence,)


def decide_ceiling(
    parts: Sequence[Part], limit: float, share: float, looks: Sequence[float], *, tail: float = TAIL
) -> Judged:
    """Do `share` of the requests stay within `limit`? `looks` are the confidences of `look_confidences`.

    `tail` is the part of the allowed share at which a bound by levels must hold. Raises ValueError on no values.
    """
    value = quantile_interval([x for part in parts for x in part.values], share, _risk_of(looks))
    return replace(_decided(parts, limit, share, looks, tail), value=value)


def decide_share(bad: Sequence[Part], share: float, looks: Sequence[float]) -> Judged:
    """Are `share` of the requests good? The parts hold math.inf for bad ones and 0 for others."""
    n, count = sum(len(part.values) for part in bad), sum(part.bad(0.0) for part in bad)
    value = share_interval(n, count, _risk_of(looks))
    return replace(_decided(bad, 0.0, share, looks), value=value)


def with_silence(judged: Judged, silence: int) -> Judged:
    """A service that answered nothing any more at the end (`silence`, failures in a row as they ended) has failed,
    however few independent requests that is worth.
    """
    return replace(judged, status="fail", gone=silence) if silence >= GONE else judged


def judge_ceiling(values: Sequence[float], limit: float, share: float, confidence: float) -> Judged:
    """`decide_ceiling` over one load at one look."""
    return decide_ceiling([Part(tuple(values))], limit, share, (confidence,))


def judge_share(bad: Sequence[bool], share: float, confidence: float) -> Judged:
    """`decide_share` over one load at one look."""
    return decide_share([Part(tuple(math.inf if b else 0.0 for b in bad))], share, (confidence,))


def _risk_of(looks: Sequence[float]) -> float:
    """The confidence of all looks together."""
    return 1 - sum(1 - confidence for confidence in looks)


# ------------------------------------------------------------------------------------------------------------- outcome


def _decided(parts: Sequence[Part], limit: float, share: float, looks: Sequence[float], tail: float = TAIL) -> Judged:
    """Fail if a look fails; else pass if a look passes and no kind of load misses more than allowed over all."""
    n, bad, allowed = sum(len(part.values) for part in parts), sum(part.bad(limit) for part in parts), 1 - share
    worths = [_worth(part, limit, allowed) for part in parts]
    effective = sum((worth.size for worth in worths), 0.0)
    kinds = _kinds(parts, limit)
    known = Judged("inconclusive", n, bad, effective, UNKNOWN, None, allowed, 0, kinds if len(kinds) > 1 else ())
    if share >= 1:  # nothing proves "never"; one case disproves it
        return replace(known, status="fail" if bad else "inconclusive")
    seen = list(_seen(worths, looks))
    alone = [_failed(of_look, share, confidence) for of_look, confidence in seen]
    if any(name is not None for name in alone):
        return replace(known, status="fail", missing=0, alone=next(name for name in alone if name is not None) or None)
    within = all(wrong <= allowed * size + 1e-9 for _, size, wrong in kinds)
    if within and any(_passed(of_look, share, confidence) for of_look, confidence in seen):
        return replace(known, status="pass", missing=0)
    if within and any(_far(of_look, limit, 1 - tail * allowed, share, confidence) for of_look, confidence in seen):
        return replace(known, status="pass", missing=0, by_level=True)
    lacking, each = _lacking(worths, kinds, share, seen[-1][1]), _by_themselves(worths, within, share, seen[-1][1])
    return replace(known, missing=lacking, each=each)


def _by_themselves(worths: Sequence["_Worth"], within: bool, share: float, confidence: float) -> Outcome:
    """The outcome, had each request fared by itself."""
    sized = ((worth, float(len(worth.part.values))) for worth in worths)
    whole = [replace(worth, certain=size, size=size) for worth, size in sized]
    if _failed(whole, share, confidence) is not None:
        return "fail"
    return "pass" if within and _passed(whole, share, confidence) else "inconclusive"


def _kinds(parts: Sequence[Part], limit: float) -> tuple[tuple[str, int, int], ...]:
    """(name, requests, bad ones) of the closed loop and of the bursts, where they sent something."""
    found = []
    for name, is_open in (("closed loop", False), ("bursts", True)):
        of = [part for part in parts if part.open == is_open and part.values]
        if of:
            found.append((name, sum(len(part.values) for part in of), sum(part.bad(limit) for part in of)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Worth:
    """A part, its bad requests, and the independent requests it is worth: by its misses alone (`certain`), and by its
    slowest requests too (`size`).
    """

    part: Part
    bad: int
    certain: float
    size: float

    def scaled(self, size: float) -> tuple[float, float]:
        """The size and the bad requests in it."""
        n = len(self.part.values)
        return (size, self.bad * size / n) if n else (0.0, 0.0)


def _worth(part: Part, limit: float, allowed: float) -> _Worth:
    """A fail counts dependence among misses alone, a pass also that among the slowest."""
    n, bad, slowest = len(part.values), part.bad(limit), min(0.5, max(HIGH, allowed))
    certain = effective_size([x > limit for x in part.values])
    size = certain if bad >= slowest * n else min(certain, worth(part.values, slowest))
    return _Worth(part, bad, certain, size)


def worth(values: Sequence[float], slowest: float = HIGH) -> float:
    """The independent requests that these are worth, in start order, by how the `slowest` share of them cluster."""
    if not values:
        return 0.0
    level = sorted(values)[len(values) - math.ceil(slowest * len(values))]
    return effective_size([x >= level for x in values])


def _seen(worths: Sequence[_Worth], looks: Sequence[float]) -> Iterable[tuple[list[_Worth], float]]:
    """What each look saw, with its confidence: the first what was planned, the second all."""
    yield [worth for worth in worths if worth.part.look == 1 or len(looks) == 1], looks[0]
    if len(looks) > 1 and any(worth.part.look > 1 for worth in worths):
        yield list(worths), looks[1]


def _totals(worths: Sequence[_Worth], *, certain: bool) -> tuple[int, float]:
    """Independent requests, whole ones, and the bad ones among them."""
    pairs = [worth.scaled(worth.certain if certain else worth.size) for worth in worths]
    size, bad = math.fsum(a for a, _ in pairs), math.fsum(b for _, b in pairs)
    whole = math.floor(size + 1e-9)
    return max(1, whole) if size else 0, bad * (max(1, whole) / size) if size else 0.0


def _passed(worths: Sequence[_Worth], share: float, confidence: float, *, certain: bool = False) -> bool:
    size, bad = _totals(worths, certain=certain)
    return passes(size, math.ceil(bad - 1e-9), share, confidence)


def _failed(worths: Sequence[_Worth], share: float, confidence: float) -> str | None:
    """Which kind of load fails by itself, "" if all together do; None where nothing fails."""
    names = {False: "closed loop", True: "bursts"}
    groups = {is_open: [w for w in worths if w.part.open == is_open and w.part.values] for is_open in names}
    tests = [("", list(worths), 1.0)]
    if all(groups.values()):
        tests = [("", list(worths), 0.5), *((names[o], group, 0.25) for o, group in groups.items())]
    for name, group, weight in tests:
        size, bad = _totals(group, certain=True)
        if fails(size, math.floor(bad + 1e-9), share, 1 - weight * (1 - confidence)):
            return name
    return None


def _far(worths: Sequence[_Worth], limit: float, out: float, share: float, confidence: float) -> bool:
    """Whether misses are few and the level of all requests lies far within the limit, however few they are worth.

    A one-sided normal tolerance bound on the logarithms, at the quantile `out`. Their scatter is that of the half above
    the median: what is fast says nothing of the slow.
    """
    values = [x for worth in worths for x in worth.part.values]
    if not all(0 < x < math.inf for x in values) or not _passed(worths, share, confidence, certain=True):
        return False
    logs = [math.log(x) for x in values]
    middle = median(logs)
    above = [(x - middle) ** 2 for x in logs if x >= middle]
    scatter = math.sqrt(math.fsum(above) / len(above))
    means = math.fsum(_by_median(worth.part.values) for worth in worths) / MEDIAN_COSTS
    scatters = math.fsum(worth.size for worth in worths) / 2
    if min(means, scatters) < FEWEST:
        return False
    factor = tolerance_factor(means, scatters, out, confidence)
    return middle + factor * scatter <= math.log(limit)


def _by_median(values: Sequence[float]) -> float:
    """The independent values that these are worth by who is over their median."""
    middle = median(values) if values else 0.0
    return effective_size([x > middle for x in values])


def _lacking(worths: Sequence[_Worth], kinds: Sequence[tuple[str, int, int]], share: float, confidence: float) -> int:
    """How many more good requests, in proportion to what those seen are worth, until it passes."""
    n, (size, bad) = sum(len(worth.part.values) for worth in worths), _totals(worths, certain=False)
    more = missing(size, math.ceil(bad - 1e-9), share, confidence)
    over = sum(max(0, math.ceil(wrong / (1 - share) - 1e-9) - of) for _, of, wrong in kinds)
    return max(over, math.ceil(more * n / size - 1e-9) if size else more)
