"""What quantization_config says of a checkpoint's parts, in the forms in which published checkpoints have it."""

import json
from typing import Any

import pytest
from model_shapes import LLAMA_8B

from auditor.catalog import hf
from auditor.catalog.hf_quantization import quantization

MOE = {"attention": 4, "recurrent": 0, "dense": 1, "shared": 3, "experts": 3}
HYBRID = {"attention": 1, "recurrent": 3, "dense": 0, "shared": 4, "experts": 4}
DENSE = {"attention": 4, "recurrent": 0, "dense": 4, "shared": 0, "experts": 0}


def formats(settings: Any, sizes: dict[str, int] = MOE) -> tuple[Any, ...]:
    found = quantization({"quantization_config": settings}, {}, sizes)
    return found.method, {part: found.formats.get(part) for part in ("attention", "dense", "shared", "experts", "head")}


def parts(attention: str, dense: str, shared: str, experts: str, head: str = "none") -> dict[str, str]:
    return {"attention": attention, "dense": dense, "shared": shared, "experts": experts, "head": head}


def layers(pattern: str, count: int = 4) -> list[str]:
    return [pattern.replace("#", str(layer)) for layer in range(count)]


INT4 = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}
FP4 = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}
FP8 = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}
CASES = [
    # DeepSeek-R1, and Qwen3-FP8 which names what it leaves: norms and routers say nothing of a part
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", parts("fp8", "fp8", "fp8", "fp8"))),
    (
        {"quant_method": "fp8", "modules_to_not_convert": [*layers("model.layers.#.mlp.gate"), "lm_head"]},
        ("fp8", parts("fp8", "fp8", "fp8", "fp8")),
    ),
    # gpt-oss
    (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        ("mxfp4", parts("none", "none", "none", "mxfp4")),
    ),
    # Kimi-K2.5: experts alone
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": INT4,
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|down)_proj.*"],
        },
        ("int4-g32", parts("none", "none", "none", "int4-g32")),
    ),
    # Kimi-K3
    (
        {"quant_method": "compressed-tensors", "config_groups": FP4, "format": "mxfp4-pack-quantized"},
        ("mxfp4", parts("mxfp4", "mxfp4", "mxfp4", "mxfp4", "mxfp4")),
    ),
    # GLM-5.1-NVFP4: attention and shared experts left in all layers, one layer left whole
    (
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "config_groups": FP4,
            "ignore": [
                "lm_head",
                "model.layers.0*",
                *layers("model.layers.#.self_attn*"),
                *layers("model.layers.#.mlp.shared_experts*", 3),
            ],
        },
        ("nvfp4", parts("none", "nvfp4", "none", "nvfp4")),
    ),
    # MiniMax-M3-NVFP4: two formats, module by module
    (
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                **{name: {"quant_algo": "MXFP8"} for name in layers("m.layers.#.self_attn.q_proj")},
                "m.layers.0.mlp.up_proj": {"quant_algo": "MXFP8"},
                **{
                    name: {"quant_algo": "MXFP8"}
                    for name in layers("m.layers.#.block_sparse_moe.shared_experts.up_proj")
                },
                **{name: {"quant_algo": "NVFP4"} for name in layers("m.layers.#.block_sparse_moe.experts.7.w1")},
            },
        },
        ("nvfp4", parts("mxfp8", "mxfp8", "mxfp8", "nvfp4")),
    ),
    # AWQ of a model of experts
    (
        {"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["self_attn", "mlp.gate"]},
        ("awq", parts("none", "awq", "awq", "awq")),
    ),
    ({"quant_method": "auto-round", "bits": 4}, ("gptq", parts("gptq", "gptq", "gptq", "gptq"))),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, ("mxfp4", parts(*["mxfp4"] * 4))),
    (
        {"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"}]}},
        ("fp8", parts(*["fp8"] * 4)),
    ),
]


@pytest.mark.parametrize(("settings", "found"), CASES)
def test_parts_of_a_model_of_experts(settings, found):
    assert formats(settings) == found


def test_groups_with_named_targets():
    """Qwen3.6-27B-NVFP4: attention in fp8, MLPs and head in nvfp4; each group lists its modules."""
    groups = {
        "group_0": {"weights": {"num_bits": 8, "type": "float"}, "targets": layers("model.layers.#.self_attn.q_proj")},
        "group_1": {
            "weights": {"num_bits": 4, "type": "float", "group_size": 16},
            "targets": ["lm_head", *layers("model.layers.#.mlp.down_proj")],
        },
    }
    found = formats({"quant_method": "compressed-tensors", "config_groups": groups}, DENSE)
    assert found == ("nvfp4", parts("fp8", "nvfp4", "none", "none", "nvfp4"))


def test_a_few_layers_left_out_do_not_leave_out_the_part():
    ignored = ["lm_head", "model.layers.3.self_attn.q_proj", "model.layers.3.self_attn.o_proj"]
    settings = {"quant_method": "compressed-tensors", "config_groups": FP8, "ignore": ignored}
    assert formats(settings, DENSE)[1]["attention"] == "fp8"
    half = ["lm_head", *layers("model.layers.#.self_attn.o_proj", 2)]
    assert formats({**settings, "ignore": half}, DENSE)[1]["attention"] == "none"


def test_mixers_with_a_state():
    """Qwen3.5-122B-NVFP4: both kinds of mixers and the shared expert left."""
    settings = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": [
            "lm_head",
            "model.layers.3.self_attn*",
            *layers("model.layers.#.linear_attn*", 3),
            *layers("model.layers.#.mlp.shared_expert*"),
            *layers("model.layers.#.mlp.shared_expert_gate"),
        ],
    }
    found = quantization({"quantization_config": settings}, {}, HYBRID)
    assert found.formats == {**parts("none", "nvfp4", "none", "nvfp4"), "recurrent": "none"}


CACHES = [
    ({"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}, "fp8"),
    ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"),
    ({"kv_cache_scheme": "FP8"}, "fp8"),
    ({"kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
    ({"kv_cache_scheme": None}, None),
    ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, None),
]


@pytest.mark.parametrize(("said", "word"), CACHES)
def test_the_cache_s_own_format(said, word):
    config = {**LLAMA_8B, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", **said}}
    assert hf.geometry(config, "m").kv_format == word


def test_older_and_nested_places():
    settings = {"quant_method": "compressed-tensors", "config_groups": INT4, "ignore": ["lm_head"]}
    assert hf.geometry({**LLAMA_8B, "compression_config": settings}, "m").quantization == "int4-g32"
    text = {**LLAMA_8B, "quantization_config": settings}
    outer = {"architectures": ["LlavaForConditionalGeneration"], "text_config": text}
    assert hf.geometry(outer, "m").quantization == "int4-g32"
    assert hf.geometry(LLAMA_8B, "m").formats == {}


def test_modelopt_without_a_method():
    """nvidia's first checkpoints say quant_algo and leave quant_method out."""
    config = {**LLAMA_8B, "quantization_config": {"quant_algo": "FP8", "producer": {"name": "modelopt"}}}
    assert hf.geometry(config, "m").quantization == "fp8"


def test_modelopt_s_own_file_tells_parts_and_cache(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "*self_attn*"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": said}))
    found = hf.read(tmp_path)
    assert (found.quantization, found.kv_format) == ("nvfp4", "fp8")
    assert (found.formats["attention"], found.formats["dense"]) == ("none", "nvfp4")


HOSTILE: list[Any] = [
    [],
    "fp8",
    {"quant_method": 3},
    {"quant_method": None, "quant_algo": {}},
    {"quant_method": "compressed-tensors", "config_groups": [1]},
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": 3, "weights": {}}, "b": {"weights": {}}}},
    {"quant_method": "modelopt", "quantized_layers": {"x": 3, "y": {"quant_algo": []}}, "ignore": [3, None, {}]},
    {"quant_method": "fp8", "modules_to_not_convert": 7, "bits": "four"},
    {"quant_method": "quark", "global_quant_config": {"weight": []}},
    {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": [], "type": "float"}},
]


@pytest.mark.parametrize("settings", HOSTILE)
def test_nonsense_is_no_traceback(settings):
    assert hf.geometry({**LLAMA_8B, "quantization_config": settings}, "m").parameters == 8_030_261_248
