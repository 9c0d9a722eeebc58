"""Kinds, windows and shapes of layers from config facts, rule by rule; what a model keeps is worked by hand."""

import time
from typing import Any

import pytest
from model_shapes import LLAMA_8B

from auditor.catalog import hf
from auditor.errors import UsageError

SMALL: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 1000,
}


def small(architecture: str, **facts: Any) -> Any:
    return hf.geometry({**SMALL, "architectures": [architecture], **facts}, "m")


def kept(model: Any) -> list[tuple[Any, ...]]:
    return [(g.kind, g.count, g.kv_heads, g.qk_head_dim, g.v_head_dim, g.window) for g in model.layers]


def test_windows_by_layout():
    window = {"sliding_window": 64}
    assert kept(small("MistralForCausalLM", **window)) == [("sliding", 8, 2, 128, 128, 64)]
    assert kept(small("MistralForCausalLM", sliding_window=None)) == [("full", 8, 2, 128, 128, None)]
    assert kept(small("Ministral3ForCausalLM")) == [("full", 8, 2, 128, 128, None)]
    assert [g[:2] for g in kept(small("Gemma2ForCausalLM", **window))] == [("sliding", 4), ("full", 4)]
    assert [g[:2] for g in kept(small("Cohere2ForCausalLM", **window))] == [("sliding", 6), ("full", 2)]
    assert [g[:2] for g in kept(small("Exaone4ForCausalLM", **window, sliding_window_pattern="LLLG"))] == [
        ("sliding", 6),
        ("full", 2),
    ]
    assert [g[:2] for g in kept(small("AfmoeForCausalLM", **window, global_attn_every_n_layers=2))] == [
        ("sliding", 4),
        ("full", 4),
    ]
    assert [g[:2] for g in kept(small("SmolLM3ForCausalLM", **window, use_sliding_window=False))] == [("full", 8)]


def test_listed_layers_win_and_may_be_longer():
    """Step-3.5 lists its multi-token-prediction layers too."""
    types = ["full_attention", "sliding_attention"] * 6
    found = small("Step3p5ForCausalLM", sliding_window=512, layer_types=types)
    assert [g[:2] for g in kept(found)] == [("full", 4), ("sliding", 4)]


def test_sliding_layers_of_their_own_shape():
    """MiMo-V2: 8 KV heads where layers slide, 4 elsewhere; keys of 192, values of 128."""
    mimo = small(
        "MiMoV2FlashForCausalLM",
        head_dim=192,
        v_head_dim=128,
        num_key_value_heads=4,
        swa_num_key_value_heads=8,
        swa_head_dim=192,
        swa_v_head_dim=128,
        sliding_window_size=128,
        attention_chunk_size=128,
        hybrid_layer_pattern=[0, 1, 1, 1, 1, 0, 1, 1],
    )
    assert kept(mimo) == [("full", 2, 4, 192, 128, None), ("sliding", 6, 8, 192, 128, 128)]
    step = small(
        "Step3p5ForCausalLM",
        num_key_value_heads=None,
        num_attention_groups=8,
        sliding_window=512,
        layer_types=["full_attention", *["sliding_attention"] * 3] * 2,
        attention_other_setting={
            "attention_type": "sliding_attention",
            "num_attention_heads": 96,
            "num_attention_groups": 4,
            "head_dim": 64,
        },
    )
    assert kept(step) == [("full", 2, 8, 128, 128, None), ("sliding", 6, 4, 64, 64, 512)]


def test_gemma4_heads_of_two_sizes_and_shared_caches():
    facts = {
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 1,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"],
    }
    alike = small("Gemma4ForCausalLM", **facts, attention_k_eq_v=True)
    assert kept(alike) == [("sliding", 6, 2, 256, 256, 1024), ("full", 2, 1, 512, 512, None)]
    apart = small("Gemma4ForCausalLM", **facts, attention_k_eq_v=False, num_kv_shared_layers=4)
    assert kept(apart) == [("sliding", 3, 2, 256, 256, 1024), ("full", 1, 2, 512, 512, None)]
    assert [g.readers for g in apart.layers] == [3, 1]
    assert apart.layer_count == 8
    with pytest.raises(UsageError, match="no layers left"):
        small("Gemma4ForCausalLM", **facts, num_kv_shared_layers=8)
    with pytest.raises(UsageError, match="shares the cache of a kind of layer that has none"):
        small("Gemma4ForCausalLM", **facts, num_kv_shared_layers=5)


def test_llama4_chunks_where_it_rotates():
    facts = {"attention_chunk_size": 8192}
    assert [g[:2] for g in kept(small("Llama4ForCausalLM", **facts))] == [("chunked", 6), ("full", 2)]
    listed = small("Llama4ForCausalLM", **facts, no_rope_layers=[1, 0] * 4)
    assert kept(listed) == [("chunked", 4, 2, 128, 128, 8192), ("full", 4, 2, 128, 128, None)]
    assert [g[:2] for g in kept(small("Llama4ForCausalLM", attention_chunk_size=None))] == [("full", 8)]


def test_layers_that_search_made_unlike():
    """Nemotron-Super (DeciLM): query heads a KV head differ, some layers attend to nothing."""
    blocks = [
        {"attention": {"no_op": False, "n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"no_op": False, "n_heads_in_group": 8}, "ffn": {"ffn_mult": 1.0}},
        {"attention": {"no_op": False, "n_heads_in_group": 4, "window_length": 256}, "ffn": {"ffn_mult": 1.0}},
    ]
    facts = {"num_key_value_heads": None, "intermediate_size": None, "num_hidden_layers": 4, "sliding_window": 4096}
    assert kept(small("DeciLMForCausalLM", **facts, block_configs=blocks)) == [
        ("full", 1, 2, 128, 128, None),
        ("full", 1, 1, 128, 128, None),
        ("sliding", 1, 2, 128, 128, 256),
    ]


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def test_latents_are_cached_once_or_expanded():
    (mla,) = small("DeepseekV3ForCausalLM", **LATENT).layers
    assert (mla.kind, mla.count, mla.kv_heads, mla.latent_dim) == ("mla", 8, 1, 576)
    assert (mla.qk_head_dim, mla.v_head_dim) == (192, 128)
    (expanded,) = small("MiniCPM3ForCausalLM", **LATENT).layers
    assert (expanded.kind, expanded.kv_heads, expanded.qk_head_dim, expanded.v_head_dim) == ("full", 8, 192, 192)


INDEXER = {**LATENT, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
INDEXED = [
    ({}, 8),
    ({"index_topk_freq": 4}, 3),  # layers 0, 1 and 5
    ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 4),  # layers 0, 1, 2 and 6
    ({"index_topk_pattern": "FFSSSFSS"}, 3),
    ({"indexer_types": ["full"] * 3 + ["shared"] * 5}, 3),
]


@pytest.mark.parametrize(("facts", "count"), INDEXED)
def test_sparse_attention_indexes_in_some_layers(facts, count):
    found = small("GlmMoeDsaForCausalLM", **INDEXER, **facts).indexer
    assert (found.count, found.token_bytes, found.topk) == (count, 128 + 4, 2048)


def test_minimax_m3_indexes_blocks_in_sparse_layers():
    sparse = {
        "use_sparse_attention": True,
        "sparse_index_dim": 128,
        "sparse_num_index_heads": 4,
        "sparse_topk_blocks": 16,
        "sparse_block_size": 128,
        "sparse_attention_freq": [0, 0, 0, 1, 1, 1, 1, 1],
    }
    model = small("MiniMaxM3SparseForCausalLM", sparse_attention_config=sparse)
    assert kept(model) == [("full", 8, 2, 128, 128, None)]
    assert (model.indexer.count, model.indexer.token_bytes, model.indexer.topk) == (5, 256, 2048)
    assert (model.indexer.width, model.extra["index_heads"]) == (128, 4)
    with pytest.raises(UsageError, match="does not tell which layers are sparse"):
        small("MiniMaxM3ForCausalLM", sparse_attention_config={**sparse, "sparse_attention_freq": 1})


GDN = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}
SSM = {
    "mamba_n_heads": 32,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
NEMOTRON = {"mamba_num_heads": 64, "mamba_head_dim": 32, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4}
# architecture, facts, attention layers, (kind, count, heads, head size, state, groups, kernel, bytes of an element)
STATES: list[tuple[str, dict[str, Any], int, tuple[Any, ...]]] = [
    ("Qwen3NextForCausalLM", GDN, 2, ("linear", 6, 32, 64, 128, 16, 4, None)),
    (
        "Qwen3_5ForCausalLM",
        {**GDN, "mamba_ssm_dtype": "float32", "layer_types": ["linear_attention", "full_attention"] * 4},
        4,
        ("linear", 4, 32, 64, 128, 16, 4, 4.0),
    ),
    (
        "KimiLinearForCausalLM",
        {
            **LATENT,
            "linear_attn_config": {
                "kda_layers": [1, 2, 3, 5, 6, 7],
                "full_attn_layers": [4, 8],
                "num_heads": 8,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        },
        2,
        ("linear", 6, 8, 128, 128, 8, 4, 4.0),
    ),
    (
        "BailingMoeV3ForCausalLM",
        {**LATENT, "layer_group_size": 3, "short_conv_kernel_size": 4},
        4,  # layers 2 and 5, and the two after the last whole group
        ("linear", 4, 8, 128, 128, 8, 4, 4.0),
    ),
    ("BailingMoeV2_5ForCausalLM", {**LATENT, "layer_group_size": 3}, 2, ("linear", 6, 8, 128, 128, 0, 1, None)),
    ("MiniMaxText01ForCausalLM", {"attn_type_list": [0, 0, 0, 1] * 2}, 2, ("linear", 6, 8, 128, 128, 0, 1, None)),
    (
        "NemotronHForCausalLM",
        {**NEMOTRON, "hybrid_override_pattern": "M-M*ME"},
        1,
        ("mamba2", 3, 64, 32, 128, 8, 4, 4.0),
    ),
    (
        "NemotronHForCausalLM",
        {
            **NEMOTRON,
            "num_hidden_layers": None,
            "layers_block_type": ["mamba", "moe", "attention", "mlp"],
            "mamba_ssm_cache_dtype": "bfloat16",
        },
        1,
        ("mamba2", 1, 64, 32, 128, 8, 4, 2.0),
    ),
    (
        "GraniteMoeHybridForCausalLM",
        {**SSM, "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2},
        2,
        ("mamba2", 6, 32, 64, 128, 1, 4, None),
    ),
    (
        "BambaForCausalLM",
        {**SSM, "attn_layer_indices": [3], "mamba_d_head": "auto"},
        1,
        ("mamba2", 7, 32, 64, 128, 1, 4, None),
    ),
    ("FalconH1ForCausalLM", {**SSM, "mamba_d_ssm": 2048}, 8, ("mamba2", 8, 32, 64, 128, 1, 4, None)),
    (
        "Zamba2ForCausalLM",
        {"n_mamba_heads": 32, "mamba_expand": 2, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_ngroups": 2}
        | {"hybrid_layer_ids": [3, 7], "head_dim": None},
        2,
        ("mamba2", 8, 32, 64, 64, 2, 4, None),
    ),
    (
        "JambaForCausalLM",
        {"mamba_expand": 2, "mamba_d_state": 16, "mamba_d_conv": 4},
        1,  # each eighth, the fifth first
        ("mamba1", 7, 2048, 1, 16, 0, 4, None),
    ),
    ("Lfm2ForCausalLM", {"conv_L_cache": 3, "full_attn_idxs": [2, 5]}, 2, ("short_conv", 6, 1024, 1, 0, 0, 3, None)),
]


@pytest.mark.parametrize(("architecture", "facts", "attention", "state"), STATES)
def test_recurrent_layers(architecture, facts, attention, state):
    model = small(architecture, **facts)
    assert sum(group.count for group in model.layers) == attention
    (found,) = model.recurrent
    shape = (found.heads, found.head_dim, found.state_size, found.groups, found.conv_kernel, found.state_bytes)
    assert (found.kind, found.count, *shape) == state


def test_zamba2_attends_with_heads_twice_as_wide():
    facts = {"n_mamba_heads": 32, "mamba_expand": 2, "mamba_d_state": 64, "mamba_d_conv": 4, "hybrid_layer_ids": [3]}
    model = small("Zamba2ForCausalLM", **facts, head_dim=None, num_key_value_heads=None)
    assert kept(model) == [("full", 1, 8, 2 * 1024 // 8, 256, None)]


CLASSICS = [
    (
        {"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024},
        12,
        12,
        64,
    ),
    (
        {"architectures": ["OPTForCausalLM"], "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
        | {"ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048},
        12,
        12,
        64,
    ),
    (
        {"architectures": ["FalconForCausalLM"], "hidden_size": 4544, "n_layer": 32, "n_head": 71, "vocab_size": 65024}
        | {"multi_query": True},
        32,
        1,
        64,
    ),
    (
        {"architectures": ["FalconForCausalLM"], "hidden_size": 8192, "n_layer": 60, "n_head": 128}
        | {"n_head_kv": 8, "new_decoder_architecture": True, "vocab_size": 65024},
        60,
        8,
        64,
    ),
    (
        {"architectures": ["GPTBigCodeForCausalLM"], "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_positions": 8192}
        | {"n_inner": 24576, "multi_query": True, "vocab_size": 49152},
        40,
        1,
        128,
    ),
    (
        {"architectures": ["BloomForCausalLM"], "n_embed": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880},
        30,
        32,
        128,
    ),
    (
        {"architectures": ["ChatGLMModel"], "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32}
        | {"kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "ffn_hidden_size": 13696}
        | {"padded_vocab_size": 151552, "add_qkv_bias": True, "seq_length": 131072},
        40,
        2,
        128,
    ),
    (
        {"architectures": ["DbrxForCausalLM"], "d_model": 6144, "n_layers": 40, "n_heads": 48, "max_seq_len": 32768}
        | {"attn_config": {"kv_n_heads": 8}, "vocab_size": 100352}
        | {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
        40,
        8,
        128,
    ),
]


@pytest.mark.parametrize(("config", "layers", "heads", "size"), CLASSICS)
def test_older_names_of_the_same_facts(config, layers, heads, size):
    assert kept(hf.geometry(config, "m")) == [("full", layers, heads, size, size, None)]


def test_longcat_attends_twice_a_block():
    facts = {"num_hidden_layers": None, "num_layers": 14, "n_routed_experts": 8, "moe_topk": 2, **LATENT}
    (group,) = small("LongcatFlashForCausalLM", **facts, expert_ffn_hidden_size=512).layers
    assert (group.kind, group.count) == ("mla", 28)


def test_reading_is_fast():
    config = {**LLAMA_8B, "num_hidden_layers": 126, "layer_types": ["full_attention"] * 126}
    hf.geometry(config, "m")
    start = time.process_time()
    for _ in range(200):
        hf.geometry(config, "m")
    assert (time.process_time() - start) / 200 < 0.002
