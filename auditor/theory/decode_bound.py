"""The four times of a decode step at the target, told from the ladder over batch and context.

    step(B, C) = rest + each (B - 1) + max(launches, max(weights(B), products (B + filling)) + cache(B, C))

The cache's cost and each batch's level are measured, what a token's products cost is what prompts show, the weights'
bytes are known. Levels tell how many tokens a step of few seems to multiply (tiles are filled with nothing), and, where
kernels are launched one by one, how long launches take. What is left is the rest.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from auditor.theory import links
from auditor.theory.classes import launches, tiled
from auditor.theory.device import Device
from auditor.theory.experts import coverage
from auditor.theory.kv.geometry import Experts, Geometry
from auditor.theory.ladders import Ladders, Step
from auditor.theory.priors import DecodeLaw, decode_law, products_rate
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.step_costs import APART, StepCosts, cache_seconds, multiplies
from auditor.theory.work import decode_linear_flops, linear_devices, streamed

__all__ = ["STREAMED", "Facts", "decode_times", "facts", "reading_share"]

STREAMED = (0.87, 0.96, 1.07)
"""Times the usual share of bandwidth that reading weights reaches: low, likely, high."""

_BEST = 0.95  # the share of bandwidth beyond which nothing reads
# Seconds that engines take for each further sequence: low, likely, high, around the 6 us of served ones (`priors`).
_EACH = (1e-6, 5e-6, 12e-6)
_FILLING = tuple(float(tokens) for tokens in range(0, 80, 8))  # tokens by which few seem more to products
_FILLED = {True: (45.0, 20.0), False: (0.0, 8.0)}  # how many are likely and their spread: tiles are 64 rows high
# Times what layers take beside their bytes in the published measurements of `priors`, which are those of engines of two
# years: likely, and its spread as a factor.
_REST, _REST_APART = 0.8, 2.2
_LAUNCHES = 16  # lengths of launches that are tried
_LAUNCH = 0.5  # of what layers usually take where kernels are launched one by one: their launches
_CAPTURED_LAYER = 60e-6  # ... at most where they are not: 30 to 55 us in `priors`
_CACHES = (0.7, 0.85, 1.0, 1.2, 1.45)  # costs of the cache that are tried where launches may hide it: 0.53 to 1.1 of BW
_ROUGH = 0.02  # of a step, by which tiles and captured sizes make it miss the law (half of what products' speeds do)
_NEAR = 3.0  # chi squared above the best, up to which a choice stays open: 92 % for one that is free
_SEEN = 1.1  # times the weights' time from which a step is seen to multiply
_EXPLAINED = 0.3  # of such a step, which products must explain at the prompts' cost
_CAPTURED = 512  # the largest batch that engines capture by default
_SIZES = (1, 2, 4, *range(8, _CAPTURED + 1, 8))  # batches that engines capture graphs for; others run as the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What arithmetic knows of a deployment, its ladder and its target.

    Seconds at full bandwidth and peak: of `dense` weights, of all `experts`, of a token's products (`one`), of what
    links add for each sequence (`crossing`). `rest` and `launch` are what a step usually takes beside its kernels, and
    to launch them one by one; `launches` says whether they are launched at all, `tiled` whether products of few tokens
    run as tiles. `steps` are the ladder's with what the cache usually costs them, `cache` is that of the target, and
    `multiplied` says that this is attention's FLOPs rather than its bytes.
    """

    settings: Settings
    law: DecodeLaw
    tiled: bool
    launches: bool
    routed: Experts | None
    dense: float
    experts: float
    one: float
    crossing: float
    rest: float
    launch: float
    steps: tuple[tuple[Step, float], ...]
    batch: float
    cache: float
    multiplied: bool

    @property
    def ranks(self) -> int:
        """Data-parallel ranks, each of which runs its part of the batch."""
        return self.settings.data_parallel

    def captured(self, batch: float) -> bool:
        """Whether a step of this batch runs as one captured graph, or without launches that could hide its kernels."""
        most = self.settings.captured_batch or _CAPTURED
        return not self.launches or (not self.settings.enforce_eager and batch / self.ranks <= most)

    @property
    def launched(self) -> bool:
        """Whether kernels are launched one by one in some step of the ladder, or at the target."""
        return not all(self.captured(batch) for batch in (self.batch, *(step.batch for step, _ in self.steps)))

    def rows(self, batch: float) -> float:
        """Tokens that a step multiplies: those of the captured size, on every rank."""
        each = batch / self.ranks
        known = self.tiled and self.captured(batch) and each <= _CAPTURED
        return float(_SIZES[bisect_left(_SIZES, each)]) * self.ranks if known else batch

    def covered(self, batch: float, which: int) -> float:
        """The share of experts that a step touches: the fewest (0), the most (2), or between (1), as tokens that are
        served together choose alike or independently, and those that fill a captured size choose too or do not.
        """
        if self.routed is None:
            return 0.0
        alike, share = coverage(self.routed, batch), self.routed.per_token / self.routed.count
        apart, filled = (1 - math.pow(1 - share, max(1.0, tokens)) for tokens in (batch, self.rows(batch)))
        fewest = min(alike, apart)
        return fewest if which == 0 else filled if which == 2 else (fewest + filled) / 2

    def odd(self, rest: float) -> float:
        """How unlikely it is (chi squared) that this is what a step takes beside its kernels."""
        return _odd(rest / self.rest)


def _odd(ratio: float) -> float:
    return (math.log(max(0.05, ratio)) / math.log(_REST_APART)) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """One choice of what the ladders leave open: the shares of the peaks that weights and products reach, which
    coverage of experts, the cache's cost, seconds for each further sequence (and at least), filling tokens, seconds of
    launches.
    """

    weights: float
    products: float
    coverage: int = 1
    cache: float = 1.0
    each: float = 0.0
    least: float = 0.0
    filling: float = 0.0
    launches: float = 0.0


def facts(geometry: Geometry, settings: Settings, device: Device, ladders: Ladders) -> Facts:
    """What arithmetic knows of a deployment, its ladder and its target."""
    dense, experts = streamed(geometry, settings)
    law, batch = decode_law(geometry, settings, device), ladders.batch

    def crossing(tokens: float) -> float:
        return links.all_reduce(device, settings.tensor_parallel, tokens * geometry.hidden_size * 2.0)

    def cache(tokens: float, context: float) -> float:
        return cache_seconds(geometry, settings, device, tokens, context)

    return Facts(
        settings=settings,
        law=law,
        tiled=tiled(settings, device),
        launches=launches(device),
        routed=geometry.experts,
        dense=dense / device.bandwidth,
        experts=experts / device.bandwidth,
        one=decode_linear_flops(geometry, 1) / (linear_devices(settings) * products_rate(device, settings)),
        crossing=2 * geometry.layer_count * (crossing(batch) - crossing(1)) / max(1.0, batch - 1),
        rest=(min(law.per_layer, _CAPTURED_LAYER) if launches(device) else law.per_layer)
        * geometry.layer_count
        * _REST,
        launch=law.per_layer * geometry.layer_count * _LAUNCH,
        steps=tuple((step, cache(step.batch, step.context)) for step in ladders.steps),
        batch=batch,
        cache=cache(batch, ladders.context),
        multiplied=multiplies(geometry, settings, device, batch, ladders.context),
    )


def decode_times(
    known: Facts, costs: StepCosts, products: Interval, exchanges: Interval
) -> tuple[tuple[dict[str, float], ...], float]:
    """The four times at the target, the likeliest first, then those of every choice that the ladders leave open; and
    how far the steps lie off the law at least (relative RMS), whatever is chosen.

    `products` is the share of the peak that these reach, `exchanges` multiplies what links are known to take.
    """
    likely, *ends = _choices(known, costs, products, exchanges)
    grid = _grid(known, fine=False)
    fitted = [
        fitted
        for choice, tried in ((likely, _grid(known, fine=True)), *((end, grid) for end in ends))
        for fitted in _fitted(known, choice, tried)
    ]
    return tuple(_times(known, costs, each) for each in fitted), min(_off(known, each) for each in fitted)


def _choices(known: Facts, costs: StepCosts, products: Interval, exchanges: Interval) -> Iterator[_Choice]:
    """What is most likely, and every combination of the ends of what is left open."""
    low, likely, high = reading_share(known, costs)
    most = _most_each(costs)
    times = (exchanges.low, exchanges.point, exchanges.high)
    each = tuple(min(most, s / known.ranks + t * known.crossing) for s, t in zip(_EACH, times, strict=True))
    yield _Choice(weights=likely, products=products.point, cache=costs.cost.point, each=each[1], least=each[0])
    spread = (0, 2) if known.experts else (1,)
    caches = (costs.cost.low, costs.cost.high) if not known.launched else (1.0,)
    for w, p, c, e, which in product((low, high), (products.low, products.high), caches, (each[0], each[2]), spread):
        yield _Choice(weights=w, products=p, cache=c, each=e, least=each[0], coverage=which)


def _most_each(costs: StepCosts) -> float:
    """Seconds that no further sequence takes more than: the least by which a level of the ladder rises above the first,
    for each of its sequences.
    """
    (batch, level, error), *others = costs.levels
    rises = [(above - level + 2 * math.hypot(error, apart)) / (more - batch) for more, above, apart in others]
    return max(0.0, min(rises, default=math.inf))


def reading_share(known: Facts, costs: StepCosts) -> tuple[float, float, float]:
    """The share of bandwidth that reading weights reaches: low, likely, high.

    The smallest step's level bounds it from below, as nothing else takes less than no time; the likeliest one leaves
    for the rest what is likely too.
    """
    batch, level, _ = costs.levels[0]
    read = known.dense + known.covered(batch, 0) * known.experts
    low, middle, high = (min(_BEST, known.law.weights * times) for times in STREAMED)
    low = max(low, min(high, read / level)) if level > 0 else high
    apart = known.law.weights * (STREAMED[2] - STREAMED[0]) / 3

    def unlikely(share: float) -> float:
        return ((share - middle) / apart) ** 2 + known.odd(level - read / share)

    return low, min((low + (high - low) * i / 20 for i in range(21)), key=unlikely), high


# ---------------------------------------------------------------------------------------------------------- fitting


def _streamed(known: Facts, choice: _Choice, batch: float) -> float:
    return (known.dense + known.covered(batch, choice.coverage) * known.experts) / choice.weights


def _multiplied(known: Facts, choice: _Choice, batch: float) -> float:
    return known.one / choice.products * (known.rows(batch) + choice.filling * known.ranks)


def _grid(known: Facts, *, fine: bool) -> tuple[tuple[float, float | None, float], ...]:
    """Fillings, costs of the cache (None: as measured) and seconds of launches that are tried."""
    if not known.launched:
        return tuple((filling, None, 0.0) for filling in _FILLING)
    top = max(step.seconds for step, _ in known.steps)
    caches, every = (_CACHES, 1) if fine else (_CACHES[::2], 2)
    launches = tuple(top * i / _LAUNCHES for i in range(0, _LAUNCHES, every))
    return tuple(product(_FILLING[:: 3 * every], caches, launches))


def _fitted(known: Facts, choice: _Choice, grid: tuple[tuple[float, float | None, float], ...]) -> tuple[_Choice, ...]:
    """The choice with the filling and launches that fit best, then the ends of those that fit almost as well."""
    tried = [
        replace(choice, filling=filling, cache=choice.cache if cache is None else cache, launches=launches)
        for filling, cache, launches in grid
    ]
    scored = [(_misses(known, each)[0], i) for i, each in enumerate(tried)]
    best, first = min(scored)
    near = [tried[i] for score, i in scored if score <= best + _NEAR]
    ends = [pick(near, key=lambda c: getattr(c, n)) for n in ("filling", "launches") for pick in (min, max)]
    return (tried[first], *dict.fromkeys(ends))


def _left(known: Facts, choice: _Choice, step: Step, cache: float) -> float:
    """What a step takes beside its kernels and its sequences."""
    kernels = max(_streamed(known, choice, step.batch), _multiplied(known, choice, step.batch))
    launches = 0.0 if known.captured(step.batch) else choice.launches
    return step.seconds - max(launches, kernels + choice.cache * cache) - choice.each * (step.batch - 1)


def _off(known: Facts, choice: _Choice) -> float:
    """How far the steps lie off the law, relatively (RMS)."""
    rest = _misses(known, choice)[1]
    offs = [(_left(known, choice, step, cache) - rest) / step.seconds for step, cache in known.steps]
    return math.sqrt(math.fsum(off * off for off in offs) / len(offs))


def _misses(known: Facts, choice: _Choice) -> tuple[float, float]:
    """How badly the law misses the steps (chi squared, with what is likely beforehand), and the rest that fits best."""
    total = weight = 0.0
    left: list[tuple[float, float]] = []
    for step, cache in known.steps:
        value = _left(known, choice, step, cache)
        trust = 1 / (step.error**2 + (_ROUGH * step.seconds) ** 2)
        left.append((value, trust))
        total, weight = total + value * trust, weight + trust
    rest = max(0.0, total / weight)
    misses = math.fsum((value - rest) ** 2 * trust for value, trust in left)
    filled, apart = _FILLED[known.tiled]
    misses += ((choice.filling - filled) / apart) ** 2 + known.odd(rest)
    if known.launched:
        misses += ((choice.cache - 1) / APART) ** 2 + _odd(choice.launches / known.launch)
    return misses, rest


# ------------------------------------------------------------------------------------------------------- at the target


def _times(known: Facts, costs: StepCosts, choice: _Choice) -> dict[str, float]:
    """The four times at the target: the level's own linear part shows whether it multiplies. Where kernels are called
    one after the other, and the peak is a guess, nothing else grows like that.
    """
    if not known.captured(known.batch):
        return _launched(known, choice)
    batch, level, (first, lowest, _) = known.batch, costs.level(known.batch), costs.levels[0]
    rest = lowest - max(_streamed(known, choice, first), _multiplied(known, choice, first))
    linear = max(0.0, level - max(0.0, rest) - choice.each * (batch - first))
    weights = min(level, _read(known, choice, linear))
    plain = known.one / choice.products * known.rows(batch)
    if linear > _SEEN * weights and (plain > _EXPLAINED * linear or not known.launches):
        most = linear + (choice.each - choice.least) * (batch - first)
        multiplied = min(max(linear, plain), most)
    else:
        multiplied = min(_multiplied(known, choice, batch), max(linear, weights))
    cache = choice.cache * known.cache
    return _named(known, weights, multiplied, cache, level + cache)


def _read(known: Facts, choice: _Choice, linear: float) -> float:
    """Seconds of reading weights at the target. Experts: what the level shows, within what any coverage allows."""
    if choice.coverage != 1 or not known.experts:
        return _streamed(known, choice, known.batch)
    few, many = (_streamed(known, replace(choice, coverage=which), known.batch) for which in (0, 2))
    return min(max(linear, few), many)


def _launched(known: Facts, choice: _Choice) -> dict[str, float]:
    """The four times of a step whose kernels are launched one by one: launches that outlast them are all that shows."""
    rest = _misses(known, choice)[1] + choice.each * (known.batch - 1)
    weights, multiplied = _streamed(known, choice, known.batch), _multiplied(known, choice, known.batch)
    cache = choice.cache * known.cache
    kernels = max(weights, multiplied) + cache
    whole = max(kernels, choice.launches) + rest
    times = _named(known, weights, multiplied, cache, whole)
    return times | {"overhead": whole} if choice.launches > kernels else times


def _named(known: Facts, weights: float, multiplied: float, cache: float, whole: float) -> dict[str, float]:
    return {
        "weights": weights,
        "kv": 0.0 if known.multiplied else cache,
        "compute": multiplied + (cache if known.multiplied else 0.0),
        "overhead": max(0.0, whole - max(weights, multiplied) - cache),
    }
