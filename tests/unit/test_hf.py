"""config.json and model folders: what is read, and what is refused in one line."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from model_shapes import CONFIGS, LLAMA_8B

from auditor.catalog import hf
from auditor.errors import UsageError


def write(folder: Path, config: Any) -> Path:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def safetensors(path: Path, tensors: dict[str, tuple[int, int]]) -> None:
    header = {name: {"dtype": "BF16", "shape": [], "data_offsets": list(span)} for name, span in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))


def test_a_folder_or_its_config(tmp_path):
    write(tmp_path, LLAMA_8B)
    folder, file = hf.read(tmp_path), hf.read(tmp_path / "config.json")
    assert folder == file
    assert folder.name == tmp_path.name
    assert folder.parameters == 8_030_261_248
    assert folder.weight_bytes is None
    assert folder.source.endswith("config.json")


def test_weight_bytes_from_the_index_then_from_headers(tmp_path):
    write(tmp_path, LLAMA_8B)
    safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": (0, 100), "b": (100, 160)})
    safetensors(tmp_path / "model-00002-of-00002.safetensors", {"c": (0, 40)})
    assert hf.read(tmp_path).weight_bytes == 200
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16_060_522_496}, "weight_map": {}}))
    assert hf.read(tmp_path).weight_bytes == 16_060_522_496
    index.write_text(json.dumps({"metadata": {}, "weight_map": {}}))
    assert hf.read(tmp_path).weight_bytes == 200


def test_a_part_of_the_files_is_not_the_model(tmp_path):
    write(tmp_path, LLAMA_8B)
    safetensors(tmp_path / "model-00001-of-00004.safetensors", {"a": (0, 100)})
    safetensors(tmp_path / "model-00003-of-00004.safetensors", {"b": (0, 100)})
    with pytest.raises(UsageError, match=r"lacks model-00002-of-00004\.safetensors and 1 more: .* download") as error:
        hf.read(tmp_path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16_060_522_496}, "weight_map": {"a": "x.safetensors"}}))
    assert hf.read(tmp_path).weight_bytes == 16_060_522_496  # the index tells the whole


TOTALS = ["-1", "0", "NaN", "Infinity", '"16060522496"', "true", "[1]", "1e300"]


@pytest.mark.parametrize("total", TOTALS)
def test_a_total_that_is_no_number_of_bytes_is_refused(tmp_path, total):
    write(tmp_path, LLAMA_8B)
    (tmp_path / "model.safetensors.index.json").write_text(f'{{"metadata": {{"total_size": {total}}}}}')
    with pytest.raises(UsageError, match=r"index\.json: total_size .* is no number of bytes"):
        hf.read(tmp_path)


@pytest.mark.parametrize("total", [5, 1_003_782_655, 128_484_179_969])
def test_a_total_that_its_parameters_cannot_have_is_refused(tmp_path, total):
    """8,030,261,248 parameters of one bit take 1,003,782,656 bytes, of 16 bytes each 128,484,179,968."""
    write(tmp_path, LLAMA_8B)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}}))
    with pytest.raises(UsageError, match=rf"total_size {total:,} bytes, which 8,030,261,248 parameters"):
        hf.read(tmp_path)


DAMAGED = [
    b"",
    b"\x00" * 7,
    struct.pack("<Q", 1 << 40) + b"{}",
    struct.pack("<Q", 2) + b"[]",
    struct.pack("<Q", 3) + b"{,}",
]
DAMAGED += [
    struct.pack("<Q", len(t)) + t for t in (b'{"a":{"data_offsets":[9,3]}}', b'{"a":{"data_offsets":"xy"}}', b'{"a":1}')
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_tensor_files_are_named(tmp_path, content):
    write(tmp_path, LLAMA_8B)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.safetensors: not a safetensors file"):
        hf.read(tmp_path)


def test_a_damaged_index_is_named(tmp_path):
    write(tmp_path, LLAMA_8B)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(UsageError, match=r"index\.json: not JSON"):
        hf.read(tmp_path)


def test_nested_text_configs_and_their_class_defaults():
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"model_type": "siglip_vision_model"},
    }
    model = hf.geometry(config, "gemma-3-4b")
    assert model.parameters / 1e9 == pytest.approx(3.880, abs=0.001)  # 4.30 B less 0.42 B of vision
    assert model.vision
    assert "vision encoder" in model.notes[0]
    assert [(group.kind, group.count, group.window) for group in model.layers] == [
        ("sliding", 29, 1024),
        ("full", 5, None),
    ]


def wrapped(architecture: str, key: str, text: dict[str, Any]) -> Any:
    return hf.geometry({"architectures": [architecture], key: text}, "m")


def test_wrapped_language_models():
    """By the nested config's architecture, its model_type, or the wrapper's own default."""
    inner = {key: value for key, value in LLAMA_8B.items() if key != "architectures"}
    for architecture, key, text, biases in (
        ("LlavaForConditionalGeneration", "text_config", {"architectures": ["Qwen2ForCausalLM"]}, True),
        ("InternVLChatModel", "llm_config", {"model_type": "qwen2"}, True),
        ("Qwen2VLForConditionalGeneration", "text_config", {}, True),
        ("IdeficsLike", "text_config", {}, None),
        ("LlavaNextForConditionalGeneration", "text_config", {}, False),
        ("DeepseekVLV2ForCausalLM", "language_config", {"model_type": "llama"}, False),
    ):
        if biases is None:
            with pytest.raises(UsageError, match="IdeficsLike is not known"):
                wrapped(architecture, key, {**inner, **text})
            continue
        model = wrapped(architecture, key, {**inner, **text})
        assert model.architecture == architecture
        assert model.vision
        assert [(group.kind, group.count, group.kv_heads) for group in model.layers] == [("full", 32, 8)]
        # q, k and v have biases of 32 + 8 + 8 heads of 128 in 32 layers
        assert model.parameters == 8_030_261_248 + (32 * 48 * 128 if biases else 0)


def test_omni_models_nest_twice():
    text = {**LLAMA_8B, "architectures": None, "model_type": "qwen3_omni_moe_text", "num_experts": 4}
    text |= {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "thinker_config": {"text_config": text}}
    assert [group.count for group in hf.geometry(config, "m").layers] == [32]


def test_older_wrappers_keep_the_language_model_flat():
    config = {**LLAMA_8B, "architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {"depth": 2}}
    assert hf.geometry(config, "m").attention_heads == 32


def test_a_null_takes_a_default_away():
    """Mistral 7B v0.2 in LLaVA: sliding_window null is none, where its class would have 4096."""
    text = {"model_type": "mistral", "vocab_size": 32064, "max_position_embeddings": 32768}
    slides = wrapped("LlavaNextForConditionalGeneration", "text_config", text)
    assert [(group.kind, group.window) for group in slides.layers] == [("sliding", 4096)]
    full = wrapped("LlavaNextForConditionalGeneration", "text_config", {**text, "sliding_window": None})
    assert [(group.kind, group.count, group.kv_heads) for group in full.layers] == [("full", 32, 8)]


def test_a_config_under_another_name_is_known_by_it(tmp_path):
    file = tmp_path / "my-llama.json"
    file.write_text(json.dumps(LLAMA_8B))
    safetensors(tmp_path / "model.safetensors", {"a": (0, 100)})
    model = hf.read(file)
    assert (model.name, model.weight_bytes) == ("my-llama", None)


def test_sliding_layers_by_pattern_or_by_list():
    listed = hf.geometry(CONFIGS["gemma3-hybrid"], "listed")
    by_pattern = {key: value for key, value in CONFIGS["gemma3-hybrid"].items() if key != "layer_types"}
    assert hf.geometry({**by_pattern, "sliding_window_pattern": 6}, "listed").layers == listed.layers
    third = hf.geometry({**by_pattern, "sliding_window_pattern": 3}, "third")
    assert [group.count for group in third.layers] == [4, 2]


def test_qwen_slides_only_where_it_says_so():
    config = {**CONFIGS["qwen3"], "sliding_window": 1024, "max_window_layers": 3}
    assert [g.count for g in hf.geometry({**config, "use_sliding_window": False}, "q").layers] == [4]
    assert [(g.kind, g.count) for g in hf.geometry({**config, "use_sliding_window": True}, "q").layers] == [
        ("full", 3),
        ("sliding", 1),
    ]


QUANTIZATION = [
    ({"quant_method": "fp8"}, "fp8"),
    ({"quant_method": "fbgemm_fp8"}, "fp8"),
    ({"quant_method": "mxfp4"}, "mxfp4"),
    ({"quant_method": "awq", "bits": 4}, "awq"),
    ({"quant_method": "gptq", "bits": 8}, "int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-4bit"),
    ({"quant_method": "bitsandbytes"}, "bnb-8bit"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}}},
        "fp8",
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
        "int4",
    ),
    ({"quant_method": "compressed-tensors"}, None),
    (None, None),
]


@pytest.mark.parametrize(("settings", "word"), QUANTIZATION)
def test_the_checkpoint_s_quantisation(settings, word):
    assert hf.geometry({**LLAMA_8B, "quantization_config": settings}, "m").quantization == word


def test_modelopt_keeps_its_method_apart(tmp_path):
    write(tmp_path, LLAMA_8B)
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert hf.read(tmp_path).quantization == "fp8"
    (tmp_path / "hf_quant_config.json").write_text("[]")
    with pytest.raises(UsageError, match="not a readable quantisation file"):
        hf.read(tmp_path)


COMPRESSED = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "sliding_window": 128,
    "index_topk": 512,
    "index_head_dim": 128,
    "index_n_heads": 64,
}
REFUSED = [
    ({"architectures": ["NewForCausalLM"]}, "architecture NewForCausalLM is not known"),
    ({"architectures": ["FalconMambaForCausalLM"]}, "is a model without attention"),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, "is a draft model: give its target"),
    ({"architectures": ["DeepSeekMTPModel"]}, "is a draft model: give its target"),
    ({"architectures": ["MllamaForConditionalGeneration"]}, "is a model with cross-attention"),
    ({"architectures": ["WhisperForConditionalGeneration"]}, "is a model with cross-attention"),
    ({"architectures": ["BertForMaskedLM"]}, "is no text generator"),
    ({"architectures": ["Qwen2ForRewardModel"]}, "is no text generator"),
    ({"architectures": ["XLMRobertaModel"]}, "is an encoder or embedding model"),
    ({"architectures": ["DeepseekV41ForCausalLM"], "compress_ratios": [1, 2]}, "is a kind of compressed attention"),
    (COMPRESSED | {"compress_ratios": [0, 4]}, "tells 2 compress_ratios, too few for its layers"),
    (COMPRESSED | {"compress_ratios": [0, 2] * 16}, "has a compress_ratio of 2, only 0, 4 and 128 are known"),
    ({"compress_ratios": [0, 4]}, "compressed attention layers"),
    ({"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True}, "turns causal attention off"),
    ({"is_causal": False}, "turns causal attention off"),
    ({"linear_attn_config": {"kda_layers": [1]}}, "linear-attention layers with recurrent state"),
    ({"conv_L_cache": 3}, "short-convolution layers with recurrent state"),
    ({"num_key_value_heads_per_layer": [4, 8]}, "layers with differing KV heads"),
    ({"sparse_attention_config": {"use_sparse_attention": True}}, "sparse attention with its own cache"),
    ({"layer_types": ["sliding_attention"] * 32}, "has sliding_attention layers and no sliding_window"),
    ({"layer_types": ["compressed_sparse_attention"] * 32}, "layer type 'compressed_sparse_attention' is not known"),
    ({"layer_types": "full"}, "layer_types: 'full', a list (one entry a layer) is needed"),
    ({"layer_types": ["full_attention"] * 5000}, "a list (one entry a layer) is needed"),
    ({"architectures": ["Qwen3NextForCausalLM"], "linear_num_key_heads": 16}, "lacks linear_num_value_heads"),
    (
        {"architectures": ["JambaForCausalLM"], "attn_layer_period": 0, "mamba_d_state": 16},
        "does not tell which of its layers are recurrent",
    ),
    ({"architectures": ["KimiLinearForCausalLM"], "linear_attn_config": [1]}, "linear_attn_config: [1], an object"),
    (
        {"architectures": ["BambaForCausalLM"], "attn_layer_indices": [[1]], "mamba_d_state": 16},
        "attn_layer_indices is not a list of layer numbers",
    ),
    ({"num_nextn_predict_layers": 10**6}, "num_nextn_predict_layers: 1000000, more than any model"),
    (
        {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"architectures": ["NewForCausalLM"]}},
        "LlavaForConditionalGeneration holds a language model that is not known (NewForCausalLM)",
    ),
    (
        {"architectures": ["InternVLChatModel"], "llm_config": {"model_type": "new"}},
        "InternVLChatModel holds a language model that is not known (new)",
    ),
    ({"architectures": []}, "names no architecture"),
    ({"architectures": ["LlamaForCausalLM"], "is_encoder_decoder": True}, "is an encoder-decoder"),
    ({"linear_num_key_heads": 16}, "linear-attention layers with recurrent state"),
    ({"cross_attention_layers": [3, 8]}, "cross-attention layers"),
    ({"index_topk": 2048}, "sparse-attention indexer"),
    ({"ssm_state_size": 128}, "Mamba layers with recurrent state"),
    ({"hidden_size": None}, "lacks hidden_size"),
    ({"hidden_size": -1}, "hidden_size: -1, a positive whole number"),
    ({"num_hidden_layers": 10**6}, "num_hidden_layers: 1000000, more than any model"),
    ({"num_local_experts": 8, "num_experts_per_tok": [2, 3]}, "num_experts_per_tok: [2, 3], a positive whole number"),
    (
        {"architectures": ["Gemma3ForCausalLM"], "head_dim": 128, "layer_types": ["full_attention"]},
        "config.json has 32 layers but tells the kind of 1",
    ),
    ({"num_experts": "many"}, "num_experts: 'many', a positive whole number"),
    ({"mlp_only_layers": 3, "num_experts": 8}, "mlp_only_layers: 3, a list (one entry a layer) is needed"),
    ({"num_hidden_layers": "many"}, "num_hidden_layers: 'many'"),
    ({"num_attention_heads": 2**40}, "num_attention_heads"),
    ({"kv_lora_rank": 512}, "lacks qk_nope_head_dim, qk_rope_head_dim, v_head_dim"),
    (
        {
            "architectures": ["Gemma3ForCausalLM"],
            "head_dim": 128,
            "layer_types": ["full_attention", "linear_attention"] * 16,
        },
        "has recurrent layers, which its architecture is not known to have",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_is_not_known_is_refused(changes, message):
    with pytest.raises(UsageError) as caught:
        hf.geometry({**LLAMA_8B, **changes}, "somebody/model")
    assert message in str(caught.value)
    assert str(caught.value).startswith("somebody/model: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not a readable config"), ("[]", "a JSON object"), ("{}", "no architecture")]
)
def test_unreadable_configs(tmp_path, content, message):
    with pytest.raises(UsageError, match=message) as caught:
        hf.read(write(tmp_path, content))
    assert "config.json" in str(caught.value)


def test_no_such_model(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        hf.read(tmp_path / "missing")


def test_a_model_without_attention_is_refused():
    facts = {
        **{"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 2},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "intermediate_size": 8192},
        **{"conv_L_cache": 3, "layer_types": ["conv", "full_attention"]},
    }
    assert hf.geometry(facts, "m").layers[0].count == 1
    with pytest.raises(UsageError, match="has no attention layer"):
        hf.geometry(facts | {"layer_types": ["conv", "conv"]}, "m")
