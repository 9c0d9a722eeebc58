"""Reading dashboards and rules in every wrapper, and hostile files that must end in one line."""

import json
from typing import Any

import pytest
import yaml

from auditor.monitoring import dashboards, documents, rules


def panels_of(text: str) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for document in documents.documents(text):
        if isinstance(document, documents.Unreadable):
            raise document
        board = dashboards.dashboard(document)
        if board is not None:
            found += [(panel.title, panel.queries) for panel in board.panels]
    return found


def panel(title: str, *queries: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "type": "timeseries", "targets": [{"expr": query} for query in queries], **more}


PANELS = [panel("a", "up"), {"type": "row", "collapsed": True, "title": "r", "panels": [panel("b", "down")]}]
GRAFANA = {"title": "t", "panels": PANELS}
EXPECTED = [("a", ("up",)), ("b", ("down",))]
CONFIG_MAP = {"kind": "ConfigMap", "data": {"x.json": json.dumps(GRAFANA), "notes.txt": "{"}}
WRAPPERS: dict[str, str] = {
    "plain": json.dumps(GRAFANA),
    "byte order mark": "\ufeff" + json.dumps(GRAFANA),
    "api": json.dumps({"dashboard": GRAFANA, "meta": {}}),
    "rows": json.dumps({"title": "t", "rows": [{"title": "r", "panels": [PANELS[0], panel("b", "down")]}]}),
    "resource": yaml.safe_dump({"kind": "Dashboard", "apiVersion": "dashboard.grafana.app/v1beta1", "spec": GRAFANA}),
    "operator": yaml.safe_dump({"kind": "GrafanaDashboard", "spec": {"json": json.dumps(GRAFANA)}}),
    "config map": yaml.safe_dump(CONFIG_MAP),
    "list": yaml.safe_dump({"kind": "ConfigMapList", "items": [CONFIG_MAP]}),
    "several documents": "---\nkind: Service\n---\n" + yaml.safe_dump(CONFIG_MAP),
    "array": json.dumps([GRAFANA]),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_grafana_in_every_wrapper(wrapper: str) -> None:
    assert panels_of(WRAPPERS[wrapper]) == EXPECTED


def test_grafana_v2_elements() -> None:
    def query(expr: str, **more: Any) -> dict[str, Any]:
        inner = {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": expr}}
        return {"kind": "PanelQuery", "spec": {"refId": "A", "query": inner, **more}}

    shown, hidden = query("up"), query("down", hidden=True)
    data = {"kind": "QueryGroup", "spec": {"queries": [shown, hidden]}}
    element = {"kind": "Panel", "spec": {"title": "a", "data": data}}
    text = json.dumps({"kind": "Dashboard", "spec": {"title": "t", "elements": {"panel-1": element}, "layout": {}}})
    assert panels_of(text) == [("a", ("up",))]


def test_perses() -> None:
    plugin = {"kind": "PrometheusTimeSeriesQuery", "spec": {"query": "up"}}
    spec = {"display": {"name": "a"}, "queries": [{"kind": "TimeSeriesQuery", "spec": {"plugin": plugin}}]}
    text = yaml.safe_dump({"kind": "PersesDashboard", "spec": {"panels": {"1": {"kind": "Panel", "spec": spec}}}})
    assert panels_of(text) == [("a", ("up",))]


def test_google_cloud_monitoring() -> None:
    def tile(title: str, query: dict[str, Any]) -> dict[str, Any]:
        return {"widget": {"title": title, "xyChart": {"dataSets": [{"timeSeriesQuery": query}]}}}

    name = 'metric.type="prometheus.googleapis.com/vllm:generation_tokens_total/counter" resource.type="x"'
    by_filter = {"timeSeriesFilter": {"filter": name, "aggregation": {"perSeriesAligner": "ALIGN_RATE"}}}
    tiles = [tile("a", {"prometheusQuery": "up"}), tile("b", by_filter)]
    text = json.dumps({"displayName": "t", "mosaicLayout": {"tiles": tiles}})
    assert panels_of(text) == [("a", ("up",)), ("b", ("rate(vllm:generation_tokens_total[5m])",))]


def test_hidden_queries_count_only_where_a_shown_expression_uses_them() -> None:
    hidden = [{"refId": "A", "expr": "up", "hide": True}, {"refId": "B", "expr": "down", "hide": True}]
    formula = {"refId": "C", "datasource": {"type": "__expr__"}, "expression": "$B * 2"}
    assert panels_of(json.dumps({"panels": [{"title": "a", "targets": hidden}]})) == []
    assert panels_of(json.dumps({"panels": [{"title": "a", "targets": [*hidden, formula]}]})) == [("a", ("down",))]


def test_other_query_languages_are_left_out() -> None:
    loki = panel("logs", '{app="x"} |= "error"', datasource={"type": "loki", "uid": "x"})
    assert panels_of(json.dumps({"panels": [loki, panel("a", "up", datasource={"type": "prometheus"})]})) == [
        ("a", ("up",))
    ]


def test_library_panels_are_said_to_be_unread() -> None:
    board = dashboards.dashboard({"panels": [{"title": "ttft", "libraryPanel": {"uid": "x"}}]})
    assert board is not None
    assert board.unread == ("panel 'ttft' is a library panel, kept outside the file",)


def test_default_values_of_variables() -> None:
    variables = [
        {"name": "a", "type": "query", "current": {"value": ["one", "two"]}},
        {"name": "b", "type": "custom", "query": "x,y", "current": {}},
        {"name": "c", "current": {"value": 7}},
        "nonsense",
    ]
    board = dashboards.dashboard({"panels": [], "templating": {"list": variables}})
    assert board is not None
    assert board.variables == {"a": "one", "b": "x", "c": ""}


def test_rules_plain_and_as_a_resource() -> None:
    groups = [{"name": "g", "rules": [{"record": "r", "expr": "up"}, {"alert": "A", "expr": 1}, {"alert": "B"}, None]}]
    expected = (rules.Rule("record", "r", "up"), rules.Rule("alert", "A", "1"))
    assert rules.rules({"groups": groups}) == expected
    assert rules.rules({"kind": "PrometheusRule", "spec": {"groups": groups}}) == expected
    assert rules.rules({"panels": []}) is None


HOSTILE = {
    "empty": "",
    "text": "hello",
    "cut off": '{"panels": [',
    "template": "{{- range .Values.x }}\nfoo: {{ . }}\n{{- end }}",
    "deep json": '{"panels":' * 5_000 + "1" + "}" * 5_000,
    "deep arrays": "[" * 100_000,
    "deep yaml flow": "a: " + "[" * 20_000,
    "deep yaml sequences": "- " * 20_000 + "x",
    "deep yaml mappings": "\n".join(" " * i + "a:" for i in range(3_000)),
    "billion laughs": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)),
    "wrong types": json.dumps(
        {"panels": [1, None, "x", {"targets": {"a": 1}}, {"targets": [1, {"expr": 7}]}], "rows": 3}
    ),
    "nan": '{"panels": [{"targets": [{"expr": NaN}], "title": Infinity}]}',
    "huge number": '{"panels": [' + "9" * 10_000 + "]}",
    "tabs": "a:\n\t- b",
    "bad date": "a: 0001-99-99",
    "surrogates": '{"title": "\\ud800", "panels": []}',
    "nul": "\x00\x01",
    "config maps in config maps": yaml.safe_dump(
        {
            "kind": "ConfigMap",
            "data": {
                "a.yaml": yaml.safe_dump(
                    {
                        "kind": "ConfigMap",
                        "data": {"b.yaml": yaml.safe_dump({"kind": "ConfigMap", "data": {"c.json": "{}"}})},
                    }
                )
            },
        }
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_one_line(name: str) -> None:
    message = "read"
    try:
        found = panels_of(HOSTILE[name])
    except documents.Unreadable as error:
        found, message = [], str(error)
    assert found == []
    assert message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["empty", "cut off", "template", "deep json", "deep arrays", "billion laughs"])
def test_what_is_no_document_is_said(name: str) -> None:
    with pytest.raises(documents.Unreadable):
        list(documents.documents(HOSTILE[name]))
