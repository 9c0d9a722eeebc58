"""What bounds prefill and decode, told from outside: the four times at the target by the ladders, and how sure that is.

Reading weights, reading the cache, multiplying, and everything else. The largest bounds the phase where it is 1.3 times
the next; otherwise it is mixed. Everything that the ladders leave open is tried at both ends: a bound is certain where
all choices agree on it and the ladders' slopes do not speak against it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from auditor.theory.classes import bare
from auditor.theory.core_bound import core_decode_times, core_prefill_times
from auditor.theory.decode_bound import Facts, decode_times, facts, reading_share
from auditor.theory.device import Device
from auditor.theory.judging import leading
from auditor.theory.knee import Knee, knee
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import NOISY, Ladders
from auditor.theory.phases import critical_tokens
from auditor.theory.physics import sure_seconds
from auditor.theory.prefill_bound import prefill_times
from auditor.theory.prompt_costs import FLAT, PromptCosts, prompt_costs
from auditor.theory.roofline import prefill_limit
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval
from auditor.theory.step_costs import READ, StepCosts, cache_seconds, step_costs
from auditor.theory.weights import streamed_bytes
from auditor.theory.work import decode_kv_bytes
from auditor.units import percent, plain

__all__ = ["Bound", "Classification", "Efficiency", "PhaseBound", "classify"]

Bound = Literal["compute", "weights", "kv", "overhead", "mixed"]

_PRECISE = 0.07  # half the width of a share's interval, up to which it is identified
_CHANCE = 1.68  # times a 95 % interval is a 99.9 % one: what rests on chance alone must be this precise
_TILE = 64  # rows of a tile: below, a step of more streams takes no longer though it multiplies
_LENGTHS = 3  # of prompts bound by compute, which their share of the peak needs
_USUAL = (0.7, 1.0, 1.3)  # times the usual share of the peak that products reach, where no ladder tells
_LEAST, _MOST = 0.6, 0.95  # times the usual share, and the share itself, within which a ladder is believed
_EXCHANGES = Interval(0.1, 0.7, 1.4)  # times what links are known to take, where no ladder tells
_FLATLY, _STEEPLY = 0.25, 0.6  # slopes below which no cache or products rule a step, and above which they do
_SLOW = 10.0  # inverse share of the peak beyond which attention is slower than fused kernels anywhere
_FAST = 1.05  # times the time in which the weights cannot be read, beyond the doubt of data sheets and clocks
_OFF = 0.1  # how far steps may lie off the law: those of 200 deployments that follow it do by 0.07 at most
_SHORT = 1.05  # times the ladder's largest batch, beyond which it says nothing of the target


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The share of a peak that is reached (95 % interval). `lacking` says why it is not identified; None: it is."""

    share: Interval
    lacking: str | None

    @property
    def identified(self) -> bool:
        """Whether the ladders tell it within 7 %."""
        return self.lacking is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBound:
    """What bounds a phase at the target. `parts` are its times in seconds, each within what the ladders allow, of
    `seconds` in all; parts that overlap do not add up. `possible` are the bounds that these allow. `conflict` says what
    speaks against the bound, `noise` is the scatter of a ladder whose times cannot be read, `off` how far it lies off
    the law where that is too far for its shares to be told.
    """

    bound: Bound
    seconds: float
    parts: Mapping[str, Interval]
    possible: tuple[Bound, ...]
    conflict: str | None = None
    noise: float | None = None
    off: float | None = None

    @property
    def certain(self) -> bool:
        """Whether everything that the ladders allow is bound alike, and nothing speaks against it."""
        return self.possible == (self.bound,) and self.conflict is None and self.noise is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What the ladders tell of a deployment at its target; None where they do not.

    Shares of the bandwidth that reading `weights` and the `cache` reaches, of the compute peak that all `flops` of the
    ladder's longest prompt do, and those of `attention`. `fused` says whether attention costs what fused kernels need.
    `slope` is that of a step, d log T / d log B, below the ladder's largest batch. `notes` say what the ladders leave
    out, or do not tell.
    """

    prefill: PhaseBound | None = None
    decode: PhaseBound | None = None
    weights: Efficiency | None = None
    cache: Efficiency | None = None
    flops: Efficiency | None = None
    attention: Efficiency | None = None
    fused: bool | None = None
    slope: Interval | None = None
    knee: Knee | None = None
    notes: tuple[str, ...] = ()


def classify(geometry: Geometry, settings: Settings, device: Device, ladders: Ladders) -> Classification:
    """Read the ladders against what arithmetic knows of the model and the device."""
    device = device.at(_moved(geometry, settings, ladders))
    prompts = prompt_costs(geometry, settings, device, ladders.prompts)
    costs = step_costs(geometry, settings, device, ladders.steps) if _plain(settings, ladders) else None
    found = Classification(notes=tuple(_notes(settings, ladders, prompts)))
    if prompts is not None:
        doubt = _doubt(_too_fast(geometry, settings, device, prompts), _unread(settings, device, prompts))
        lacking = doubt or (None if _known_peak(device) else "the peak is no more than an upper bound")
        found = replace(
            found,
            prefill=_prefill(geometry, settings, device, ladders, prompts),
            flops=_flops(prompts, lacking),
            attention=_efficiency(prompts.attention, lacking) if prompts.attention else None,
            fused=_fused(prompts.attention) if lacking is None else None,
        )
        prompts = prompts if doubt is None else None
    if costs is None:
        return found
    known = facts(geometry, settings, device, ladders)
    points = _points(geometry, settings, device, ladders, costs)
    decode = _decode(geometry, settings, device, ladders, known, costs, prompts, _slope(points))
    doubt = _doubt(_outruns(known, costs), decode.noise or decode.off)
    return replace(
        found,
        decode=decode,
        weights=_weights(known, costs, doubt),
        cache=_cache(known, costs, doubt),
        slope=_slope(points),
        knee=knee(points),
    )


def _doubt(faster: str | None, noise: float | None) -> str | None:
    """Why a ladder's times tell no share of a peak: no such hardware gives them, or they follow no law."""
    return faster or (None if noise is None else f"times lie off any law by {percent(noise)}")


def _moved(geometry: Geometry, settings: Settings, ladders: Ladders) -> float:
    """Bytes that a step at the target reads."""
    cached = decode_kv_bytes(geometry, settings, ladders.batch, ladders.context)
    return streamed_bytes(geometry, settings, ladders.batch, limit=False) + cached


def _plain(settings: Settings, ladders: Ladders) -> bool:
    """Whether a step gives each stream one token, and runs on one stage."""
    return ladders.accepted == 1.0 and settings.speculative_tokens == 0 and settings.pipeline_parallel == 1


def _notes(settings: Settings, ladders: Ladders, prompts: PromptCosts | None) -> list[str]:
    notes = []
    if prompts is not None and prompts.chunked:
        size = settings.max_num_batched_tokens
        notes.append(f"prompts of more than {plain(size, 3) if size else 'some thousand'} tokens were read in chunks")
    for batch, context in ladders.queued:
        load = f"{plain(batch, 3)} streams at {plain(context, 3)} tokens"
        notes.append(f"{load} never decoded all at once (they queued, or prompts outlasted replies)")
    if ladders.steps and not _plain(settings, ladders):
        what = "pipeline stages" if settings.pipeline_parallel > 1 else "speculation"
        notes.append(f"a step's parts are not told apart under {what}")
    return notes


# -------------------------------------------------------------------------------------------------------------- phases


def _bound(
    times: Sequence[Mapping[str, float]], seconds: float, conflict: str | None, noise: float | None
) -> PhaseBound:
    """The likeliest choice's bound, and what every other choice says."""
    likely = times[0]
    possible = {leading(each) for each in times}
    parts = {
        name: Interval(min(each[name] for each in times), likely[name], max(each[name] for each in times))
        for name in likely
    }
    return PhaseBound(
        bound=cast(Bound, leading(likely)),
        seconds=seconds,
        parts=parts,
        possible=cast(tuple[Bound, ...], tuple(sorted(possible))),
        conflict=conflict,
        noise=noise,
    )


def _prefill(
    geometry: Geometry, settings: Settings, device: Device, ladders: Ladders, costs: PromptCosts
) -> PhaseBound | None:
    """What bounds the step that reads a prompt of the target's, or as much of it as a step takes."""
    tokens = min(ladders.prompt, settings.max_num_batched_tokens or ladders.prompt)
    seconds = costs.idle.seconds(tokens)
    read = core_prefill_times if bare(settings, device) else prefill_times
    times = read(geometry, settings, device, costs, _believed(device, costs, costs.usual), tokens)
    if not times or seconds is None:
        return None
    bound, conflict = leading(times[0]), _too_fast(geometry, settings, device, costs)
    if conflict is not None:
        pass
    elif bound == "compute" and seconds <= FLAT * costs.idle.fixed:
        conflict = "its first token comes about as soon as a short prompt's"
    elif bound == "weights" and tokens >= 2 * critical_tokens(geometry, settings, device):
        conflict = "it has twice the tokens from which products take longer than reading the weights"
    return _bound(times, seconds, conflict, _unread(settings, device, costs))


def _unread(settings: Settings, device: Device, costs: PromptCosts) -> float | None:
    """How far prompts lie off the law, where too far to read them. On bare cores kernels follow none of FLOPs."""
    if costs.idle.noise is not None or costs.misses <= NOISY or bare(settings, device):
        return costs.idle.noise
    return costs.misses


def _too_fast(geometry: Geometry, settings: Settings, device: Device, costs: PromptCosts) -> str | None:
    """What says that prompts were read faster than the device can, by figures that are certain."""
    for tokens, seconds, _ in costs.idle.medians:
        if _FAST * seconds < sure_seconds(device, prefill_limit(geometry, settings, device, tokens)):
            what = f"a prompt of {plain(tokens, 6)} tokens would be read faster than the device can"
            return f"{what}: hardware, model or cached prompts are not as declared"
    return None


def _decode(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    ladders: Ladders,
    known: Facts,
    costs: StepCosts,
    prompts: PromptCosts | None,
    slope: Interval | None,
) -> PhaseBound:
    """What bounds a decode step at the target."""
    off = None
    exchanges = prompts.exchanges if prompts is not None else _EXCHANGES
    products = _believed(device, prompts, known.law.products)
    if bare(settings, device):
        times = core_decode_times(geometry, known, costs, products)
    else:
        times, misses = decode_times(known, costs, products, exchanges)
        off = misses if misses > _OFF and _known_peak(device) else None
    bound, conflict = leading(times[0]), _outruns(known, costs)
    largest, cache = costs.levels[-1][0], costs.measured
    flat = slope is not None and slope.high < _FLATLY
    steep = slope is not None and slope.low >= _STEEPLY
    if conflict is not None:
        pass
    elif ladders.batch > _SHORT * largest:
        conflict = f"the ladder ends at {plain(largest, 3)} streams, below the target"
    elif flat and (bound == "kv" or (bound == "compute" and known.rows(known.batch) > _TILE * known.ranks)):
        conflict = "a step of more streams takes hardly longer"
    elif steep and (bound == "overhead" or (bound == "weights" and known.routed is None)):
        conflict = "a step takes longer almost in proportion to its streams"
    elif bound == "kv" and (cache is None or cache.low <= 0):
        conflict = "steps do not grow with the context"
    elif off is not None:
        conflict = f"steps lie {percent(off)} off any law of weights, cache and products"
    seconds = costs.level(known.batch) + costs.cost.point * known.cache
    return replace(_bound(times, seconds, conflict, costs.noise), off=off)


def _outruns(known: Facts, costs: StepCosts) -> str | None:
    """What says that steps read faster than the device can."""
    (first, level, _), cache = costs.levels[0], costs.measured
    if _FAST * level < known.dense + known.covered(first, 0) * known.experts:
        return "the weights would be read faster than the device can: they or it are not as declared"
    if cache is not None and 0 < cache.high * READ < 1 and not (known.multiplied or known.launched):
        return "the cache would be read faster than the device can: context or cache are not as declared"
    return None


def _believed(device: Device, costs: PromptCosts | None, usual: float) -> Interval:
    """The share of the peak that products reach: by the prompts' ladder where that tells, else the usual one. Where the
    peak is no more than an upper bound, no share of it is too low to be believed.
    """
    found = costs.products if costs is not None else None
    if found is not None and not _known_peak(device):
        return Interval(found.low, min(found.point, _MOST), min(found.high, 1.0))
    if found is None:
        return Interval(*(min(_MOST, usual * times) for times in _USUAL))
    return Interval(max(found.low, _LEAST * usual), min(found.point, _MOST), min(found.high, 1.0))


def _points(
    geometry: Geometry, settings: Settings, device: Device, ladders: Ladders, costs: StepCosts
) -> list[tuple[float, float, float]]:
    """(batch, seconds a step, standard error) at the target's context, by the ladder's levels and the cache's cost."""
    return [
        (batch, level + costs.cost.point * cache_seconds(geometry, settings, device, batch, ladders.context), error)
        for batch, level, error in costs.levels
    ]


def _slope(points: Sequence[tuple[float, float, float]]) -> Interval | None:
    """d log T / d log B between the two largest batches."""
    points = [point for point in points if point[1] > 0]
    if len(points) < 2:
        return None
    (b0, t0, e0), (b1, t1, e1) = points[-2:]
    apart = math.log(b1 / b0)
    point, reach = math.log(t1 / t0) / apart, 2 * math.hypot(e0 / t0, e1 / t1) / apart
    return Interval(point - reach, point, point + reach)


# -------------------------------------------------------------------------------------------------------- efficiencies


def _efficiency(share: Interval, lacking: str | None, precise: float = _PRECISE) -> Efficiency:
    width = math.sqrt(share.high / share.low) - 1 if share.low > 0 else math.inf
    if lacking is None and width > precise:
        lacking = f"the ladder tells it within {percent(width)} only" if math.isfinite(width) else "it hardly shows"
    return Efficiency(share, lacking)


def _flops(costs: PromptCosts, lacking: str | None) -> Efficiency | None:
    if costs.flops is None:
        return None
    few = "too few prompts are long enough to fill the device" if costs.lengths < _LENGTHS else None
    return _efficiency(costs.flops, lacking or few)


def _known_peak(device: Device) -> bool:
    return device.kind != "cpu" and device.certainty("flops") != "C"


def _fused(attention: Interval | None) -> bool | None:
    if attention is None:
        return None
    return True if attention.low > 1 / _SLOW else False if attention.high < 1 / _SLOW else None


def _weights(known: Facts, costs: StepCosts, doubt: str | None) -> Efficiency:
    """By what the smallest step takes: weights are read in that time or less, and never beyond what memory gives."""
    low, likely, high = reading_share(known, costs)
    lacking = "launches may hide it" if known.launched else "it depends on the experts" if known.experts else None
    return _efficiency(Interval(low, likely, high), doubt or lacking)


def _cache(known: Facts, costs: StepCosts, doubt: str | None) -> Efficiency | None:
    """By two contexts of one batch."""
    if costs.measured is None or costs.measured.point <= 0:
        return None
    low, likely, high = (1 / (READ * cost) if cost > 0 else math.inf for cost in _ordered(costs.measured))
    lacking = (
        "launches may hide it" if known.launched else "attention is bound by compute" if known.multiplied else None
    )
    return _efficiency(Interval(low, likely, high), doubt or lacking, _PRECISE / _CHANCE)


def _ordered(cost: Interval) -> tuple[float, float, float]:
    return cost.high, cost.point, cost.low
