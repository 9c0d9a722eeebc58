"""What prompts cost, read off the idle ladder: what is fixed, what a FLOP of products and one of attention takes.

    TTFT = fixed x steps + products / (e_p PEAK) + attention / (e_a PEAK) + text N + links(N)

for prompts long enough to be bound by compute; shorter ones wait for weights and launches and are left out. The FLOPs
are those of the model's geometry, so that the fit's coefficients are inverse shares of the peak. A ladder of few
lengths does not tell five causes apart: what is known of each beforehand stands beside the points, with its spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from auditor.theory import links
from auditor.theory.classes import tiled
from auditor.theory.device import Device
from auditor.theory.idle import Idle, by_length, idle
from auditor.theory.kv.geometry import Geometry
from auditor.theory.leastsquares import Solution, solve
from auditor.theory.priors import PrefillLaw, prefill_law, products_rate
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.weights import streamed_bytes
from auditor.theory.work import prefill_attention_flops, prefill_linear_flops, rate

__all__ = ["ATTENTION", "FILLING", "FLAT", "LAUNCH", "TEXT", "PromptCosts", "Work", "prompt_costs", "prompt_work"]

FLAT = 1.25
"""Times the shortest prompt's TTFT, up to which a prompt's length does not show in its own."""

# What is known beforehand of a prompt: low, likely, high. In the fit half of what lies between stands for the standard
# deviation, and the points decide as far as they tell more.
ATTENTION = Interval(2.0, 3.1, 5.0)
"""Inverse share of the peak that fused attention reaches: 0.2 to 0.6 from short prompts to long ones (Dao, arXiv
2307.08691, figure 4; Shah et al., arXiv 2407.08608, figure 5)."""
TEXT = Interval(0.1e-6, 0.35e-6, 0.7e-6)
"""Seconds a token of reading the prompt's text, before the device sees it: a GB takes less than 20 seconds on a server
(README.md of huggingface/tokenizers), 12 million tokens of 4 bytes a second, an eighth of that on one core."""
FILLING = Interval(0.0, 60.0, 160.0)
"""Tokens that products of few tokens seem to have more, as tiles of 64 to 256 rows are not filled."""
LAUNCH = Interval(0.0, 30e-6, 0.12e-3)
"""Seconds a layer that the shortest prompt waits for launches, which longer ones hide: up to twice what a layer takes a
step beside its bytes (`priors`)."""

_NORMAL = 1.96  # standard errors of a 95 % interval
_KERNELS = 0.04  # by which products of different lengths differ in speed (microsoft/vidur, data/profiling/compute)
_BOUND = 1.5  # times the tokens at which products take as long as reading the weights, from which they rule
_SHOWS = 0.2  # of the longest prompt's time, and of its own size: what attention must take and its error may be
_CHUNK = 8192  # prompt tokens of a step where the engine's limit is not known

# What is known beforehand, as (value, standard deviation): the points decide as far as they tell more.
_PRODUCTS = 0.35  # of the inverse share that `priors` gives
_LINKS = (1.0, 0.6)  # times what `links` says that exchanging activations takes


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCosts:
    """What the `idle` ladder tells with the work of its prompts. Shares of the peak that `products` reach, `attention`
    does, and both together in the longest prompt (`flops`); None where the ladder does not tell, or attention costs too
    little.

    `exchanges` multiplies what links are known to take; `usual` is the share that products usually reach. `lengths`
    counts those that the fit rests on, `misses` is how far they lie off the law, relatively, `chunked` says that some
    prompts took several steps.
    """

    idle: Idle
    products: Interval | None
    attention: Interval | None
    flops: Interval | None
    exchanges: Interval
    usual: float
    lengths: int
    misses: float
    chunked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a prompt of `tokens` in `steps` takes at full peak and bandwidth, in seconds: products, attention, reading
    the weights in every step, and exchanging activations over links.
    """

    tokens: float
    steps: int
    products: float
    attention: float
    read: float
    crossing: float

    @property
    def row(self) -> tuple[float, ...]:
        """What each coefficient of the law multiplies."""
        return float(self.steps), self.products, self.attention, self.tokens, self.crossing


def prompt_costs(
    geometry: Geometry, settings: Settings, device: Device, prompts: Sequence[tuple[float, float]]
) -> PromptCosts | None:
    """Read the idle ladder; None with fewer than two lengths."""
    found = idle(prompts)
    if found is None:
        return None
    medians, groups = found.medians, by_length([point for point in prompts if min(point) > 0])
    law = prefill_law(geometry, settings, device)
    work = {n: prompt_work(geometry, settings, device, n) for n, _, _ in medians}
    used = [n for n, t, _ in medians if _bound(work[n], law) and t >= FLAT * medians[0][1]]
    filling = (FILLING.point, _spread(FILLING)) if tiled(settings, device) else (0.0, 0.0)
    rows, values, errors = _known(geometry, law, work[medians[0][0]], medians[0], filling)
    for group, (length, _, _) in zip(groups, medians, strict=True):
        for n, t in group if length in used else ():
            rows.append(prompt_work(geometry, settings, device, n).row)
            values.append(t)
            errors.append(t * math.hypot(found.scatter, _KERNELS * math.sqrt(len(group))))
    fit = solve(rows, values, errors) if used else None
    top = medians[-1][1]
    return PromptCosts(
        idle=found,
        products=_share(fit, 1) if fit else None,
        flops=_flops(fit, work[medians[-1][0]]) if fit and medians[-1][0] in used else None,
        exchanges=_exchanges(fit),
        attention=_share(fit, 2) if fit and _shows(fit, work[medians[-1][0]], top) else None,
        usual=law.products,
        lengths=len(used),
        misses=_misses(fit, work, medians, used),
        chunked=any(each.steps > 1 for each in work.values()),
    )


def _misses(
    fit: Solution | None, work: dict[float, Work], medians: Sequence[tuple[float, float, float]], used: Sequence[float]
) -> float:
    """The relative RMS of the lengths' medians around the law."""
    offs = [fit.value(work[n].row) / t - 1 for n, t, _ in medians if n in used] if fit is not None else []
    return math.sqrt(math.fsum(off * off for off in offs) / len(offs)) if offs else 0.0


def prompt_work(geometry: Geometry, settings: Settings, device: Device, tokens: float) -> Work:
    """The work of a prompt that has the engine to itself, on one device."""
    devices = settings.tensor_parallel * settings.pipeline_parallel
    steps = math.ceil(tokens / (settings.max_num_batched_tokens or _CHUNK))
    size = tokens / steps * geometry.hidden_size * 2.0
    return Work(
        tokens=tokens,
        steps=steps,
        products=prefill_linear_flops(geometry, tokens) / (devices * products_rate(device, settings)),
        attention=prefill_attention_flops(geometry, tokens) / (devices * rate(device, "bf16")),
        read=steps * streamed_bytes(geometry, settings, tokens / steps, limit=False) / device.bandwidth,
        crossing=2 * geometry.layer_count * steps * links.all_reduce(device, settings.tensor_parallel, size),
    )


def _bound(work: Work, law: PrefillLaw) -> bool:
    """Whether products rule over reading the weights, even at more than their usual share of the peak."""
    return work.products / (1.15 * law.products) >= _BOUND * work.read / law.weights


def _known(
    geometry: Geometry,
    law: PrefillLaw,
    shortest: Work,
    first: tuple[float, float, float],
    filling: tuple[float, float],
) -> tuple[list[tuple[float, ...]], list[float], list[float]]:
    """What is known beforehand, one row a coefficient: what is fixed follows from the shortest prompt's TTFT, which
    holds one reading of the weights.
    """
    tokens, seconds, error = first
    read, one = shortest.read / law.weights, shortest.products / tokens / law.products
    fixed = seconds - read + filling[0] * one - LAUNCH.point * geometry.layer_count
    apart = math.hypot(0.1 * read, filling[1] * one, error, _spread(LAUNCH) * geometry.layer_count)
    known = (
        (max(0.0, fixed), apart),
        (1 / law.products, _PRODUCTS / law.products),
        (ATTENTION.point, _spread(ATTENTION)),
        (TEXT.point, _spread(TEXT)),
        _LINKS,
    )
    rows = [tuple(float(i == j) for j in range(len(known))) for i in range(len(known))]
    return rows, [value for value, _ in known], [spread for _, spread in known]


def _spread(known: Interval) -> float:
    return (known.high - known.low) / 2


def _shows(fit: Solution, longest: Work, seconds: float) -> bool:
    """Whether attention takes enough of the longest prompt's time for the points, not the prior, to tell its cost."""
    cost = fit.coefficients[2]
    return cost * longest.attention >= _SHOWS * seconds and fit.errors[2] < _SHOWS * cost


def _share(fit: Solution, index: int) -> Interval | None:
    """The share of the peak, the inverse of a coefficient; None where that is 0."""
    found = _interval(fit, index)
    if found.point <= 0:
        return None
    return Interval(1 / found.high, 1 / found.point, 1 / found.low if found.low > 0 else math.inf)


def _flops(fit: Solution, longest: Work) -> Interval | None:
    """The share of the peak that all FLOPs of the longest prompt reach: products and attention, whichever is slow."""
    row = (0.0, longest.products, longest.attention, 0.0, 0.0)
    point, reach = fit.value(row), _NORMAL * fit.error(row)
    if point <= 0:
        return None
    least = longest.products + longest.attention
    return Interval(least / (point + reach), least / point, least / (point - reach) if reach < point else math.inf)


def _exchanges(fit: Solution | None) -> Interval:
    """What links take, times what is known of them; by that alone where the points do not tell."""
    if fit is not None and math.isfinite(fit.errors[4]):
        return _interval(fit, 4)
    value, spread = _LINKS if fit is None else (0.0, _LINKS[1])
    return Interval(max(0.0, value - _NORMAL * spread), value, value + _NORMAL * spread)


def _interval(fit: Solution, index: int) -> Interval:
    """A coefficient's 95 % interval."""
    point, reach = fit.coefficients[index], _NORMAL * fit.errors[index]
    return Interval(max(0.0, point - reach), point, point + reach)
