"""Files made to keep a reader busy: each of these once took minutes or hours, and must say something at once."""

import json
from dataclasses import dataclass

import pytest

from auditor.monitoring.coverage import coverage
from auditor.monitoring.variables import substitute

TTFT = "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"


@dataclass(frozen=True)
class File:
    text: str
    name: str = "board.json"
    kind: str = "dashboard"


def panel(*queries: str, **fields: object) -> str:
    targets = [{"expr": query, "refId": f"A{i}"} for i, query in enumerate(queries)]
    return json.dumps({"panels": [{"title": "TTFT", "targets": targets, **fields}]})


def judged(text: str):
    return coverage([File(text)], "vllm", "0.18.0")


def rung(text: str) -> str:
    return next(item.rung for item in judged(text).items if item.concept == "ttft")


@pytest.mark.parametrize("query", ['x{a="' + "y" * 3_000_000 + '"}', "$" + "y" * 3_000_000, "$y " * 1_000_000])
def test_query_that_no_panel_has_is_refused_by_its_length(query):
    assert judged(panel(query)).unreadable == ("board.json: TTFT: a query longer than 50,000 characters",)


def test_alert_that_no_rule_file_has_is_refused_by_its_length():
    rules = json.dumps({"groups": [{"rules": [{"alert": "A", "expr": "y" * 3_000_000}]}]})
    assert judged(rules).unreadable == ("board.json: alert A: a query longer than 50,000 characters",)


@pytest.mark.parametrize(
    "query",
    [
        'x{a="' + "y" * 49_000 + '"}',  # one long word
        '\\"' * 24_000,  # a string is opened at each quote, and never closed
        "rate(x[5m]) + " + "'\\'" * 16_000,
        'x{a="' + "$a" * 24_000 + "'}",  # a value of many variables that is not closed as it was opened
    ],
)
def test_texts_within_the_bound_are_read_in_one_go(query):
    assert rung(panel(*[f"{query} " + "+ 1" * i for i in range(8)])) == "missing"


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ('x{a="$a"}', 'x{a=~".*"}'),
        ('x{a="b", c=~"$a-.+"}', 'x{a="b", c=~".*-.+"}'),
        ("x{a='$a', b!='$a'}", """x{a=~".*", b!="x"}"""),
    ],
)
def test_values_beside_variables_stay_what_they_are(query, plain):
    assert substitute(query, {}, ("a",)) == plain


def test_many_queries_of_one_panel():
    assert rung(panel(*[TTFT] * 20_000)) == "valid"


def test_long_chain_of_expressions_over_hidden_queries():
    own = {"type": "__expr__"}
    chain = [{"refId": f"A{i}", "datasource": own, "expression": f"$A{i + 1}", "hide": True} for i in range(20_000)]
    targets = [*chain, {"refId": "A20000", "expr": TTFT, "hide": True}]
    shown = {"refId": "Z", "datasource": own, "expression": "$A0"}
    assert rung(json.dumps({"panels": [{"targets": [*targets, shown]}]})) == "valid"
    assert rung(json.dumps({"panels": [{"targets": targets}]})) == "missing"


def test_long_list_of_references():
    step = {"id": "filterByRefId", "options": {"include": "x " * 300_000 + "A7"}}
    assert rung(panel(*[TTFT] * 5_000, transformations=[step])) == "valid"


def test_long_call_in_a_query_of_google():
    metric = "fetch prometheus_target::prometheus.googleapis.com/vllm:time_to_first_token_seconds/histogram"
    chart = {"dataSets": [{"timeSeriesQuery": {"timeSeriesQueryLanguage": f"{metric} | percentile({'a' * 300_000}"}}]}
    board = {"displayName": "b", "gridLayout": {"widgets": [{"title": "t", "xyChart": chart}]}}
    assert rung(json.dumps(board)) == "valid"


def test_long_name_that_nobody_has():
    (other,) = (i for i in judged(panel("vllm:" + "time_to_first_token_" * 2_000)).items if i.concept == "other")
    assert other.dead
