"""What a dashboard really draws: transformations, hidden and shared queries, layouts, packed and pointed-to files."""

import base64
import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from auditor.monitoring import dashboards, rules
from auditor.monitoring.reading import read


def drawn(*documents: Any) -> list[str]:
    """The queries of all panels and alerts in one file."""
    return [asked.text for asked in held(*documents).queries]


def held(*documents: Any) -> Any:
    text = "---\n".join(d if isinstance(d, str) else yaml.safe_dump(d) for d in documents)
    return read([SimpleNamespace(name="f", text=text, kind="dashboard")])


def board(*targets: dict[str, Any], **panel: Any) -> dict[str, Any]:
    return {"panels": [{"title": "p", "targets": list(targets), **panel}]}


def target(ref: str, expr: str, **more: Any) -> dict[str, Any]:
    return {"refId": ref, "expr": expr, **more}


A, B = target("A", "up"), target("B", "down")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"id": "merge", "options": {}}], ["up", "down"]),
        ([{"id": "organize", "options": {"excludeByName": {"Value #B": True, "Time": True}}}], ["up"]),
        ([{"id": "organize", "options": {"excludeByName": {"Value #B": False}}}], ["up", "down"]),
        ([{"id": "organize", "options": {"excludeByName": {"Value #B": True}}, "disabled": True}], ["up", "down"]),
        ([{"id": "filterFieldsByName", "options": {"include": {"names": ["pod", "Value #A"]}}}], ["up"]),
        ([{"id": "filterFieldsByName", "options": {"include": {"names": ["pod"]}}}], ["up", "down"]),
        (
            [
                {"id": "organize", "options": {"renameByName": {"Value #B": "KV"}}},
                {"id": "filterFieldsByName", "options": {"include": {"names": ["KV", "Value #A"]}}},
            ],
            ["up", "down"],
        ),
        ([{"id": "filterByRefId", "options": {"include": "B"}}], ["down"]),
        ([{"id": "filterByRefId", "options": {"include": "/^(?:A|B)$/"}}], ["up", "down"]),
        (
            [{"kind": "organize", "spec": {"id": "organize", "options": {"excludeByName": {"Value #A": True}}}}],
            ["down"],
        ),
        ([{"kind": "Transformation", "group": "filterByRefId", "spec": {"options": {"include": "A"}}}], ["up"]),
        ("nonsense", ["up", "down"]),
    ],
)
def test_transformations_take_queries_off_the_screen(steps: Any, expected: list[str]) -> None:
    assert drawn(board(A, B, transformations=steps)) == expected


def test_expressions_over_expressions_show_the_hidden_queries_below() -> None:
    def formula(ref: str, text: str, **more: Any) -> dict[str, Any]:
        return {"refId": ref, "datasource": {"type": "__expr__"}, "expression": text, **more}

    hidden = [target("A", "up", hide=True), target("B", "down", hide=True)]
    through = formula("C", "$A * 2", hide=True)
    assert drawn(board(*hidden, through, formula("D", "$C + 1"))) == ["up"]
    assert drawn(board(*hidden, through, formula("D", "1", hide=True))) == []


def test_library_panels_that_the_export_carries_are_read() -> None:
    used = {"panels": [{"libraryPanel": {"uid": "x", "name": "shared"}}, {"title": "t", "libraryPanel": {"uid": "y"}}]}
    model = {"title": "TTFT", "targets": [A], "type": "timeseries"}
    found = held({**used, "__elements": {"x": {"uid": "x", "kind": 1, "model": model}}})
    assert [(asked.text, asked.where) for asked in found.queries] == [("up", "f: TTFT")]
    assert found.unreadable == ["f: panel 't' is a library panel, kept outside the file"]


def test_what_no_layout_places_is_not_shown() -> None:
    def element(expr: str) -> dict[str, Any]:
        query = {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": expr}}
        queries = [{"kind": "PanelQuery", "spec": {"refId": "A", "query": query}}]
        return {"kind": "Panel", "spec": {"title": expr, "data": {"kind": "QueryGroup", "spec": {"queries": queries}}}}

    item = {"kind": "GridLayoutItem", "spec": {"element": {"kind": "ElementReference", "name": "one"}}}
    tab = {"kind": "TabsLayoutTab", "spec": {"layout": {"kind": "GridLayout", "spec": {"items": [item]}}}}
    spec = {"elements": {"one": element("up"), "two": element("down")}}
    layout = {"kind": "TabsLayout", "spec": {"tabs": [tab]}}
    assert drawn({"kind": "Dashboard", "spec": {**spec, "layout": layout}}) == ["up"]


def test_perses_places_panels_by_reference_and_knows_which_values_the_data_gives() -> None:
    def panel(query: str) -> dict[str, Any]:
        plugin = {"kind": "PrometheusTimeSeriesQuery", "spec": {"query": query}}
        return {"kind": "Panel", "spec": {"queries": [{"kind": "TimeSeriesQuery", "spec": {"plugin": plugin}}]}}

    listed = {"name": "pod", "defaultValue": "a", "plugin": {"kind": "PrometheusLabelValuesVariable"}}
    text = {"name": "mode", "value": "decode"}
    spec = {
        "variables": [{"kind": "ListVariable", "spec": listed}, {"kind": "TextVariable", "spec": text}],
        "panels": {"one": panel('up{pod="$pod", mode="$mode"}'), "two": panel("down")},
        "layouts": [{"kind": "Grid", "spec": {"items": [{"content": {"$ref": "#/spec/panels/one"}}]}}],
    }
    assert drawn({"kind": "Dashboard", "spec": spec}) == ['up{pod=~".*", mode="decode"}']
    assert drawn({"kind": "PersesDashboard", "spec": {"config": spec}}) == ['up{pod=~".*", mode="decode"}']


def test_values_that_grafana_looks_up_match_anything() -> None:
    variables = [
        {"name": "pod", "type": "query", "current": {"value": "vllm-0"}},
        {"name": "mode", "type": "custom", "current": {"value": "decode"}},
    ]
    query = target("A", 'up{pod="$pod", mode="$mode"}')
    assert drawn({**board(query), "templating": {"list": variables}}) == ['up{pod=~".*", mode="decode"}']


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "fetch prometheus_target | metric 'prometheus.googleapis.com/vllm:time_to_first_token_seconds/histogram'"
            " | align delta(1m) | group_by [], percentile(val(), 95)",
            ["histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"],
        ),
        (
            "fetch prometheus_target | metric 'prometheus.googleapis.com/vllm:time_to_first_token_seconds/histogram'"
            " | group_by [], percentile(val(), 5)",
            ["histogram_quantile(0.05, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"],
        ),
        (
            "fetch prometheus_target | metric 'prometheus.googleapis.com/vllm:time_to_first_token_seconds/histogram'"
            " | group_by [], percentile(val(), 99.9)",
            ["histogram_quantile(0.999, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"],
        ),
        (
            "fetch prometheus_target::prometheus.googleapis.com/vllm:generation_tokens_total/counter | align rate(1m)",
            ["rate(vllm:generation_tokens_total[5m])"],
        ),
        ("fetch gce_instance | metric 'compute.googleapis.com/instance/cpu/utilization'", []),
    ],
)
def test_the_monitoring_query_language(query: str, expected: list[str]) -> None:
    widget = {"title": "t", "xyChart": {"dataSets": [{"timeSeriesQuery": {"timeSeriesQueryLanguage": query}}]}}
    assert drawn({"displayName": "d", "gridLayout": {"widgets": [widget]}}) == expected


def packed(value: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(value).encode())).decode()


def test_packed_dashboards_are_unpacked() -> None:
    assert drawn({"kind": "GrafanaDashboard", "spec": {"gzipJson": packed(board(A))}}) == ["up"]
    assert drawn({"kind": "ConfigMap", "binaryData": {"d.json": packed(board(A))}}) == ["up"]
    broken = held({"kind": "GrafanaDashboard", "spec": {"gzipJson": "H4sIAAAAnonsense"}})
    assert broken.unreadable == ["f: spec.gzipJson: packed in a way that cannot be read"]
    beside = held(
        {"kind": "ConfigMap", "data": {"a.json": json.dumps(board(A))}, "binaryData": {"b.json": "!", "c.json": 7}}
    )
    assert [asked.text for asked in beside.queries] == ["up"]
    assert len(beside.unreadable) == 2


@pytest.mark.parametrize("key", ["url", "configMapRef", "grafanaCom", "jsonnet"])
def test_dashboards_that_are_elsewhere_are_said_to_be(key: str) -> None:
    found = held({"kind": "GrafanaDashboard", "spec": {key: {"id": 1}}})
    assert found.unreadable == [f"f: its dashboard is kept outside the file (spec.{key})"]


def test_one_broken_document_hides_no_other() -> None:
    data = {"good.json": json.dumps(board(A)), "helm.json": '{{ .Files.Get "x.json" }}', "note.txt": "{"}
    found = held({"kind": "ConfigMap", "data": data}, board(B))
    assert [asked.text for asked in found.queries] == ["up", "down"]
    assert len(found.unreadable) == 1
    assert found.unreadable[0].startswith("f: helm.json: not ")


RULE = {
    "title": "KV nearly full",
    "condition": "C",
    "data": [
        {"refId": "A", "datasourceUid": "prom", "model": {"expr": "max(vllm:kv_cache_usage_perc)"}},
        {"refId": "X", "datasourceUid": "prom", "model": {"expr": "up"}},
        {"refId": "B", "datasourceUid": "__expr__", "model": {"type": "reduce", "expression": "A"}},
        {"refId": "C", "datasourceUid": "__expr__", "model": {"type": "threshold", "expression": "B"}},
    ],
}
CLASSIC = {
    "title": "KV nearly full",
    "condition": "B",
    "data": [
        RULE["data"][0],
        {
            "refId": "B",
            "datasourceUid": "-100",
            "model": {"type": "classic_conditions", "conditions": [{"query": {"params": ["A"]}}]},
        },
    ],
}


@pytest.mark.parametrize(
    "document",
    [
        {"apiVersion": 1, "groups": [{"name": "g", "folder": "f", "rules": [RULE]}]},
        {"apiVersion": 1, "groups": [{"name": "g", "folder": "f", "rules": [CLASSIC]}]},
        {"kind": "GrafanaAlertRuleGroup", "spec": {"rules": [RULE]}},
    ],
)
def test_grafanas_own_alerts(document: dict[str, Any]) -> None:
    expected = rules.Rule("alert", "KV nearly full", "max(vllm:kv_cache_usage_perc)")
    assert rules.rules(document) == (expected,)


def test_the_unit_of_a_panel() -> None:
    def unit(**panel: Any) -> str:
        found = dashboards.dashboard(board(A, **panel))
        assert found is not None
        return found.panels[0].unit

    assert unit(fieldConfig={"defaults": {"unit": "percentunit"}}) == "percentunit"
    mixed = [{"matcher": {}, "properties": [{"id": "unit", "value": "s"}]}]
    assert unit(fieldConfig={"defaults": {"unit": "ms"}, "overrides": mixed}) == ""
    assert unit(yaxes=[{"format": "ms"}, {"format": "short"}]) == "ms"
    assert unit() == ""
