"""KV pools against what engines printed: SGLang 0.5.23 on CPU, llama.cpp, published start-up logs; what all share."""

from typing import Any

import pytest
from model_shapes import GIB, shape

from auditor.catalog import models
from auditor.theory.kv import cells
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings


def on_vllm(length: int, **changes: Any) -> Settings:
    facts: dict[str, Any] = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "block_size": 128,
        "max_model_len": length,
        "max_num_batched_tokens": 2048,
    }
    return Settings(**{**facts, **changes})


def test_tensor_parallelism_divides_heads_and_then_replicates_them():
    llama = models.find("llama-3.1-8b")
    sizes = [_token(llama, tensor_parallel=n, devices=n) for n in (1, 2, 8, 16)]
    assert sizes == [131_072, 65_536, 16_384, 16_384]


def test_mla_is_neither_doubled_nor_divided():
    deepseek = models.find("deepseek-v3")
    assert _token(deepseek, tensor_parallel=8, devices=8) == 61 * 576 * 2
    assert _token(deepseek, kv_cache_dtype="fp8_ds_mla", kv_bytes=1.0) == 61 * 656


def test_attention_ranks_inside_the_tp_group_keep_their_heads():
    """SGLang's DP attention: TP 8 and DP 8 on 8 devices leave each rank all heads."""
    qwen = models.find("qwen3-235b-a22b")
    inside = _token(qwen, engine="sglang", devices=8, tensor_parallel=8, data_parallel=8)
    beside = _token(qwen, engine="vllm", devices=16, tensor_parallel=8, data_parallel=2)
    assert inside == 94 * 4 * 256 * 2
    assert beside == 94 * 1 * 256 * 2


def test_capacity_counts_every_data_parallel_rank():
    geometry = shape("8b-shape")
    one, two = on_vllm(4096), on_vllm(4096, data_parallel=2, devices=2)
    pool = kv_pool(geometry, two, GIB)
    assert pool.tokens == 8_192
    assert capacity(geometry, two, pool, 4096) == 2 * capacity(geometry, one, pool, 4096)


def test_pipeline_stages_hold_their_layers_only():
    assert _token(models.find("llama-3.1-8b"), pipeline_parallel=3, devices=3) == 11 * 4096


# ----------------------------------------------------------------------------------------------------- other engines


def test_sglang_fills_tokens_and_floors_to_pages():
    geometry = shape("llama-gqa")
    # SGLang 0.5.23: 65,536 tokens of 1,024 bytes are 0.0625 GiB.
    settings = Settings(engine="sglang", block_size=1)
    assert kv_pool(geometry, settings, GIB / 16).tokens == 65_536
    assert kv_pool(geometry, Settings(engine="sglang", kv_pool_tokens=8192), None).tokens == 8_192
    assert kv_pool(geometry, Settings(engine="sglang", kv_pool_tokens=8192), 4096 * 1024).tokens == 4_096
    paged = Settings(engine="sglang", block_size=64)
    pool = kv_pool(geometry, paged, 1000 * 1024)
    assert (pool.tokens, pool.blocks) == (960, 15)
    assert capacity(geometry, paged, pool, 65) == 960 / 128


def test_sglang_published_log():
    """Qwen3-235B-A22B on TP 4: K and V of 8.23 GiB each, 367,404 tokens."""
    settings = Settings(engine="sglang", tensor_parallel=4, devices=4)
    pool = kv_pool(models.find("qwen3-235b-a22b"), settings, 2 * 8.23 * GIB)
    assert pool.tokens == pytest.approx(367_404, rel=0.001)


def test_sglang_keeps_fewer_sliding_tokens_where_it_knows_the_model():
    geometry = models.find("gpt-oss-20b")
    settings = Settings(engine="sglang", block_size=1)
    # 12 full and 12 sliding layers of 2,048 bytes: 12 x 2048 x (1 + 0.8) a token
    pool = kv_pool(geometry, settings, 44_236.8 * 1000 + 1)
    assert pool.tokens == 1000
    # 800 sliding tokens serve 6.25 requests of a 128-token window, 1000 full ones two of 500.
    assert capacity(geometry, settings, pool, 500) == 2.0
    assert capacity(geometry, settings, pool, 128) == 6.25
    gemma = models.find("gemma-3-270m")
    assert kv_pool(gemma, settings, 18 * 1024 * 1000).tokens == 1000  # every layer in full


def test_llamacpp_allocates_every_slot():
    # Published llama.cpp logs: Llama-3.1-405B, 4,096 cells, 1.96875 GiB; Phi-3-mini (all layers slide), 1.5 GiB.
    large = Settings(engine="llamacpp", max_model_len=4096)
    assert kv_pool(models.find("llama-3.1-405b"), large, None).bytes == 1.96875 * GIB
    assert kv_pool(models.find("phi-3-mini"), large, None).bytes == 1.5 * GIB
    four = Settings(engine="llamacpp", max_model_len=4000, slots=4)
    pool = kv_pool(models.find("llama-3.1-8b"), four, None)
    assert pool.tokens == 4 * 4096
    assert capacity(models.find("llama-3.1-8b"), four, pool, 4096) == 4
    assert capacity(models.find("llama-3.1-8b"), four, pool, 4097) == 0


def test_llamacpp_sliding_cells():
    """gpt-oss-20b at 131,072: sliding layers hold pad256(128 + 512) = 768 cells; 3.017578125 GiB printed."""
    settings = Settings(engine="llamacpp", max_model_len=131_072, ubatch=512)
    assert kv_pool(models.find("gpt-oss-20b"), settings, None).bytes == 3.017578125 * GIB


def test_llamacpp_unified_cells_are_shared():
    geometry = models.find("gpt-oss-20b")
    settings = Settings(engine="llamacpp", max_model_len=8192, slots=4, kv_unified=True)
    pool = kv_pool(geometry, settings, None)
    assert pool.tokens == 8192
    # sliding: pad256(4 x 128 + 512) = 1,024 cells
    assert pool.bytes == 12 * 2048 * (8192 + 1024)
    assert capacity(geometry, settings, pool, 1000) == 4
    assert capacity(geometry, settings, pool, 4096) == 2


ALLOCATED = [  # llama-server (build 11434) with gemma-3-270m: flags as settings, cells of full layers, MiB as printed
    ({"max_model_len": 2048, "slots": 2}, 2 * 2048, 12.00 + 30.00),  # -c 4096 -np 2
    ({"max_model_len": 8192, "slots": 4, "kv_unified": True}, 8192, 24.00 + 37.50),  # -c 8192 -np 4 -kvu
    ({"max_model_len": 3000, "kv_bytes": 34 / 32}, 3072, 4.78 + 7.97),  # -c 3000 -np 1 -ctk q8_0 -ctv q8_0
    ({"max_model_len": 2048, "slots": 4, "full_swa_cache": True}, 4 * 2048, 24.00 + 120.00),  # --swa-full
    ({"max_model_len": 8192, "slots": 2, "ubatch": 128}, 2 * 8192, 48.00 + 22.50),  # -c 16384 -np 2 -ub 128
]


@pytest.mark.parametrize(("facts", "cells_printed", "mebibytes"), ALLOCATED)
def test_llamacpp_prints_the_same(facts, cells_printed, mebibytes):
    pool = kv_pool(models.find("gemma-3-270m"), Settings(engine="llamacpp", **facts), None)
    assert pool.tokens == cells_printed
    assert pool.bytes / (1 << 20) == pytest.approx(mebibytes, abs=0.01)


def test_llamacpp_keeps_sliding_layers_in_full_when_told():
    settings = Settings(engine="llamacpp", max_model_len=131_072, full_swa_cache=True)
    assert kv_pool(models.find("gpt-oss-20b"), settings, None).bytes == 24 * 2048 * 131_072


def test_llamacpp_quantised_cells():
    plain, packed = (
        kv_pool(models.find("llama-3.1-8b"), Settings(engine="llamacpp", max_model_len=8192, kv_bytes=size), None).bytes
        for size in (2.0, 34 / 32)
    )
    assert (plain, packed) == (1.0 * GIB, 0.53125 * GIB)


def test_plain_paging_for_the_rest():
    """TensorRT-LLM log: Llama-3.1-8B, fp8 KV, 16.05 GiB, blocks of 32: 263,008 tokens."""
    geometry, settings = models.find("llama-3.1-8b"), Settings(engine="trtllm", kv_bytes=1.0, block_size=32)
    pool = kv_pool(geometry, settings, 16.05 * GIB)
    assert pool.tokens == pytest.approx(263_008, rel=0.0005)
    assert capacity(geometry, settings, pool, 33) == pool.tokens / 64
    assert kv_pool(geometry, Settings(engine="generic", kv_pool_tokens=100), None).tokens == 96


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_pool_without_any_size_is_refused(engine):
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        kv_pool(shape("llama-gqa"), Settings(engine=engine), None)


def test_llamacpp_needs_a_context():
    geometry = _bare((Layers(kind="full", count=1, kv_heads=1, qk_head_dim=64, v_head_dim=64),))
    with pytest.raises(ValueError, match="context length"):
        kv_pool(geometry, Settings(engine="llamacpp"), None)


def _token(geometry: Geometry, **facts: Any) -> float:
    return cells.all_bytes_per_token(geometry, Settings(**{"engine": "vllm", **facts}))


def _bare(layers: tuple[Layers, ...]) -> Geometry:
    return Geometry(
        name="bare",
        architecture="LlamaForCausalLM",
        layers=layers,
        hidden_size=1024,
        vocab_size=1000,
        attention_heads=8,
        parameters=10_000_000,
        active_parameters=9_000_000,
        embedding_parameters=1_024_000,
        tied_embeddings=True,
    )
