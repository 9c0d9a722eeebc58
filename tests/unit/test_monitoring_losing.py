"""Queries that name the right series and show something else: none of them covers anything."""

import json
from dataclasses import dataclass

import pytest

from auditor.monitoring.coverage import coverage

BUCKETS = "vllm:time_to_first_token_seconds_bucket"
COUNT = "vllm:time_to_first_token_seconds_count"
TTFT = f"histogram_quantile(0.95, sum by (le) (rate({BUCKETS}[5m])))"
TPS = "sum(rate(vllm:generation_tokens_total[5m]))"
KV = "max(vllm:kv_cache_usage_perc)"
SHOWN = {"ttft": TTFT, "tps": TPS, "memory": KV}


@dataclass(frozen=True)
class File:
    text: str
    kind: str = "dashboard"
    name: str = "f"


def rungs(*queries: str) -> dict[str, str]:
    board = {"panels": [{"title": "p", "targets": [{"expr": query}]} for query in queries]}
    return {item.concept: item.rung for item in coverage([File(json.dumps(board))], "vllm", "0.18.0").items}


def watched(**alerts: str) -> dict[str, tuple[str, ...]]:
    """The alerts that watch each concept."""
    rules = {"groups": [{"rules": [{"alert": name, "expr": expr} for name, expr in alerts.items()]}]}
    files = [File(json.dumps(rules), "rules")]
    return {item.concept: item.alerts for item in coverage(files, "vllm", "0.18.0").items}


def test_queries_as_they_should_be_cover_all_three():
    found = rungs(*SHOWN.values())
    assert {concept: found[concept] for concept in SHOWN} == dict.fromkeys(SHOWN, "valid")


@pytest.mark.parametrize("concept", SHOWN)
@pytest.mark.parametrize(
    "written",
    [
        *("0 * ({})", "({}) * 0", "({}) / 0", "({}) ^ 0", "({}) * (1 - 1)"),
        *("({}) > bool 1", "sgn({})", "hour({})", "day_of_week({})"),
        *("({0}) - ({0})", "({0}) / ({0})", "({0}) unless ({0})", "({0}) != ({0})"),
    ],
)
def test_result_that_is_the_same_whatever_the_series_are(concept, written):
    assert rungs(written.format(SHOWN[concept]))[concept] == "missing"


@pytest.mark.parametrize(
    "query",
    [
        f"histogram_quantile(0.95, sum(rate({BUCKETS}[5m])))",
        f"histogram_quantile(0.95, sum by (pod) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(0.95, sum without (le) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(0.95, max by (le) (sum by (pod) (rate({BUCKETS}[5m]))))",
        f'histogram_quantile(0.95, sum by (le) (rate({BUCKETS}{{le="0.1"}}[5m])))',
        f"histogram_quantile(95, sum by (le) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(-1, sum by (le) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(NaN, sum by (le) (rate({BUCKETS}[5m])))",
        f"sum(rate({BUCKETS}[5m]))",
        f"sum(rate({BUCKETS}[5m])) / sum(rate({COUNT}[5m]))",
        f'rate({BUCKETS}{{le="+Inf"}}[5m])',
    ],
)
def test_buckets_of_which_no_quantile_is_left(query):
    assert rungs(query)["ttft"] == "missing"


@pytest.mark.parametrize(
    "query",
    [
        f"histogram_quantile(0.95, sum by (le, pod) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(0.95, sum without (pod) (rate({BUCKETS}[5m])))",
        f"histogram_quantile(0.95, rate({BUCKETS}[5m]))",
        f"max(histogram_quantile(0.95, sum by (le, pod) (rate({BUCKETS}[5m]))))",
        f"sum by (le) (rate({BUCKETS}[5m]))",  # a heat map
        f'sum(rate({BUCKETS}{{le="0.5"}}[5m])) / sum(rate({COUNT}[5m]))',  # the share within half a second
        f"1000 * ({TTFT})",
        f"({TTFT}) > 0",
    ],
)
def test_twins_that_do_show_it(query):
    assert rungs(query)["ttft"] == "valid"


@pytest.mark.parametrize("written", ["{} offset 1w", "{} @ 1700000000"])
def test_series_as_it_was_at_another_time(written):
    assert rungs(f"max({written.format('vllm:kv_cache_usage_perc')})")["memory"] == "missing"
    assert rungs(f"sum(rate({written.format('vllm:generation_tokens_total[5m]')}))")["tps"] == "missing"


def test_series_a_moment_ago_is_shown():
    assert rungs("max(vllm:kv_cache_usage_perc offset 1m)")["memory"] == "valid"
    assert rungs("max(vllm:kv_cache_usage_perc @ end())")["memory"] == "valid"


def test_recording_rule_that_loses_the_bounds():
    rules = {"groups": [{"rules": [{"record": "ttft:rate", "expr": f"sum by (pod) (rate({BUCKETS}[5m]))"}]}]}
    board = {"panels": [{"targets": [{"expr": "histogram_quantile(0.95, ttft:rate)"}]}]}
    files = [File(json.dumps(rules), "rules"), File(json.dumps(board))]
    assert next(i for i in coverage(files, "vllm", "0.18.0").items if i.concept == "ttft").rung == "missing"


def test_alert_that_fires_never_or_always_watches_nothing():
    found = watched(Full=f"{KV} > 90", Empty=f"{KV} >= 0", Slow=f"{TTFT} > bool 1")
    assert found["memory"] == ()
    assert found["ttft"] == ()
    assert watched(Full=f"{KV} > 0.9", Slow=f"{TTFT} > 1")["memory"] == ("Full",)


def test_one_limit_out_of_reach_leaves_the_other_alert_of_the_name():
    rules = [{"alert": "Full", "expr": f"{KV} > {limit}"} for limit in (0.9, 90)]
    files = [File(json.dumps({"groups": [{"rules": rules}]}), "rules")]
    found = coverage(files, "vllm", "0.18.0")
    assert next(i for i in found.items if i.concept == "memory").alerts == ("Full",)
