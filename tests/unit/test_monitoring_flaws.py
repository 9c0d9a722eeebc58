"""How queries mislead: each kind of flaw on a query that has it, and on its twin that has not.

The queries are those of public dashboards, shortened: production-stack's lifetime averages, TGI's "generated tok/s",
kserve's added tokens, a DCGM alert on so many MiB.
"""

import pytest

from auditor.measurement import MetricsPage
from auditor.monitoring.flaws import facts, flaws
from auditor.monitoring.reading import Asked
from auditor.monitoring.standing import Place
from auditor.watch import Flaw, Query

NOWHERE = Place("generic", None, ())
VLLM = Place("vllm", "0.18.0", ())
KV = "vllm:kv_cache_usage_perc"
TTFT = "vllm:time_to_first_token_seconds"


def asked(text: str, title: str = "p", **rest: str) -> Asked:
    return Asked(text=text, where=f"d.json: {title}", raw=rest.pop("raw", text), title=title, **rest)


def alert(text: str) -> Asked:
    return Asked(text=text, where="a.yaml: alert A", alert="A", raw=text)


def found(*queries: str | Asked, place: Place = VLLM, recordings: dict[str, str] | None = None) -> list[Flaw]:
    drawn = [query if isinstance(query, Asked) else asked(query) for query in queries]
    return list(flaws(drawn, recordings or {}, place))


def kinds(*queries: str | Asked, **rest: object) -> list[str]:
    return [flaw.kind for flaw in found(*queries, **rest)]  # type: ignore[arg-type]


def ranked(**ranks: tuple[str, ...]) -> Place:
    page = MetricsPage(
        url="http://h/metrics", types={KV: "gauge", "vllm:generation_tokens_total": "counter"}, ranks=ranks
    )
    return Place("vllm", "0.18.0", (page,))


# ------------------------------------------------------------------------------------------------------------- lifetime


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"avg({TTFT}_sum) / avg({TTFT}_count)", True),
        (f"1000 * ({TTFT}_sum / {TTFT}_count)", True),
        (f"sum by (le) ({TTFT}_bucket)", True),
        (f"histogram_quantile(0.9, sum by (le) ({TTFT}_bucket))", True),
        (f"rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m])", False),
        (f"sum by (le) (increase({TTFT}_bucket[$__range]))".replace("$__range", "5m"), False),
        (f"histogram_quantile(0.9, sum by (le) (rate({TTFT}_bucket[5m])))", False),
        (f"{TTFT}_count", False),
        (f"sum by (le) ({TTFT}_bucket - {TTFT}_bucket offset 1h)", False),
        (f"absent({TTFT}_bucket)", False),
        (f"rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m]) and {TTFT}_count > 0", False),
        ("vllm:request_prompt_tokens_sum / 5", False),
        ("http_request_duration_seconds_sum / http_request_duration_seconds_count", False),
    ],
)
def test_what_was_never_taken_over_a_window(query, expected):
    assert ("lifetime" in kinds(query)) is expected


def test_the_replacement_is_rated_and_has_the_name_of_the_version():
    (flaw,) = [f for f in found(f"{TTFT}_sum / {TTFT}_count") if f.kind == "lifetime"]
    assert flaw.instead == f"sum(rate({TTFT}_sum[5m])) / sum(rate({TTFT}_count[5m]))"
    old = "vllm:time_per_output_token_seconds"
    (flaw,) = found(f"sum by (le) ({old}_bucket)")
    new = "vllm:request_time_per_output_token_seconds"
    assert flaw.instead == f"histogram_quantile(0.95, sum by (le) (rate({new}_bucket[5m])))"


def test_the_replacement_keeps_what_the_query_groups_by():
    (flaw,) = found(f"sum by (le, pod) ({TTFT}_bucket)")
    assert flaw.instead == f"histogram_quantile(0.95, sum by (le, pod) (rate({TTFT}_bucket[5m])))"
    (flaw,) = [f for f in found(f"sum by (pod) ({TTFT}_sum) / sum by (pod) ({TTFT}_count)") if f.kind == "lifetime"]
    assert flaw.instead == f"sum by (pod) (rate({TTFT}_sum[5m])) / sum by (pod) (rate({TTFT}_count[5m]))"
    (flaw,) = found(f"sum by (model_name) ({KV})")
    assert flaw.instead == f"max by (model_name) ({KV})"


def test_a_recording_rule_is_looked_into():
    recordings = {"job:ttft:mean": f"{TTFT}_sum / {TTFT}_count"}
    assert "lifetime" in kinds("job:ttft:mean * 1000", recordings=recordings)
    assert "lifetime" not in kinds("job:ttft:mean", recordings={"job:ttft:mean": "job:ttft:mean + 1"})


# ----------------------------------------------------------------------------------------------------------------- sums


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"sum({KV})", True),
        (f"sum by (model_name) ({KV})", True),
        (f"sum by (model_name) (avg_over_time({KV}[5m])) * 100", True),
        (f"sum({KV} * 100)", True),
        (f"max({KV})", False),
        (f"avg by (model_name) ({KV})", False),
        (f"sum by (pod) ({KV})", False),
        (f"sum({KV}) / count({KV})", False),
        (f'sum({KV}{{instance="a"}})', False),
        (f"sum({KV} > bool 0.9)", False),
        (f"sum({KV} * on (pod) vllm:cache_config_info)", False),
        (f"sum(max by (pod) ({KV}))", False),
        (f"sum without (engine) ({KV})", False),
        ("sum(vllm:num_requests_running)", False),
    ],
)
def test_shares_that_are_added_up(query, expected):
    assert ("summed_ratio" in kinds(query)) is expected


def test_a_variable_that_takes_one_instance_is_one_instance():
    written = asked(f'sum({KV}{{instance=~".*"}})', raw=f'sum({KV}{{instance="$node"}})')
    several = asked(f'sum({KV}{{instance=~".*"}})', raw=f'sum({KV}{{instance=~"$node"}})')
    assert "summed_ratio" not in kinds(written)
    assert "summed_ratio" in kinds(several)


def test_a_sum_by_pod_adds_up_the_ranks_within():
    assert "summed_ratio" in kinds(f"sum by (pod) ({KV})", place=ranked(engine=("0", "1")))
    assert "summed_ratio" not in kinds(f"sum by (pod, engine) ({KV})", place=ranked(engine=("0", "1")))
    assert "summed_ratio" not in kinds(f"sum by (pod) ({KV})", place=ranked(engine=("0",)))


def test_ranks_that_show_the_same_are_counted_once():
    query = "sum(rate(vllm:generation_tokens_total[5m]))"
    (flaw,) = found(query, place=ranked(tp_rank=("0", "1")))
    assert (flaw.kind, flaw.instead) == ("summed_ranks", 'sum(rate(vllm:generation_tokens_total{tp_rank="0"}[5m]))')
    one = 'sum(rate(vllm:generation_tokens_total{tp_rank="0"}[5m]))'
    assert found(one, place=ranked(tp_rank=("0", "1"))) == []
    assert found("sum by (tp_rank) (rate(vllm:generation_tokens_total[5m]))", place=ranked(tp_rank=("0", "1"))) == []
    assert found(query, place=ranked(tp_rank=("0",))) == []


# --------------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rate(vllm:prompt_tokens_total[5m]) + rate(vllm:generation_tokens_total[5m])", True),
        ("sum by (pod) (rate(vllm:prompt_tokens_total[5m]) + rate(vllm:generation_tokens_total[5m]))", True),
        ('sum(rate({__name__=~"vllm:prompt_tokens_total|vllm:generation_tokens_total"}[5m]))', True),
        ('sum by (__name__) (rate({__name__=~"vllm:prompt_tokens_total|vllm:generation_tokens_total"}[5m]))', False),
        ("rate(vllm:generation_tokens_total[5m])", False),
        ("rate(vllm:prompt_tokens_total[5m]) * 0.1 + rate(vllm:generation_tokens_total[5m]) * 0.4", False),
        ("increase(vllm:prompt_tokens_total[1d]) + increase(vllm:generation_tokens_total[1d])", False),
        ("rate(vllm:generation_tokens_total[5m]) / rate(vllm:prompt_tokens_total[5m])", False),
    ],
)
def test_prompt_and_generated_tokens_added_up(query, expected):
    assert ("mixed_tokens" in kinds(query)) is expected


# --------------------------------------------------------------------------------------------------------------- memory


def test_a_total_of_gpu_memory_without_what_is_reserved():
    wrong = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"
    right = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)"
    (flaw,) = found(wrong)
    assert (flaw.kind, flaw.instead) == ("unit", right)
    assert found(right) == []
    smi = "nvidia_smi_memory_used_bytes / (nvidia_smi_memory_used_bytes + nvidia_smi_memory_free_bytes)"
    assert found(smi) == []


@pytest.mark.parametrize(
    ("query", "unit", "expected"),
    [
        (KV, "percent", True),
        (f"max by (pod) (avg_over_time({KV}[5m]))", "percent", True),
        (f"{KV} * 100", "percent", False),
        (KV, "percentunit", False),
        (KV, "", False),
        (f"histogram_quantile(0.5, sum by (le) (rate({TTFT}_bucket[5m])))", "ms", True),
        (f"1000 * histogram_quantile(0.5, sum by (le) (rate({TTFT}_bucket[5m])))", "ms", False),
        (f"histogram_quantile(0.5, sum by (le) (rate({TTFT}_bucket[5m])))", "s", False),
        (f"rate({TTFT}_bucket[5m])", "ms", False),
        ("DCGM_FI_DEV_FB_USED", "bytes", True),
        ("DCGM_FI_DEV_FB_USED * 1024 * 1024", "bytes", False),
        ("DCGM_FI_DEV_FB_USED", "decmbytes", False),
        ("count(vllm:kv_cache_usage_perc)", "percent", False),
    ],
)
def test_the_unit_of_the_axis(query, unit, expected):
    assert ("unit" in kinds(asked(query, unit=unit))) is expected


# --------------------------------------------------------------------------------------------------------------- titles


def per_request(name: str = "tgi_request_generated_tokens") -> str:
    return f"rate({name}_sum[10m]) / rate({name}_count[10m])"


def quantile(at: str) -> str:
    return f"histogram_quantile({at}, sum by (le) (rate({TTFT}_bucket[5m])))"


@pytest.mark.parametrize(
    ("title", "query", "expected"),
    [
        ("Throughput (generated tok/s)", per_request(), True),
        ("Generated tokens per request", per_request(), False),
        ("Throughput (generated tok/s)", "rate(tgi_request_generated_tokens_sum[10m])", False),
        ("TTFT p99", quantile("0.95"), True),
        ("TTFT p95", quantile("0.95"), False),
        ("TTFT p99.9", quantile("0.999"), False),
        ("TTFT 99th percentile", quantile("0.5"), True),
        ("TTFT p50 and p99", quantile("0.95"), False),
        ("TTFT", quantile("0.95"), False),
        (
            "TTFT",
            "rate(vllm:e2e_request_latency_seconds_sum[5m]) / rate(vllm:e2e_request_latency_seconds_count[5m])",
            True,
        ),
        ("TTFT vs E2E", "rate(vllm:e2e_request_latency_seconds_sum[5m])", False),
        ("KV cache usage", "DCGM_FI_DEV_FB_USED", True),
        ("KV cache usage", KV, False),
        ("GPU memory", "DCGM_FI_DEV_FB_USED", False),
    ],
)
def test_titles_beside_what_is_drawn(title, query, expected):
    assert ("title" in kinds(asked(query, title), place=NOWHERE)) is expected


def test_the_percentile_may_be_any_of_the_panel_s_queries():
    both = [asked(quantile("0.5"), "TTFT p99"), asked(quantile("0.99"), "TTFT p99")]
    assert "title" not in kinds(*both)
    unknown = asked(quantile("0.5"), "TTFT p99", raw=quantile("$quantile"))
    assert "title" not in kinds(unknown)


# -------------------------------------------------------------------------------------------------------------- windows


def test_rates_over_grafana_s_interval():
    query = f"sum(rate({TTFT}_count[$__interval]))"
    (flaw,) = found(asked(query.replace("$__interval", "5m"), raw=query))
    assert (flaw.kind, flaw.instead) == ("interval_variable", f"sum(rate({TTFT}_count[$__rate_interval]))")
    better = f"sum(rate({TTFT}_count[$__rate_interval]))"
    assert found(asked(better.replace("$__rate_interval", "5m"), raw=better)) == []
    gauge = f"max_over_time({KV}[$__interval])"
    assert found(asked(gauge.replace("$__interval", "5m"), raw=gauge)) == []


def test_what_a_query_asks_for_is_told():
    raw = f'rate({TTFT}_count{{job="llm",pod="$pod"}}[30s]) / rate({TTFT}_count[$__rate_interval])'
    text = f'rate({TTFT}_count{{job="llm",pod=~".*"}}[30s]) / rate({TTFT}_count[5m])'
    told = facts(Query(text=text, where="d"), asked(text, raw=raw), {}, NOWHERE)
    assert (told.windows, told.bare, dict(told.matchers)) == ((30.0,), True, {"job": "llm"})
    summed = facts(Query(text="q", where="d"), asked(f"max({KV})"), {}, NOWHERE)
    assert (summed.windows, summed.bare, dict(summed.matchers)) == ((), False, {})
    assert facts(Query(text="q", where="d"), asked("DCGM_FI_DEV_FB_USED"), {}, NOWHERE).bare is False


# --------------------------------------------------------------------------------------------------------------- alerts


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"{KV} > 90", "never_fires"),
        (f"max by (pod) ({KV}) * 100 > 95", None),
        (f"max({KV}) > 0.95", None),
        (f"max({KV}) > 1", "never_fires"),
        (f"max({KV}) >= 1", None),
        (f"90 < max({KV})", "never_fires"),
        (f"sum({KV}) > 3", None),
        (f"{KV} < 5", "always_fires"),
        (f"{KV} >= 0", "always_fires"),
        (f"{KV} > 0", None),
        (f"{KV} * 1e-200 * 1e-200 > 1", None),
        (f"{KV} > NaN", None),
        (f"{KV} > Inf", "never_fires"),
        (f"{KV} < 0", "never_fires"),
        (f"{KV} <= 0", None),
        (f"{KV} * -1 > -2", None),
        (f"{KV} > 90 or vllm:num_requests_waiting > 5", None),
        (f"{KV} > 90 and vllm:num_requests_waiting > 5", "never_fires"),
        (f"{KV} >= 0 and on () vllm:num_requests_waiting > 5", None),
        ("nvidia_smi_utilization_gpu_ratio > 90", "never_fires"),
        ("gpustack:worker_node_gram_utilization_rate > 0.9", "always_fires"),
        ("gpustack:worker_node_gram_utilization_rate > 90", None),
        (f"{quantile('0.95')} > 3000", "never_fires"),
        (f"{quantile('0.95')} > 2", None),
        (f"{quantile('0.95')} > 2 and on () max({KV}) > 0.9", None),
        ("vllm:num_requests_waiting > 90", None),
    ],
)
def test_limits_that_are_never_reached(query, expected):
    assert [kind for kind in kinds(alert(query)) if kind.endswith("fires")] == ([expected] if expected else [])


def test_a_panel_has_no_limits():
    assert "never_fires" not in kinds(f"{KV} > 90")


def test_so_many_mib_are_those_of_one_card():
    (flaw,) = found(alert("DCGM_FI_DEV_FB_USED > 23000"))
    assert flaw.kind == "unit"
    assert flaw.instead is not None
    assert flaw.instead.endswith("DCGM_FI_DEV_FB_RESERVED) > 0.95")


def test_a_fixed_limit_becomes_a_share_by_what_its_exporter_has() -> None:
    """AMD's exporter has used and free memory in MiB and nothing apart; others have a total or neither."""
    (flaw,) = found(alert("gpu_used_vram > 180000"))
    assert flaw.instead == "gpu_used_vram / (gpu_used_vram + gpu_free_vram) > 0.95"
    (alone,) = found(alert("npu_chip_info_used_memory > 60000"))
    assert alone.instead is None


# -------------------------------------------------------------------------------------------------------------- the set


def test_an_average_alone():
    mean = f"rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m])"
    (flaw,) = found(mean)
    assert (flaw.kind, flaw.concept, flaw.instead) == ("average_only", "ttft", quantile("0.95"))
    assert found(mean, asked(quantile("0.9"), "other")) == []


def test_a_gauge_alone():
    place = Place("sglang", "0.5.10", ())
    (flaw,) = found("sglang:gen_throughput", place=place)
    assert (flaw.kind, flaw.instead) == ("sampled_gauge", "sum(rate(sglang:generation_tokens_total[5m]))")
    assert found("sglang:gen_throughput", "rate(sglang:generation_tokens_total[5m])", place=place) == []


def test_gpu_memory_alone():
    running = "sum(vllm:num_requests_running)"
    (flaw,) = found("DCGM_FI_DEV_FB_USED", running)
    assert (flaw.kind, flaw.instead) == ("gpu_memory_only", f"max({KV})")
    assert found("DCGM_FI_DEV_FB_USED", running, KV) == []
    assert found("DCGM_FI_DEV_FB_USED", place=NOWHERE) == []


def test_one_pool_of_several():
    types = dict.fromkeys(("sglang:token_usage", "sglang:swa_token_usage"), "gauge")
    place = Place("sglang", "0.5.10", (MetricsPage(url="u", types=types),))
    (flaw,) = found("max(sglang:token_usage)", place=place)
    assert (flaw.kind, flaw.instead) == (
        "one_pool",
        'max({__name__=~"sglang:swa_token_usage|sglang:token_usage"})',
    )
    assert flaw.instead is not None
    assert found(flaw.instead, place=place) == []
    assert "sglang:swa_token_usage" in flaw.note
    assert found("max(sglang:token_usage)", "max(sglang:swa_token_usage)", place=place) == []


# ---------------------------------------------------------------------------------------------------------------- names


def test_a_prefix_of_another_way_of_scraping():
    page = MetricsPage(url="u", types={KV: "gauge"})
    (flaw,) = found("vllm_kv_cache_usage_perc", place=Place("vllm", "0.18.0", (page,)))
    assert (flaw.kind, flaw.instead) == ("renamed_prefix", KV)
    assert found(KV, place=Place("vllm", "0.18.0", (page,))) == []
    assert found(f"vllm_kv_cache_usage_perc or {KV}", place=Place("vllm", "0.18.0", (page,))) == []
    assert found("vllm_kv_cache_usage_perc") == []


def test_what_a_prometheus_stores_is_what_queries_must_say():
    """SGLang spells its names with `_` to a Prometheus that asks for OpenMetrics, and with `:` to other readers."""
    place = Place("sglang", "0.5.23", (MetricsPage(url="u", types={"sglang:token_usage": "gauge"}),))
    scraped = ("sglang_token_usage", "sglang_generation_tokens_total", "sglang_time_to_first_token_seconds_bucket")
    (flaw,) = flaws([asked("max(sglang:token_usage)")], {}, place, scraped)
    assert (flaw.kind, flaw.instead) == ("renamed_prefix", "sglang_token_usage")
    assert flaws([asked("max(sglang_token_usage)")], {}, place, scraped) == ()
    only = flaws([asked("sglang_gen_throughput")], {}, place, scraped)
    assert [f.instead for f in only if f.kind == "sampled_gauge"] == ["sum(rate(sglang_generation_tokens_total[5m]))"]


def test_what_does_not_parse_has_no_flaw():
    assert found("sum(") == []
