"""What no engine starts with, and what people write where nothing is known."""

import pytest
from model_shapes import LLAMA_8B

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
        ({"tensor_parallel": 4, "count": 2}, "count: tensor_parallel 4 = 4 devices, but count is 2"),
        (
            {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2, "count": 4},
            "count: tensor_parallel 2 x pipeline_parallel 2 x data_parallel 2 = 8 devices, but count is 4",
        ),
        ({"launch": "vllm serve Qwen/Qwen3-8B -tp 4", "count": 2}, "tensor_parallel 4 = 4 devices, but count is 2"),
        ({"pipeline_parallel": 37}, "pipeline_parallel: 37 stages for 36 layers, which are the most"),
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
        {"count": 4},  # all in one group
        {
            "engine": "sglang",
            "tensor_parallel": 4,
            "count": 4,
            "launch": "sglang serve --model-path x --dp 4 --enable-dp-attention",
        },
        {"tensor_parallel": 4, "count": 2, "kv_pool_gib": 10.0},
        {"pipeline_parallel": 36},
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


LONG = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"max_model_len": 40_960}, ""),  # the model's own
        ({"max_model_len": 40_961}, "--max-model-len 40961 is more than the model's 40960 positions"),
        ({"engine": "sglang", "max_model_len": 50_000}, "--context-length 50000 is more than the model's 40960"),
        ({"engine": "llama.cpp", "max_model_len": 50_000}, ""),  # it warns
        ({"launch": "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve x --max-model-len 50000"}, ""),
        ({"launch": "vllm serve x --max-model-len 50000 --hf-overrides '{}'"}, ""),
        ({"launch": "vllm serve x --max-model-len 50000"}, "--max-model-len 50000 is more"),
    ],
)
def test_a_context_beyond_the_models_positions(facts, said):
    """Qwen3-8B's config.json: max_position_embeddings 40960."""
    assert inputs(row(**facts)).refusal.startswith(said)
    assert bool(inputs(row(**facts)).refusal) == bool(said)


@pytest.mark.parametrize(("engine", "noted"), [("trtllm", True), ("lmdeploy", True), ("vllm", False)])
def test_where_the_rule_of_an_engine_is_not_known_a_note_says_so(engine, noted):
    row = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "engine": engine}
    said = "a context of 200000 tokens is beyond the model's 131072 positions: the engine may refuse it"
    assert (said in inputs(row | {"max_model_len": 200_000}).notes) == noted
    assert said.replace("200000", "131072") not in inputs(row | {"max_model_len": 131_072}).notes


def test_a_scaled_rotation_reaches_further():
    """Qwen2.5's YaRN recipe: 32,768 positions x 4."""
    config = {**LLAMA_8B, "max_position_embeddings": 32768, **LONG}
    found = row(model="a", model_config_inline=config, max_model_len=131_072)
    assert inputs(found).refusal == ""
    assert inputs({**found, "max_model_len": 131_073}).refusal


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
