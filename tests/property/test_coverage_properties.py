"""Generated dashboards: what a panel computes decides, and nothing else; in every format, in any order, in any file."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.monitoring.coverage import coverage
from auditor.watch import Coverage

ASKED = ("ttft", "tps", "memory")
# Each query, and which of the three it covers; by hand.
QUERIES = {
    "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))": "ttft",
    "rate(vllm:time_to_first_token_seconds_sum[5m]) / rate(vllm:time_to_first_token_seconds_count[5m])": "ttft",
    "sum(rate(vllm:generation_tokens_total[$__rate_interval]))": "tps",
    'histogram_quantile(0.5, rate(vllm:inter_token_latency_seconds_bucket{pod=~"$pod"}[5m]))': "tps",
    "100 * max by (pod) (vllm:kv_cache_usage_perc)": "memory",
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)": "memory",
    "rate(vllm:time_to_first_token_seconds_count[5m])": None,
    "rate(vllm:prompt_tokens_total[5m])": None,
    "DCGM_FI_DEV_MEM_COPY_UTIL": None,
    "count(vllm:kv_cache_usage_perc)": None,
    "rate(vllm:generation_tokens_total[5m]) / rate(vllm:request_success_total[5m])": None,
    "up": None,
}
TITLES = ("TTFT p95", "Time to first token", "Tokens per second", "KV cache usage", "GPU memory", "", "Requests")


@dataclass(frozen=True)
class File:
    name: str
    text: str
    kind: str = "dashboard"


Panels = list[tuple[str, str]]


def classic(panels: Panels) -> dict[str, Any]:
    return {"panels": [{"title": title, "targets": [{"refId": "A", "expr": query}]} for title, query in panels]}


def collapsed(panels: Panels) -> dict[str, Any]:
    return {"dashboard": {"panels": [{"type": "row", "title": "r", "collapsed": True, **classic(panels)}]}}


def rows(panels: Panels) -> dict[str, Any]:
    return {"rows": [classic([panel]) for panel in panels]}


def config_map(panels: Panels) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {"d.json": json.dumps(classic(panels))}}


def operator(panels: Panels) -> dict[str, Any]:
    return {"kind": "GrafanaDashboard", "spec": {"json": json.dumps(classic(panels))}}


def second_schema(panels: Panels) -> dict[str, Any]:
    elements = {}
    for place, (title, query) in enumerate(panels):
        inner = {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": query}}
        group = {"kind": "QueryGroup", "spec": {"queries": [{"kind": "PanelQuery", "spec": {"query": inner}}]}}
        elements[f"panel-{place}"] = {"kind": "Panel", "spec": {"title": title, "data": group}}
    return {"kind": "Dashboard", "spec": {"elements": elements}}


def perses(panels: Panels) -> dict[str, Any]:
    found = {}
    for place, (title, query) in enumerate(panels):
        plugin = {"kind": "PrometheusTimeSeriesQuery", "spec": {"query": query}}
        queries = [{"kind": "TimeSeriesQuery", "spec": {"plugin": plugin}}]
        found[str(place)] = {"kind": "Panel", "spec": {"display": {"name": title}, "queries": queries}}
    return {"kind": "Dashboard", "spec": {"panels": found}}


def google(panels: Panels) -> dict[str, Any]:
    widgets = [
        {"title": title or "-", "xyChart": {"dataSets": [{"timeSeriesQuery": {"prometheusQuery": query}}]}}
        for title, query in panels
    ]
    return {"displayName": "d", "gridLayout": {"widgets": widgets}}


FORMATS = (classic, collapsed, rows, config_map, operator, second_schema, perses, google)


def judged(*boards: dict[str, Any]) -> Coverage:
    files = [File(f"{place}.json", json.dumps(board)) for place, board in enumerate(boards)]
    found = coverage(files, "vllm", "0.18.0")
    assert found.invalid_queries == ()
    return found


def answer(found: Coverage) -> dict[str, tuple[str, frozenset[str]]]:
    """The rung and the names of each concept: all that must not hang on titles, order, files or formats."""
    return {item.concept: (item.rung, frozenset(item.names)) for item in found.items}


def covered(found: Coverage) -> set[str]:
    return {item.concept for item in found.items if item.concept in ASKED and item.rung != "missing"}


queries = st.lists(st.sampled_from(sorted(QUERIES)), min_size=1, max_size=8)
formats = st.sampled_from(FORMATS)


@settings(max_examples=150, deadline=None)
@given(queries, st.lists(st.sampled_from(TITLES), min_size=8, max_size=8), formats)
def test_queries_decide_and_titles_never_do(chosen: list[str], titles: list[str], shape: Any) -> None:
    found = judged(shape(list(zip(titles, chosen, strict=False))))
    assert covered(found) == {QUERIES[query] for query in chosen} - {None}
    assert answer(found) == answer(judged(shape([("", query) for query in chosen])))


@settings(max_examples=100, deadline=None)
@given(queries, formats, st.randoms(use_true_random=False))
def test_expressions_that_change_places_take_their_concept_along(chosen: list[str], shape: Any, random: Any) -> None:
    """Each concept is said to be on the panels that have its queries, whatever stood there before."""
    swapped = random.sample(chosen, len(chosen))
    for queries in (chosen, swapped):
        found = judged(shape([(f"panel {place}", query) for place, query in enumerate(queries)]))
        for concept in ASKED:
            expected = {f"0.json: panel {place}" for place, query in enumerate(queries) if QUERIES[query] == concept}
            assert {where for item in found.items if item.concept == concept for where in item.where} == expected


@settings(max_examples=100, deadline=None)
@given(queries, st.integers(0, 7), st.sampled_from(sorted(QUERIES)), formats)
def test_an_expression_put_in_another_s_place_changes_the_answer(
    chosen: list[str], place: int, new: str, shape: Any
) -> None:
    """The titles stay as they are; what is covered follows the expressions."""
    after = [new if index == place % len(chosen) else query for index, query in enumerate(chosen)]
    for queries in (chosen, after):
        panels = [(TITLES[index % len(TITLES)], query) for index, query in enumerate(queries)]
        assert covered(judged(shape(panels))) == {QUERIES[query] for query in queries} - {None}


@settings(max_examples=100, deadline=None)
@given(queries, formats, formats, st.integers(0, 8))
def test_neither_format_nor_file_matters(chosen: list[str], one: Any, other: Any, cut: int) -> None:
    panels = [("t", query) for query in chosen]
    whole = answer(judged(one(panels)))
    assert answer(judged(other(list(reversed(panels))))) == whole
    parts = [part for part in (panels[:cut], panels[cut:]) if part]
    assert answer(judged(*(shape(part) for shape, part in zip((one, other), parts, strict=False)))) == whole


NONSENSE = st.sampled_from(
    ["null", "true", "7", "1e308", "[]", "{}", "[[{}]]", '""', '"x"', '"{{ .x }}"', '"$"', '["x"]', '{"a": "b"}']
)
ALERTS = {"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0"}, {"record": "r", "expr": "up"}]}]}


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, as the container and the key or index that hold it."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]


@settings(max_examples=200, deadline=None)
@given(queries, formats, st.data())
def test_documents_with_anything_anywhere_are_answered(chosen: list[str], shape: Any, data: Any) -> None:
    """Whatever stands where something else should: an answer, in which what is unreadable is said in one line."""
    document = json.loads(json.dumps([shape([("t", query) for query in chosen]), ALERTS]))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(document)))
        holder[key] = json.loads(data.draw(NONSENSE))
    found = coverage([File("d.json", json.dumps(document))], "vllm", "0.18.0")
    for line in (*found.unreadable, *found.invalid_queries):
        assert line.startswith("d.json: ")
        assert "\n" not in line
    assert covered(found) <= {QUERIES[query] for query in chosen}
