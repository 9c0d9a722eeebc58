"""The panels and alerts that a set of dashboards and rules lacks, as a Grafana dashboard and a Prometheus rule file.

What is written passes the check that found it missing: the series are those of the engine and version in use, limits
stand on bounds of their histograms. Grafana's dashboard JSON model and Prometheus's rule files are the formats.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from auditor import panels
from auditor.catalog import metrics as catalogue
from auditor.monitoring.coverage import ASKED
from auditor.monitoring.promql import Use
from auditor.monitoring.standing import Place
from auditor.panels import Names
from auditor.watch import Coverage, CoverageItem

__all__ = ["Missing", "missing"]

_LIVE = ("valid", "on_page", "parses", "returns_data", "alerted")
# Flaws after which a concept is shown no better than if it were not.
_HOLLOW = ("average_only", "lifetime", "sampled_gauge", "gpu_memory_only")
_TITLES = {"ttft": "Time to first token", "tps": "Generated tokens", "memory": "KV cache usage"}
_SECONDS = {"ttft": 2.0, "tps": 0.2}  # limits to begin with: two seconds to the first token, five tokens a second
_FULL = 0.95
_HELD = "5m"
_SET = "The limit is one to begin with: set your SLO's."
_WINDOW = ("[5m]", "[$__rate_interval]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What to add: a dashboard and rules as plain data, None where nothing is missing; `impossible` says in a line what
    no panel of this engine can show.
    """

    dashboard: Mapping[str, Any] | None = None
    rules: Mapping[str, Any] | None = None
    impossible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Panel:
    """One panel under way: queries with their legends, and the unit of its axis."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...] = field(default=())


def missing(found: Coverage, place: Place, scraped: Collection[str] = ()) -> Missing:
    """What the coverage lacks, for the engine, its version and its pages (an unknown engine: what the pages offer).

    `scraped` are the names of the engine's series as a live Prometheus stores them.
    """
    names = panels.offered_first(catalogue.remedies(place.engine, place.version), found.offered)
    names = _usable(names if catalogue.is_known(place.engine) else {**names, **found.offered}, found.offered, place)
    names = panels.as_stored(names, scraped)
    items = {item.concept: item for item in found.items}
    unseen = [concept for concept in ASKED if _unseen(items[concept], found)]
    unwatched = [concept for concept in ASKED if not items[concept].alerts or _renamed(concept, found)]
    offered = panels.as_stored(found.offered, scraped)
    drawn = {concept: tuple(_drawn(concept, names, offered)) for concept in unseen}
    alerts = [alert for concept in unwatched for alert in _alert(concept, names, place)]
    title = catalogue.title(place.engine) if catalogue.is_known(place.engine) else "LLM service"
    return Missing(
        dashboard=_dashboard(title, [panel for listed in drawn.values() for panel in listed]),
        rules=_rules(title, [*alerts, *_gone(names)] if alerts else []),
        impossible=tuple(_cannot(concept, title, names) for concept in unseen if not drawn[concept]),
    )


def _unseen(item: CoverageItem, found: Coverage) -> bool:
    flaws = [flaw for flaw in found.flaws if flaw.kind in _HOLLOW and panels.asked(flaw.concept) == item.concept]
    hollow = any(f.kind != "lifetime" for f in flaws) or panels.rests_on(found, flaws, item.concept)
    live = item.rung in _LIVE or (item.rung == "named" and item.names and not item.dead)
    return not live or hollow or set(item.names) <= set(item.silent)


def _renamed(concept: str, found: Coverage) -> bool:
    """Whether queries and alerts ask for series that Prometheus stores under another name: such alerts never fire."""
    return any(flaw.kind == "renamed_prefix" and panels.asked(flaw.concept) == concept for flaw in found.flaws)


def _usable(names: Names, offered: Names, place: Place) -> Names:
    """The series that live here, of times only histograms; beside the engine's what exporters have of the device."""
    device = {concept: listed for concept, listed in offered.items() if concept.startswith("gpu_")}
    times = {concept: tuple(filter(_is_histogram, names.get(concept, ()))) for concept in ("ttft", "tpot")}
    beside = ("gateway_ttft", "exporter_memory")
    found = {
        concept: listed if concept in beside else tuple(name for name in listed if _lives(name, place))
        for concept, listed in {**device, **names, **times}.items()
    }
    return {concept: listed for concept, listed in found.items() if listed}


def _lives(name: str, place: Place) -> bool:
    """False for a series that the version or the page is known not to have."""
    base = name.partition("{")[0]
    part = "bucket" if _is_histogram(name) else ""
    use = Use(name=f"{base}_bucket" if part else base, base=base, part=part)
    return not any(place.standing(metric, use).dead for metric in catalogue.lookup(base)[:1])


def _is_histogram(name: str) -> bool:
    return any(metric.type == "histogram" for metric in catalogue.lookup(name.partition("{")[0]))


def _cannot(concept: str, title: str, names: Names) -> str:
    beside = {"ttft": "gateway_ttft", "memory": "exporter_memory"}.get(concept, "")
    known = ", ".join(names.get(beside, ())[:2])
    example = f", such as {known}" if known else ""
    other = {"ttft": "a gateway in front that measures it", "memory": "a GPU exporter"}.get(
        concept, "a gateway in front"
    )
    return f"{title} has no metric of {_TITLES[concept].lower()}: draw the series of {other}{example}"


# -------------------------------------------------------------------------------------------------------------- panels


def _drawn(concept: str, names: Names, offered: Names) -> Iterator[_Panel]:
    if concept == "ttft" and names.get("ttft"):
        name = names["ttft"][0]
        shown = tuple((panels.quantile(name, at), f"p{at * 100:g}") for at in (0.5, 0.95, 0.99))
        yield _Panel(_TITLES["ttft"], _seconds(name), shown)
    if concept == "tps":
        if names.get("generation_tokens"):
            query = panels.query("tps", names) or ""
            yield _Panel(f"{_TITLES['tps']} per second", "short", ((query, "tokens/s"),))
        if names.get("tpot"):
            name = names["tpot"][0]
            shown = tuple((panels.quantile(name, at), f"p{at * 100:g}") for at in (0.5, 0.95))
            yield _Panel("Time per output token", _seconds(name), shown)
    if concept == "memory":
        yield from _memory(names, offered)


def _memory(names: Names, offered: Names) -> Iterator[_Panel]:
    """The pools that the page has, or else the engine's first gauge; without any the device's memory."""
    if names.get("kv_usage"):
        pools = tuple(n for n in catalogue.pools(names["kv_usage"]) if n in offered.get("kv_usage", ()))
        pools = pools or names["kv_usage"][:1]
        shown = tuple((f"max({name})", name.rpartition(":")[2].partition("{")[0]) for name in pools)
        yield _Panel(_TITLES["memory"], "percentunit", shown)
        return
    parts = [names.get(concept, ("",))[0] for concept in ("gpu_memory", "gpu_memory_free", "gpu_memory_reserved")]
    used, free, reserved = parts
    if used and free:
        shown = ((f"max({panels.share_of_gpu(used, free, reserved or None)})", "fullest device"),)
        yield _Panel("GPU memory in use", "percentunit", shown)


def _seconds(name: str) -> str:
    return "ms" if panels.scale(name) != 1 else "s"


def _dashboard(title: str, drawn: list[_Panel]) -> Mapping[str, Any] | None:
    if not drawn:
        return None
    variable = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    return {
        "title": f"{title}: TTFT, TPS and memory",
        "uid": "serving-audit-missing",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": [_as_json(panel, number) for number, panel in enumerate(drawn)],
    }


def _as_json(panel: _Panel, number: int) -> Mapping[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + place), "expr": query.replace(*_WINDOW), "legendFormat": legend, "datasource": source}
        for place, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


# -------------------------------------------------------------------------------------------------------------- alerts


def _alert(concept: str, names: Names, place: Place) -> Iterator[Mapping[str, Any]]:
    if concept == "ttft" and names.get("ttft"):
        yield from _slow("TimeToFirstTokenHigh", concept, names["ttft"][0], place)
    if concept == "tps":
        running = names.get("running", ())
        if names.get("tpot"):
            yield from _slow("TimePerOutputTokenHigh", concept, names["tpot"][0], place)
        elif names.get("generation_tokens") and running:
            query = f"{panels.query('tps', names)} / sum({running[0]}) < {1 / _SECONDS['tps']:g}"
            yield _rule(
                "TokensPerRequestSlow", query, "Each running request gets {{ $value | humanize }} tokens a second"
            )
    if concept == "memory" and names.get("kv_usage"):
        query = f"max({names['kv_usage'][0]}) > {_FULL:g}"
        yield _rule("KvCacheNearlyFull", query, "The fullest KV cache is {{ $value | humanizePercentage }} full")


def _slow(alert: str, concept: str, name: str, place: Place) -> Iterator[Mapping[str, Any]]:
    """A quantile above its limit, which is put on the first bound of the histogram that is no lower, below the last."""
    scale = panels.scale(name)
    wanted = _SECONDS[concept] * scale
    metric = next(iter(catalogue.lookup(name.partition("{")[0])), None)
    bounds = sorted(place.buckets(metric)) if metric is not None else []
    if len(bounds) == 1:
        return  # no quantile is ever above the last bound
    bounds = bounds[:-1]
    limit = min((bound for bound in bounds if bound >= wanted), default=bounds[-1] if bounds else wanted)
    unit = " ms" if scale != 1 else " s"
    summary = f"p95 of {_TITLES[concept].lower() if concept == 'ttft' else 'the time per output token'} is "
    query = f"{panels.quantile(name)} > {limit:g}"
    yield _rule(alert, query, f"{summary}{{{{ $value | humanize }}}}{unit}")


def _gone(names: Names) -> Iterator[Mapping[str, Any]]:
    """Without the page every other alert is silent."""
    if names.get("running"):
        query = f"absent({names['running'][0]})"
        summary = "No metrics of the engine: it is down, its page is off, or nothing scrapes it"
        yield _rule("MetricsPageGone", query, summary, "")


def _rule(alert: str, query: str, summary: str, more: str = _SET) -> Mapping[str, Any]:
    return {
        "alert": alert,
        "expr": query,
        "for": _HELD,
        "labels": {"severity": "warning"},
        "annotations": {"summary": summary, **({"description": more} if more else {})},
    }


def _rules(title: str, alerts: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    name = title.lower().replace(" ", "-").replace(".", "")
    return {"groups": [{"name": f"{name}-serving", "rules": alerts}]} if alerts else None
