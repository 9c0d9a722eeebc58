"""Parameters against totals that publishers state: the count of values in their safetensors files on Hugging Face."""

from typing import Any

import pytest

from auditor.catalog import hf, models
from auditor.theory.kv.geometry import Geometry

_NEMOTRON = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

CONFIGS: dict[str, dict[str, Any]] = {  # facts of public config.json files
    "openai-community/gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        **{"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
    },
    "tiiuae/falcon-7b": {
        "architectures": ["FalconForCausalLM"],
        **{"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024},
        **{"multi_query": True, "parallel_attn": True, "bias": False, "tie_word_embeddings": False},
    },
    "ai21labs/Jamba-v0.1": {
        "architectures": ["JambaForCausalLM"],
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "vocab_size": 65536, "tie_word_embeddings": False, "num_experts": 16},
        **{"num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8},
        **{"attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256},
    },
    "LiquidAI/LFM2-1.2B": {
        "architectures": ["Lfm2ForCausalLM"],
        **{"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
        **{"vocab_size": 65536, "block_ff_dim": 12288, "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14]},
    },
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {
        "architectures": ["NemotronHForCausalLM"],
        **{"hidden_size": 2688, "intermediate_size": 1856, "num_attention_heads": 32, "num_key_value_heads": 2},
        **{"head_dim": 128, "vocab_size": 131072, "hybrid_override_pattern": _NEMOTRON, "mamba_num_heads": 64},
        **{"mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 128},
        **{"num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1},
        **{"moe_shared_expert_intermediate_size": 3712, "tie_word_embeddings": False},
    },
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": {
        "architectures": ["KimiLinearForCausalLM"],
        **{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "vocab_size": 163840, "kv_lora_rank": 512, "qk_nope_head_dim": 128},
        **{"qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8},
        **{"num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1},
        "linear_attn_config": {
            **{"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4},
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [i for i in range(1, 27) if i % 4],
        },
    },
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {
        "architectures": ["Qwen3NextForCausalLM"],
        **{"hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16},
        **{"num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "full_attention_interval": 4},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128},
        **{"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10},
        **{"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_nextn_predict_layers": 1},
    },
    "Qwen/Qwen2-VL-7B-Instruct": {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
        "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "in_chans": 3, "patch_size": 14},
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
        "vision_config": {
            **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "in_chans": 3},
            "patch_size": 14,
        },
    },
    "Qwen/Qwen3-VL-30B-A3B-Instruct": {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "model_type": "qwen3_vl_moe",
        "text_config": {
            "model_type": "qwen3_vl_moe_text",
            **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32},
            **{"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128},
            **{"num_experts_per_tok": 8, "moe_intermediate_size": 768},
        },
        "vision_config": {
            "model_type": "qwen3_vl_moe",
            **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16},
            **{"out_hidden_size": 2048, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]},
        },
    },
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": {
        "architectures": ["Mistral3ForConditionalGeneration"],
        **{"model_type": "mistral3", "spatial_merge_size": 2, "multimodal_projector_bias": False},
        "text_config": {
            "model_type": "mistral",
            **{"hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32},
            **{"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072},
        },
        "vision_config": {
            "model_type": "pixtral",
            **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
            **{"patch_size": 14, "image_size": 1540},
        },
    },
    "google/gemma-3-4b-it": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            **{"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024},
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
            **{"patch_size": 14, "image_size": 896},
        },
    },
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            **{"hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384},
            **{"num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
            **{"vocab_size": 202048, "num_local_experts": 16, "num_experts_per_tok": 1},
            **{"interleave_moe_layer_step": 1, "attention_chunk_size": 8192},
        },
        "vision_config": {
            "model_type": "llama4_vision_model",
            **{"hidden_size": 1408, "intermediate_size": 5632, "num_hidden_layers": 34, "num_attention_heads": 16},
            **{"patch_size": 14, "image_size": 336, "vision_output_dim": 4096, "projector_input_dim": 4096},
            **{"projector_output_dim": 4096, "pixel_shuffle_ratio": 0.5},
        },
    },
}

PUBLISHED = [
    ("openai-community/gpt2", 124_439_808),
    ("tiiuae/falcon-7b", 7_217_189_760),
    ("ai21labs/Jamba-v0.1", 51_570_323_328),
    ("LiquidAI/LFM2-1.2B", 1_170_340_608),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49_122_681_728),
    ("Qwen/Qwen2-VL-7B-Instruct", 8_291_375_616),
    ("Qwen/Qwen2.5-VL-7B-Instruct", 8_292_166_656),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", 31_070_754_032),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 24_011_361_280),
    ("google/gemma-3-4b-it", 4_300_079_472),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 108_641_793_536),
]
CATALOGUED = [
    ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
    ("meta-llama/Llama-3.1-70B-Instruct", 70_553_706_496),
    ("meta-llama/Llama-3.1-405B-Instruct", 405_853_388_800),
    ("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
    ("Qwen/Qwen2.5-72B-Instruct", 72_706_203_648),
    ("Qwen/Qwen3-235B-A22B", 235_093_634_560),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704),
    ("google/gemma-2-9b-it", 9_241_705_984),
    ("google/gemma-3-1b-it", 999_885_952),
    ("microsoft/phi-4", 14_659_507_200),
    ("deepseek-ai/DeepSeek-V2-Lite-Chat", 15_706_484_224),
]


def geometry(name: str) -> Geometry:
    return hf.geometry(CONFIGS[name], name)


def stored(model: Geometry, *, draft: bool = False) -> int:
    return sum(tensor.parameters for tensor in model.tensors if draft or not tensor.draft)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED)
def test_every_value_of_the_file_is_counted(name, parameters):
    assert stored(geometry(name)) == parameters


@pytest.mark.parametrize(("name", "parameters"), CATALOGUED)
def test_the_catalogue_s_models_too(name, parameters):
    model = models.find(name)
    assert stored(model) == model.parameters == parameters


def test_prediction_layers_complete_the_file():
    # The file of Qwen3-Next has 81,324,862,720 values with its MTP layer.
    qwen = geometry("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert stored(qwen, draft=True) == 81_324_862_720
    assert stored(qwen) == qwen.parameters < 81_324_862_720
    # DeepSeek-R1: 684,531,386,000 values, of which 41,540,496 are the scales of fp8 blocks (dtype F32).
    deepseek = models.find("deepseek-ai/DeepSeek-R1")
    assert stored(deepseek, draft=True) == 684_531_386_000 - 41_540_496
    # GLM-4.5-Air: 110,468,824,832 values.
    assert stored(models.find("zai-org/GLM-4.5-Air"), draft=True) == 110_468_824_832


def test_nemotron_mixes_layers_of_one_thing_each():
    model = geometry("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert stored(model) / 1e9 == pytest.approx(31.6, abs=0.05)  # the model card
    assert model.experts is not None
    assert model.experts.parameters == 2 * 2688 * 1856  # up and down, no gate
    assert (model.experts.layers, model.experts.count) == (_NEMOTRON.count("E"), 128)
    # Active: 3.2 B, and 3.6 B with the embedding (the technical report counts the head in the first).
    assert (model.active_parameters + model.embedding_parameters) / 1e9 == pytest.approx(3.2, abs=0.05)
    assert (model.active_parameters + 2 * model.embedding_parameters) / 1e9 == pytest.approx(3.6, abs=0.05)


def test_latent_experts_work_in_a_narrower_space():
    """Nemotron 3 Super: "120B total, 12B active" (its model card)."""
    config = CONFIGS["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"] | {
        **{"hidden_size": 4096, "mamba_num_heads": 128, "n_routed_experts": 512, "num_experts_per_tok": 22},
        **{"moe_intermediate_size": 2688, "moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376},
        "hybrid_override_pattern": "MEMEMEM*E" + "MEMEMEM*E" * 2 + "MEMEMEMEM*E" * 4 + "MEMEMEM*E" + "MEMEMEME",
    }
    model = hf.geometry(config, "super")
    assert model.experts is not None
    assert model.experts.parameters == 2 * 1024 * 2688
    assert model.parameters / 1e9 == pytest.approx(120.6, abs=0.2)
    assert (model.active_parameters + 2 * model.embedding_parameters) / 1e9 == pytest.approx(12.7, abs=0.2)


def test_layers_that_share_keys_project_none():
    """Gemma 3n E4B: 35 layers of which 15 read the keys of others; 8.39 B values with 3.0 B in per-layer embeddings."""
    config = {
        "architectures": ["Gemma3nForCausalLM"],
        **{"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8},
        **{"num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400, "num_kv_shared_layers": 15},
        **{"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "altup_num_inputs": 4},
        **{"laurel_rank": 64, "sliding_window": 512},
    }
    model = hf.geometry(config, "gemma-3n")
    keys = 2048 * 512
    queries = 2048 * 2048
    assert sum(t.parameters for t in model.tensors if t.part == "attention") == 35 * 2 * queries + 20 * 2 * keys
    lookup = [tensor for tensor in model.tensors if tensor.part == "lookup"]
    assert [tensor.parameters for tensor in lookup] == [262144 * 35 * 256]


MOE_LAYERS = [  # facts, layers with routed experts of 12
    ({}, 12),
    ({"first_k_dense_replace": 3}, 9),
    ({"moe_layer_freq": [0] + [1] * 11}, 11),
    ({"decoder_sparse_step": 2}, 6),
    ({"mlp_only_layers": [0, 5]}, 10),
    ({"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 10}, 10),
    ({"moe_layers_enum": "4,5,6,7"}, 4),
    ({"expert_layer_period": 3, "expert_layer_offset": 1}, 4),
    ({"num_dense_layers": 2}, 10),
]


@pytest.mark.parametrize(("facts", "layers"), MOE_LAYERS)
def test_which_layers_have_experts(facts, layers):
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "vocab_size": 1024, "num_experts": 4, "num_experts_per_tok": 2},
        "moe_intermediate_size": 32,
        **facts,
    }
    model = hf.geometry(config, "moe")
    assert model.experts is not None
    assert model.experts.layers == layers
    dense = sum(tensor.parameters for tensor in model.tensors if tensor.part == "dense")
    assert dense == (12 - layers) * 3 * 64 * 128


def test_an_encoder_of_unknown_shape_is_noted():
    config = CONFIGS["google/gemma-3-4b-it"] | {"vision_config": {"model_type": "new_vision", "hidden_size": 8}}
    model = hf.geometry(config, "x")
    assert not [tensor for tensor in model.tensors if tensor.part == "tower"]
    assert model.notes == ("the vision encoder's weights are not counted",)
    assert geometry("google/gemma-3-4b-it").notes == ()


ROTARY = [  # facts, values of cosines and sines: positions x rotated part of a head
    ({}, 4096 * 16),
    ({"rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}}, 32768 * 16),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}}, 4096 * 16),
    ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384 * 16),
    ({"partial_rotary_factor": 0.25}, 4096 * 4),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, 4096 * 8),
]


@pytest.mark.parametrize(("facts", "values"), ROTARY)
def test_rotary_tables(facts, values):
    config = {
        "architectures": ["LlamaForCausalLM"],
        **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"vocab_size": 1024, "max_position_embeddings": 4096},
        **facts,
    }
    assert hf.geometry(config, "x").extra["rotary_values"] == values


def test_sliding_layers_have_a_table_of_their_own():
    config = CONFIGS["google/gemma-3-4b-it"]["text_config"] | {
        **{"architectures": ["Gemma3ForCausalLM"], "rope_theta": 1e6, "rope_local_base_freq": 1e4},
    }
    assert hf.geometry(config, "x").extra["rotary_values"] == 2 * 131072 * 256
