"""What a query with thresholds watches: the same query without them, which returns data while an alert is silent."""

from collections.abc import Iterator

import promql_parser as parser

from auditor.monitoring.operators import COMPARISONS, SETS
from auditor.monitoring.promql import Invalid, parse

__all__ = ["stored_names", "subjects"]


def subjects(query: str) -> tuple[str, ...]:
    """The queries that must all return data for `query` ever to return any; `query` itself where it has no threshold.

    Both sides of `and` and of a comparison of two series count, of `unless` the left one. Whatever `absent` asks for
    always can.
    """
    try:
        found = tuple(dict.fromkeys(_subjects(parse(query))))
        for text in found:
            parse(text)
    except (Invalid, RecursionError):
        return (query,)
    return found if found and any(_filters(parse(query))) else (query,)


def stored_names(query: str) -> tuple[str, ...]:
    """Every name that a query reads, as it is stored: recorded ones are series too. None of what is no PromQL."""
    try:
        return tuple(dict.fromkeys(_names(parse(query))))
    except (Invalid, RecursionError):
        return ()


def _names(node: parser.Expr) -> Iterator[str]:
    selector = node.vector_selector if isinstance(node, parser.MatrixSelector) else node
    if isinstance(selector, parser.VectorSelector):
        named = (m.value for m in selector.matchers.matchers if m.name == "__name__" and m.op == parser.MatchOp.Equal)
        yield from [selector.name] if selector.name else named
    for child in _children(node):
        yield from _names(child)


def _subjects(node: parser.Expr) -> Iterator[str]:
    if isinstance(node, parser.ParenExpr):
        yield from _subjects(node.expr)
    elif isinstance(node, parser.BinaryExpr) and _operator(node) == "or":
        sides = [" and on() ".join(f"({part})" for part in _subjects(side)) for side in (node.lhs, node.rhs)]
        yield " or ".join(f"({side})" for side in sides if side)
    elif isinstance(node, parser.BinaryExpr) and (_compares(node) or _operator(node) in SETS):
        yield from _subjects(node.lhs)
        if _operator(node) != "unless":
            yield from _subjects(node.rhs)
    elif _selects(node):
        yield _unfiltered(node)


def _unfiltered(node: parser.Expr) -> str:
    """The expression without the comparisons within it."""
    text = str(node)
    for inner in _filters(node):
        if isinstance(inner, parser.Call):
            asked = _argument(inner)
            text = text.replace(str(inner), f"({asked} or {inner})")
        elif isinstance(inner, parser.BinaryExpr):
            side = inner.lhs if _selects(inner.lhs) else inner.rhs
            text = text.replace(str(inner), _unfiltered(side))
    return text


def _argument(call: parser.Call) -> str:
    """What an `absent` asks for, as an instant vector."""
    text = str(call.args[0])
    return f"last_over_time({text})" if call.func.name == "absent_over_time" else text


def _filters(node: parser.Expr) -> Iterator[parser.Expr]:
    """The outermost parts that let through only some of what they are given."""
    if (isinstance(node, parser.BinaryExpr) and (_compares(node) or _operator(node) in SETS)) or (
        isinstance(node, parser.Call) and node.func.name in ("absent", "absent_over_time")
    ):
        yield node
        return
    for child in _children(node):
        yield from _filters(child)


def _compares(node: parser.BinaryExpr) -> bool:
    return _operator(node) in COMPARISONS and not (node.modifier and node.modifier.return_bool)


def _operator(node: parser.BinaryExpr) -> str:
    return str(node.op).lower()


def _selects(node: parser.Expr) -> bool:
    """Whether an expression reads any series: a number is always there."""
    if isinstance(node, parser.VectorSelector | parser.MatrixSelector):
        return True
    return any(_selects(child) for child in _children(node))


def _children(node: parser.Expr) -> tuple[parser.Expr, ...]:
    if isinstance(node, parser.BinaryExpr):
        return (node.lhs, node.rhs)
    if isinstance(node, parser.Call):
        return tuple(node.args)
    if isinstance(node, parser.AggregateExpr | parser.ParenExpr | parser.UnaryExpr | parser.SubqueryExpr):
        return (node.expr,)
    return ()
