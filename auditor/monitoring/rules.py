"""Prometheus rule documents -> recording and alerting rules. Plain `groups:` files and PrometheusRule resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from auditor.monitoring.documents import listing, mapping, text_of

__all__ = ["Rule", "rules"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: an alert, or a recording that gives an expression a name."""

    kind: Literal["alert", "record"]
    name: str
    expr: str


def rules(document: Mapping[str, Any]) -> tuple[Rule, ...] | None:
    """The rules in a document, in order; None where the document is no rule file."""
    groups = document.get("groups", mapping(document.get("spec")).get("groups"))
    if not isinstance(groups, list):
        return None
    found = []
    for group in groups:
        for rule in listing(mapping(group).get("rules")):
            entry = mapping(rule)
            name, expr = text_of(entry.get("alert")) or text_of(entry.get("record")), _expression(entry.get("expr"))
            if name and expr.strip():
                found.append(Rule("alert" if text_of(entry.get("alert")) else "record", name, expr))
    return tuple(found)


def _expression(value: Any) -> str:
    """An expression may be written as a number (`expr: 1`)."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else text_of(value)
