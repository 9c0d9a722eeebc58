"""The windows over which a query takes its rates: those written as numbers, and Grafana's that may be too short."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

import promql_parser as parser

from auditor.monitoring.drawn import Read
from auditor.monitoring.operators import RATES
from auditor.monitoring.promql import STRINGS, Invalid, parse
from auditor.watch import Flaw

__all__ = ["interval_variable", "literal_matchers", "written"]

_OLD = re.compile(r"\[\[\w+(?::\w+)?\]\]")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_INTERVAL = re.compile(r"\$(__interval\b|\{__interval(_ms)?\})")


def written(raw: str, text: str) -> tuple[float, ...]:
    """The windows of rates that are numbers in the query as written (`raw`), in seconds; `text` has its variables
    replaced.
    """
    return tuple(window for window, asked in _windows(raw, text) if "$" not in asked)


def interval_variable(read: Read) -> Iterator[Flaw]:
    """A rate over `$__interval`: zoomed in it is shorter than two scrapes, and the panel is empty."""
    if not any(_INTERVAL.search(asked) for _, asked in _windows(read.drawn.raw, read.drawn.text)):
        return
    concept = next((one.metric.concept for one in read.series), None)
    if concept is not None:
        note = "a rate over $__interval, which is shorter than two scrapes where one zooms in"
        instead = re.sub(r"\$(__interval\b|\{__interval\})", "$__rate_interval", read.drawn.raw)
        names = tuple(dict.fromkeys(one.trace.name for one in read.series))
        yield read.flaw("interval_variable", concept, note, names, instead)


def _windows(raw: str, text: str) -> Iterator[tuple[float, str]]:
    """(seconds, as written) of each window that a rate is taken over; none where the two cannot be matched."""
    try:
        found = list(_ranges(parse(text), rated=False))
    except (Invalid, RecursionError):
        return
    asked = _RANGE.findall(STRINGS.sub('""', _OLD.sub("$old", raw)))
    if len(found) == len(asked):
        yield from ((seconds, as_written) for (seconds, rated), as_written in zip(found, asked, strict=True) if rated)


def _ranges(node: parser.Expr, *, rated: bool) -> Iterator[tuple[float, bool]]:
    """Every range in the order of the text, and whether a rate is taken over it."""
    if isinstance(node, parser.MatrixSelector):
        yield _seconds(node.range), rated
    elif isinstance(node, parser.SubqueryExpr):
        yield from _ranges(node.expr, rated=False)
        yield _seconds(node.range), False
    elif isinstance(node, parser.BinaryExpr):
        yield from _ranges(node.lhs, rated=False)
        yield from _ranges(node.rhs, rated=False)
    elif isinstance(node, parser.Call):
        for argument in node.args:
            yield from _ranges(argument, rated=node.func.name in RATES)
    elif isinstance(node, parser.AggregateExpr):
        if node.param is not None:
            yield from _ranges(node.param, rated=False)
        yield from _ranges(node.expr, rated=False)
    elif isinstance(node, parser.ParenExpr | parser.UnaryExpr):
        yield from _ranges(node.expr, rated=rated)


def _seconds(length: timedelta | None) -> float:
    return length.total_seconds() if length is not None else 0.0


def literal_matchers(raw: str, pinned: Mapping[str, str]) -> Mapping[str, str]:
    """Those of the label values asked for that stand in the query as written, and are no variable's."""
    return {
        label: value
        for label, value in pinned.items()
        if re.search(rf"\b{re.escape(label)}\s*=\s*[\"']{re.escape(value)}[\"']", raw)
    }
