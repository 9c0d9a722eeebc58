"""Limits by hand, predictions against published measurements of served models."""

from dataclasses import replace
from typing import Any

import pytest
from model_shapes import device, shape

from auditor.catalog import accelerators, models
from auditor.theory import roofline, work
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

H100 = accelerators.find("h100-sxm")
STREAM = 2 * (8_030_261_248 - 525_336_576)  # bytes that a step of Llama-3.1-8B reads in bf16


def settings(**facts: Any) -> Settings:
    return Settings(**{"engine": "vllm", **facts})


def llama() -> Geometry:
    return models.find("llama-3.1-8b")


def test_decode_limit_is_bytes_over_bandwidth():
    limit = roofline.decode_limit(llama(), settings(), H100, 1, 1000)
    assert limit.bytes == STREAM + 1000 * 131_072
    assert limit.seconds == pytest.approx(limit.bytes / 3.35e12)
    assert limit.bound == "weights"
    assert limit.ridge == pytest.approx(989 / 3.35)


def test_decode_limit_divides_over_tensor_parallel_devices():
    alone = roofline.decode_limit(llama(), settings(), H100, 16, 2000).seconds
    four = roofline.decode_limit(llama(), settings(tensor_parallel=4, devices=4), H100, 16, 2000).seconds
    assert four == pytest.approx(alone / 4, rel=0.01)


def test_the_cache_outweighs_the_weights_at_115k_tokens():
    # 15.0 GB / 131,072 bytes = 114,509 cached tokens
    below, above = (roofline.decode_limit(llama(), settings(), H100, 64, c).bound for c in (1780, 1800))
    assert (below, above) == ("weights", "kv")


def test_large_batches_turn_compute_bound_at_the_ridge():
    # Linear layers do 2 B FLOPs for each 2-byte weight, so the ridge of 295 FLOP/byte is met near 295 sequences.
    bounds = [roofline.decode_limit(llama(), settings(), H100, b, 1).bound for b in (280, 320)]
    assert bounds == ["weights", "compute"]


def test_mla_reads_one_latent_and_its_heads_work_hard_on_it():
    model = models.find("deepseek-v3")
    facts = settings(tensor_parallel=8, devices=8, quantization="fp8", weight_bits=8.0, compute_dtype="fp8")
    limit = roofline.decode_limit(model, facts, accelerators.find("h200"), 64, 4000)
    assert limit.kv_s == pytest.approx(64 * 4000 * 61 * 1152 / 4.8e12)  # whole on every device
    # per cached token and layer: 2 x 128 heads x (576 + 512) FLOPs for 1,152 bytes: 242 on one device
    more = work.decode_flops(model, 1, 4001) - work.decode_flops(model, 1, 4000)
    assert more / (61 * 1152) == pytest.approx(241.8, abs=0.1)


def test_sliding_layers_stop_reading_at_their_window():
    gemma = models.find("gemma-3-27b")
    near, far = (work.decode_kv_bytes(gemma, settings(), 1, c) for c in (1024, 11_024))
    assert far - near == 10 * 16 * 256 * 2 * 10_000  # only the ten full layers grow


def test_chunked_layers_see_half_a_chunk_on_average():
    maverick = models.find("llama-4-maverick")
    long = work.decode_kv_bytes(maverick, settings(), 1, 100_000)
    assert long == (12 * 100_000 + 36 * 4_096) * 8 * 256 * 2


def test_prefill_flops():
    # 2 P N for the stack, 2 E for one position of the head, 4 h d for each pair and layer
    expected = 2 * 6_979_588_096 * 1000 + 2 * 525_336_576 + 32 * 4 * 32 * 128 * 1000 * 1001 / 2
    assert work.prefill_flops(llama(), 1000) == pytest.approx(expected)
    # A window caps the pairs: 10 positions that see 4 keys each but the first three, 34 in all.
    windowed = shape("llama-8b", architectures=["MistralForCausalLM"], sliding_window=4)
    assert work.prefill_attention_flops(windowed, 10) == 32 * 4 * 32 * 128 * 34
    chunked = models.find("llama-4-scout")
    full, pairs = 16_384 * 16_385 / 2, 2 * 8192 * 8193 / 2
    assert work.prefill_attention_flops(chunked, 16_384) == 4 * 40 * 128 * (12 * full + 36 * pairs)


def test_prefill_limit_is_compute_for_long_prompts_and_weights_for_short_ones():
    long, short = (roofline.prefill_limit(llama(), settings(), H100, n) for n in (4096, 32))
    assert long.bound == "compute"
    assert long.seconds == pytest.approx(work.prefill_flops(llama(), 4096) / 989e12)
    assert short.bound == "weights"
    assert short.seconds == pytest.approx(STREAM / 3.35e12)


FASTEST = [  # settings, the rate that bounds them
    ({}, 989e12),
    ({"quantization": "fp8", "weight_bits": 8.0, "compute_dtype": "fp8"}, 1979e12),
    ({"quantization": "awq", "weight_bits": 4.156}, 989e12),
    ({"quantization": "nvfp4", "weight_bits": 4.5}, 1979e12),
    ({"compute_dtype": "fp32"}, 989e12),
    ({"engine": "llamacpp", "quantization": "q4_k_m", "weight_bits": 4.89}, 1979e12),
]


@pytest.mark.parametrize(("facts", "expected"), FASTEST)
def test_the_fastest_units_that_weights_can_use(facts, expected):
    assert work.fastest(device(), settings(**facts)) == expected


def test_a_dtype_without_units_runs_at_the_16_bit_rate():
    assert work.rate(device(), "fp8") == 1979e12
    assert work.rate(device(flops={"fp16": 125e12}), "bf16") == 125e12
    assert work.rate(device(flops={}), "bf16") == 0.0
    assert roofline.decode_limit(llama(), settings(), device(flops={}), 1, 1).compute_s == 0.0


# --------------------------------------------------------------------------------------------------------- predictions

FP8: dict[str, Any] = {"quantization": "fp8", "weight_bits": 8.0, "compute_dtype": "fp8"}
STEPS = [  # published mean TPOT in a closed loop: model, device, settings, batch, context, prompt / output, ms
    # ai-dynamo/aiconfigurator silicon_sample.csv; 2 KV bytes
    ("llama-3-8b", "h100-sxm", {}, 8, 4160, 32.0, 12.404),
    ("llama-3-8b", "h100-sxm", {}, 64, 1280, 2.0, 13.102),
    ("llama-3-8b", "h100-sxm", {"tensor_parallel": 2, "devices": 2}, 128, 1280, 2.0, 11.752),
    ("llama-3.1-70b", "h200-sxm", {**FP8}, 4, 5120, 0.125, 22.048),
    ("llama-3.1-70b", "h200-sxm", {**FP8, "tensor_parallel": 4, "devices": 4}, 64, 5120, 0.125, 18.464),
    ("llama-3.1-70b", "h100-sxm", {**FP8, "tensor_parallel": 8, "devices": 8}, 4, 8704, 8.0, 10.218),
    ("llama-3.1-70b", "b200-sxm", {**FP8, "tensor_parallel": 2, "devices": 2}, 16, 5120, 0.125, 11.323),
    # docs.nvidia.com/nim/benchmarking/llm performance page
    ("llama-3.1-70b", "h100-sxm", {**FP8, "tensor_parallel": 2, "devices": 2}, 25, 5250, 10.0, 38.75),
]


@pytest.mark.parametrize(("name", "accelerator", "facts", "batch", "context", "ratio", "milliseconds"), STEPS)
def test_the_step_law_against_measurements(name, accelerator, facts, batch, context, ratio, milliseconds):
    model, where, given = models.find(name), accelerators.find(accelerator), settings(**facts)
    step = roofline.predict_decode(model, given, where, batch, context, ratio)
    assert step.low <= milliseconds / 1e3 <= step.high
    assert roofline.decode_limit(model, given, where, batch, context).seconds < milliseconds / 1e3


def test_the_step_law_by_hand():
    step = roofline.predict_decode(llama(), settings(), H100, 64, 3075, 20.0)
    weights, kv = STREAM / 3.35e12 / 0.90, 64 * 3075 * 131_072 / 3.35e12 / 0.77
    prompts = 64 * 20 * 2 * 6_979_588_096 / 989e12 / 0.63
    assert (step.weights_s, step.kv_s, step.compute_s) == pytest.approx((weights, kv, prompts))
    assert step.overhead_s == pytest.approx(32 * 64e-6)
    assert step.seconds == pytest.approx(weights + kv + prompts + 32 * 64e-6)
    assert step.bound == "compute"


def test_what_bounds_a_step():
    small = roofline.predict_decode(llama(), settings(), H100, 1, 100)
    cached = roofline.predict_decode(llama(), settings(), H100, 64, 8000)
    level = roofline.predict_decode(llama(), settings(), H100, 64, 1600)
    spread = roofline.predict_decode(
        models.find("qwen3-0.6b"), settings(tensor_parallel=8, devices=8), accelerators.find("b200"), 1, 10
    )
    assert (small.bound, cached.bound, level.bound, spread.bound) == ("weights", "kv", "mixed", "overhead")


def test_batches_beyond_the_ridge_cost_compute():
    free, busy = (roofline.predict_decode(llama(), settings(), H100, b, 16).compute_s for b in (32, 1024))
    assert free == 0.0
    assert busy > 0.0


def test_pipeline_stages_are_passed_one_after_the_other():
    one = roofline.predict_decode(llama(), settings(), H100, 1, 1000)
    two = roofline.predict_decode(llama(), settings(pipeline_parallel=2, devices=2), H100, 1, 1000)
    assert two.weights_s == pytest.approx(one.weights_s)
    assert two.kv_s == pytest.approx(one.kv_s)


def test_bands_widen_where_little_was_measured():
    def width(name: str, accelerator: str, **facts: Any) -> float:
        step = roofline.predict_decode(models.find(name), settings(**facts), accelerators.find(accelerator), 8, 1000)
        return step.high / step.low

    assert width("llama-3.1-8b", "h100") <= 1.6
    assert width("llama-3.1-8b", "h100") < width("llama-3.1-8b", "mi300x")
    assert width("llama-3.1-8b", "h100") < width("mixtral-8x7b", "h100")
    assert width("llama-3.1-8b", "h100") < width("llama-3.1-8b", "h100", enforce_eager=True)


LLAMACPP = [  # published llama.cpp speeds at batch 1, tokens/s: model, file bytes, device, metric, value
    # XiongjieDai/GPU-Benchmarks-on-LLM-Inference: Llama 3 8B Q4_K_M, 4,917,737,553 bytes
    ("rtx-3090", "decode", 97.31),
    ("rtx-3090", "prefill", 4030.4),
]


@pytest.mark.parametrize(("accelerator", "phase", "rate"), LLAMACPP)
def test_llamacpp_on_its_own_priors(accelerator, phase, rate):
    model = replace(models.find("meta-llama-3-8b"), weight_bytes=4_917_737_553, quantization="q4_k_m")
    facts = settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.89)
    where = accelerators.find(accelerator)
    if phase == "decode":
        found = roofline.predict_decode(model, facts, where, 1, 2048)
        assert found.low <= 1 / rate <= found.high
        assert roofline.decode_limit(model, facts, where, 1, 2048).seconds < 1 / rate
    else:
        found = roofline.predict_prefill(model, facts, where, 512)
        assert found.low <= 512 / rate <= found.high
        assert roofline.prefill_limit(model, facts, where, 512).seconds < 512 / rate


PROMPTS = [  # published TTFT at low load, Llama-3.1-70B fp8 (aiconfigurator silicon samples): device, TP, prompt, ms
    ("h200-sxm", 1, 1024, 210.28),
    ("h200-sxm", 1, 8192, 1155.53),
    ("h200-sxm", 2, 8192, 678.3),
    ("h200-sxm", 4, 1024, 89.58),
    ("b200-sxm", 4, 8192, 265.7),
    ("h100-sxm", 2, 8192, 737.53),
]


@pytest.mark.parametrize(("accelerator", "tp", "tokens", "milliseconds"), PROMPTS)
def test_prompts_through_a_70b(accelerator, tp, tokens, milliseconds):
    facts = settings(tensor_parallel=tp, devices=tp, **FP8)
    found = roofline.predict_prefill(models.find("llama-3.1-70b"), facts, accelerators.find(accelerator), tokens)
    assert found.seconds * 1e3 == pytest.approx(milliseconds, rel=0.15)
    assert found.low * 1e3 <= milliseconds <= found.high * 1e3
    limit = roofline.prefill_limit(models.find("llama-3.1-70b"), facts, accelerators.find(accelerator), tokens)
    assert limit.seconds * 1e3 < milliseconds


def test_moe_prompts_and_apple():
    moe = roofline.predict_prefill(models.find("mixtral-8x7b"), settings(), H100, 64)
    assert moe.weights_s > 0  # a short prompt reads nearly all experts for little work
    apple = accelerators.find("apple-m2-ultra-192gb")
    facts = settings(engine="llamacpp", compute_dtype="fp16")
    prompt = roofline.predict_prefill(llama(), facts, apple, 512)
    # 62 % of 27.2 TFLOP/s of the fp32 rate was measured on this chip: 16.8 TFLOP/s
    assert prompt.low <= work.prefill_flops(llama(), 512) / 16.8e12 <= prompt.high
