"""What no engine starts with, and what people write where nothing is known."""

import pytest

from auditor.catalog import models
from auditor.errors import UsageError
from auditor.instruments.inputs import inputs


def row(**facts):
    return {"engine": "vllm", "model": "Qwen/Qwen3-8B", **facts}  # 32 heads, 8 of keys and values


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"kv_cache_dtype": "nonsense"}, r"kv_cache_dtype: nonsense is not known; auto, fp16, .*kv_bytes_per_element"),
        ({"launch": "vllm serve Qwen/Qwen3-8B --kv-cache-dtype nonsense"}, "kv_cache_dtype: nonsense is not known"),
        ({"block_size": 17}, "block_size: 17, but vLLM's kernels take multiples of 16"),
        ({"engine": "tensorrt-llm", "block_size": 48}, "block_size: 48, but TensorRT-LLM takes powers of two"),
        ({"tensor_parallel": 3}, r"3 devices for 32 attention heads and 8 of keys and values; 1, 2, 4, 8, 16, 32 can"),
        ({"tensor_parallel": 64}, r"tensor_parallel: vLLM does not start with 64 devices"),
        ({"engine": "sglang", "tensor_parallel": 12}, r"tensor_parallel: SGLang does not start with 12 devices"),
        ({"model": "google/gemma-4-31B-it", "tensor_parallel": 3}, r"heads and 4 and 16 of keys and values; 1, 2, 4"),
    ],
)
def test_what_no_engine_starts_with_is_refused(facts, said):
    with pytest.raises(UsageError, match=said):
        inputs(row(**facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"kv_cache_dtype": "nonsense", "kv_bytes_per_element": 0.5},
        {"kv_cache_dtype": "int4_per_token_head"},
        {"kv_cache_dtype": "fp8_inc"},
        {"block_size": 1056},  # a hybrid's, as its log says
        {"block_size": 1, "engine": "sglang"},
        {"tensor_parallel": 16},  # heads of keys and values are copied
        {"tensor_parallel": 3, "engine": "llama.cpp"},
        {"tensor_parallel": 3, "kv_pool_gib": 10.0},  # it did start
        {"model": "deepseek-ai/DeepSeek-R1", "tensor_parallel": 16},  # a latent is not divided
        {
            "model": "a",
            "kv_layers": [{"kind": "full", "layers": 2, "num_kv_heads": 8, "head_dim": 64}],
            "tensor_parallel": 3,
        },
    ],
)
def test_what_engines_start_with_is_not(facts):
    assert inputs(row(**facts)).settings.kv_bytes in (0.5, 1.0, 2.0)


def test_a_cpu_needs_the_memory_of_its_host():
    for written in ("CPU", "Xeon 8480", "EPYC"):
        assert inputs(row(accelerator=written)).no_device == (
            f"accelerator: {written} has the memory of its host: give gpu_memory_gib"
        )
    assert inputs(row(accelerator="CPU", gpu_memory_gib=64)).device is not None


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("openai/whisper-large-v3", "a speech model"),
        ("BAAI/bge-m3", "an embedding model"),
        ("google/embeddinggemma-300m", "an embedding model"),
        ("BAAI/bge-reranker-v2-m3", "a reranker"),
        ("FacebookAI/roberta-large", "an encoder"),
        ("google/flan-t5-xl", "an encoder with a decoder"),
        ("black-forest-labs/FLUX.1-dev", "a diffusion model"),
    ],
)
def test_models_of_other_kinds_are_named(name, what):
    with pytest.raises(UsageError, match=f"unknown model '{name}': {what}"):
        models.find(name)
