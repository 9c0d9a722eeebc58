"""What a step of DeepSeek-V4 reads and computes, against its report and by hand."""

import pytest

from auditor.catalog import accelerators, models
from auditor.theory.memory import memory
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes
from auditor.theory.work import decode_attention_flops, decode_flops, decode_kv_bytes, prefill_attention_flops

GIB = 2**30
FLASH = models.find("deepseek-ai/DeepSeek-V4-Flash")
PRO = models.find("deepseek-ai/DeepSeek-V4-Pro")
B200 = accelerators.find("b200-sxm")
VLLM = Settings(engine="vllm", kv_cache_dtype="fp8", kv_bytes=1.0)


def test_flops_of_one_token_as_reported():
    """arXiv 2606.19348: at a million tokens V4-Pro needs 27 % of DeepSeek-V3.2's FLOPs for one token."""
    before = models.find("deepseek-ai/DeepSeek-V3.2")
    share = decode_flops(PRO, 1, 1 << 20) / decode_flops(before, 1, 1 << 20)
    assert share == pytest.approx(0.27, abs=0.01)


def test_bytes_of_one_step():
    """At 102,400 tokens: 43 windows of 128; 512 of 25,600 entries in 21 layers and 25,600 keys; 800 entries in 20."""
    entries = 43 * 128 + 21 * 512 + 20 * 800
    assert decode_kv_bytes(FLASH, VLLM, 1, 102_400) == pytest.approx(584 * entries + 21 * 132 * 25_600)


def test_short_contexts_are_read_whole():
    """64 tokens: 43 x 64 in windows, 16 entries in 21 layers with a key each, half an entry in 20."""
    assert decode_kv_bytes(FLASH, VLLM, 1, 64) == pytest.approx(584 * (43 * 64 + 21 * 16 + 20 * 0.5) + 21 * 132 * 16)


def test_flops_of_one_step():
    """Scores and values of 512 for 64 heads; the indexer's 64 heads of 128 see every fourth token."""
    entries = 43 * 128 + 21 * 512 + 20 * 800
    expected = 4 * 64 * 512 * entries + 2 * 21 * 64 * 128 * 25_600
    assert decode_attention_flops(FLASH, 1, 102_400) == pytest.approx(expected)


def test_a_prompt_is_the_sum_of_its_tokens():
    steps = sum(decode_attention_flops(FLASH, 1, context) for context in range(1, 6001))
    assert prefill_attention_flops(FLASH, 6000) == pytest.approx(steps, rel=0.001)


def test_weights_as_loaded():
    """github.com/vllm-project/vllm/issues/40821: 74.85 GiB on each of two RTX PRO 6000 (0.22.1, TP 2, EP)."""
    served = Settings(
        engine="vllm",
        engine_version="0.22.1",
        devices=2,
        tensor_parallel=2,
        expert_parallel=2,
        quantization="mxfp4",
        weight_bits=4.25,
        vendor="nvidia",
        capability=(12, 0),
    )
    assert per_device_bytes(FLASH, served) / GIB == pytest.approx(74.85, rel=0.02)


def test_the_pool_of_eight_devices():
    """github.com/vllm-project/vllm/issues/51454: 20.43 requests of 1,048,576 tokens (0.25.0, TP 8, EP, fp8). One needs
    7,450 blocks of 1,039,680 bytes, so the pool was 147.4 GiB.
    """
    served = Settings(
        engine="vllm",
        engine_version="0.25.0",
        devices=8,
        tensor_parallel=8,
        expert_parallel=8,
        quantization="mxfp4",
        weight_bits=4.25,
        kv_cache_dtype="fp8",
        kv_bytes=1.0,
        vendor="nvidia",
        capability=(10, 0),
        memory_fraction=0.95,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_model_len=1 << 20,
    )
    found = memory(FLASH, served, B200)
    held = 20.43 * 7450 * 1_039_680
    assert found.pool == pytest.approx(held, rel=0.03)
    assert found.pool_low < held < found.pool_high
    assert any("DeepSeek-V4" in note for note in found.notes)
