"""`audit predict` as text: both phases' times, their products, where the time goes, money, other accelerators."""

import re
from collections.abc import Iterable, Iterator

from auditor.engines.flavours import FLAVOURS
from auditor.instruments.predict import Predicted, Speed
from auditor.report import products
from auditor.report.fit import Part, bar
from auditor.report.lines import wrap
from auditor.report.words import clean, quantity
from auditor.theory.device import THIS_CPU
from auditor.theory.ranking import Ranked
from auditor.theory.roofline import Prediction
from auditor.units import count, plain

__all__ = ["render"]

_UNIT, _TIE = re.compile(r"(?<=\d) (?=(?:us|ms|s)\b|%)"), "\N{NO-BREAK SPACE}"
_WHY = {
    "weights": "reading the weights takes most of it: larger batches cost little, fewer bytes a weight gain most",
    "kv": "reading the KV cache takes most of it: shorter contexts, fewer sequences or an 8-bit cache gain most",
    "compute": "multiplying takes most of it: more or faster units gain most, and fewer tokens to read",
    "overhead": "launching kernels takes most of it: captured graphs and larger steps gain most",
    "links": "launching kernels and exchanging data take most of it: fewer devices or larger steps gain most",
    "mixed": "no part is 1.3 times the next: it takes more than one change",
    "prompts": "others' prompts are read between the steps and take most of it: cached prefixes, fewer sequences at "
    "once, or prompts read by instances of their own gain most",
    "busy": "waiting in a busy engine takes most of it: prompts read by instances of their own gain most",
}
_MOSTLY = {"prompts": "mostly others' prompts; the step", "busy": "mostly a busy engine; the prompt"}
_BOUND = {
    "weights": "weights",
    "kv": "KV cache",
    "compute": "compute",
    "overhead": "overhead",
    "mixed": "several parts",
}


def render(found: Predicted) -> str:
    """The answer as plain text of at most 80 columns."""
    blocks = [_head(found), _products(found), _parts(found), _service(found), _ranking(found), _notes(found)]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in map(list, blocks) if block) + "\n"


def _wrap(text: str, first: str = "", indent: int = 2) -> list[str]:
    """The text in lines; a number keeps its unit."""
    tied = _UNIT.sub(_TIE, text)
    return [line.replace(_TIE, " ") for line in wrap(tied, first, indent)]


# ---------------------------------------------------------------------------------------------------------------- head


def _head(found: Predicted) -> Iterable[str]:
    for name, speed in _phases(found):
        band = f"{quantity(speed.expected.low, 's')} to {quantity(speed.expected.high, 's')}"
        text = f"{quantity(speed.expected.seconds, 's')} {_of(name, speed.expected)} ({band} in 80 %)"
        if speed.expected.busy_s > 0:
            text += f", {quantity(speed.expected.own.seconds, 's')} in an idle one"
        if name == "decode" and found.streams_per_second is not None:
            each, together = found.streams_per_second
            text += f", {plain(each)} tok/s each and {plain(together)} tok/s in all"
        text += f"; physics allows {quantity(speed.least, 's')} at best{_fastest(found, speed)}{_doubt(found, name)}."
        yield from _wrap(text, f"{name:<9}", 9)
    yield from _wrap(" | ".join(_what(found)), "  ")


def _of(name: str, expected: Prediction) -> str:
    """What a phase's time is the time of."""
    if name == "decode":
        return "a token of each sequence"
    return "to the first token " + ("in an engine that serves others" if expected.busy_s > 0 else "of a prompt alone")


def _phases(found: Predicted) -> Iterator[tuple[str, Speed]]:
    for name, speed in (("prefill", found.prefill), ("decode", found.decode)):
        if speed is not None:
            yield name, speed


def _fastest(found: Predicted, speed: Speed) -> str:
    """The rate of a limit that is set by compute, where the device multiplies such weights faster than the engine."""
    device = found.inputs.device
    if device is None or speed.limit.bound != "compute" or speed.limit.ridge <= 1.01 * speed.ridge:
        return ""
    peak = speed.limit.ridge * device.at(speed.limit.bytes).bandwidth
    return f", at the {quantity(peak, 'FLOP/s')} that the device reaches in a narrower format"


def _doubt(found: Predicted, phase: str) -> str:
    """Decode rests on the bandwidth, prefill on both figures."""
    rests = ("bandwidth",) if phase == "decode" else ("bandwidth", "flops")
    return " (provisional)" if set(rests) & set(found.provisional) else ""


def _device(found: Predicted) -> str:
    return found.inputs.device.name if found.inputs.device is not None else "unknown"


def _what(found: Predicted) -> Iterator[str]:
    geometry, settings, load = found.inputs.geometry, found.inputs.settings, found.load
    weights = settings.quantization or settings.compute_dtype
    yield f"{clean(geometry.name or 'the model', 60)}, {clean(weights, 20)}"
    title = FLAVOURS[settings.engine].title if settings.engine in FLAVOURS else settings.engine
    yield f"{clean(title, 40)} {clean(settings.engine_version or '', 20)}".rstrip()
    yield f"{settings.devices} x {clean(_device(found), 40)}"
    degrees = {"TP": settings.tensor_parallel, "PP": settings.pipeline_parallel, "DP": settings.data_parallel}
    if parallel := ", ".join(f"{word} {degree}" for word, degree in degrees.items() if degree > 1):
        yield parallel
    lengths = {"prompt": load.prompt, "output": load.output, "context": load.context}
    told = [f"{round(tokens):,} {what} tokens" for what, tokens in lengths.items() if tokens]
    yield ", ".join([f"{plain(load.batch)} at once", *told])


# ------------------------------------------------------------------------------------------------------------ products


def _products(found: Predicted) -> Iterable[str]:
    table = products.of_prediction(found)
    return products.lines(table) if table is not None else ()


# --------------------------------------------------------------------------------------------------------------- parts


def _parts(found: Predicted) -> Iterable[str]:
    for name, speed in _phases(found):
        expected, own = speed.expected, speed.expected.own
        parts = [
            Part("#", "weights", own.weights_s),
            Part("=", "KV cache" if name == "decode" else "scores", own.kv_s),
            Part("*", "compute", own.compute_s),
            Part("+", "overhead", own.overhead_s, _links(expected.links_s)),
            Part("o", "others' prompts", expected.prompts_s),
            Part("~", "a busy engine", expected.busy_s),
        ]
        yield from _wrap(f"{name}: where {quantity(expected.seconds, 's')} go ({_title(expected)})")
        yield bar(parts)
        shown = (f"{part.symbol} {part.name} {quantity(part.size, 's')}{part.note}" for part in parts if part.size > 0)
        yield from _wrap(", ".join(shown), "  ")
        yield from _wrap(f"{_WHY[_largest(expected)]}. {_at_peak(speed)}Priors: {expected.source}.", "  ")


def _links(seconds: float) -> str:
    return f" (of it {quantity(seconds, 's')} between devices)" if seconds > 0 else ""


def _largest(expected: Prediction) -> str:
    """The part that takes most of the time; of overhead whether devices talk to each other."""
    return "links" if expected.largest == "overhead" and expected.links_s > 0 else expected.largest


def _title(expected: Prediction) -> str:
    """What bounds the step or prompt itself, and that others take most of its time where they do."""
    bound = f"bound by {_BOUND[expected.own.bound]}"
    return f"{_MOSTLY[expected.largest]} itself is {bound}" if expected.largest in _MOSTLY else bound


def _at_peak(speed: Speed) -> str:
    """Why the products above name another part than the bar, where they do."""
    peak, own = speed.phase.binds(speed.ridge), speed.expected.own.bound
    return "" if peak == own else f"If all ran at its peak (table above), {_BOUND[peak]} would bind. "


# -------------------------------------------------------------------------------------------------------------- service


def _target(found: Predicted) -> Iterator[str]:
    """Whether the time a token that was asked for can be kept, and with how many at once."""
    target, decode = found.target, found.decode
    if target is None or decode is None:
        return
    at, band = f"{plain(found.load.batch, 9)} at once", decode.expected
    said = {
        "ruled_out": f"is ruled out by physics for {at} ({quantity(decode.least, 's')} at best)",
        "missed": f"is not to be expected for {at} ({quantity(band.low, 's')} or more in 90 %)",
        "open": f"may hold for {at} or not ({quantity(band.low, 's')} to {quantity(band.high, 's')} in 80 %)",
        "met": f"is to be expected for {at} ({quantity(band.high, 's')} or less in 90 %)",
    }[target.answer]
    most = f"up to {target.most:,} at once are expected to keep it" if target.most else "no load at all keeps it"
    yield from _wrap(f"{quantity(target.seconds, 's')} a token {said}; {most}", "target    ", 10)


def _service(found: Predicted) -> Iterable[str]:
    yield from _target(found)
    if found.request_seconds is not None and found.requests_per_second is not None:
        rate = f"{plain(found.requests_per_second)} requests/s a replica"
        more = f"; {count(found.replicas, 'replica')} for the rate asked" if found.replicas is not None else ""
        yield from _wrap(f"{quantity(found.request_seconds, 's')} a request, {rate}{more}", "request   ", 10)
    if found.holds is not None:
        most, held = count(int(found.holds), "sequence"), round(found.load.held or 0)
        holds = f"the KV cache carries {most} of {held:,} tokens at once"
        yield from _wrap(holds, "memory    ", 10)
    if found.cost is not None:
        money = f"{plain(found.cost.per_million_input)} a million prompt tokens,"
        yield from _wrap(f"{money} {plain(found.cost.per_million_output)} a million output tokens", "cost      ", 10)


def _ranking(found: Predicted) -> Iterable[str]:
    if not found.ranking:
        return
    labels = [_label(row, found.inputs.settings.devices) for row in found.ranking]
    width = max(28, *map(len, labels))
    money = any(row.cost is not None for row in found.ranking)
    head = f"{'this load on others':<{width + 2}}{'request':>10}{'TTFT':>10}{'a token':>10}"
    yield f"{head}{'cost of 1000':>13}" if money else head
    for label, row in zip(labels, found.ranking, strict=True):
        cells = "".join(f"{quantity(seconds, 's'):>10}" for seconds in (row.request, row.ttft, row.tpot))
        yield f"  {label:<{width}}{cells}" + ("" if row.cost is None else f"{plain(1000 * row.cost):>13}")


def _label(row: Ranked, devices: int) -> str:
    marks = f"{'?' if row.confidence == 'C' and row.key != THIS_CPU else ''}{'*' if row.holds is False else ''}"
    return f"{devices} x {row.key}{marks}{' (asked)' if row.mine else ''}"


def _notes(found: Predicted) -> Iterable[str]:
    notes = list(dict.fromkeys(found.notes))
    if found.provisional:
        device, figures = found.inputs.device, " and ".join(found.provisional)
        here = device is not None and device.here
        doubt = "worked out from its instruction set, an upper bound" if here else "recalled or in dispute"
        notes.append(f"provisional: {figures} of {clean(_device(found), 40)} are {doubt}")
    if any(row.confidence == "C" and row.key != THIS_CPU for row in found.ranking):
        notes.append("? some figures of this accelerator are recalled or in dispute")
    if any(row.holds is False for row in found.ranking):
        notes.append("* too small: its KV cache does not carry this load at once")
    for note in notes:
        yield from _wrap(clean(note), "note: ", 6)
