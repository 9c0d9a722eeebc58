"""`audit fit` in detail: everything that one replica's memory holds, as data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from auditor.catalog import accelerators
from auditor.engines.elsewhere import following, moved
from auditor.engines.flavours import FLAVOURS, flag_names
from auditor.errors import UsageError
from auditor.holding import SHARE_PREFIXES, mixed
from auditor.instruments.brief import doubt, memory_of, weights_of
from auditor.instruments.inputs import Inputs
from auditor.instruments.question import Question
from auditor.theory import answers, shape
from auditor.theory.alternatives import next_up
from auditor.theory.answers import Holding, Saving, Split, Waste
from auditor.theory.carrying import Mix, PoolRange, pool_range
from auditor.theory.changes import Change, changes
from auditor.theory.device import Device
from auditor.theory.kv.pool import capacity
from auditor.theory.memory import Memory
from auditor.theory.settings import Settings
from auditor.theory.statistics import Interval

__all__ = ["Count", "Fit", "Stage", "fit"]

_LENGTHS = (1024, 4096, 16_384, 65_536, 262_144)  # tokens, shown where no lengths are asked for
_QUANTILES: Mapping[str, float | None] = {"p50": 0.5, "p95": 0.95, "max": 1.0, "mean": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Requests of a class (or of the mix) that one replica holds at once, each of `tokens`.

    `at` is p50, p95 or max of the lengths at their end ("end" where all are equal), "mean" over a request's life, or ""
    for a plain length. `waste` is of one request.
    """

    name: str
    at: str
    tokens: float
    requests: Interval
    waste: Waste | None


@dataclass(frozen=True, slots=True)
class Stage:
    """A moment in the life of the target's requests: the tokens that one holds, and what all hold of the pool."""

    name: str
    tokens: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Everything that `audit fit` says of one replica; figures in bytes are of one device.

    `max_concurrency` are requests of the context limit in one data-parallel rank, as engines log it; `batch_limit` what
    the engine lets run at once, over all ranks; `context` the longest request alone and at the target (None without
    one), both capped by `answers.LONGEST`; `split` and `memory` are None where the device is not known.
    """

    inputs: Inputs
    question: Question
    flags: Mapping[str, str]
    memory: Memory | None
    weights: float | None
    pool: PoolRange
    max_concurrency: Interval | None
    batch_limit: int | None
    counts: tuple[Count, ...]
    context: tuple[int, int | None]
    stages: tuple[Stage, ...]
    saving: Saving | None
    split: Split | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def limit(self) -> int | None:
        """The longest request that the engine or the model takes."""
        return _limit(self.inputs)

    def count(self, at: str, name: str = "mix") -> Interval | None:
        """Requests of the mix (or of a class) that fit at these lengths."""
        return next((c.requests for c in self.counts if (c.name, c.at) == (name, at)), None)

    @property
    def decides(self) -> Interval:
        """Requests at the lengths that decide: p95 at their end, or the context limit where no lengths are asked."""
        return self.count("p95") or self.count("end") or self.counts[-1].requests


def fit(found: Inputs, question: Question) -> Fit:
    """Answer a question. Raises UsageError where an input lacks or the engine refuses these settings."""
    geometry, settings, device = found.geometry, found.settings, found.device
    if device is None and (not settings.pins_pool or (found.misnamed and not found.started)):
        raise UsageError(found.no_device)
    try:
        weighed = device is not None and (weights_of(found) is not None or not settings.pins_pool)
        memory = memory_of(found) if weighed else None
        pool = pool_range(geometry, settings, device)
    except ValueError as error:
        raise UsageError(str(error)) from None
    mixes = _mixes(found, question)
    theory = (geometry, settings, device)
    asked = mixed(question.classes, 0.95, once=_once(found), context=None) if question.classes else None
    settle = following(geometry, settings, device, found.sources)
    levers = changes(theory, asked, question.target, _larger(found), question.replicas, settle=settle)
    split = None
    if memory is not None:
        split = answers.split(memory, pool.kv.bytes, _held(found, question, pool, mixes["p95"]))
    return Fit(
        inputs=found,
        question=question,
        flags=flag_names(FLAVOURS.get(settings.engine, FLAVOURS["generic"])),
        memory=memory,
        weights=weights_of(found),
        pool=pool,
        max_concurrency=_max_concurrency(found, pool),
        batch_limit=_batch_limit(found),
        counts=tuple(_counts(found, question, pool, mixes)),
        context=_context(found, question, pool),
        stages=tuple(_stages(found, question, pool, mixes)),
        saving=answers.saving(geometry, settings),
        split=split,
        changes=levers,
        notes=tuple(_notes(found, question, memory, pool)),
    )


def _notes(found: Inputs, question: Question, memory: Memory | None, pool: PoolRange) -> Iterator[str]:
    yield from (*found.notes, *question.notes, *(memory.notes if memory is not None else ()))
    if (said := doubt(found, pool.kv)) is not None:
        yield said


def _larger(found: Inputs) -> tuple[Device, Settings] | None:
    """The next accelerator up in the catalogue, and the same settings there."""
    together = found.settings.devices
    larger = next_up(found.device, accelerators.devices(), together) if found.device is not None else None
    if larger is None:
        return None
    return larger, moved(found.settings, larger)


# ------------------------------------------------------------------------------------------------------------- requests


def _limit(found: Inputs) -> int | None:
    return found.limit


def _once(found: Inputs) -> bool:
    return found.settings.engine in SHARE_PREFIXES


def _mixes(found: Inputs, question: Question) -> dict[str, Mix]:
    """The requests in flight at each quantile of their lengths; without classes all are as long as they may be."""
    if not question.classes:
        return {"p95": Mix(((1.0, float(_limit(found) or _LENGTHS[1])),))}
    return {
        at: mixed(question.classes, quantile, once=_once(found), context=_limit(found))
        for at, quantile in _QUANTILES.items()
    }


def _counts(found: Inputs, question: Question, pool: PoolRange, mixes: Mapping[str, Mix]) -> Iterator[Count]:
    geometry, settings = found.geometry, found.settings
    if not question.classes:
        limit = _limit(found)
        for length in sorted({*(n for n in _LENGTHS if not limit or n < limit), limit or _LENGTHS[-1]}):
            alone = Mix(((1.0, float(length)),))
            wasted = answers.waste(geometry, settings, pool.kv, length)
            yield Count(
                name="", at="", tokens=length, requests=answers.requests(geometry, settings, pool, alone), waste=wasted
            )
        return
    for at in tuple(_QUANTILES) if question.spread else ("p95", "mean"):
        label = at if question.spread or at != "p95" else "end"
        for index, cls in enumerate(question.classes):
            alone = _alone(found, question, mixes[at], index)
            tokens = alone.parts[0][1]
            yield Count(
                name=cls.name,
                at=label,
                tokens=tokens,
                requests=answers.requests(geometry, settings, pool, alone),
                waste=answers.waste(geometry, settings, pool.kv, tokens),
            )
        together = answers.requests(geometry, settings, pool, mixes[at])
        yield Count(name="mix", at=label, tokens=_mean(mixes[at]), requests=together, waste=None)


def _alone(found: Inputs, question: Question, mix: Mix, index: int) -> Mix:
    """One class of the mix as if it were alone, with its own shared prefixes."""
    shared = question.classes[index].shared_prefix
    prefixes = shared.tokens * shared.distinct if shared is not None and _once(found) else 0
    return Mix(((1.0, mix.parts[index][1]),), prefixes)


def _mean(mix: Mix) -> float:
    """Tokens that a request of the mix holds, over the requests in flight."""
    total = sum(weight for weight, _ in mix.parts)
    return sum(weight * held for weight, held in mix.parts) / total if total else 0.0


def _max_concurrency(found: Inputs, pool: PoolRange) -> Interval | None:
    length, ranks = _limit(found), found.settings.data_parallel
    if not length:
        return None
    low, point, high = (
        capacity(found.geometry, found.settings, kv, length) / ranks for kv in (pool.low, pool.kv, pool.high)
    )
    return Interval(low, point, high)


def _batch_limit(found: Inputs) -> int | None:
    settings = found.settings
    limit = settings.slots if settings.engine == "llamacpp" else settings.max_num_seqs
    return limit * settings.data_parallel if limit else None


def _context(found: Inputs, question: Question, pool: PoolRange) -> tuple[int, int | None]:
    theory = found.geometry, found.settings, pool.kv
    together = answers.longest_together(*theory, question.target) if question.target is not None else None
    return answers.longest_alone(*theory), together


# ----------------------------------------------------------------------------------------------------- at the target


def _held(found: Inputs, question: Question, pool: PoolRange, mix: Mix) -> Iterator[Holding]:
    """What the target's requests hold of the pool at p95, class by class, prefixes apart."""
    if question.target is None or pool.kv.tokens <= 0:
        return
    total = sum(weight for weight, _ in mix.parts)
    names = [c.name for c in question.classes] or ["requests"]
    for name, (weight, held) in zip(names, mix.parts, strict=True):
        flight = question.target * weight / total
        one = Mix(((1.0, held),))
        share = answers.share_used(found.geometry, found.settings, pool.kv, one, flight)
        yield Holding(name, flight, share * pool.kv.bytes)
    if mix.prefixes:
        yield Holding("shared prefixes", 0.0, min(1.0, mix.prefixes / pool.kv.tokens) * pool.kv.bytes)


def _stages(found: Inputs, question: Question, pool: PoolRange, mixes: Mapping[str, Mix]) -> Iterator[Stage]:
    """From the moment all prompts are read to all replies at their end: what admitted requests still grow."""
    if question.target is None or not question.classes or pool.kv.tokens <= 0:
        return
    life = mixes["mean"]
    growing = [shape.mean(c.output_tokens.curve) / 2 for c in question.classes]
    limit = float(_limit(found) or answers.LONGEST)
    for name, mix in {
        "prompts read": _moved(life, [-more for more in growing], limit),
        "average over their lives": life,
        "all at their end": _moved(life, growing, limit),
        **({"all at their end, at p95": mixes["p95"]} if question.spread else {}),
    }.items():
        yield Stage(name, _mean(mix), _used(found, pool, mix, question.target))


def _used(found: Inputs, pool: PoolRange, mix: Mix, target: int) -> float:
    """The share of the pool that requests hold; of llama.cpp's slots, which are theirs from the start, the cells that
    tokens fill, where there is a slot for each.
    """
    used = answers.share_used(found.geometry, found.settings, pool.kv, mix, target)
    if found.settings.engine != "llamacpp" or used > 1:
        return used
    return min(used, target * _mean(mix) / pool.kv.tokens)


def _moved(mix: Mix, more: list[float], limit: float) -> Mix:
    parts = tuple((w, min(limit, max(1.0, held + grown))) for (w, held), grown in zip(mix.parts, more, strict=True))
    return replace(mix, parts=parts)
