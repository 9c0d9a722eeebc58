"""Google Cloud Monitoring dashboards: widgets in a layout, queried by PromQL, a filter or MQL over Prometheus data."""

import re
from collections.abc import Mapping
from typing import Any

from auditor.monitoring.boards import Dashboard, Panel, prometheus_like
from auditor.monitoring.documents import mapping, text_of, walk

__all__ = ["google"]

_LAYOUTS = ("mosaicLayout", "gridLayout", "rowLayout", "columnLayout")
_METRIC = r"prometheus\.googleapis\.com/([A-Za-z_:][\w:]*)/(\w+)"
_FILTER = re.compile(rf'metric\.type\s*=\s*"{_METRIC}"')
_MQL = re.compile(rf"(?:\bmetric\s+|::\s*)['\"]?{_METRIC}")


def google(node: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a node, or None where it is none."""
    layout = next((node[k] for k in _LAYOUTS if k in node), None)
    if not isinstance(layout, Mapping):
        return None
    panels = []
    for _, widget in walk(layout):
        title = text_of(mapping(widget).get("title"))
        if title or isinstance(mapping(widget).get("xyChart"), Mapping):
            inner = [mapping(n) for _, n in walk({k: v for k, v in widget.items() if k != "widget"})]
            panels.append(Panel(title, prometheus_like(query for n in inner for query in _queries(n))))
    return Dashboard(text_of(node.get("displayName")), tuple(p for p in panels if p.queries))


def _queries(node: Mapping[str, Any]) -> tuple[str, ...]:
    return text_of(node.get("prometheusQuery")), _filter_query(node), _mql_query(node)


def _filter_query(node: Mapping[str, Any]) -> str:
    """A time-series filter over a Prometheus metric, written as the PromQL that computes the same."""
    match = _FILTER.search(text_of(node.get("filter")))
    if not match:
        return ""
    aggregation = mapping(node.get("aggregation"))
    reducer, aligner = (text_of(aggregation.get(k)) for k in ("crossSeriesReducer", "perSeriesAligner"))
    percentile = re.search(r"PERCENTILE_(\d{1,2})", reducer + " " + aligner)
    return _promql(match[1], match[2], percentile and percentile[1], aligner in ("ALIGN_RATE", "ALIGN_DELTA"))


def _mql_query(node: Mapping[str, Any]) -> str:
    """The same for the Monitoring Query Language: the metric fetched, a rate or a percentile of it."""
    text = text_of(node.get("timeSeriesQueryLanguage"))
    match = _MQL.search(text)
    if not match:
        return ""
    percentile = re.search(r"percentile(?:_from)?\([^,()]*(?:\(\)[^,()]*)?,\s*(\d{1,3}(?:\.\d{1,3})?)", text)
    rated = re.search(r"\balign\s+(?:rate|delta)\b|\brate\b", text)
    return _promql(match[1], match[2], percentile and percentile[1], bool(rated))


def _promql(name: str, kind: str, percentile: str | None, rated: bool) -> str:
    if kind == "histogram":
        rate = f"sum by (le) (rate({name}_bucket[5m]))"
        return f"histogram_quantile({float(percentile) / 100:g}, {rate})" if percentile else rate
    return f"rate({name}[5m])" if rated else name
