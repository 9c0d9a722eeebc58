"""True bytes of a model folder, part by part, from the headers of files written here."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_shapes import CONFIGS, total_bytes

from auditor.catalog import hf
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

TOTAL = 7_346_688  # two bytes for each of its 3,673,344 parameters

LAYER = {
    "self_attn.q_proj.weight": 600,
    "self_attn.q_proj.weight_scale_inv": 4,
    "self_attn.o_proj.weight": 600,
    "mlp.gate_proj.weight": 1000,
    "mlp.down_proj.weight": 1000,
    "input_layernorm.weight": 8,
}
ENDS = {"model.embed_tokens.weight": 5000, "lm_head.weight": 5000, "model.norm.weight": 8}


def write(folder: Path, sizes: dict[str, int], file: str = "model.safetensors") -> None:
    at, header = 0, {}
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / file).write_bytes(struct.pack("<Q", len(text)) + text)


def folder(path: Path, config: dict[str, Any], sizes: dict[str, int]) -> Geometry:
    (path / "config.json").write_text(json.dumps(config))
    write(path, sizes)
    return hf.read(path)


def stored(model: Geometry, *, draft: bool = False) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in model.tensors:
        if tensor.draft is draft and tensor.stored is not None:
            found[tensor.part] = found.get(tensor.part, 0) + tensor.stored
    return found


def layers(count: int, facts: dict[str, int], prefix: str = "model.layers") -> dict[str, int]:
    return {f"{prefix}.{layer}.{name}": size for layer in range(count) for name, size in facts.items()}


def test_parts_of_a_dense_model(tmp_path):
    sizes = {**layers(4, LAYER), **ENDS}
    model = folder(tmp_path, CONFIGS["qwen3"], sizes)
    assert model.weight_bytes == sum(sizes.values())
    found = stored(model)
    assert (found["embedding"], found["head"]) == (5000, 5000)
    assert abs(found["attention"] - 4 * 1204) <= 4
    assert abs(found["dense"] - 4 * 2000) <= 4
    assert abs(found["norm"] - (4 * 8 + 8)) <= 8
    assert abs(total_bytes(model, Settings(engine="vllm")) - sum(sizes.values())) <= 16


def test_weights_quantised_at_start_are_not_as_the_files_have_them(tmp_path):
    model = folder(tmp_path, CONFIGS["qwen3"], {**layers(4, LAYER), **ENDS})
    plain = replace(model, weight_bytes=None, tensors=tuple(replace(tensor, stored=None) for tensor in model.tensors))
    online = Settings(engine="vllm", quantization="fp8", weight_bits=8)
    assert total_bytes(model, online) == total_bytes(plain, online)


MOE = {
    **CONFIGS["qwen3"],
    "architectures": ["Glm4MoeForCausalLM"],
    "use_qk_norm": True,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
EXPERTS = {
    "self_attn.q_proj.weight": 600,
    **{f"mlp.experts.{expert}.up_proj.weight": 100 for expert in range(8)},
    "mlp.shared_experts.up_proj.weight": 90,
    "mlp.gate.weight": 16,
    "mlp.gate.e_score_correction_bias": 4,
}


def test_experts_and_layers_that_predict_further_tokens(tmp_path):
    sizes = {
        **layers(1, LAYER),
        **{f"model.layers.{i}.{n}": s for i in (1, 2, 3, 4) for n, s in EXPERTS.items()},
        **ENDS,
    }
    model = folder(tmp_path, MOE, sizes)
    found, draft = stored(model), stored(model, draft=True)
    assert abs(found["experts"] - 3 * 800) <= 8
    assert abs(found["shared"] - 3 * 90) <= 8
    assert abs(found["router"] - 3 * 20) <= 8
    assert abs(draft["experts"] - 800) <= 8


def test_names_that_do_not_fit_leave_the_sum_alone(tmp_path):
    sizes = {**layers(4, LAYER), **ENDS, "visual.blocks.0.attn.qkv.weight": 9000}
    model = folder(tmp_path, CONFIGS["qwen3"], sizes)
    assert stored(model) == {}
    assert model.weight_bytes == sum(sizes.values())


def test_files_that_the_index_names(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen3"]))
    write(tmp_path, {**layers(4, LAYER), **ENDS}, "model-00001-of-00001.safetensors")
    write(tmp_path, {"again": 5}, "consolidated.safetensors")
    assert hf.read(tmp_path).weight_bytes == 4 * 3212 + 10_008
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {"total_size": TOTAL}, "weight_map": {"a": "model-00001-of-00001.safetensors"}})
    )
    assert hf.read(tmp_path).weight_bytes == 4 * 3212 + 10_008  # headers are believed before the index's total
    index.write_text(
        json.dumps({"metadata": {"total_size": TOTAL}, "weight_map": {"a": "../../elsewhere.safetensors"}})
    )
    assert hf.read(tmp_path).weight_bytes == TOTAL
