"""Grafana's classic dashboards: panels, nested and collapsed rows, old `rows`, library panels in `__elements`."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.monitoring.boards import Dashboard, Panel, Target, drawn
from auditor.monitoring.documents import listing, mapping, text_of
from auditor.monitoring.transformations import outputs

__all__ = ["LIBRARY", "classic", "first_text", "unit"]

LIBRARY = "is a library panel, kept outside the file"
_MAX_PANEL_DEPTH = 8
_OWN_VALUES = ("constant", "custom", "textbox", "interval")


def classic(node: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a node, or None where it is none."""
    if not isinstance(node.get("panels"), list) and not isinstance(node.get("rows"), list):
        return None
    library = _library(node)
    everything = [_resolved(p, library) for p in _panels(node, 0) if isinstance(p, Mapping)]
    unread = tuple(
        f"panel {text_of(p.get('title')) or 'without title'!r} {LIBRARY}"
        for p in everything
        if p.get("libraryPanel") and not p.get("targets")
    )
    panels = tuple(Panel(text_of(p.get("title")), _queries(p), _unit(p)) for p in everything)
    variables, unknown = _variables(node)
    title = text_of(node.get("title"))
    return Dashboard(title, tuple(p for p in panels if p.queries), variables, unread, unknown)


def _panels(node: Mapping[str, Any], depth: int) -> Iterator[Any]:
    if depth > _MAX_PANEL_DEPTH:
        return
    for child in listing(node.get("panels")) + listing(node.get("rows")):
        yield child
        if isinstance(child, Mapping):
            yield from _panels(child, depth + 1)


def _library(node: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Library panels that an export for sharing carries along, by their uid."""
    elements = mapping(node.get("__elements")).values()
    return {text_of(mapping(e).get("uid")): mapping(mapping(e).get("model")) for e in elements}


def _resolved(panel: Mapping[str, Any], library: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    reference = mapping(panel.get("libraryPanel"))
    if not reference or panel.get("targets"):
        return panel
    model = library.get(text_of(reference.get("uid"))) or mapping(reference.get("model"))
    title = text_of(panel.get("title")) or text_of(model.get("title")) or text_of(reference.get("name"))
    return {**panel, **model, "title": title}


def _queries(panel: Mapping[str, Any]) -> tuple[str, ...]:
    fallback = _source(panel)
    targets = [_target(mapping(t), fallback) for t in listing(panel.get("targets")) if isinstance(t, Mapping)]
    return drawn(targets, outputs(panel.get("transformations"), [t.ref for t in targets]))


def _unit(panel: Mapping[str, Any]) -> str:
    """The unit of all that the panel draws (of an old graph's left axis); "" where overrides set others."""
    if "fieldConfig" in panel:
        return unit(mapping(panel.get("fieldConfig")))
    axes = listing(panel.get("yaxes"))
    return text_of(mapping(axes[0]).get("format")) if axes else text_of(panel.get("format"))


def unit(config: Mapping[str, Any]) -> str:
    """The unit that a `fieldConfig` gives to all fields; "" where its overrides give some fields others."""
    properties = (p for o in listing(config.get("overrides")) for p in listing(mapping(o).get("properties")))
    mixed = any(mapping(p).get("id") == "unit" for p in properties)
    return "" if mixed else text_of(mapping(config.get("defaults")).get("unit"))


def _target(node: Mapping[str, Any], fallback: str) -> Target:
    source = _source(node) or fallback
    own = source == "__expr__"
    return Target(
        ref=text_of(node.get("refId")),
        source=source,
        text=text_of(node.get("expression" if own else "expr")),
        hidden=node.get("hide") in (True, "true"),
    )


def _source(node: Mapping[str, Any]) -> str:
    """The type of the data source where the file tells it; old files hold only a name."""
    source = node.get("datasource")
    return text_of(source.get("type")) if isinstance(source, Mapping) else text_of(source)


def _variables(node: Mapping[str, Any]) -> tuple[dict[str, str], frozenset[str]]:
    """The variables' values by default, and those whose values are looked up in the data."""
    values: dict[str, str] = {}
    unknown = set()
    for entry in listing(mapping(node.get("templating")).get("list")):
        variable = mapping(entry)
        name, current = text_of(variable.get("name")), mapping(variable.get("current"))
        value = first_text(current.get("value", current.get("text")))
        own = variable.get("type") in _OWN_VALUES
        if not value and own:
            value = text_of(variable.get("query")).split(",")[0]
        if name:
            values[name] = value
            unknown |= set() if own else {name}
    return values, frozenset(unknown)


def first_text(value: Any) -> str:
    """The value, or the first of several, where it is text."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return text_of(value)
