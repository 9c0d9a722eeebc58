"""The metrics pages: valid Prometheus text with the engines' own names, labels, types and bounds."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families
from raw_client import ask, completion, emulated

from auditor.catalog import metrics as catalogue
from auditor.emulator.clock import run_virtual
from auditor.emulator.counters import HistogramCount
from auditor.emulator.spec import Spec

SGLANG = Spec(flavour="sglang", version="0.5.23", model="tiny", block_size=1, pool_tokens=65_536)
VLLM = Spec(model="tiny", pool_tokens=65_536)


def page(spec, count=6):
    async def main():
        async with emulated(spec) as emulator:
            bodies = [completion(f"{index} " + "w " * 99, 30) for index in range(count)]
            await asyncio.gather(*(ask(emulator.port, "/v1/completions", body) for body in bodies))
            return await ask(emulator.port, "/metrics")

    return run_virtual(main())


def families(spec, count=6):
    return {family.name: family for family in text_string_to_metric_families(page(spec, count).body.decode())}


def samples(family):
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples}


def test_content_types():
    assert page(VLLM, 0).headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    seen = page(SGLANG, 0)
    assert seen.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert seen.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("spec", [VLLM, SGLANG, Spec(version="0.18.0"), Spec(version="0.24.1")])
def test_names_are_those_of_the_version(spec):
    """What the catalogue knows of the engine and its version must carry every concept that the page shows."""
    found = families(spec)
    concepts = set()
    for name, family in found.items():
        sample = name + "_total" if family.type == "counter" else name
        metric = next(iter(catalogue.lookup(sample, spec.flavour)), None)
        if metric is not None:
            assert catalogue.valid(metric, spec.version), sample
            assert metric.type == family.type, sample
            concepts.add(metric.concept)
    wanted = {
        "ttft",
        "tpot",
        "e2e",
        "queue_time",
        "generation_tokens",
        "prompt_tokens",
        "running",
        "waiting",
        "kv_usage",
    }
    assert wanted <= concepts


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
def test_histograms_are_cumulative_and_agree_with_their_count(spec):
    for family in families(spec).values():
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
            series.setdefault(labels, []).append(sample)
        for rows in series.values():
            buckets = [row.value for row in rows if row.name.endswith("_bucket")]
            count = next(row.value for row in rows if row.name.endswith("_count"))
            assert buckets == sorted(buckets)
            assert buckets[-1] == count


def test_vllm_labels_and_bounds():
    found = families(Spec(model="tiny", max_model_len=2048, pool_tokens=65_536))
    ttft = found["vllm:time_to_first_token_seconds"].samples
    assert {tuple(sorted(set(sample.labels) - {"le"})) for sample in ttft} == {("engine", "model_name")}
    bounds = [sample.labels["le"] for sample in ttft if sample.name.endswith("_bucket")]
    assert bounds[:9] == ["0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25"]
    assert bounds[-3:] == ["640.0", "2560.0", "+Inf"]
    lengths = [s.labels["le"] for s in found["vllm:request_prompt_tokens"].samples if "le" in s.labels]
    assert lengths == [
        "1.0", "2.0", "5.0", "10.0", "20.0", "50.0", "100.0", "200.0", "500.0", "1000.0", "2000.0", "+Inf",
    ]  # fmt: skip
    success = samples(found["vllm:request_success"])
    key = ("vllm:request_success_total", (("engine", "0"), ("finished_reason", "length"), ("model_name", "tiny")))
    assert success[key] == 6


def test_vllm_tells_its_pool():
    """65,536 tokens in blocks of 16; 8,192 tokens a request fit 8 times."""
    config = families(VLLM)["vllm:cache_config_info"].samples[0]
    assert config.value == 1
    assert config.labels["block_size"] == "16"
    assert config.labels["num_gpu_blocks"] == "4096"
    assert config.labels["kv_cache_size_tokens"] == "65536"
    assert config.labels["kv_cache_max_concurrency"] == "8.0"
    assert config.labels["gpu_memory_utilization"] == "0.92"
    assert "model_name" not in config.labels


def test_sglang_tells_its_pool_and_splits_by_streaming():
    found = families(SGLANG)
    labels = {"engine_type": "unified", "model_name": "tiny"}
    ranks = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    pool = found["sglang:max_total_num_tokens"].samples[0]
    assert (pool.labels, pool.value) == (labels | ranks, 65_536)
    tokens = found["sglang:generation_tokens"].samples[0]
    assert (tokens.labels, tokens.value) == (labels | {"is_streaming": "true"}, 180)
    bounds = [s.labels["le"] for s in found["sglang:time_to_first_token_seconds"].samples if "le" in s.labels]
    assert bounds[:4] == ["0.1", "0.2", "0.4", "0.6"]


def test_newer_names_are_absent_from_older_versions():
    assert "vllm:admission_rejections" in families(VLLM)
    old = families(Spec(version="0.18.0"))
    assert "vllm:admission_rejections" not in old
    assert "vllm:num_requests_waiting_by_reason" not in old
    assert "vllm:spec_decode_num_drafts" not in old  # no speculation, no names


def test_older_versions_show_the_names_of_their_time():
    """vLLM 0.10.0 has both KV gauges and TPOT under its old name; 0.18.0 has neither old name."""
    old, new = families(Spec(version="0.10.0")), families(Spec(version="0.18.0"))
    for name in ("vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"):
        assert name in old
        assert name not in new
    assert "vllm:kv_cache_usage_perc" in old
    assert "vllm:inter_token_latency_seconds" not in old
    bounds = [s.labels["le"] for s in old["vllm:time_to_first_token_seconds"].samples if "le" in s.labels]
    assert bounds[-2:] == ["2560.0", "+Inf"]
    older = families(Spec(version="0.8.3"))["vllm:time_to_first_token_seconds"].samples
    assert [s.labels["le"] for s in older if "le" in s.labels][-2:] == ["10.0", "+Inf"]
    assert "sglang:kv_used_tokens" not in families(Spec(flavour="sglang", version="0.5.9", block_size=1))


def test_a_value_on_a_bound_belongs_below_it():
    histogram = HistogramCount((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe(1.5, 2)
    histogram.observe(9.0)
    assert histogram.counts == [1, 2, 1]
    assert (histogram.sum, histogram.count) == (13.0, 4)
