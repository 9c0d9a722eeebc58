"""`audit fit` as text: the verdict, where the memory goes, what fits, what to change. 80 columns, no colour needed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.engines.flavours import FLAVOURS
from auditor.instruments.fit import Count, Fit
from auditor.instruments.ruling import Ruling
from auditor.report.lines import WIDTH, wrap
from auditor.report.words import clean, clip, quantity
from auditor.theory.answers import LONGEST
from auditor.theory.changes import Change
from auditor.theory.levers import name
from auditor.units import count as number
from auditor.units import in_gib, plain

__all__ = ["Part", "bar", "render"]

_SYMBOLS = "123456789"
_LABEL = 30  # columns of a change's name
_VERDICTS = {"fits": "fits", "may fit": "may fit", "does not fit": "no"}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar: the character it is drawn with, its name, its size, and what there is to say of it."""

    symbol: str
    name: str
    size: float
    note: str = ""


def render(fit: Fit, ruling: Ruling) -> str:
    """The answer as plain text of at most 80 columns."""
    blocks = [
        _head(fit, ruling),
        _memory(fit),
        _pool(fit),
        _counts(fit),
        _more(fit),
        _changes(fit, ruling),
        _notes(fit),
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in map(list, blocks) if block) + "\n"


def _head(fit: Fit, ruling: Ruling) -> Iterable[str]:
    yield from wrap(f"{ruling.status.upper()}: {ruling.why}.")
    yield from wrap(" | ".join(_what(fit)), "  ")


def _what(fit: Fit) -> Iterable[str]:
    geometry, settings, device = fit.inputs.geometry, fit.inputs.settings, fit.inputs.device
    weights = settings.quantization or settings.compute_dtype
    yield clean(geometry.name or "the model", 60) + (f", {clean(weights, 20)}" if weights else "")
    title = FLAVOURS[settings.engine].title if settings.engine in FLAVOURS else settings.engine
    yield f"{clean(title, 40)} {clean(settings.engine_version or '', 20)}".rstrip()
    if device is not None:
        yield f"{settings.devices} x {clean(device.name, 40)}"
    degrees = {"TP": settings.tensor_parallel, "PP": settings.pipeline_parallel, "DP": settings.data_parallel}
    degrees |= {"EP": settings.expert_parallel, "DCP": settings.decode_context_parallel}
    if parallel := ", ".join(f"{word} {degree}" for word, degree in degrees.items() if degree > 1):
        yield parallel
    if fit.question.replicas > 1:
        yield f"{fit.question.replicas} replicas"


# -------------------------------------------------------------------------------------------------------------- memory


def bar(parts: Sequence[Part], width: int = WIDTH - 2) -> str:
    """The parts as one line of `width` characters in brackets; each that is there has at least one."""
    shown = [part for part in parts if part.size > 0]
    total = sum(part.size for part in shown)
    if total <= 0 or len(shown) > width:
        return ""
    spare = width - len(shown)
    exact = [part.size / total * spare for part in shown]
    cells = [1 + math.floor(size) for size in exact]
    rest = sorted(range(len(shown)), key=lambda i: math.floor(exact[i]) - exact[i])
    for i in rest[: width - sum(cells)]:
        cells[i] += 1
    return "[" + "".join(part.symbol * cell for part, cell in zip(shown, cells, strict=True)) + "]"


def _memory(fit: Fit) -> Iterable[str]:
    if fit.split is None or fit.memory is None:
        if fit.weights is not None:
            yield f"weights a device  {in_gib(fit.weights)}"
        return
    parts, usable = _parts(fit), fit.split.usable
    line = bar(_within(parts, usable))
    yield f"one device, {in_gib(usable)} usable"
    if line:
        yield line
    for part in (part for part in parts if part.size > 0):
        share = _most(100 * part.size / usable)
        yield f"  {part.symbol} {clip(part.name, 24):<24}{in_gib(part.size):>12}{share:>9}  {clip(part.note, 29)}"


def _parts(fit: Fit) -> list[Part]:
    split, found = fit.split, fit.memory
    assert split is not None
    assert found is not None
    classes = [
        Part(
            _SYMBOLS[i] if i < len(_SYMBOLS) else "*",
            f"KV of {clean(held.name, 40)}",
            held.bytes,
            _flight(held.requests, fit),
        )
        for i, held in enumerate(split.classes)
    ]
    free = "in the pool" if split.free >= 0 else f"short: the pool is {in_gib(split.pool)}"
    return [
        Part("#", "weights", split.weights),
        Part("+", "overhead", split.overhead, f"{in_gib(found.overhead_low)} to {in_gib(found.overhead_high)}"),
        *classes,
        Part(*((".", "free") if split.free >= 0 else ("!", "missing")), abs(split.free), free),
        Part("x", "outside the budget", split.beyond, "graphs and buffers"),
        Part("-", "not used", split.idle, _fraction(fit)),
    ]


def _within(parts: list[Part], usable: float) -> list[Part]:
    """The parts as they are drawn: what is missing has no place, and classes that need more than there is are cut."""
    fixed = [part for part in parts if part.name != "missing"]
    over = sum(part.size for part in fixed) - usable
    if over <= 1:
        return fixed
    needed = sum(part.size for part in fixed if part.symbol in f"{_SYMBOLS}*")
    scale = max(0.0, 1 - over / needed) if needed else 1.0
    return [Part(p.symbol, p.name, p.size * scale) if p.symbol in f"{_SYMBOLS}*" else p for p in fixed]


def _flight(requests: float, fit: Fit) -> str:
    at = ", at p95" if fit.question.spread else ""
    return f"{plain(requests)} in flight{at}" if requests else "kept once"


def _fraction(fit: Fit) -> str:
    fraction, field = fit.inputs.settings.memory_fraction, name(fit.flags, "gpu_memory_utilization")
    return f"{field} {fraction:g}" if fraction is not None and field is not None else ""


def _most(percent: float) -> str:
    return f"{percent:,.0f} %" if percent < 9999.5 else ">9,999 %"


# ---------------------------------------------------------------------------------------------------------------- pool


def _pool(fit: Fit) -> Iterable[str]:
    kv, low, high = fit.pool.kv, fit.pool.low, fit.pool.high
    size = in_gib(kv.bytes) if fit.pool.exact else f"{in_gib(kv.bytes)} ({in_gib(low.bytes)} to {in_gib(high.bytes)})"
    tokens = f"{kv.tokens:,} tokens"
    blocks = f", {kv.blocks:,} blocks of {kv.block_size}" if kv.blocks is not None else ""
    each = " a rank" if fit.inputs.settings.data_parallel > 1 else ""
    yield from wrap(f"{size} a device, {tokens}{blocks}{each}", "pool      ", 10)
    yield from wrap(clean(kv.rule, 400), "          ", 10)
    if fit.limit and fit.max_concurrency is not None:
        rate = f"{number(fit.max_concurrency.point, 'request')} of {fit.limit:,} tokens at once{each}"
        yield from wrap(rate, "          ", 10)
    if fit.saving is not None and fit.saving.kind != "MHA":
        saved = f"{fit.saving.kind} takes {quantity(fit.saving.now, 'bytes')} a token and device where every head's own"
        less = f"keys and values would take {quantity(fit.saving.every_head, 'bytes')}"
        yield from wrap(f"{saved} {less} ({quantity(fit.saving.share, 'share')} saved)", "          ", 10)


# ------------------------------------------------------------------------------------------------------------ requests


def _counts(fit: Fit) -> Iterable[str]:
    if fit.pool.high.tokens <= 0:
        return
    yield f"{'requests at once':<22}{'tokens':>10}{'fit':>10}  {'band':<18}{'rounding':>9}{'slack':>9}"
    for count in fit.counts:
        if count.name != "mix" or len(fit.question.classes) > 1:
            yield _count(count)
    if fit.batch_limit is not None:
        field = name(fit.flags, "max_num_seqs") or "the batch limit"
        yield f"  {field} lets {fit.batch_limit:,} run at once"


def _count(count: Count) -> str:
    label = f"{clip(count.name, 13):<14}{count.at}" if count.name else "each of"
    low, point, high = (_whole(x) for x in (count.requests.low, count.requests.point, count.requests.high))
    band = "" if low == high else f"{low} to {high}"
    wasted = count.waste
    shares = "" if wasted is None else f"{_share(wasted.rounding):>9}{_share(wasted.slack):>9}"
    return f"  {label:<20}{_many(count.tokens):>10}{point:>10}  {band:<18}{shares}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _whole(requests: float) -> str:
    if requests >= 1e6:
        return f"{requests / 1e6:.1f} M" if requests < 1e9 else ">999 M"
    return f"{math.floor(requests):,}" if requests >= 1 else f"{requests:.2g}"


def _more(fit: Fit) -> Iterable[str]:
    if fit.pool.high.tokens <= 0:
        return
    alone, together = fit.context
    text = f"one request alone: {_tokens(alone)}"
    if fit.limit:
        text += f" (the limit is {fit.limit:,})"
    if together is not None:
        text += f"; {fit.question.target:,} at once: {_tokens(together)}{' each' if together else ''}"
    yield from wrap(text, "context   ", 10)
    for i, stage in enumerate(fit.stages):
        first = clip(f"growth    {fit.question.target:,} in flight", 26) if not i else ""
        yield f"{first:<27}{stage.name:<26}{_many(stage.tokens):>10}{_percent(stage.share):>17}"


def _tokens(tokens: int) -> str:
    return "any length" if tokens >= LONGEST else f"{tokens:,} tokens" if tokens else "none fits"


def _percent(share: float) -> str:
    return "no pool" if math.isinf(share) else f"{_most(100 * share)} of pool"


# ------------------------------------------------------------------------------------------------------------- changes


def _changes(fit: Fit, ruling: Ruling) -> Iterable[str]:
    if not fit.changes:
        return
    replicas = fit.question.replicas
    now = min(fit.decides.point, fit.batch_limit or math.inf) * replicas
    what = f"requests{' at p95' if fit.question.spread else ''}{', all replicas' if replicas > 1 else ''}"
    yield f"{'what to change':<16}{what:>25}{'':>7}{'pool tokens':>12}{'weights':>10}  then"
    figures = f"{_whole(now):>9}{'':>7}{_many(fit.pool.kv.tokens):>12}{_weights(fit.weights):>10}"
    yield f"  {'(as it is)':<{_LABEL}}{figures}  {_VERDICTS.get(ruling.status, 'no')}"
    for change in fit.changes:
        label = _label(change, fit)
        times = _times(_shown(change.requests) / _shown(now)) if _compares(change) and _shown(now) > 0 else ""
        figures = f"{_whole(change.requests):>9}{times:>7}{_many(change.pool_tokens):>12}{_weights(change.weights):>10}"
        if len(label) > _LABEL:
            yield from wrap(label, "  ", 4)
        shown = label if len(label) <= _LABEL else ""
        yield f"  {shown:<{_LABEL}}{figures}  {_VERDICTS[change.verdict]}"


def _compares(change: Change) -> bool:
    """Whether requests are those of now: under another context limit they may be shorter ones."""
    return not {"max_model_len", "context"} & {change.field, *(field for field, _ in change.also)}


def _shown(requests: float) -> float:
    """Requests as the table shows them, so that the factor is that of the figures beside it."""
    return float(math.floor(requests)) if requests >= 1 else float(f"{requests:.2g}")


def _many(tokens: float) -> str:
    return f"{tokens:,.0f}" if tokens < 1e9 else f"{min(tokens / 1e9, 1e6):,.1f} G"


def _times(factor: float) -> str:
    return f"x{factor:.2f}" if factor < 100 else f"x{factor:,.0f}" if factor < 9999.5 else ">x9,999"


def _weights(size: float | None) -> str:
    return "" if size is None else in_gib(size)


def _label(change: Change, fit: Fit) -> str:
    """`--kv-cache-dtype fp8`, `without --speculative-config`, `2 replicas (8 devices)`, `a checkpoint in awq`."""
    more = "".join(f" {_flag(field, value, fit)}" for field, value in change.also)
    if change.field == "replicas":
        return f"{change.value} replicas ({change.devices} devices){more}"
    if change.field == "checkpoint":
        return f"a checkpoint in {change.value}{more}"
    devices = f" ({change.devices} devices)" if change.field == "tensor_parallel" else ""
    return f"{_flag(change.field, change.value, fit)}{more}{devices}"


def _flag(field: str, value: str, fit: Fit) -> str:
    """The engine's flag with its value; a switch that is to go or to come has none."""
    flag = name(fit.flags, field) or field
    if value in ("on", "off"):
        return flag if flag.startswith("without ") else f"without {flag}"
    return f"{flag} {value}".rstrip()


def _notes(fit: Fit) -> Iterable[str]:
    for note in dict.fromkeys(fit.notes):
        yield from wrap(clean(note), "note: ", 6)
