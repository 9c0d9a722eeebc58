"""What a PromQL expression computes, read from its syntax tree: which series it draws, and what it does to each.

A `Use` is one selector with everything that happens to it on the way out: rated, a quantile, a mean (_sum over _count),
a ratio, mere presence. Text is never searched for names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Literal

import promql_parser as parser

from auditor.monitoring.losing import EMPTIES, drops_le, elsewhen, empties, pins_le, quantile_of_none
from auditor.monitoring.operators import COMPARISONS, COUNTING, PRESENCE, RATES, SETS
from auditor.monitoring.patterns import alternatives

__all__ = ["MAX_CHARACTERS", "STRINGS", "Invalid", "Recordings", "Use", "parse", "uses"]

MAX_CHARACTERS = 50_000
_MAX_OPERATORS = 1_000
_MAX_RECORDINGS = 200
_OPERATORS = re.compile(r"[-+*/%^<>=!(\[,]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
# One that is never closed ends with the text: else each quote in it would be tried as the start of another.
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|\'(?:[^\'\\]|\\.)*(?:\'|\\?\Z)|`[^`]*(?:`|\Z)', re.DOTALL)
_NATIVE = {"histogram_count": "count", "histogram_sum": "sum"}  # of histograms that are one series
_TOTALS = frozenset({"increase", "delta"})
_LONG = timedelta(minutes=10)  # what grew in so long a window is an amount; in a shorter one it is read as a speed
_PARTS = ("bucket", "sum", "count")


class Invalid(Exception):
    """An expression that Prometheus would refuse; the message is the parser's first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One series in an expression, and what the expression makes of it.

    `base` is the name without _bucket, _sum or _count, which `part` holds. `labels` are the label values it is narrowed
    to by equality. `rated`: taken per second or over a window; `volume`: all of a long window, so no speed; `quantile`:
    a quantile of its buckets; `mean`: its _sum over its _count; `ratio`: divided by another rate, so no longer per
    second; `presence`: only counted or tested for being there, or nothing of it is left; `denominator`: divided by, so
    not shown. `over` are the bases that it is divided by. `bounds` of buckets: "all", "one" alone, or "none" where
    those of every bound were added up.
    """

    name: str
    base: str
    part: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    rated: bool = False
    volume: bool = False
    quantile: bool = False
    mean: bool = False
    ratio: bool = False
    presence: bool = False
    denominator: bool = False
    over: tuple[str, ...] = ()
    bounds: Literal["all", "one", "none"] = "all"


@lru_cache(maxsize=2048)
def parse(query: str) -> parser.Expr:
    """The syntax tree; raises Invalid. Bounded first: the parser recurses on the machine's stack."""
    if len(query) > MAX_CHARACTERS:
        raise Invalid("longer than 50,000 characters")
    if len(_OPERATORS.findall(STRINGS.sub('""', query))) > _MAX_OPERATORS:
        raise Invalid("more than 1,000 operators")
    try:
        return parser.parse(query)
    except ValueError as error:
        raise Invalid((str(error).splitlines() or ["not PromQL"])[0][:200]) from None


def uses(query: str, recordings: Mapping[str, str] | None = None) -> tuple[Use, ...]:
    """Every series that the expression uses, recording rules expanded; raises Invalid.

    `recordings` maps recorded names to their expressions; a rule that refers to itself stays a plain name.
    """
    try:
        return tuple(map(_told, _walk(parse(query), Recordings(recordings or {}), ())))
    except RecursionError:
        raise Invalid("nested too deeply") from None


def _told(use: Use) -> Use:
    """Buckets of all bounds added up are a number of no meaning, those of one bound count requests."""
    counted = (
        use.part == "bucket" and not use.quantile and (use.bounds == "none" or (use.bounds == "one" and not use.ratio))
    )
    return replace(use, presence=True) if counted else use


class Recordings:
    """Recorded names and their expressions, opened a bounded number of times: rules that use rules can multiply."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._expressions = expressions
        self._left = _MAX_RECORDINGS

    def open(self, name: str, inside: tuple[str, ...]) -> parser.Expr | None:
        """The expression behind a recorded name; None for a plain name or a rule that refers to itself."""
        if name not in self._expressions or name in inside or self._left <= 0:
            return None
        self._left -= 1
        try:
            return parse(self._expressions[name])
        except Invalid:
            return None


def _walk(node: parser.Expr, recordings: Recordings, inside: tuple[str, ...]) -> Iterator[Use]:
    if isinstance(node, parser.VectorSelector):
        yield from _selector(node, recordings, inside)
    elif isinstance(node, parser.MatrixSelector):
        yield from _selector(node.vector_selector, recordings, inside)
    elif isinstance(node, parser.BinaryExpr):
        yield from _binary(node, recordings, inside)
    elif isinstance(node, parser.Call):
        yield from _call(node, recordings, inside)
    elif isinstance(node, parser.AggregateExpr):
        counting = str(node.op) in COUNTING
        for use in _walk(node.expr, recordings, inside):
            bounds = "none" if use.bounds == "all" and drops_le(node) else use.bounds
            yield replace(use, presence=use.presence or counting, bounds=bounds)
    elif isinstance(node, parser.SubqueryExpr) and elsewhen(node):
        yield from _emptied(_walk(node.expr, recordings, inside))
    elif isinstance(node, parser.ParenExpr | parser.UnaryExpr | parser.SubqueryExpr):
        yield from _walk(node.expr, recordings, inside)


def _emptied(found: Iterable[Use]) -> Iterator[Use]:
    return (replace(use, presence=True) for use in found)


def _selector(node: parser.VectorSelector, recordings: Recordings, inside: tuple[str, ...]) -> Iterator[Use]:
    matchers = node.matchers.matchers
    labels = {m.name: m.value for m in matchers if _is_plain(m)}
    named = [m for m in matchers if m.name == "__name__" and m.op in (parser.MatchOp.Equal, parser.MatchOp.Re)]
    names = [node.name] if node.name else [n for m in named for n in alternatives(m.value)]
    before = elsewhen(node)
    for name in names:
        recorded = recordings.open(name, inside)
        if recorded is not None:
            found = _walk(recorded, recordings, (*inside, name))
            yield from _emptied(found) if before else found
            continue
        base, _, part = name.rpartition("_")
        whole = part not in _PARTS or not base
        yield Use(
            name=name,
            base=name if whole else base,
            part="" if whole else part,
            labels=labels,
            presence=before,
            bounds="one" if pins_le(node) else "all",
        )


def _is_plain(matcher: parser.Matcher) -> bool:
    """True for a label narrowed to one value, also by a pattern that is only that value."""
    single = matcher.op == parser.MatchOp.Re and re.fullmatch(r"\w+", matcher.value) is not None
    return matcher.name != "__name__" and (matcher.op == parser.MatchOp.Equal or single)


def _call(node: parser.Call, recordings: Recordings, inside: tuple[str, ...]) -> Iterator[Use]:
    function = node.func.name
    lost = function in PRESENCE or function in EMPTIES or quantile_of_none(node)
    for argument in node.args:
        for use in _walk(argument, recordings, inside):
            unbound = function == "histogram_quantile" and use.part == "bucket" and use.bounds != "all"
            yield replace(
                use,
                rated=use.rated or function in RATES,
                volume=use.volume or (function in _TOTALS and _is_long(argument)),
                presence=use.presence or lost or unbound,
                quantile=use.quantile or function == "histogram_quantile",
                mean=use.mean or function == "histogram_avg",
                part=_NATIVE.get(function, use.part),
            )


def _is_long(argument: parser.Expr) -> bool:
    window = argument.range if isinstance(argument, parser.MatrixSelector | parser.SubqueryExpr) else None
    return window is not None and window >= _LONG


def _binary(node: parser.BinaryExpr, recordings: Recordings, inside: tuple[str, ...]) -> Iterator[Use]:
    left = list(_walk(node.lhs, recordings, inside))
    right = list(_walk(node.rhs, recordings, inside))
    operator = str(node.op).lower()
    if empties(node):
        yield from _emptied(left)
        yield from _emptied(right)
    elif operator == "/":
        yield from _divided(left, right)
    elif operator in COMPARISONS | SETS:
        yield from left or right
    else:
        yield from left
        yield from right


def _divided(left: list[Use], right: list[Use]) -> Iterator[Use]:
    """`a / b`: _sum over _count of one histogram is a mean (either way up); a rate over a rate is a ratio."""
    below = tuple(dict.fromkeys(use.base for use in right if not use.denominator))
    counting = any(use.rated or use.part for use in right)
    pairs = {use.base for use in left if use.part in ("sum", "count")} & {
        use.base for use in right if use.part in ("sum", "count")
    }
    for use in left:
        if use.base in pairs and use.part in ("sum", "count") and not use.denominator:
            yield replace(use, mean=True)
        else:
            volume = use.volume and bool(right)  # over a number it is per second, or per hour, again
            yield replace(use, ratio=use.ratio or counting, over=use.over + below, volume=volume)
    for use in right:
        inverse = not left
        yield use if inverse else replace(use, denominator=True)
