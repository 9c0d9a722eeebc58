"""Whose page it is and of which versions. Names and bounds are those of the engines' own sources at the tags named."""

import pytest

from auditor.catalog import metrics as catalogue
from auditor.catalog.pages import recognise
from auditor.measurement import MetricsPage
from auditor.monitoring.standing import Place

OLD_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
NEW_TTFT = (*OLD_TTFT, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
V1 = (  # vllm/v1/metrics/loggers.py, what every release from 0.9.2 on has
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
)


def says(names: tuple[str, ...], **bounds: tuple[float, ...]) -> tuple[str, ...]:
    buckets = {"vllm:time_to_first_token_seconds": bounds["ttft"]} if bounds else {}
    return tuple(str(one) for one in recognise(names, buckets))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((*V1, "vllm:time_per_output_token_seconds_bucket"), "vLLM 0.9.2 or later, before 0.11.0"),
        (
            (*V1, "vllm:time_per_output_token_seconds_sum", "vllm:inter_token_latency_seconds_sum",
             "vllm:request_time_per_output_token_seconds_sum"),
            "vLLM 0.11.0 or later, before 0.15.0",
        ),
        (
            (*V1, "vllm:inter_token_latency_seconds_sum", "vllm:request_time_per_output_token_seconds_sum",
             "vllm:prompt_tokens_by_source_total"),
            "vLLM 0.16.0 or later",
        ),
        (("vllm:avg_generation_throughput_toks_per_s", "vllm:gpu_cache_usage_perc"), "vLLM before 0.7.0"),
        (("sglang:token_usage", "sglang:time_per_output_token_seconds_count"), "SGLang 0.3.6 or later, before 0.4.5"),
        (("sglang:num_retracted_requests_total",), "SGLang 0.5.7 or later"),
        (("llamacpp:kv_cache_usage_ratio", "llamacpp:tokens_predicted_total"), "llama.cpp before 5427"),
        (("trtllm_kv_cache_utilization",), "TensorRT-LLM"),
        (("nv_trt_llm_kv_cache_block_metrics",), "Triton with TensorRT-LLM"),
        (("tgi_queue_size",), "Text Generation Inference"),
        (("lmdeploy:gpu_cache_usage_perc",), "LMDeploy"),
        (("dynamo_component_gpu_cache_usage_percent",), "NVIDIA Dynamo"),
        (("litellm_output_tokens_metric_total",), "LiteLLM proxy"),
        (("DCGM_FI_DEV_FB_USED",), "DCGM exporter"),
        (("habanalabs_memory_used_bytes",), "Gaudi exporter"),
        (("amd_gpu_used_vram",), "ROCm device metrics exporter"),
    ],
)  # fmt: skip
def test_a_page_tells_its_program_and_versions(names: tuple[str, ...], expected: str) -> None:
    assert says(names) == (expected,)


def test_bounds_tell_the_version_where_they_are_an_engines_defaults() -> None:
    names = ("vllm:time_to_first_token_seconds_bucket",)
    assert says(names, ttft=OLD_TTFT) == ("vLLM 0.3.3 or later, before 0.8.5",)
    assert says(names, ttft=(*NEW_TTFT, float("inf"))) == ("vLLM 0.8.5 or later",)
    assert says(names, ttft=(0.1, 0.3)) == ("vLLM 0.3.3 or later",)


def test_an_excerpt_is_not_taken_for_an_old_version() -> None:
    assert says(("vllm:num_requests_running", "vllm:time_to_first_token_seconds_sum")) == ("vLLM 0.3.3 or later",)


def test_names_of_several_versions_together_tell_none() -> None:
    names = ("vllm:avg_generation_throughput_toks_per_s", "vllm:inter_token_latency_seconds_sum")
    assert says(names) == ("vLLM",)


def test_what_passes_on_a_page_renamed_says_so() -> None:
    (found,) = recognise(["sglang_token_usage", "sglang_num_running_reqs"])
    assert (found.name, found.found, found.renamed) == ("sglang", 2, "sglang_")
    (own,) = recognise(["sglang:token_usage"])
    assert own.renamed is None


def test_a_page_of_two_programs_and_one_of_none() -> None:
    page = ("vllm:current_qps", "vllm:kv_cache_usage_perc", "vllm:num_requests_running")
    assert [one.name for one in recognise(page)] == ["vllm", "vllm_router"]
    assert recognise(["python_info", "process_cpu_seconds_total", "vllm:nonsense_total"]) == ()


def test_an_unknown_engine_is_the_one_on_its_page() -> None:
    page = MetricsPage(url="u", types=dict.fromkeys(["sglang:token_usage", "sgl_router_requests_total"], "gauge"))
    gpu = MetricsPage(url="g", types={"DCGM_FI_DEV_FB_USED": "gauge"}, exporter="dcgm")
    assert Place.of("generic", None, [gpu, page]).engine == "sglang"
    assert Place.of("vllm", None, [page]).engine == "vllm"
    assert Place.of("generic", None, [gpu]).engine == "generic"


@pytest.mark.parametrize(
    ("name", "concept"),
    [
        ("myapp_time_to_first_token_seconds_bucket", "ttft"),
        ("acme:ttft_ms_sum", "ttft"),
        ("gateway_completion_tokens_total", "generation_tokens"),
        ("edge_kv_cache_utilization", "kv_usage"),
        ("acme_gpu_used_vram", "gpu_memory"),
        ("time_to_first_token_seconds_p99", "ttft"),
        ("edge_tpot_ms_p50", "tpot"),
    ],
)
def test_names_that_all_agree_on_are_known_under_any_prefix(name: str, concept: str) -> None:
    assert catalogue.lookup(name)[0].concept == concept


@pytest.mark.parametrize(
    "name",
    [
        "vllm:mean_time_to_first_token_seconds",
        "sglang:x_output_tokens_total",
        "x_prompt_tokens_total",
        "vllm:x_p99",
        "vllm:time_to_first_token_seconds_p99",
    ],
)
def test_no_prefix_of_an_engine_whose_names_are_all_listed(name: str) -> None:
    assert catalogue.lookup(name) == ()
