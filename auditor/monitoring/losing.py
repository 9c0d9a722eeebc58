"""Where an expression keeps nothing of a series that it names: a quantile without `le`, times zero, the hour of day.

Sources: Prometheus, "Query functions" (histogram_quantile needs `le` and a quantile from 0 to 1; what the functions of
time and sign return) and "Operators" (`bool` gives 0 or 1).
"""

import math
from datetime import timedelta

import promql_parser as parser

from auditor.monitoring.operators import COMPARISONS

__all__ = ["EMPTIES", "drops_le", "elsewhen", "empties", "number", "pins_le", "quantile_of_none"]

EMPTIES = frozenset(
    {
        *("sgn", "hour", "minute", "month", "year", "days_in_month", "day_of_month", "day_of_week", "day_of_year"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    }
)
"""Functions whose value tells nothing of how much their series shows."""

_LONG = timedelta(minutes=10)  # a panel of what was so long ago does not show what is
_KEEPING = ("topk", "bottomk", "limitk", "limit_ratio")
_ALIKE = frozenset({"-", "/", "%", "unless", "!=", ">", "<"})  # of two sides that are the same, nothing is left


def drops_le(node: parser.AggregateExpr) -> bool:
    """True for an aggregation that adds up buckets of every bound into one number."""
    if str(node.op) in _KEEPING:
        return False
    if node.modifier is None:
        return True
    return bool(node.modifier.type == parser.AggModifierType.By) != ("le" in node.modifier.labels)


def pins_le(node: parser.VectorSelector) -> bool:
    """True for a selector of one bucket alone."""
    return any(m.name == "le" and m.op == parser.MatchOp.Equal for m in node.matchers.matchers)


def quantile_of_none(node: parser.Call) -> bool:
    """True for a `histogram_quantile` that asks for 95 instead of 0.95: infinite, whatever was measured."""
    share = number(node.args[0]) if node.func.name == "histogram_quantile" else None
    return share is not None and not 0 <= share <= 1


def elsewhen(node: parser.VectorSelector | parser.SubqueryExpr) -> bool:
    """True for a series as it was at another time than the one that is shown."""
    fixed = node.at is not None and node.at.type == parser.AtModifierType.At
    return fixed or (node.offset is not None and abs(node.offset) >= _LONG)


def empties(node: parser.BinaryExpr) -> bool:
    """True for an operation whose result is the same whatever its series are, or only whether they pass a limit."""
    operator = str(node.op).lower()
    if operator in COMPARISONS and node.modifier is not None and node.modifier.return_bool:
        return True
    left, right = number(node.lhs), number(node.rhs)
    if left is None and right is None:
        return operator in _ALIKE and str(node.lhs) == str(node.rhs)
    if operator == "*":
        return left == 0 or right == 0
    if operator == "/":
        return left == 0 or right == 0
    return operator == "^" and right == 0


def number(node: parser.Expr) -> float | None:
    """The value of an expression that is nothing but numbers; None for any other."""
    if isinstance(node, parser.NumberLiteral):
        return float(node.val)
    if isinstance(node, parser.ParenExpr):
        return number(node.expr)
    if isinstance(node, parser.UnaryExpr):
        inner = number(node.expr)
        return None if inner is None else -inner
    if isinstance(node, parser.BinaryExpr):
        left, right = number(node.lhs), number(node.rhs)
        return None if left is None or right is None else _reckoned(str(node.op), left, right)
    return None


def _reckoned(operator: str, left: float, right: float) -> float | None:
    if operator == "/":
        return left / right if right else math.nan
    return {"+": left + right, "-": left - right, "*": left * right}.get(operator)
