"""vLLM 0.32.0 on a CPU, started with random weights: what it printed and told for tiny models, from config and flags.

Blocks, tokens and concurrency are the labels num_gpu_blocks, kv_cache_size_tokens and kv_cache_max_concurrency of
vllm:cache_config_info. The CPU takes blocks of 128, schedules no step ahead, and keeps recurrent states in fp32.
"""

from typing import Any

import pytest
from model_shapes import CONFIGS, GIB

from auditor.catalog import hf
from auditor.theory.kv import vllm
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings

BASE: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MODELS: dict[str, dict[str, Any]] = {
    **CONFIGS,
    "gpt-oss": {
        **BASE,
        "architectures": ["GptOssForCausalLM"],
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    "olmo3": {  # 5 sliding layers and 4 full ones: padded up to 5
        **BASE,
        "architectures": ["Olmo3ForCausalLM"],
        "num_hidden_layers": 9,
        "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention"] * 4 + ["sliding_attention"],
    },
    "gemma4": {  # full layers with half the bytes a token
        **BASE,
        "architectures": ["Gemma4ForCausalLM"],
        "num_hidden_layers": 12,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 1,
        "head_dim": 64,
        "global_head_dim": 128,
        "sliding_window": 512,
        "tie_word_embeddings": True,
        "attention_k_eq_v": True,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
    },
    "llama4": {
        **BASE,
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "intermediate_size": 256,
        "intermediate_size_mlp": 512,
        "num_hidden_layers": 8,
        "head_dim": 64,
        "attention_chunk_size": 512,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 100,
        "moe_layers": [],
        "layer_types": (["chunked_attention"] * 3 + ["full_attention"]) * 2,
    },
    "nemotron-h": {  # 4 Mamba-2 layers, 2 of attention
        **BASE,
        "architectures": ["NemotronHForCausalLM"],
        "num_hidden_layers": 9,
        "hybrid_override_pattern": "M-M*-M-M*",
        "head_dim": 128,
        "attention_head_dim": 128,
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 4,
        "conv_kernel": 4,
        "chunk_size": 128,
        "expand": 4,
    },
    "falcon-h1": {  # attention and Mamba-2 in every layer
        **BASE,
        "architectures": ["FalconH1ForCausalLM"],
        "num_hidden_layers": 4,
        "head_dim": 64,
        "mamba_d_ssm": 512,
        "mamba_n_heads": 8,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 128,
    },
    "jamba": {  # 6 Mamba-1 layers, 2 of attention
        **BASE,
        "architectures": ["JambaForCausalLM"],
        "num_hidden_layers": 8,
        "attn_layer_period": 4,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 16,
    },
    "lfm2": {  # 4 short convolutions, 2 layers of attention
        **BASE,
        "architectures": ["Lfm2ForCausalLM"],
        "num_hidden_layers": 6,
        "block_auto_adjust_ff_dim": False,
        "block_multiple_of": 64,
        "conv_L_cache": 3,
        "conv_dim": 256,
        "layer_types": ["conv", "conv", "full_attention"] * 2,
    },
    "qwen3-next": {  # 6 gated delta nets, 2 layers of attention
        **BASE,
        "architectures": ["Qwen3NextForCausalLM"],
        "num_hidden_layers": 8,
        "head_dim": 128,
        "full_attention_interval": 4,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "mlp_only_layers": [],
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
    },
}

ALIGN, NONE = ({"mamba_cache_mode": mode, "state_bytes": 4.0} for mode in ("align", "none"))
SMALL, LARGE = 67_108_864, 150_000_001
SMALL_DRAFT = hf.geometry(MODELS["llama-gqa"], "llama-gqa").layers
Row = tuple[str, int, dict[str, Any], int, int, float]
TOLD: list[Row] = [
    # model, --kv-cache-memory-bytes, settings; blocks, tokens, concurrency at --max-model-len 4096
    ("gemma3-hybrid", SMALL, {"max_num_batched_tokens": 512}, 1024, 54_471, 13.2987012987013),
    ("gemma3-hybrid", SMALL, {}, 1024, 30_615, 7.474452554744525),
    ("gemma3-hybrid", LARGE, {"max_num_batched_tokens": 512}, 2288, 121_709, 29.714285714285715),
    ("gemma3-hybrid", LARGE, {}, 2288, 68_406, 16.7007299270073),
    ("gemma3-hybrid", GIB, {"hybrid_kv_manager": False}, 2730, 349_440, 85.3125),
    ("llama-gqa", SMALL, {"max_num_batched_tokens": 512}, 512, 65_536, 16.0),
    ("llama-gqa", SMALL, {}, 512, 65_536, 16.0),
    ("llama-gqa", LARGE, {"max_num_batched_tokens": 512}, 1144, 146_432, 35.75),
    ("llama-gqa", LARGE, {}, 1144, 146_432, 35.75),
    ("qwen3", SMALL, {"max_num_batched_tokens": 512}, 128, 16_384, 4.0),
    ("qwen3", SMALL, {}, 128, 16_384, 4.0),
    ("qwen3", LARGE, {"max_num_batched_tokens": 512}, 286, 36_608, 8.9375),
    ("qwen3", LARGE, {}, 286, 36_608, 8.9375),
    ("qwen3", SMALL, {"speculative_tokens": 3, "draft": SMALL_DRAFT}, 102, 13_056, 3.1875),  # "llama-gqa" drafts
    ("mla", SMALL, {"max_num_batched_tokens": 512}, 113, 14_464, 3.53125),
    ("mla", SMALL, {}, 113, 14_464, 3.53125),
    ("mla", LARGE, {"max_num_batched_tokens": 512}, 254, 32_512, 7.9375),
    ("mla", LARGE, {}, 254, 32_512, 7.9375),
    ("mla", SMALL, {"tensor_parallel": 2}, 113, 14_464, 3.53125),
    ("8b-shape", 805_306_368, {"max_num_batched_tokens": 512}, 48, 6144, 1.5),
    ("8b-shape", 805_306_368, {}, 48, 6144, 1.5),
    ("8b-shape", 700_000_001, {"max_num_batched_tokens": 512}, 41, 5248, 1.28125),
    ("8b-shape", 700_000_001, {}, 41, 5248, 1.28125),
    ("gpt-oss", LARGE, {}, 762, 62_423, 15.24),
    (
        "gpt-oss",
        LARGE,
        {"kv_bytes": 1.0, "kv_cache_dtype": "fp8", "max_num_batched_tokens": 512},
        1525,
        164_378,
        40.13157894736842,
    ),
    ("olmo3", LARGE, {}, 457, 35_318, 8.622641509433961),
    ("gemma4", LARGE, {}, 572, 19_362, 4.7272727272727275),
    ("gemma4", LARGE, {"hybrid_kv_manager": False, "max_num_batched_tokens": 512}, 104, 13_312, 3.25),
    ("gemma4", LARGE, {"block_size": 256, "max_num_batched_tokens": 512}, 286, 35_498, 8.666666666666666),
    (
        "gemma4",
        LARGE,
        {"pipeline_parallel": 2, "steps_in_flight": 2, "max_num_batched_tokens": 512},
        1144,
        57_849,
        14.123456790123457,
    ),
    ("llama4", LARGE, {}, 1144, 50_932, 12.434782608695652),
    ("llama4", LARGE, {"max_num_batched_tokens": 1024}, 1144, 68_909, 16.823529411764707),
    ("nemotron-h", LARGE, ALIGN, 114, 35_918, 8.76923076923077),
    ("nemotron-h", SMALL, {**ALIGN, "tensor_parallel": 2}, 102, 32_137, 7.846153846153846),
    ("nemotron-h", LARGE, {**ALIGN, "pipeline_parallel": 2}, 228, 71_837, 17.53846153846154),
    ("nemotron-h", SMALL, NONE, 51, 23_210, 5.666666666666667),
    ("nemotron-h", LARGE, {**ALIGN, "kv_pool_tokens": 77 * 128}, 77, 24_260, 5.923076923076923),
    ("nemotron-h", LARGE, {**ALIGN, "speculative_tokens": 3, "draft_layers": 0}, 114, 24_576, 6.0),
    ("falcon-h1", LARGE, ALIGN, 190, 55_588, 13.571428571428571),
    ("jamba", LARGE, ALIGN, 1144, 123_311, 30.105263157894736),
    ("lfm2", LARGE, ALIGN, 1144, 130_161, 31.77777777777778),
    ("qwen3-next", LARGE, ALIGN, 114, 35_918, 8.76923076923077),
    ("qwen3-next", LARGE, NONE, 114, 46_694, 11.4),
    ("qwen3-next", LARGE, {**NONE, "speculative_tokens": 3, "draft_layers": 0}, 114, 24_576, 6.0),
    ("qwen3-next", LARGE, {**ALIGN, "speculative_tokens": 2}, 76, 20_753, 5.066666666666666),
]


def on_cpu(**changes: Any) -> Settings:
    facts: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "block_size": 128,
        "max_model_len": 4096,
        "max_num_batched_tokens": 2048,
        "steps_in_flight": 1,
    }
    return Settings(**{**facts, **changes})


@pytest.mark.parametrize(("name", "size", "changes", "blocks", "tokens", "concurrency"), TOLD)
def test_the_engine_tells_the_same(name, size, changes, blocks, tokens, concurrency):
    geometry, settings = hf.geometry(MODELS[name], name), on_cpu(**changes)
    pool = kv_pool(geometry, settings, size)
    assert (pool.blocks, pool.tokens) == (blocks, tokens)
    assert capacity(geometry, settings, pool, 4096) == pytest.approx(concurrency, abs=1e-12)


def test_one_block_serves_nobody():
    """vLLM refused 16,384 tokens here and printed 8,064 = 63 x 128 as the longest that fits."""
    geometry, settings = hf.geometry(MODELS["8b-shape"], "8b"), on_cpu(max_model_len=16_384)
    pool = kv_pool(geometry, settings, GIB)
    assert vllm.longest(geometry, settings, pool) == 8_064
    assert capacity(geometry, settings, pool, 8_192) < 1 <= capacity(geometry, settings, pool, 8_064)


def test_a_fixed_pool_needs_no_memory():
    geometry = hf.geometry(MODELS["llama-gqa"], "llama")
    fixed = kv_pool(geometry, on_cpu(kv_pool_bytes=3_145_728), None)
    overridden = kv_pool(geometry, on_cpu(kv_pool_tokens=24 * 128), GIB)
    assert [(pool.blocks, pool.tokens) for pool in (fixed, overridden)] == [(24, 3_072)] * 2
