"""Perses dashboards: `panels` by name, `layouts` that place them. Source: perses/perses cue/model, dashboard spec."""

from collections.abc import Mapping
from typing import Any

from auditor.monitoring.boards import Dashboard, Panel, prometheus_like
from auditor.monitoring.documents import listing, mapping, text_of, walk
from auditor.monitoring.grafana import first_text

__all__ = ["perses"]

_PLACE = "#/spec/panels/"
_OWN_VALUES = ("StaticListVariable", "")


def perses(node: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a node, or None where it is none. A panel that no layout places is not shown."""
    panels = node.get("panels")
    if not isinstance(panels, Mapping):
        return None
    references = (text_of(mapping(n).get("$ref")) for _, n in walk(node.get("layouts")))
    placed = {reference.removeprefix(_PLACE) for reference in references if reference.startswith(_PLACE)}
    found = [_panel(str(name), mapping(panel)) for name, panel in panels.items() if not placed or name in placed]
    variables, unknown = _variables(node)
    title = text_of(mapping(node.get("display")).get("name"))
    return Dashboard(title, tuple(p for p in found if p.queries), variables, (), unknown)


def _panel(name: str, panel: Mapping[str, Any]) -> Panel:
    spec = mapping(panel.get("spec"))
    plugins = [mapping(mapping(mapping(q).get("spec")).get("plugin")) for q in listing(spec.get("queries"))]
    queries = [text_of(mapping(p.get("spec")).get("query")) for p in plugins if "Prometheus" in text_of(p.get("kind"))]
    return Panel(text_of(mapping(spec.get("display")).get("name")) or name, prometheus_like(queries))


def _variables(node: Mapping[str, Any]) -> tuple[dict[str, str], frozenset[str]]:
    values: dict[str, str] = {}
    unknown = set()
    for entry in listing(node.get("variables")):
        spec = mapping(mapping(entry).get("spec"))
        name = text_of(spec.get("name"))
        values[name] = first_text(spec.get("defaultValue")) or text_of(spec.get("value"))
        if text_of(mapping(spec.get("plugin")).get("kind")) not in _OWN_VALUES:
            unknown.add(name)
    return values, frozenset(unknown)
