"""Each series of a PromQL expression with everything that stands above it in the syntax tree, innermost first.

What misleads in a query is where a thing stands: a sum over a share, a quantile over buckets that were never rated.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import promql_parser as parser

from auditor.monitoring.losing import number
from auditor.monitoring.operators import COMPARISONS, COUNTING, PRESENCE, RATES, SETS
from auditor.monitoring.patterns import alternatives
from auditor.monitoring.promql import Recordings, parse

__all__ = ["Above", "Trace", "traces"]

_PART = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True)
class Above:
    """One node above a series, and on which side of it the series stands ("" where it has no sides)."""

    node: parser.Expr
    side: Literal["", "left", "right"] = ""

    @property
    def operator(self) -> str:
        """The operator of a binary expression or an aggregation, the name of a function; "" for the rest."""
        if isinstance(self.node, parser.Call):
            return str(self.node.func.name)
        return str(self.node.op).lower() if isinstance(self.node, parser.BinaryExpr | parser.AggregateExpr) else ""

    @property
    def aggregates(self) -> bool:
        """True for sum, avg, max ..."""
        return isinstance(self.node, parser.AggregateExpr)

    @property
    def keeps(self) -> tuple[str, ...] | None:
        """The labels that an aggregation keeps: those of `by`; None for `without`, which keeps unknown ones."""
        modifier = self.node.modifier if isinstance(self.node, parser.AggregateExpr) else None
        if modifier is None:
            return ()
        return tuple(modifier.labels) if modifier.type == parser.AggModifierType.By else None


@dataclass(frozen=True, slots=True)
class Trace:
    """One series: its name, the selector as written, its matchers (label, operator, value), and the nodes above it."""

    name: str
    selector: parser.VectorSelector
    above: tuple[Above, ...]

    @property
    def base(self) -> str:
        """The name without _bucket, _sum or _count."""
        return _PART.sub("", self.name)

    @property
    def part(self) -> str:
        """bucket, sum or count; "" for a whole series."""
        found = _PART.search(self.name)
        return found[1] if found else ""

    @property
    def pinned(self) -> Mapping[str, str]:
        """The label values that it is narrowed to by equality."""
        matchers = self.selector.matchers.matchers
        return {m.name: m.value for m in matchers if m.op == parser.MatchOp.Equal and m.name != "__name__"}

    @property
    def grouping(self) -> tuple[str, ...]:
        """The labels that the result keeps by name, buckets' own left out."""
        kept = dict.fromkeys(label for a in self.above if a.aggregates for label in a.keeps or ())
        return tuple(label for label in kept if label not in ("le", "__name__"))

    @property
    def rated(self) -> bool:
        """Taken over a window: by a function, or by subtracting what it was before."""
        return any(a.operator in RATES for a in self.above) or any(_ages(a) for a in self.above)

    @property
    def counted(self) -> bool:
        """Only counted, tested for being there, or a condition on what is shown."""
        return any(
            (a.aggregates and a.operator in COUNTING) or a.operator in PRESENCE or _conditions(a) for a in self.above
        )

    @property
    def divides(self) -> bool:
        """True where something is divided by it."""
        return any(a.operator == "/" and a.side == "right" for a in self.above)


def traces(query: str, recordings: Mapping[str, str] | None = None) -> tuple[Trace, ...]:
    """Every series of the expression, recording rules expanded; raises Invalid."""
    return tuple(_walk(parse(query), Recordings(recordings or {}), ()))


def _walk(node: parser.Expr, recordings: Recordings, above: tuple[Above, ...]) -> Iterator[Trace]:
    if isinstance(node, parser.VectorSelector):
        yield from _selector(node, recordings, above)
    elif isinstance(node, parser.MatrixSelector):
        yield from _selector(node.vector_selector, recordings, above)
    elif isinstance(node, parser.BinaryExpr):
        yield from _walk(node.lhs, recordings, (Above(node, "left"), *above))
        yield from _walk(node.rhs, recordings, (Above(node, "right"), *above))
    elif isinstance(node, parser.Call):
        for argument in node.args:
            yield from _walk(argument, recordings, (Above(node), *above))
    elif isinstance(node, parser.AggregateExpr):
        yield from _walk(node.expr, recordings, (Above(node), *above))
    elif isinstance(node, parser.ParenExpr | parser.UnaryExpr | parser.SubqueryExpr):
        yield from _walk(node.expr, recordings, above)


def _selector(node: parser.VectorSelector, recordings: Recordings, above: tuple[Above, ...]) -> Iterator[Trace]:
    named = [m for m in node.matchers.matchers if m.name == "__name__"]
    wanted = [m for m in named if m.op in (parser.MatchOp.Equal, parser.MatchOp.Re)]
    for name in [node.name] if node.name else [n for m in wanted for n in alternatives(m.value)]:
        opened = tuple(str(a.node.name) for a in above if isinstance(a.node, parser.VectorSelector))
        recorded = recordings.open(name, opened)
        if recorded is None:
            yield Trace(name, node, above)
        else:
            yield from _walk(recorded, recordings, (Above(node), *above))


def _conditions(above: Above) -> bool:
    """True on the right side of a filter: what is shown is on the left, unless that is a mere number."""
    if not isinstance(above.node, parser.BinaryExpr) or above.side != "right":
        return False
    return above.operator in SETS or (above.operator in COMPARISONS and number(above.node.lhs) is None)


def _ages(above: Above) -> bool:
    """`x - x offset 1h`: the same series now and before."""
    if not isinstance(above.node, parser.BinaryExpr) or above.operator != "-":
        return False
    sides = [list(_walk(side, Recordings({}), ())) for side in (above.node.lhs, above.node.rhs)]
    names = [{trace.name for trace in side} for side in sides]
    moved = any(trace.selector.offset is not None for side in sides for trace in side)
    return moved and bool(names[0] & names[1])
