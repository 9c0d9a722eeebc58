"""What servers tell of their caches, read into the fields of `Served`."""

import json

from auditor.engines.flavour import Reply
from auditor.engines.flavours import FLAVOURS


def page(text: str) -> Reply:
    return Reply(200, {}, text)


def answer(value: object) -> Reply:
    return Reply(200, {}, json.dumps(value), value)


def read(engine: str, **replies: Reply):
    values, sources = FLAVOURS[engine].read_served({f"/{path}": reply for path, reply in replies.items()})
    return values, sources


# Labels of vllm:cache_config_info as vLLM 0.32.0 exposes them for a model of gated delta nets.
HYBRID = (
    'vllm:cache_config_info{block_size="784",cache_dtype="auto",enable_prefix_caching="False",engine="0",'
    'gpu_memory_utilization="0.92",kv_cache_max_concurrency="33.04",kv_cache_memory_bytes="None",'
    'kv_cache_size_tokens="1082654",mamba_block_size="32768",mamba_cache_dtype="auto",mamba_cache_mode="none",'
    'mamba_page_size_padded="3211264",mamba_ssm_cache_dtype="float32",num_gpu_blocks="1487"} 1.0\n'
)


def test_vllm_tells_how_it_keeps_states():
    values, sources = read("vllm", metrics=page(HYBRID))
    assert (values["mamba_cache_mode"], values["mamba_cache_dtype"]) == ("none", "auto")
    assert values["mamba_ssm_cache_dtype"] == "float32"
    assert (values["kv_blocks"], values["block_size"], values["kv_tokens"]) == (1487, 784, 1_082_654)
    assert values["kv_max_concurrency"] == 33.04
    assert "kv_pool_bytes" not in values
    assert sources["mamba_cache_mode"] == "/metrics, cache_config_info"


def test_vllm_repeats_the_flag_that_sizes_its_pool():
    values, _ = read("vllm", metrics=page(HYBRID.replace('memory_bytes="None"', 'memory_bytes="1073741824"')))
    assert values["kv_pool_bytes"] == 2**30


def test_a_count_that_the_reader_makes_up_is_told_from_one_of_the_engine():
    older = HYBRID.replace('kv_cache_size_tokens="1082654",', "")
    values, sources = read("vllm", metrics=page(older))
    assert values["kv_tokens"] == 1487 * 784
    assert sources["kv_tokens"].endswith("num_gpu_blocks x block_size")


def test_sglang_tells_its_memory_states_and_drafts():
    info = {
        "version": "0.5.23",
        "mem_fraction_static": 0.85,
        "max_total_num_tokens": 330323,
        "page_size": 1,
        "dcp_size": 2,
        "swa_full_tokens_ratio": 0.5,
        "max_mamba_cache_size": 124,
        "mamba_full_memory_ratio": 0.9,
        "mamba_ssm_dtype": "bfloat16",
        "speculative_algorithm": "EAGLE",
        "speculative_num_draft_tokens": 4,
        "internal_states": [{"memory_usage": {"kvcache": 20.16}, "effective_max_running_requests_per_dp": 24}],
    }
    values, sources = read("sglang", server_info=answer(info))
    assert values["kv_pool_bytes"] == int(20.16 * 2**30)
    assert (values["mamba_slots"], values["mamba_full_ratio"]) == (124, 0.9)
    assert (values["mamba_ssm_cache_dtype"], values["swa_full_tokens_ratio"]) == ("bfloat16", 0.5)
    assert (values["speculative"], values["speculative_tokens"]) == ("EAGLE", 4)
    assert (values["decode_context_parallel"], values["max_num_seqs"]) == (2, 24)
    assert sources["kv_pool_bytes"] == "/server_info"


def test_sglang_without_states_tells_none():
    info = {"mem_fraction_static": 0.85, "max_mamba_cache_size": None, "internal_states": [{"memory_usage": {}}]}
    values, _ = read("sglang", server_info=answer(info))
    assert not {"mamba_slots", "kv_pool_bytes", "speculative_tokens"} & set(values)


def test_lmdeploy_is_recognised_by_its_models():
    listed = answer({"data": [{"id": "m", "owned_by": "lmdeploy"}]})
    assert FLAVOURS["lmdeploy"].recognise({"/v1/models": listed})
    assert not FLAVOURS["lmdeploy"].recognise({"/v1/models": answer({"data": [{"id": "m", "owned_by": "vllm"}]})})
    assert FLAVOURS["lmdeploy"].read_served({"/v1/models": listed}) == ({}, {})
