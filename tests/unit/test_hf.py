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


REFUSED = [
    ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM is not known"),
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
