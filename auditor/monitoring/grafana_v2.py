"""Grafana's second dashboard schema (`dashboard.grafana.app/v2*`): `elements` by name, and a `layout` that places them.

Source: grafana/grafana apps/dashboard/kinds (DashboardV2Spec): PanelKind, LibraryPanelKind, QueryGroupKind,
PanelQueryKind, DataQueryKind (v2alpha1 names the data source's type in `kind`, later ones in `group`) and
ElementReference.
"""

from collections.abc import Mapping
from typing import Any

from auditor.monitoring.boards import Dashboard, Panel, Target, drawn
from auditor.monitoring.documents import listing, mapping, text_of, walk
from auditor.monitoring.grafana import LIBRARY, first_text, unit
from auditor.monitoring.transformations import outputs

__all__ = ["elements"]

_OWN_VALUES = ("ConstantVariable", "CustomVariable", "TextVariable", "IntervalVariable")


def elements(node: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a node, or None where it is none. An element that no layout places is not shown."""
    found = node.get("elements")
    if not isinstance(found, Mapping):
        return None
    placed = {text_of(n.get("name")) for _, n in walk(node.get("layout")) if _is_reference(n)}
    panels, unread = [], []
    for name, element in found.items():
        if placed and name not in placed:
            continue
        spec = mapping(mapping(element).get("spec"))
        title = text_of(spec.get("title")) or str(name)
        if text_of(mapping(element).get("kind")) == "LibraryPanel":
            unread.append(f"panel {title!r} {LIBRARY}")
        look = mapping(mapping(spec.get("vizConfig")).get("spec"))
        queries = _queries(mapping(mapping(spec.get("data")).get("spec")))
        panels.append(Panel(title, queries, unit(mapping(look.get("fieldConfig")))))
    variables, unknown = _variables(node)
    title = text_of(node.get("title"))
    return Dashboard(title, tuple(p for p in panels if p.queries), variables, tuple(unread), unknown)


def _is_reference(node: Any) -> bool:
    return isinstance(node, Mapping) and node.get("kind") == "ElementReference"


def _queries(group: Mapping[str, Any]) -> tuple[str, ...]:
    targets = [_target(mapping(mapping(q).get("spec"))) for q in listing(group.get("queries"))]
    return drawn(targets, outputs(group.get("transformations"), [t.ref for t in targets]))


def _target(query: Mapping[str, Any]) -> Target:
    inner = mapping(query.get("query"))
    source = text_of(inner.get("group")) or text_of(inner.get("kind"))
    spec = mapping(inner.get("spec"))
    return Target(
        ref=text_of(query.get("refId")),
        source=source,
        text=text_of(spec.get("expression" if source == "__expr__" else "expr")),
        hidden=query.get("hidden") in (True, "true"),
    )


def _variables(node: Mapping[str, Any]) -> tuple[dict[str, str], frozenset[str]]:
    values: dict[str, str] = {}
    unknown = set()
    for entry in listing(node.get("variables")):
        spec = mapping(mapping(entry).get("spec"))
        name = text_of(spec.get("name"))
        own = text_of(mapping(entry).get("kind")) in _OWN_VALUES
        value = first_text(mapping(spec.get("current")).get("value"))
        if not value and own:
            value = text_of(spec.get("query")).split(",")[0]
        if name:
            values[name] = value
            unknown |= set() if own else {name}
    return values, frozenset(unknown)
