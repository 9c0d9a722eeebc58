"""The metric catalogue: versions compare as numbers, names follow the version, samples find their concept.

Expected names and ranges are those of the engines' own sources: vllm/v1/metrics/loggers.py and sglang's
metrics/collector.py at the tags named.
"""

import pytest

from auditor.catalog import metrics as catalogue
from auditor.errors import UsageError


def test_versions_are_numbers_not_words() -> None:
    ordered = ["v0.3.3", "0.9.2", "0.10.0", "0.10.1.dev12+gabc", "0.11.0rc1", "0.32.0", None]
    keys = [catalogue.version_key(v) for v in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.32.0+cpu", (0, 32)),
        ("v0.9.2", (0, 9, 2)),
        ("0.18", (0, 18)),
        ("0.18.0", (0, 18)),
        ("b5427", (5427,)),
        ("11434", (11434,)),
    ],
)
def test_version_spellings(text: str, key: tuple[int, ...]) -> None:
    assert catalogue.version_key(text) == key


@pytest.mark.parametrize("text", [None, "", "HEAD", "main", "0.1.dev1+g1a2b3c", "0.0.0.dev0"])
def test_versions_without_a_number_are_the_newest(text: str | None) -> None:
    assert catalogue.version_key(text) > catalogue.version_key("999.0.0")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.8.5", ("vllm:gpu_cache_usage_perc",)),
        ("0.10.0", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        ("0.11.0", ("vllm:kv_cache_usage_perc",)),
        (None, ("vllm:kv_cache_usage_perc",)),
    ],
)
def test_the_kv_name_of_vllm_follows_the_version(version: str | None, expected: tuple[str, ...]) -> None:
    assert catalogue.names("vllm", version)["kv_usage"] == expected


def test_tpot_of_vllm_before_and_after_its_rename() -> None:
    assert catalogue.names("vllm", "0.9.2")["tpot"] == ("vllm:time_per_output_token_seconds",)
    newest = catalogue.names("vllm", "0.32.0+cpu")["tpot"]
    assert newest == ("vllm:request_time_per_output_token_seconds", "vllm:inter_token_latency_seconds")


def test_tpot_of_sglang_before_and_after_its_rename() -> None:
    assert catalogue.names("sglang", "0.4.3")["tpot"] == ("sglang:time_per_output_token_seconds",)
    assert catalogue.names("sglang", "0.5.18")["tpot"] == ("sglang:inter_token_latency_seconds",)


def test_llama_cpp_has_no_ttft_and_lost_its_kv_gauge() -> None:
    assert "ttft" not in catalogue.names("llamacpp")
    assert "kv_usage" not in catalogue.names("llamacpp")
    assert catalogue.names("llamacpp", "b5000")["kv_usage"] == ("llamacpp:kv_cache_usage_ratio",)


@pytest.mark.parametrize(
    ("engine", "sample", "concept"),
    [
        ("vllm", "vllm:time_to_first_token_seconds_bucket", "ttft"),
        ("vllm", "vllm:time_to_first_token_seconds_count", "ttft"),
        ("vllm", "vllm:generation_tokens_total", "generation_tokens"),
        ("vllm", "ray_vllm_kv_cache_usage_perc", "kv_usage"),
        ("sglang", "sglang:num_retracted_requests_total", "preemptions"),
        ("sglang", "sglang_token_usage", "kv_usage"),
        ("trtllm", "trtllm_kv_cache_utilization", "kv_usage"),
        ("tgi", "tgi_queue_size", "waiting"),
        ("dcgm", "DCGM_FI_DEV_FB_USED", "gpu_memory"),
        ("dcgm", "DCGM_FI_PROF_DRAM_ACTIVE", "memory_activity"),
    ],
)
def test_samples_find_their_concept(engine: str, sample: str, concept: str) -> None:
    assert [metric.concept for metric in catalogue.lookup(sample, engine)] == [concept]


@pytest.mark.parametrize(
    "sample",
    [
        "vllm:no_such_thing",
        "vllm:kv_cache_usage_perc_bucket",
        "vllm:generation_tokens_total_sum",
        "",
        "sglang:token_usage",
    ],
)
def test_other_samples_find_none(sample: str) -> None:
    assert catalogue.lookup(sample, "vllm") == ()


def test_labels_tell_the_concepts_of_one_name() -> None:
    name = "nv_trt_llm_kv_cache_block_metrics"
    for value, concept in (("fraction", "kv_usage"), ("max", "kv_capacity"), ("used", "kv_used")):
        metric = next(m for m in catalogue.lookup(name, "triton") if m.labels == {"kv_cache_block_type": value})
        assert metric.concept == concept


def test_buckets_follow_the_version() -> None:
    (ttft,) = catalogue.lookup("vllm:time_to_first_token_seconds", "vllm")
    assert catalogue.buckets(ttft, "0.8.3")[-1] == 10
    assert catalogue.buckets(ttft, "0.18.0")[-1] == 2560
    assert ttft.buckets == catalogue.buckets(ttft)
    (sglang,) = catalogue.lookup("sglang:time_to_first_token_seconds", "sglang")
    assert catalogue.buckets(sglang, "0.5.18")[:3] == (0.1, 0.2, 0.4)
    assert catalogue.buckets(sglang, "0.3.0") == ()


def test_unknown_engines() -> None:
    assert catalogue.names("generic") == {}
    assert catalogue.metrics("generic") == ()
    with pytest.raises(UsageError, match="known: vllm"):
        catalogue.source("nope")


def test_every_replacement_exists_and_no_name_is_listed_twice_for_one_concept() -> None:
    for engine in catalogue.engines():
        listed = [(m.name, m.concept, tuple(m.labels.items())) for m in catalogue.metrics(engine)]
        assert len(listed) == len(set(listed))
        own = {m.name for m in catalogue.metrics(engine)}
        for metric in catalogue.metrics(engine):
            assert metric.replaced_by is None or metric.replaced_by in own
            for _, bounds in metric.bucket_history:
                assert list(bounds) == sorted(set(bounds))


def test_family_names() -> None:
    assert catalogue.family("ray_vllm_time_to_first_token_seconds_bucket") == "vllm:time_to_first_token_seconds"
    assert catalogue.family("up") == "up"


def test_remedies_hold_the_engines_names_and_what_others_offer() -> None:
    found = catalogue.remedies("llamacpp")
    assert found["generation_tokens"] == ("llamacpp:tokens_predicted_total",)
    assert found["gateway_ttft"][0] == "litellm_llm_api_time_to_first_token_metric"
    assert found["exporter_memory"][:2] == ("DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
    assert set(catalogue.remedies("generic")) == {"gateway_ttft", "exporter_memory"}


def test_names_with_any_prefix() -> None:
    (metric,) = catalogue.lookup("imagegen_cuda_memory_allocated_bytes", "pytorch")
    assert metric.concept == "gpu_memory"


def test_pools_stand_beside_each_other_and_older_names_do_not():
    sglang = ("sglang:token_usage", "sglang:swa_token_usage")
    assert catalogue.pools(sglang) == sglang
    assert catalogue.pools((*sglang, "sglang_token_usage")) == sglang
    assert catalogue.pools(("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")) == ("vllm:kv_cache_usage_perc",)
    assert catalogue.pools(("vllm:gpu_cache_usage_perc",)) == ("vllm:gpu_cache_usage_perc",)
