"""What a panel says of itself beside what its queries compute: its title, and the unit of its axis.

A title never decides whether a concept is covered; here it is held against the answer.
"""

import re
from collections.abc import Iterator, Sequence

import promql_parser as parser

from auditor.monitoring.drawn import Known, Read
from auditor.monitoring.losing import number
from auditor.panels import quantile
from auditor.watch import Flaw

__all__ = ["titles", "units"]

_PER_SECOND = re.compile(
    r"\btok(?:en)?s?\s*(?:/|per)\s*s(?:ec(?:ond)?s?)?\b|\bthroughput\b|\bt(?:ok)?ps\b", re.IGNORECASE
)
_PERCENTILE = re.compile(r"\bp\s?(\d{2}(?:\.\d+)?|999)\b|\b(\d{2}(?:\.\d+)?)(?:th)?[ -]percentile", re.IGNORECASE)
_VARIABLE = re.compile(r"\$|\[\[")
# A title that names one concept alone, and the concepts that may stand behind it.
_NAMED = (
    (re.compile(r"\bTTFT\b|time[ -]to[ -]first[ -]token", re.IGNORECASE), "ttft"),
    (re.compile(r"\bKV[ -]?cache (?:usage|utili[sz]ation|occupancy)", re.IGNORECASE), "memory"),
)
_BEHIND = {
    "ttft": {"ttft", "prefill_time", "prefill_seconds"},
    "memory": {"kv_usage", "kv_used", "kv_free", "kv_capacity", "kv_bytes", "kv_offload_usage"},
}
_SEVERAL = re.compile(r"\band\b|\bvs\b|[&+/,|]", re.IGNORECASE)
_TOLD = {"ttft", "tpot", "e2e", "queue_time", "gpu_memory", "memory_activity", "gpu_activity", "prefix_hit_rate"}
_TOLD |= {"decode_time", "inference_time"}


# --------------------------------------------------------------------------------------------------------------- titles


def titles(panel: Sequence[Read]) -> Iterator[Flaw]:
    """The queries of one panel beside its title: another quantity, another percentile, another concept."""
    title = panel[0].drawn.title
    if not title or panel[0].drawn.alert:
        return
    if _PER_SECOND.search(title):
        yield from (flaw for read in panel for flaw in _tokens_a_request(read, title))
    yield from _percentile(panel, title)
    yield from _concept(panel, title)


def _tokens_a_request(read: Read, title: str) -> Iterator[Flaw]:
    for one in read.series:
        lengths = one.metric.concept in ("output_len", "prompt_len")
        if lengths and one.trace.part == "sum" and not one.trace.divides and _over_its_count(read, one):
            note = f'"{title}" draws {one.trace.name} over its count, which is tokens per request'
            instead = f"sum(rate({one.trace.name}[5m]))"
            yield read.flaw("title", "tps", note, (one.trace.name,), instead)


def _over_its_count(read: Read, one: Known) -> bool:
    below = (k.trace for k in read.series if k.trace.divides and k.trace.part == "count")
    return any(trace.base == one.trace.base for trace in below)


def _percentile(panel: Sequence[Read], title: str) -> Iterator[Flaw]:
    """The one percentile that the title names is among those that are drawn."""
    claimed = {_share(a or b) for a, b in _PERCENTILE.findall(title)}
    drawn = [quantiles for read in panel if (quantiles := _quantiles(read)) is None or quantiles]
    if len(claimed) != 1 or not drawn or any(q is None for q in drawn) or _VARIABLE.search(title):
        return
    found = {q for quantiles in drawn if quantiles is not None for q in quantiles}
    (wanted,) = claimed
    if not any(abs(q - wanted) < 0.0005 for q in found):
        read = next(r for r in panel if _quantiles(r))
        histogram = next((k for k in read.series if k.trace.part == "bucket"), None)
        shown = ", ".join(f"{q:g}" for q in sorted(found))
        note = f'"{title}" draws the quantile {shown}'
        instead = None
        if histogram is not None:
            instead = quantile(read.series_for(histogram.metric), wanted, histogram.trace.grouping)
        concept = histogram.metric.concept if histogram else "other"
        yield read.flaw("title", concept, note, tuple(k.trace.name for k in read.series), instead)


def _share(digits: str) -> float:
    return float(f"0.{digits.replace('.', '')}")


def _quantiles(read: Read) -> set[float] | None:
    """The quantiles that a query computes of series that are known; None where a variable or a number cannot tell."""
    if "histogram_quantile" in read.drawn.raw and re.search(r"histogram_quantile\(\s*(\$|\[\[)", read.drawn.raw):
        return None
    found: set[float] = set()
    for one in read.series:
        for above in one.trace.above:
            if isinstance(above.node, parser.Call) and above.operator == "histogram_quantile":
                value = number(above.node.args[0])
                if value is None:
                    return None
                found.add(value)
        if one.metric.type == "summary" and "quantile" in one.trace.pinned:
            return None
    return found


def _concept(panel: Sequence[Read], title: str) -> Iterator[Flaw]:
    """A title that names one concept over series that all show something else."""
    if _SEVERAL.search(title):
        return
    shown = [one for read in panel for one in read.series if not one.trace.counted]
    for pattern, concept in _NAMED:
        if pattern.search(title) and shown and all(k.metric.concept in _TOLD - _BEHIND[concept] for k in shown):
            names = tuple(dict.fromkeys(k.trace.name for k in shown))
            note = f'"{title}" draws {names[0]}, which is something else'
            yield panel[0].flaw("title", concept, note, names)


# ---------------------------------------------------------------------------------------------------------------- units

# What an axis is marked with, and the units of series that fit it as they are.
_FITTING = {
    "percentunit": {"share"},
    "percent": {"percent"},
    "s": {"s"},
    "ms": {"ms"},
    "bytes": {"bytes"},
    "decbytes": {"bytes"},
    "mbytes": {"MiB"},
    "decmbytes": {"MiB"},
    "gbytes": {"GiB"},
    "decgbytes": {"GiB"},
}
_KINDS = ({"share", "percent"}, {"s", "ms"}, {"bytes", "MiB", "GiB"})


def units(read: Read) -> Iterator[Flaw]:
    """A series drawn as it is on an axis of another unit: 0.9 of a cache shown as 0.9 %."""
    fitting = _FITTING.get(read.drawn.unit)
    if fitting is None or read.drawn.alert:
        return
    kind = next(kinds for kinds in _KINDS if fitting & kinds)
    for one in read.series:
        unit = one.metric.unit
        if unit in kind - fitting and _as_it_is(one):
            fits = next(name for name, held in _FITTING.items() if unit in held)
            note = f"{one.trace.name} is in {unit} and is drawn as {read.drawn.unit}: set the axis to {fits}"
            yield read.flaw("unit", one.metric.concept, note, (one.trace.name,), None)
            return


def _as_it_is(one: Known) -> bool:
    """Nothing above the series changes its unit."""
    if one.trace.counted or one.trace.part == "count" or (one.metric.type != "gauge" and one.trace.part != "bucket"):
        return False
    if one.metric.type == "histogram" and not any(a.operator == "histogram_quantile" for a in one.trace.above):
        return False
    if one.metric.type == "gauge" and one.trace.rated:
        return False
    return not any(isinstance(a.node, parser.BinaryExpr) and a.operator not in ("or", "and") for a in one.trace.above)
