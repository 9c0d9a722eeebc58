"""Which engine answers and what it says of itself, from replies in the shapes that real engines send."""

import asyncio
import dataclasses
import json
import math

import pytest
from fake_endpoint import generation, reply, serving

from auditor.engines.flavour import Reply
from auditor.engines.flavours import FLAVOURS
from auditor.measurement import Served
from auditor.probe.discover import discover
from auditor.probe.target import Deadlines
from auditor.profile import Endpoint, Monitoring, Profile

DEADLINES = Deadlines(connect=2, first_token=2, gap=2, total=4)
CHAT = {"POST /v1/chat/completions": generation}


def models(owner: str, **entry) -> dict:
    return {"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": owner, **entry}]}


def page(text: str) -> bytes:
    return reply(text, kind="text/plain; version=0.0.4; charset=utf-8")


VLLM_PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="tiny"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="tiny"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 0.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.92",kv_cache_max_concurrency="512.0",kv_cache_size_tokens="1048576",num_gpu_blocks="8192"} 1.0
"""
VLLM = {
    "GET /v1/models": reply(models("vllm", root="/models/tiny", parent=None, max_model_len=2048)),
    "GET /version": reply({"version": "0.32.0"}),
    "GET /metrics": page(VLLM_PAGE),
}
SGLANG_INFO = {
    "model_path": "/models/tiny",
    "context_length": 2048,
    "dtype": "bfloat16",
    "quantization": None,
    "kv_cache_dtype": "auto",
    "mem_fraction_static": 0.719,
    "max_running_requests": 8,
    "max_queued_requests": 6,
    "chunked_prefill_size": 4096,
    "page_size": 16,
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "api_key": "sk-of-the-server",
    "attention_backend": "torch_native",
    "speculative_algorithm": None,
    "disable_cuda_graph": True,
    "disable_radix_cache": False,
    "disaggregation_mode": "null",
    "max_total_num_tokens": 8192,
    "internal_states": [{"effective_max_running_requests_per_dp": 4}],
    "version": "0.5.23",
}
SGLANG = {
    "GET /v1/models": reply(models("sglang", root="tiny", max_model_len=2048)),
    "GET /server_info": reply(SGLANG_INFO),
}
LLAMA = {
    "GET /v1/models": reply(
        models("llamacpp", aliases=["g"], meta={"n_ctx": 2048, "n_ctx_train": 32768, "ftype": "Q4_K - Medium"})
    ),
    "GET /props": reply(
        {
            "default_generation_settings": {"n_ctx": 2048, "params": {"speculative.types": "none"}},
            "total_slots": 2,
            "model_ftype": "Q4_K - Medium",
            "build_info": "b11434-abcdef",
        }
    ),
    "GET /slots": reply([{"id": 0, "n_ctx": 2048}, {"id": 1, "n_ctx": 2048}]),
    "GET /metrics": page("# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n"),
}


def found(answers, key=None, **endpoint):
    async def run():
        async with serving(CHAT | answers) as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=f"{fake.origin}/v1", **endpoint))
            return await discover(profile, key, deadlines=DEADLINES), fake

    return asyncio.run(run())


def test_vllm():
    served, fake = found(VLLM)
    assert served.engine == "vllm"
    assert served.engine_version == "0.32.0"
    assert served.max_model_len == 2048
    assert (served.kv_tokens, served.kv_blocks, served.block_size) == (1_048_576, 8192, 128)
    assert served.kv_max_concurrency == 512.0
    assert served.gpu_memory_utilization == 0.92
    assert served.prefix_caching is True
    assert served.kv_cache_dtype == "auto"
    assert served.speculative is None
    assert served.sources["speculative"] == "/metrics, no spec_decode counters"
    assert served.sources["kv_tokens"] == "/metrics, cache_config_info"
    assert served.replicas is None
    (one,) = served.pages
    assert one.url == f"{fake.origin}/metrics"
    assert one.types["vllm:num_requests_running"] == "gauge"
    assert one.types["vllm:time_to_first_token_seconds_bucket"] == "histogram"
    assert one.buckets == {"vllm:time_to_first_token_seconds": (0.001,)}
    assert one.exporter is None
    assert len(fake.paths("GET")) <= 9


def test_vllm_before_it_told_its_tokens_and_with_speculation():
    text = VLLM_PAGE.replace('kv_cache_size_tokens="1048576",', "").replace('kv_cache_max_concurrency="512.0",', "")
    text += "# TYPE vllm:spec_decode_num_drafts counter\nvllm:spec_decode_num_drafts_total 0.0\n"
    served, _ = found(VLLM | {"GET /metrics": page(text)})
    assert served.kv_tokens == 8192 * 128
    assert served.sources["kv_tokens"].endswith("num_gpu_blocks x block_size")
    assert served.speculative == "on"


def test_vllm_with_data_parallel_ranks_counts_the_smallest_pool():
    second = VLLM_PAGE.splitlines()[-1].replace('engine="0"', 'engine="1"').replace('"8192"', '"8000"')
    second = second.replace('"1048576"', '"1024000"')
    served, _ = found(VLLM | {"GET /metrics": page(VLLM_PAGE + second + "\n")})
    assert served.data_parallel == 2
    assert (served.kv_blocks, served.kv_tokens) == (8000, 1_024_000)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang(path):
    answers = {"GET /v1/models": SGLANG["GET /v1/models"], f"GET {path}": reply(SGLANG_INFO)}
    served, _ = found(answers)
    assert served.engine == "sglang"
    assert served.engine_version == "0.5.23"
    assert served.max_model_len == 2048
    assert (served.kv_tokens, served.kv_blocks, served.block_size) == (8192, 512, 16)
    assert served.max_num_seqs == 4  # what a rank really admits, not what was asked for
    assert served.max_num_batched_tokens == 4096
    assert served.queue_limit == 6
    assert served.mem_fraction_static == 0.719
    assert (served.tensor_parallel, served.pipeline_parallel, served.data_parallel) == (1, 1, 1)
    assert served.attention_backend == "torch_native"
    assert served.enforce_eager is True
    assert served.prefix_caching is True
    assert served.disaggregated is False
    assert served.speculative is None
    assert served.sources["speculative"] == path
    assert served.sources["kv_tokens"] == path
    assert any("start it with --enable-metrics" in warning for warning in served.warnings)
    assert "sk-of-the-server" not in repr(served)


def test_sglang_without_its_settings_still_tells_its_load():
    loads = {"version": "0.5.23", "loads": [{"max_total_num_tokens": 8192, "max_running_requests": 8}]}
    info = {"disaggregation_mode": "decode"}
    served, _ = found(
        {
            "GET /v1/models": SGLANG["GET /v1/models"],
            "GET /v1/loads": reply(loads),
            "GET /model_info": reply(info),
        }
    )
    assert (served.kv_tokens, served.max_num_seqs, served.engine_version) == (8192, 8, "0.5.23")
    assert served.disaggregated is True


def test_llama_cpp():
    served, _ = found(LLAMA)
    assert served.engine == "llamacpp"
    assert served.engine_version == "b11434-abcdef"
    assert served.max_model_len == 2048  # of one slot
    assert served.max_num_seqs == 2
    assert served.quantization == "q4_k_m"
    assert served.kv_tokens is None  # it does not tell whether the slots share their cells
    assert served.speculative is None


def test_llama_cpp_by_its_server_header_alone():
    entry = {"object": "list", "data": [{"id": "tiny"}]}
    served, _ = found({"GET /v1/models": reply(entry, headers=["Server: llama.cpp"])})
    assert served.engine == "llamacpp"
    assert any("start it with --metrics" in warning for warning in served.warnings)


def test_tensorrt_llm_has_its_page_elsewhere():
    text = "# TYPE trtllm_kv_cache_utilization gauge\ntrtllm_kv_cache_utilization 0.1\n"
    served, fake = found(
        {
            "GET /v1/models": reply(models("tensorrt_llm")),
            "GET /version": reply({"version": "1.1.0"}),
            "GET /metrics": reply([]),
            "GET /prometheus/metrics": page(text),
        }
    )
    assert served.engine == "trtllm"
    assert served.engine_version == "1.1.0"
    assert [one.url for one in served.pages] == [f"{fake.origin}/prometheus/metrics"]


def test_a_gateway_is_not_taken_for_an_engine():
    served, _ = found({"GET /v1/models": reply(models("openai")), "GET /version": reply({"version": "0.32.0"})})
    assert served.engine == "generic"
    assert served.engine_version is None
    assert any("not recognised" in warning for warning in served.warnings)


def test_the_profile_names_the_engine_behind_a_gateway():
    served, _ = found({"GET /v1/models": reply(models("openai"))}, engine="vllm")
    assert (served.engine, served.sources["engine"]) == ("vllm", "declared")


def test_what_answers_beats_what_is_declared():
    served, _ = found(SGLANG, engine="vllm")
    assert (served.engine, served.sources["engine"]) == ("sglang", "its own answers")


def test_the_engine_behind_a_gateway_shows_on_the_pages_of_its_replicas():
    async def run():
        async with serving({"GET /metrics": page(VLLM_PAGE)}) as one, serving({"GET /metrics": page(VLLM_PAGE)}) as two:
            gateway = CHAT | {"GET /v1/models": reply(models("gateway"))}
            async with serving(gateway) as fake:
                metrics = (f"{one.origin}/metrics", two.origin, f"{two.origin}/nothing")
                endpoint = Endpoint(url=f"{fake.origin}/v1", metrics=metrics)
                return await discover(Profile(version=1, name="t", endpoint=endpoint), None, deadlines=DEADLINES), two

    served, two = asyncio.run(run())
    assert served.engine == "vllm"
    assert served.replicas == 2
    assert served.warnings == (
        f"endpoint.metrics: {two.origin}/nothing answers 404; "
        "correct the address or look at the server's metrics setting",
    )


def test_a_page_that_only_the_key_opens_is_told():
    def locked(request):
        return page(VLLM_PAGE) if request.headers.get("authorization") == "Bearer k-1" else reply("", 401)

    served, _ = found({**VLLM, "GET /metrics": locked}, key="k-1")
    assert [one.needs_key for one in served.pages] == [True]
    served, _ = found(VLLM, key="k-1")
    assert [one.needs_key for one in served.pages] == [False]
    served, fake = found(VLLM)
    assert [one.needs_key for one in served.pages] == [None]
    accepted = [asked.headers["accept"] for asked in fake.asked if asked.path == "/metrics"]
    assert ["openmetrics" in accept for accept in accepted] == [False, True]


@pytest.mark.parametrize("path", ["/v1/metrics", "/prometheus/metrics"])
def test_pages_are_found_where_servers_that_are_not_recognised_put_them(path):
    served, fake = found({"GET /v1/models": reply(models("m")), f"GET {path}": page("# TYPE up gauge\nup 1\n")})
    assert [one.url for one in served.pages] == [fake.origin + path]


def test_an_exporter_is_no_replica():
    dcgm = "# TYPE DCGM_FI_DEV_FB_USED gauge\nDCGM_FI_DEV_FB_USED 1000\n"

    async def run():
        async with serving({"GET /metrics": page(dcgm)}) as exporter, serving(CHAT | VLLM) as fake:
            metrics = (f"{fake.origin}/metrics", f"{exporter.origin}/metrics")
            endpoint = Endpoint(url=f"{fake.origin}/v1", metrics=metrics)
            return await discover(Profile(version=1, name="t", endpoint=endpoint), None, deadlines=DEADLINES)

    served = asyncio.run(run())
    assert [one.exporter for one in served.pages] == [None, "dcgm"]
    assert served.replicas is None


def test_exporters_are_read_beside_the_engine():
    dcgm = "# TYPE DCGM_FI_DEV_FB_USED gauge\nDCGM_FI_DEV_FB_USED 1000\n"

    async def run():
        async with serving({"GET /metrics": page(dcgm)}) as exporter, serving(CHAT | VLLM) as fake:
            gone = f"{exporter.origin}/gone"
            monitoring = Monitoring(exporters=(exporter.origin, gone))
            endpoint = Endpoint(url=f"{fake.origin}/v1")
            profile = Profile(version=1, name="t", endpoint=endpoint, monitoring=monitoring)
            return await discover(profile, None, deadlines=DEADLINES), gone

    served, gone = asyncio.run(run())
    assert [one.exporter for one in served.pages] == [None, "dcgm"]
    assert served.warnings == (f"monitoring.exporters: {gone} answers 404; correct the address or start the exporter",)


def test_no_metrics_wanted_means_none_asked():
    served, fake = found(VLLM, metrics=None)
    assert served.pages == ()
    assert "/metrics" not in fake.paths("GET")
    assert served.warnings == ()


@pytest.mark.parametrize(
    "answer", [reply("<html><title>nope</title></html>", 200, "text/html"), reply({"error": "no"}, 401), reply("", 200)]
)
def test_a_page_that_is_none(answer):
    served, _ = found(VLLM | {"GET /metrics": answer})
    assert served.engine == "vllm"
    assert served.pages == ()
    assert any(warning.startswith("no metrics page at http://") for warning in served.warnings)


def test_facts_of_an_impossible_type_are_dropped():
    info = SGLANG_INFO | {
        "max_total_num_tokens": "many",
        "max_running_requests": 10**400,
        "chunked_prefill_size": 10**400,
        "page_size": True,
        "tp_size": -1,
        "pp_size": 0,
        "dtype": 7,
        "version": "x" * 1000,
        "attention_backend": ["flashinfer"],
        "mem_fraction_static": 0.5,
    }
    served, _ = found(SGLANG | {"GET /server_info": reply(info)})
    assert served.mem_fraction_static == 0.5
    for name in (
        "kv_tokens",
        "block_size",
        "tensor_parallel",
        "pipeline_parallel",
        "dtype",
        "engine_version",
        "attention_backend",
    ):
        assert getattr(served, name) is None, name


def test_every_fact_can_be_saved_as_json_types():
    served, _ = found(SGLANG)
    for spec in dataclasses.fields(Served):
        value = getattr(served, spec.name)
        assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("name", [name for name in FLAVOURS if name != "generic"])
@pytest.mark.parametrize("text", ["", "<html>", "[[[[", '{"data": 7}', '{"data": [7, {"id": 3}]}', "null"])
def test_no_flavour_stumbles_over_nonsense(name, text):
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    flavour = FLAVOURS[name]
    paths = ("/v1/models", *flavour.info_paths, *flavour.metrics_paths)
    replies = {path: Reply(status=200, headers={}, text=text, json=value) for path in paths}
    assert flavour.recognise(replies) is False
    values, _ = flavour.read_served(replies)
    assert values == {}
