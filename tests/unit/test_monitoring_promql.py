"""What an expression computes, read from its syntax tree, and what Grafana's variables become."""

import pytest

from auditor.monitoring import promql
from auditor.monitoring.meaning import shown
from auditor.monitoring.patterns import alternatives
from auditor.monitoring.variables import substitute


def covers(query: str, recordings: dict[str, str] | None = None) -> set[tuple[str, bool]]:
    """(concept, directly) for everything that a query shows."""
    seen = [shown(use) for use in promql.uses(query, recordings)]
    return {(s.concept, s.direct) for s in seen if s is not None}


TTFT = "vllm:time_to_first_token_seconds"


@pytest.mark.parametrize(
    ("query", "concept"),
    [
        (f"histogram_quantile(0.95, sum by (le) (rate({TTFT}_bucket[5m])))", "ttft"),
        (f"rate({TTFT}_sum[5m]) / rate({TTFT}_count[5m])", "ttft"),
        (f"1000 * ({TTFT}_sum / {TTFT}_count)", "ttft"),
        (f"histogram_quantile(0.95, sum(rate({TTFT}[5m])))", "ttft"),
        (f"histogram_sum(rate({TTFT}[5m])) / histogram_count(rate({TTFT}[5m]))", "ttft"),
        (f'sum(rate({TTFT}_bucket{{le="0.5"}}[5m])) / sum(rate({TTFT}_count[5m]))', "ttft"),
        (f"sum by (le) (increase({TTFT}_bucket[1m]))", "ttft"),
        ("sum(rate(vllm:generation_tokens_total[5m]))", "tps"),
        ("sum(rate(vllm:generation_tokens_total[5m])) / 8", "tps"),
        ("sum(rate(vllm:generation_tokens_total[1d]))", "tps"),
        ("increase(vllm:generation_tokens_total[1m])", "tps"),
        ("sum(increase(vllm:generation_tokens_total[1h])) / 3600", "tps"),
        ("sglang:gen_throughput", "tps"),
        ("max(time_to_first_token_seconds_p99)", "ttft"),
        ('gateway_time_to_first_token_seconds{quantile="0.95"}', "ttft"),
        (
            "1 / (rate(vllm:inter_token_latency_seconds_sum[5m]) / rate(vllm:inter_token_latency_seconds_count[5m]))",
            "tps",
        ),
        ("rate(tgi_request_generated_tokens_sum[5m])", "tps"),
        ("rate(llamacpp:tokens_predicted_seconds_total[5m]) / rate(llamacpp:tokens_predicted_total[5m])", "tps"),
        ("rate(llamacpp:tokens_predicted_total[5m]) / rate(llamacpp:tokens_predicted_seconds_total[5m])", "tps"),
        ("100 * max(vllm:kv_cache_usage_perc)", "memory"),
        ("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", "memory"),
        ("1 - nvidia_smi_memory_free_bytes / nvidia_smi_memory_total_bytes", "memory"),
        ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}', "memory"),
        ('avg({__name__=~"vllm:gpu_cache_usage_perc|vllm:kv_cache_usage_perc"})', "memory"),
        ("vllm:kv_cache_usage_perc * on (pod) group_left () kube_pod_info", "memory"),
        ("max_over_time(vllm:kv_cache_usage_perc[1h:1m])", "memory"),
    ],
)
def test_queries_that_cover(query: str, concept: str) -> None:
    assert (concept, True) in covers(query)


@pytest.mark.parametrize(
    ("query", "concept"),
    [
        (f"rate({TTFT}_count[5m])", "ttft"),  # requests per second
        (f"rate({TTFT}_sum[5m])", "ttft"),  # seconds per second
        (f"count by (pod) ({TTFT}_bucket)", "ttft"),
        (f"absent({TTFT}_count)", "ttft"),
        ("vllm:generation_tokens_total", "tps"),  # a total says nothing about speed
        ("rate(vllm:generation_tokens_total[5m]) / rate(vllm:request_success_total[5m])", "tps"),  # tokens per request
        ("rate(tgi_request_generated_tokens_sum[5m]) / rate(tgi_request_generated_tokens_count[5m])", "tps"),
        ("sum(increase(vllm:generation_tokens_total[24h]))", "tps"),  # an amount, no speed
        ("sum by (m) (delta(vllm:generation_tokens_total[1w]))", "tps"),
        ("increase(tgi_request_generated_tokens_sum[1h])", "tps"),
        ("DCGM_FI_DEV_POWER_USAGE / sum(rate(vllm:generation_tokens_total[5m]))", "tps"),  # joules per token
        ("rate(vllm:prompt_tokens_total[5m])", "tps"),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "memory"),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", "memory"),
        ("DCGM_FI_DEV_FB_TOTAL", "memory"),
        ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"}', "memory"),
        ("count(vllm:kv_cache_usage_perc)", "memory"),
        ("rate(vllm:kv_cache_usage_perc[5m])", "memory"),
        ('up{job="vllm:kv_cache_usage_perc"}', "memory"),  # a name inside a string is no series
        ("up and vllm:kv_cache_usage_perc", "memory"),
        ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=~"max"}', "memory"),
        (f"histogram_count(rate({TTFT}[5m]))", "ttft"),
    ],
)
def test_queries_that_do_not_cover(query: str, concept: str) -> None:
    assert concept not in {name for name, _ in covers(query)}


def test_how_full_a_batch_is_is_a_proxy_of_memory() -> None:
    assert covers("tgi_batch_current_max_tokens / tgi_batch_max_total_tokens") == {("memory", False)}
    assert covers("avg(tgi_batch_current_max_tokens)") == set()


def test_prefill_time_is_a_proxy_of_ttft() -> None:
    query = 'histogram_quantile(0.5, rate(tgi_batch_inference_duration_bucket{method="prefill"}[10m]))'
    assert covers(query) == {("ttft", False)}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a|b|c", ["a", "b", "c"]),
        ("^(a|b)$", ["a", "b"]),
        ("vllm:(gpu|kv)_cache_usage_perc", ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"]),
        ("x_(?:sum|count)|y", ["x_sum", "x_count", "y"]),
        ("(ray_)?vllm:a", ["ray_vllm:a", "vllm:a"]),
        (".*:gen_throughput", ["sglang:gen_throughput"]),
        ("nvidia_smi_memory_used.*", ["nvidia_smi_memory_used_bytes"]),
        (".*", []),
        ("vllm:[a-z]+", []),
        ("(" * 50 + "a" + ")*" * 50, []),
        ("(a|b)" * 30, []),
        ("", []),
    ],
)
def test_patterns_for_names(pattern: str, names: list[str]) -> None:
    assert alternatives(pattern) == names


def test_recording_rules_are_expanded_with_what_happens_around_them() -> None:
    recordings = {
        "job:tokens": "sum by (job) (vllm:generation_tokens_total)",
        "ttft:rate": f"sum by (le) (rate({TTFT}_bucket[5m]))",
        "accelerator_memory_used_bytes": "DCGM_FI_DEV_MEM_COPY_UTIL",
    }
    assert covers("rate(job:tokens[5m])", recordings) == {("tps", True)}
    assert covers("job:tokens", recordings) == set()
    assert covers("histogram_quantile(0.9, ttft:rate)", recordings) == {("ttft", True)}
    assert covers("accelerator_memory_used_bytes", recordings) == {("memory_activity", True)}


def test_recording_rules_that_circle_or_multiply_end() -> None:
    circle = {"a": "b + b", "b": "a + a"}
    assert {use.name for use in promql.uses("a", circle)} == {"a"}
    tower = {f"r{i}": f"r{i + 1} + r{i + 1}" for i in range(60)}
    assert len(promql.uses("r0", tower)) < 1_000


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(x[5m])",
        "rate(x)",
        "",
        "(" * 20_000 + "x" + ")" * 20_000,
        "-" * 20_000 + "x",
        "x" + "+x" * 5_000,
        "x" + " or x" * 5_000,
        "x " * 30_000,
        "(" * 900 + "x" + ")" * 900 + "+" + "+".join(["x"] * 50),
        "\x00",
    ],
)
def test_what_prometheus_would_refuse_is_invalid_and_nothing_worse(query: str) -> None:
    message = "valid"
    try:
        found = {use.name for use in promql.uses(query)}
    except promql.Invalid as error:
        found, message = {"x"}, str(error)
    assert found == {"x"}
    assert message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rate(x[$__rate_interval])", "rate(x[5m])"),
        ("rate(x[${__interval}])", "rate(x[5m])"),
        ("rate(x[$${__interval}])", "rate(x[5m])"),
        ("rate(x[$__range:$__interval])", "rate(x[1h:5m])"),
        ("rate(x[${minutes}m])", "rate(x[5m])"),
        ("x offset $back", "x offset 5m"),
        ('x{a="$v",b=~"${v:regex}",c="[[v]]"}', 'x{a=~".*",b=~".*",c=~".*"}'),
        ("x{a=\"v1.2-$v\",b='$v'}", 'x{a=~"v1\\\\.2-.*",b=~".*"}'),
        ('x{a!="$v",b!~"$v.*"}', 'x{a!="x",b!="x.*"}'),
        ('label_replace(x, "a", "$1", "b", "(.*)")', 'label_replace(x, "a", "$1", "b", "(.*)")'),
        ("x{$filters}", 'x{x=~".*"}'),
        ('x{a="b",$filters}', 'x{a="b",x=~".*"}'),
        ("sum by ($group) (x)", "sum by (x) (x)"),
        ("sum by (a, $group) (x)", "sum by (a, x) (x)"),
        ("vllm:$metric", "vllm:"),
        ("topk($k, x)", "topk(1, x)"),
        ("x * $__range_s", "x * 1"),
        ("$fn(x)", "sum(x)"),
        ("$__interval_ms", "1"),
    ],
)
def test_variables_by_where_they_stand(query: str, expected: str) -> None:
    assert substitute(query, {}) == expected


@pytest.mark.parametrize(
    ("query", "defaults", "expected"),
    [
        ("vllm:${metric}_bucket", {"metric": "time_to_first_token_seconds"}, "vllm:time_to_first_token_seconds_bucket"),
        ("$prefix:x", {"prefix": "ray_vllm"}, "ray_vllm:x"),
        ("max($series)", {"series": "vllm:kv_cache_usage_perc"}, "max(vllm:kv_cache_usage_perc)"),
        ("topk($k, x)", {"k": "7"}, "topk(7, x)"),
        ("$series{}", {"series": 'evil"{'}, "x{}"),
        ('{__name__=~"$m"}', {"m": "a|b"}, '{__name__=~"a|b"}'),
    ],
)
def test_variables_by_their_defaults(query: str, defaults: dict[str, str], expected: str) -> None:
    assert substitute(query, defaults) == expected


def test_values_that_the_data_gives_match_anything_and_names_keep_their_default() -> None:
    defaults = {"pod": "vllm-7f9c", "m": "vllm:kv_cache_usage_perc", "q": "fraction"}
    query = '{__name__=~"$m", pod="$pod", kind="$q"}'
    expected = '{__name__=~"vllm:kv_cache_usage_perc", pod=~".*", kind="fraction"}'
    assert substitute(query, defaults, unknown={"pod", "m"}) == expected
