"""Alerts whose limit their query can never reach, or always has: `vllm:kv_cache_usage_perc > 90` waits for ever."""

import math
from collections.abc import Iterator

import promql_parser as parser

from auditor.monitoring.drawn import Known, Read, share_of_device
from auditor.monitoring.losing import number
from auditor.monitoring.traces import Above
from auditor.panels import query
from auditor.watch import Flaw

__all__ = ["limits"]

_TOP = {"share": 1.0, "percent": 100.0}
_FLIPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_KEEPS = ("max", "min", "avg", "quantile", "topk", "bottomk")
_CALLS = ("max_over_time", "min_over_time", "avg_over_time", "quantile_over_time", "last_over_time")
_FIXED = 64.0  # MiB; a limit above it is one of so many MiB of one card, one below it is none of how full it is


def limits(read: Read) -> Iterator[Flaw]:
    """The limits of an alert beside what its series can be."""
    if not read.drawn.alert:
        return
    for one in read.series:
        found = _compared(one)
        if found is None:
            continue
        operator, limit, factor = found
        yield from _beyond(read, one, operator, limit / factor)
        yield from _fixed(read, one, limit / factor)


def _beyond(read: Read, one: Known, operator: str, limit: float) -> Iterator[Flaw]:
    """Above all that a share or a histogram can show, or below nothing. What `or` stands beside may fire all the same,
    and what `and` or `unless` narrows need not.
    """
    top, above = _top(read, one), {a.operator for a in one.trace.above}
    kind = _outcome(operator, limit, top) if top is not None else None
    if (
        top is None
        or (kind == "never_fires" and "or" in above)
        or (kind == "always_fires" and above & {"and", "unless"})
    ):
        return
    word = "highest bucket" if one.trace.part == "bucket" else "most"
    what = f"alert {read.drawn.alert} compares {one.trace.name} with {limit:g}, and {top:g} is its {word}"
    if kind is not None:
        note = f"{what}: it {'can never fire' if kind == 'never_fires' else 'always fires'}"
        yield read.flaw(kind, one.metric.concept, note, (one.trace.name,), _right(read, one))
    elif operator in (">", ">=") and one.metric.unit == "percent" and 0 < limit <= 1:
        note = f"{what}: it fires at {limit:g} %"
        yield read.flaw("always_fires", one.metric.concept, note, (one.trace.name,), _right(read, one))


def _outcome(operator: str, limit: float, top: float) -> str | None:
    """What a comparison with something between 0 and `top` always comes to; None where it can come either way."""
    always = {">": limit < 0, ">=": limit <= 0, "<": limit > top, "<=": limit >= top}
    never = {">": limit >= top, ">=": limit > top, "<": limit <= 0, "<=": limit < 0}
    return "always_fires" if always[operator] else "never_fires" if never[operator] else None


def _right(read: Read, one: Known) -> str | None:
    if one.metric.unit in _TOP:
        return f"max({read.series_for(one.metric)}) > {0.95 * _TOP[one.metric.unit]:g}"
    wanted = query(one.metric.concept, read.names)
    return f"{wanted} > a limit in {one.metric.unit} on one of its bounds" if wanted else None


def _top(read: Read, one: Known) -> float | None:
    if one.metric.type == "gauge" and not one.trace.rated:
        return _TOP.get(one.metric.unit)
    quantile = any(a.operator == "histogram_quantile" for a in one.trace.above)
    bounds = read.place.buckets(one.metric) if quantile and one.trace.part == "bucket" else ()
    return max(bounds, default=None)


def _fixed(read: Read, one: Known, limit: float) -> Iterator[Flaw]:
    """So many MiB of one card: another card, or another share of it, and the alert means something else."""
    if one.metric.concept == "gpu_memory" and one.metric.unit == "MiB" and limit > _FIXED:
        note = f"alert {read.drawn.alert} compares {one.trace.name} (MiB) with {limit:g}, which holds for one card only"
        instead = share_of_device(one)
        yield read.flaw("unit", "memory", note, (one.trace.name,), f"{instead} > 0.95" if instead else None)


def _compared(one: Known) -> tuple[str, float, float] | None:
    """The comparison of a series with a number: operator, the number, and what the series is multiplied by on the way.

    None where there is none, or where something stands between that changes what the series can be.
    """
    if one.trace.counted:
        return None
    factor = 1.0  # what takes it to nothing, or beyond all numbers, is no comparison with a share
    for above in one.trace.above:
        if isinstance(above.node, parser.BinaryExpr):
            other = number(above.node.rhs if above.side == "left" else above.node.lhs)
            if above.operator in _FLIPPED and other is not None:
                if factor <= 0 or not math.isfinite(factor):
                    return None
                return (above.operator if above.side == "left" else _FLIPPED[above.operator]), other, factor
            if above.operator == "*" and other:
                factor *= other
            elif above.operator == "/" and other and above.side == "left":
                factor /= other
            elif above.operator not in ("or", "and"):
                return None
        elif not _harmless(above, one):
            return None
    return None


def _harmless(above: Above, one: Known) -> bool:
    """Nodes that keep a value within what the series can be; a histogram's may be added up and rated."""
    if one.trace.part == "bucket":
        return above.operator in ("rate", "irate", "increase", "sum", "histogram_quantile", *_KEEPS, *_CALLS)
    return above.operator in (*_KEEPS, *_CALLS) or (
        not above.aggregates and isinstance(above.node, parser.VectorSelector)
    )
