"""Weights against public figures: parameter counts, Hugging Face index sizes, "Model loading took" lines of vLLM."""

from dataclasses import replace
from typing import Any

import pytest
from model_shapes import GIB, shape

from auditor.catalog import models
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes, streamed_bytes, total_bytes


def settings(**facts: Any) -> Settings:
    return Settings(**{"engine": "vllm", **facts})


FP8: dict[str, Any] = {"quantization": "fp8", "weight_bits": 8.0}


def test_a_bf16_model_is_two_bytes_a_parameter():
    # model.safetensors.index.json of Llama-3.1-8B: total_size 16,060,522,496
    assert total_bytes(models.find("llama-3.1-8b"), settings()) == 16_060_522_496
    # Llama-3.2-1B, embedding tied and stored once: 2,471,628,800
    assert total_bytes(models.find("llama-3.2-1b"), settings()) == 2_471_628_800


LOADED = [  # model, settings, GiB per device that vLLM printed
    ("llama-3.1-8b", {}, 14.96),
    ("qwen3-8b", {}, 15.27),
    ("qwen3-32b", {}, 61.03),
    ("qwen3-32b", {"tensor_parallel": 2, "devices": 2}, 30.59),
    ("llama-3.3-70b", {"tensor_parallel": 4, "devices": 4}, 32.89),
    ("llama-3.3-70b", {"tensor_parallel": 4, "devices": 4, **FP8}, 16.96),
    ("llama-3.3-70b", {**FP8}, 68.36),
    ("qwen3-235b-a22b", {"tensor_parallel": 4, "devices": 4}, 109.61),
    ("qwen3-30b-a3b", {}, 56.88),
    ("deepseek-r1", {"tensor_parallel": 8, "devices": 8, **FP8}, 79.74),
]


@pytest.mark.parametrize(("name", "facts", "printed"), LOADED)
def test_what_vllm_loaded(name, facts, printed):
    assert per_device_bytes(models.find(name), settings(**facts)) / GIB == pytest.approx(printed, rel=0.03)


def test_only_experts_are_packed_in_gpt_oss():
    # model.safetensors.index.json of gpt-oss-20b: 13,761,264,768 bytes
    facts = settings(quantization="mxfp4", weight_bits=4.25)
    assert total_bytes(models.find("gpt-oss-20b"), facts) == pytest.approx(13_761_264_768, rel=0.002)


def test_gguf_widths_cover_embeddings_too():
    # Llama-3.1-8B Q4_K_M: 4.89 bits a weight over all 8.03 B (llama.cpp tools/quantize/README.md: 4.58 GiB)
    facts = settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    assert total_bytes(models.find("llama-3.1-8b"), facts) / GIB == pytest.approx(4.58, rel=0.005)


def test_a_file_s_own_size_wins():
    model = replace(shape("llama-8b"), weight_bytes=16_200_000_000)
    assert total_bytes(model, settings()) == pytest.approx(16_200_000_000)
    # Quantised while loading, the file no longer says what is held: one byte a parameter, and a second one for the
    # 1,050,673,152 of embedding and head and the 266,240 of norms.
    assert total_bytes(model, settings(**FP8)) == 8_030_261_248 + 1_050_673_152 + 266_240


def test_next_token_layers_are_loaded_for_speculation_only():
    # DeepSeek-V3's repository: 671 B parameters for the model, 685 B with its MTP layer.
    model = models.find("deepseek-v3")
    without, with_draft = (total_bytes(model, settings(speculative_tokens=n, **FP8)) for n in (0, 1))
    assert with_draft / without == pytest.approx(684.5 / 671.0, abs=0.002)
    filed = replace(model, weight_bytes=688_586_727_753)
    assert total_bytes(filed, settings(speculative_tokens=1, **FP8)) == pytest.approx(688_586_727_753)
    assert total_bytes(filed, settings(**FP8)) == pytest.approx(675e9, rel=0.005)


def test_vision_weights_take_memory_but_no_step_reads_them():
    model = replace(shape("llama-8b"), weight_bytes=17_000_000_000, vision=True)
    assert total_bytes(model, settings()) == pytest.approx(17_000_000_000)
    plain = streamed_bytes(shape("llama-8b"), settings(), 1, limit=True)
    assert streamed_bytes(model, settings(), 1, limit=True) == pytest.approx(plain)


def test_a_step_reads_all_but_the_input_embedding():
    # 8,030,261,248 - 525,336,576 (one vocab x hidden matrix), 2 bytes each
    assert streamed_bytes(models.find("llama-3.1-8b"), settings(), 1, limit=True) == 2 * (8_030_261_248 - 525_336_576)
    # Tied: the one matrix is read as the head.
    tied = models.find("llama-3.2-1b")
    assert streamed_bytes(tied, settings(), 1, limit=True) == 2_471_628_800


def test_experts_touched_by_a_batch():
    model = models.find("mixtral-8x7b")
    expert = 3 * 4096 * 14336 * 2 * 32  # one expert of every layer, in bytes
    base = streamed_bytes(model, settings(), 1, limit=True)
    assert streamed_bytes(model, settings(), 1, limit=False) == pytest.approx(base)
    # Two tokens with two of eight experts each touch 8 (1 - 0.75^2) = 3.5 on average; physics asks for two only.
    assert streamed_bytes(model, settings(), 2, limit=False) - base == pytest.approx(1.5 * expert)
    assert streamed_bytes(model, settings(), 2, limit=True) == base
    everything = total_bytes(model, settings()) - 32000 * 4096 * 2
    assert streamed_bytes(model, settings(), 512, limit=False) == pytest.approx(everything)


def test_expert_parallel_and_data_parallel_ranks_share_experts():
    model = models.find("deepseek-v3")
    experts = 256 * 58 * 3 * 7168 * 2048  # bytes at fp8
    alone = settings(engine="vllm", devices=8, data_parallel=8, expert_parallel=8, **FP8)
    whole = settings(engine="vllm", **FP8)
    saved = per_device_bytes(model, whole) - per_device_bytes(model, alone)
    assert saved == pytest.approx(experts * 7 / 8)


def test_attention_is_copied_inside_dp_attention():
    model = models.find("qwen3-235b-a22b")
    plain = settings(engine="sglang", devices=8, tensor_parallel=8)
    inside = settings(engine="sglang", devices=8, tensor_parallel=8, data_parallel=8)
    attention = 94 * (2 * 4096 * 64 * 128 + 2 * 4096 * 4 * 128) * 2
    extra = per_device_bytes(model, inside) - per_device_bytes(model, plain)
    assert extra == pytest.approx(attention * 7 / 8, rel=0.001)


def test_pipeline_stages_hold_a_part_and_one_end():
    model = models.find("llama-3.1-8b")
    # half of the layer stack and one of the two vocabulary matrices
    expected = (8_030_261_248 - 2 * 525_336_576) + 525_336_576 * 2
    assert per_device_bytes(model, settings(pipeline_parallel=2, devices=2)) == expected
