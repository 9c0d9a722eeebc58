"""What a model's name says of its weights beside a config of another format."""

from typing import Any

import pytest
from model_shapes import total_bytes

from auditor.catalog import models
from auditor.instruments.inputs import inputs

PLAIN: dict[str, Any] = {  # Qwen3.6-35B-A3B's layers, in 16 bit
    "architectures": ["Qwen3MoeForCausalLM"],
    **{"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "vocab_size": 151936},
    **{"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128},
    **{"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
}
NVFP4 = {
    **{"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
    "producer": {"name": "modelopt"},
    "kv_cache_quant_algo": "FP8",
}


def found(**row: Any) -> Any:
    return inputs({"engine": "vllm", "model_config_inline": PLAIN, **row})


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("RedHatAI/Qwen3-30B-A3B-NVFP4", "nvfp4"),
        ("org/Qwen3-30B-A3B-MXFP4", "mxfp4"),
        ("Qwen/Qwen3-30B-A3B-FP8", "fp8"),
        ("RedHatAI/Qwen3-30B-A3B-FP8-dynamic", "fp8-dynamic"),
        ("org/Qwen3-30B-A3B-AWQ", "awq"),
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "gptq"),
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int8", "int8"),
        ("RedHatAI/Qwen3-30B-A3B-quantized.w4a16", "int4"),
        ("RedHatAI/Qwen3-30B-A3B-quantized.w8a8", "int8"),
        ("Intel/Qwen3-30B-A3B-int4-AutoRound", "auto-round"),
        ("Intel/Qwen3-30B-A3B-int8-AutoRound", "int8"),
        ("Qwen3-30B fp8 (MTP branch)", "fp8"),
        ("Qwen/Qwen3-30B-A3B", None),
        ("Qwen3-30B (MoE) fp16", None),
    ],
)
def test_a_plain_config_is_that_of_the_copy_that_the_name_says(name, word):
    answer = found(model=name)
    assert answer.settings.quantization == word
    assert (models.format_of(name) in (None, "none")) == (word is None)
    assert any("as the name" in note for note in answer.notes) == (word is not None)


@pytest.mark.parametrize("loader", ["compressed-tensors", "modelopt"])
def test_the_name_tells_what_a_loader_does_not(loader):
    """30.5 B parameters: 4.5 bits each in NVFP4 but for embedding, head and router."""
    four = found(model="RedHatAI/Qwen3-30B-A3B-NVFP4", quantization=loader)
    assert four.settings.quantization == loader
    assert four.settings.weight_bits == 4.5
    assert total_bytes(four.geometry, four.settings) / 2**30 == pytest.approx(17.0, abs=0.3)
    eight = found(model="Qwen/Qwen3-30B-A3B", quantization=loader)
    assert total_bytes(eight.geometry, eight.settings) > 1.6 * total_bytes(four.geometry, four.settings)
    assert any(f"{loader} loads weights of several widths" in note for note in eight.notes)
    assert not any("several widths" in note for note in four.notes)


def test_eight_bits_by_name_are_loaded_by_a_loader_of_integers():
    eight, four = (found(model=f"Qwen/Qwen3-30B-A3B-GPTQ-Int{bits}", quantization="gptq_marlin") for bits in (8, 4))
    assert total_bytes(eight.geometry, eight.settings) > 1.6 * total_bytes(four.geometry, four.settings)


def test_a_format_that_is_told_beats_the_name():
    told = found(model="Qwen/Qwen3-30B-A3B-NVFP4", quantization="fp8")
    assert (told.settings.quantization, told.geometry.quantization) == ("fp8", None)


def test_modelopts_config_is_not_that_of_a_plain_name():
    """google/gemma-4-31B-it and Qwen3.6-27B are published in 16 bit: the config of NVIDIA's copies is another."""
    config = PLAIN | {"quantization_config": NVFP4}
    plain = found(model_config_inline=config, model="google/gemma-4-31B-it (MTP branch)")
    assert (plain.settings.quantization, plain.geometry.kv_format) == (None, None)
    assert any("name the copy, or its quantization" in note for note in plain.notes)
    for row in (
        {"model": "nvidia/Gemma-4-31B-IT-NVFP4"},
        {"model": "google/gemma-4-31B-it", "quantization": "modelopt"},
        {"model": "somebody/a-model-of-theirs"},
        {},
    ):
        copy = found(model_config_inline=config, **row)
        assert (copy.geometry.quantization, copy.geometry.kv_format) == ("nvfp4", "fp8")
    own = found(model_config_inline=config, model="deepseek-ai/DeepSeek-R1")  # published in fp8
    assert own.settings.quantization == "fp8"


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        ("inc", 4.15625),
        ("moe_wna16", 4.15625),
        ("wna16", 4.15625),
        ("auto_round", 4.15625),
        ("auto-round-int8", 8 + 32 / 128**2),
        ("compressed_tensors", 8 + 32 / 128**2),
        ("quark", 8 + 32 / 128**2),
        ("torchao", 8 + 32 / 128**2),
        ("gguf", 4.89),
        ("hqq", 4.5),
        ("aqlm", 2.125),
        ("exl2", 4.0),
        ("exl3 3.5bpw", 3.5),
        ("fp8_per_block", 8 + 32 / 128**2),
    ],
)
def test_words_that_engines_register_have_their_width(word, bits):
    answer = found(quantization=word)
    assert answer.settings.weight_bits == bits
    assert total_bytes(answer.geometry, answer.settings) < 33 * 2**30
    assert not any("not known" in note for note in answer.notes if "quantization" in note)


def test_a_word_that_is_not_known_is_said():
    answer = found(quantization="qsomething")
    assert answer.settings.weight_bits == 16.0
    assert any(note.startswith("quantization qsomething is not known") for note in answer.notes)
    assert not any("qsomething" in note for note in found(quantization="qsomething", weights_gib=10.0).notes)
