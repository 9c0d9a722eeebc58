"""Rule documents -> recording and alerting rules.

Reads Prometheus rule files (plain `groups:`) and resources that carry them (PrometheusRule, VMRule, Google's Rules),
and Grafana's own alert rules (provisioning files and GrafanaAlertRuleGroup).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from auditor.monitoring.boards import Target, drawn
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
    spec = mapping(document.get("spec"))
    if document.get("kind") == "GrafanaAlertRuleGroup":
        return tuple(rule for entry in listing(spec.get("rules")) for rule in _grafana(mapping(entry)))
    groups = document.get("groups", spec.get("groups"))
    if not isinstance(groups, list):
        return None
    return tuple(
        rule
        for group in groups
        for entry in listing(mapping(group).get("rules"))
        for rule in (_grafana if "data" in mapping(entry) else _prometheus)(mapping(entry))
    )


def _prometheus(entry: Mapping[str, Any]) -> Iterator[Rule]:
    name, expr = text_of(entry.get("alert")) or text_of(entry.get("record")), _expression(entry.get("expr"))
    if name and expr.strip():
        yield Rule("alert" if text_of(entry.get("alert")) else "record", name, expr)


def _grafana(entry: Mapping[str, Any]) -> Iterator[Rule]:
    """One rule for each query that the condition of Grafana's alert rests on."""
    queries = [mapping(query) for query in listing(entry.get("data"))]
    condition = text_of(entry.get("condition"))
    targets = [_target(query, shown=text_of(query.get("refId")) == condition or not condition) for query in queries]
    name = text_of(entry.get("title")) or text_of(mapping(entry.get("grafana_alert")).get("title"))
    for expr in drawn(targets):
        yield Rule("alert", name or "an alert without title", expr)


def _target(query: Mapping[str, Any], *, shown: bool) -> Target:
    model = mapping(query.get("model"))
    own = text_of(query.get("datasourceUid")) in ("__expr__", "-100")
    kind = text_of(mapping(model.get("datasource")).get("type"))
    conditions = [
        mapping(mapping(c).get("query")) for c in listing(model.get("conditions"))
    ]  # classic ones name queries
    inputs = [text_of(model.get("expression")), *(text_of(p) for c in conditions for p in listing(c.get("params")))]
    return Target(
        ref=text_of(query.get("refId")),
        source="__expr__" if own else kind,
        text=" ".join(inputs) if own else text_of(model.get("expr")),
        hidden=not shown,
    )


def _expression(value: Any) -> str:
    """An expression may be written as a number (`expr: 1`)."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else text_of(value)
