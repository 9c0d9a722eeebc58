"""Dashboard documents -> panels with the Prometheus queries that they draw.

Reads Grafana (v1 panels, nested and collapsed rows, old `rows`, the `{dashboard: ...}` wrapper, resources with the
dashboard in `spec`, v2 `spec.elements`), Perses and Google Cloud Monitoring. Titles say where, they never judge.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from auditor.monitoring.documents import listing, mapping, text_of, walk

__all__ = ["Dashboard", "Panel", "dashboard"]

_MAX_PANEL_DEPTH = 8
_OTHER_LANGUAGES = re.compile(r"loki|tempo|elastic|influx|sql|cloudwatch|stackdriver|postgres|json|infinity|__expr__")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its title and the PromQL texts that it draws, variables still in them."""

    title: str
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. `variables` are the values that its template variables have by default; `unread` says which
    panels could not be read, and why.
    """

    title: str
    panels: tuple[Panel, ...]
    variables: Mapping[str, str]
    unread: tuple[str, ...] = ()


def dashboard(document: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a document, or None where the document is none."""
    root = document.get("dashboard", document)
    for candidate in (root, mapping(root).get("spec")):
        node = mapping(candidate)
        for reader in (_grafana, _elements, _perses, _google):
            found = reader(node)
            if found is not None:
                return found
    return None


# ------------------------------------------------------------------------------------------------------- Grafana v1


def _grafana(node: Mapping[str, Any]) -> Dashboard | None:
    if not isinstance(node.get("panels"), list) and not isinstance(node.get("rows"), list):
        return None
    everything = [p for p in _grafana_panels(node, 0) if isinstance(p, Mapping)]
    unread = tuple(
        f"panel {text_of(p.get('title')) or 'without title'!r} is a library panel, kept outside the file"
        for p in everything
        if p.get("libraryPanel") and not p.get("targets")
    )
    panels = tuple(Panel(text_of(p.get("title")), tuple(_targets(p))) for p in everything)
    return Dashboard(text_of(node.get("title")), tuple(p for p in panels if p.queries), _variables(node), unread)


def _grafana_panels(node: Mapping[str, Any], depth: int) -> Iterator[Any]:
    if depth > _MAX_PANEL_DEPTH:
        return
    for child in listing(node.get("panels")) + listing(node.get("rows")):
        yield child
        if isinstance(child, Mapping):
            yield from _grafana_panels(child, depth + 1)


def _targets(panel: Mapping[str, Any]) -> Iterator[str]:
    """The queries that the panel draws: hidden ones only where a shown expression ($B + $C) uses them."""
    targets = [t for t in listing(panel.get("targets")) if isinstance(t, Mapping)]
    wanted = {
        ref
        for t in targets
        if not _hidden(t) and _datasource(t) == "__expr__"
        for ref in re.findall(r"\w+", text_of(t.get("expression")))
    }
    for target in targets:
        if _OTHER_LANGUAGES.search((_datasource(target) or _datasource(panel)).lower()):
            continue
        query = text_of(target.get("expr"))
        if query.strip() and (not _hidden(target) or text_of(target.get("refId")) in wanted):
            yield query


def _hidden(target: Mapping[str, Any]) -> bool:
    return target.get("hide") in (True, "true")


def _datasource(node: Mapping[str, Any]) -> str:
    """The type of the data source where the file tells it; old files hold only a name."""
    source = node.get("datasource")
    return text_of(source.get("type")) if isinstance(source, Mapping) else text_of(source)


def _variables(node: Mapping[str, Any]) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for variable in listing(mapping(node.get("templating")).get("list")):
        name, current = text_of(mapping(variable).get("name")), mapping(mapping(variable).get("current"))
        value = current.get("value", current.get("text"))
        if isinstance(value, list):
            value = value[0] if value else ""
        if not text_of(value) and mapping(variable).get("type") in ("constant", "custom", "textbox", "interval"):
            value = text_of(mapping(variable).get("query")).split(",")[0]
        if name:
            values[name] = text_of(value)
    return values


# ------------------------------------------------------------------------------------------- Grafana v2, Perses, Google


def _elements(node: Mapping[str, Any]) -> Dashboard | None:
    elements = node.get("elements")
    if not isinstance(elements, Mapping):
        return None
    panels, unread = [], []
    for name, element in elements.items():
        spec = mapping(mapping(element).get("spec"))
        title = text_of(spec.get("title")) or str(name)
        if text_of(mapping(element).get("kind")) == "LibraryPanel":
            unread.append(f"panel {title!r} is a library panel, kept outside the file")
        panels.append(Panel(title, tuple(_group_queries(mapping(mapping(spec.get("data")).get("spec"))))))
    variables = {}
    for variable in listing(node.get("variables")):
        spec = mapping(mapping(variable).get("spec"))
        variables[text_of(spec.get("name"))] = text_of(mapping(spec.get("current")).get("value"))
    return Dashboard(text_of(node.get("title")), tuple(p for p in panels if p.queries), variables, tuple(unread))


def _group_queries(group: Mapping[str, Any]) -> Iterator[str]:
    for query in listing(group.get("queries")):
        spec = mapping(mapping(query).get("spec"))
        if spec.get("hidden") in (True, "true"):
            continue
        inner = mapping(spec.get("query"))
        source = text_of(inner.get("group")) or text_of(inner.get("kind"))
        expression = text_of(mapping(inner.get("spec")).get("expr"))
        if expression.strip() and not _OTHER_LANGUAGES.search(source.lower()):
            yield expression


def _perses(node: Mapping[str, Any]) -> Dashboard | None:
    panels = node.get("panels")
    if not isinstance(panels, Mapping):
        return None
    found = []
    for name, panel in panels.items():
        spec = mapping(mapping(panel).get("spec"))
        title = text_of(mapping(spec.get("display")).get("name")) or str(name)
        plugins = [mapping(mapping(mapping(q).get("spec")).get("plugin")) for q in listing(spec.get("queries"))]
        queries = [text_of(mapping(p.get("spec")).get("query")) for p in plugins if "Prometheus" in str(p.get("kind"))]
        found.append(Panel(title, tuple(q for q in queries if q.strip())))
    variables = {}
    for variable in listing(node.get("variables")):
        spec = mapping(mapping(variable).get("spec"))
        variables[text_of(spec.get("name"))] = text_of(spec.get("defaultValue")) or text_of(spec.get("value"))
    title = text_of(mapping(node.get("display")).get("name"))
    return Dashboard(title, tuple(p for p in found if p.queries), variables)


def _google(node: Mapping[str, Any]) -> Dashboard | None:
    layout = next((node[k] for k in ("mosaicLayout", "gridLayout", "rowLayout", "columnLayout") if k in node), None)
    if not isinstance(layout, Mapping):
        return None
    panels = []
    for _, widget in walk(layout):
        title = text_of(mapping(widget).get("title"))
        if title or isinstance(mapping(widget).get("xyChart"), Mapping):
            inner = [mapping(n) for _, n in walk({k: v for k, v in widget.items() if k != "widget"})]
            queries = [text_of(n.get("prometheusQuery")) for n in inner] + [_filter_query(n) for n in inner]
            panels.append(Panel(title, tuple(q for q in queries if q.strip())))
    return Dashboard(text_of(node.get("displayName")), tuple(p for p in panels if p.queries), {})


def _filter_query(node: Mapping[str, Any]) -> str:
    """A Cloud Monitoring time-series filter over a Prometheus metric, written as the PromQL that computes the same."""
    match = re.search(
        r'metric\.type\s*=\s*"prometheus\.googleapis\.com/([A-Za-z_:][\w:]*)/(\w+)"', text_of(node.get("filter"))
    )
    if not match:
        return ""
    name, kind = match.groups()
    aggregation = mapping(node.get("aggregation"))
    reducer, aligner = (text_of(aggregation.get(k)) for k in ("crossSeriesReducer", "perSeriesAligner"))
    percentile = re.search(r"PERCENTILE_(\d+)", reducer + " " + aligner)
    if kind == "histogram":
        rate = f"sum by (le) (rate({name}_bucket[5m]))"
        return f"histogram_quantile(0.{percentile[1]}, {rate})" if percentile else rate
    return f"rate({name}[5m])" if aligner in ("ALIGN_RATE", "ALIGN_DELTA") else name
