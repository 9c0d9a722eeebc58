"""KV pools: what all engines share, and the catalogue's models against what llama.cpp printed."""

from typing import Any

import pytest
from model_shapes import GIB, shape

from auditor.catalog import models
from auditor.theory.kv import cells
from auditor.theory.kv.geometry import Geometry
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


def test_plain_paging_for_the_rest():
    """Llama-3.1-8B, 8-bit KV, pages of 32: 65,536 bytes a token."""
    geometry = models.find("llama-3.1-8b")
    settings = Settings(engine="generic", kv_bytes=1.0, block_size=32)
    pool = kv_pool(geometry, settings, 100 * 32 * 65_536 + 1)
    assert (pool.blocks, pool.tokens) == (100, 3_200)
    assert capacity(geometry, settings, pool, 33) == pool.tokens / 64
    assert kv_pool(geometry, Settings(engine="generic", kv_pool_tokens=100), None).tokens == 96


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "lmdeploy", "generic"])
def test_a_pool_without_any_size_is_refused(engine):
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        kv_pool(shape("llama-gqa"), Settings(engine=engine), None)


def _token(geometry: Geometry, **facts: Any) -> float:
    return cells.all_bytes_per_token(geometry, Settings(**{"engine": "vllm", **facts}))
