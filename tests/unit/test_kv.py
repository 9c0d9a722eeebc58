"""KV pools against what engines printed: vLLM 0.32 and SGLang 0.5.23 on CPU, llama.cpp, published start-up logs.

vLLM's lines: "CPU KV cache size: N tokens, Maximum concurrency for M tokens per request: X.XXx" (block 128, bf16).
"""

from typing import Any

import pytest
from model_shapes import GIB, shape

from auditor.catalog import models
from auditor.theory.kv import cells, vllm
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


PRINTED = [  # shape, length, changed settings, blocks, tokens, concurrency as printed
    ("llama-gqa", 2048, {}, 8192, 1_048_576, 512.00),
    ("qwen3", 4096, {}, 2048, 262_144, 64.00),
    ("8b-shape", 4096, {}, 64, 8_192, 2.00),
    ("8b-shape", 4096, {"kv_bytes": 1.0, "kv_cache_dtype": "fp8"}, 128, 16_384, 4.00),
    ("8b-shape", 8064, {}, 64, 8_192, 1.02),
    ("mla", 4096, {}, 1_820, 232_960, 56.88),
    ("gemma3-hybrid", 4096, {}, 16_384, 489_845, 119.59),
    ("gemma3-hybrid", 4096, {"max_num_batched_tokens": 512}, 16_384, 871_543, 212.78),
    ("gemma3-hybrid", 4096, {"hybrid_kv_manager": False}, 2_730, 349_440, 85.31),
]


@pytest.mark.parametrize(("name", "length", "changes", "blocks", "tokens", "concurrency"), PRINTED)
def test_vllm_prints_the_same(name, length, changes, blocks, tokens, concurrency):
    geometry, settings = shape(name), on_vllm(length, **changes)
    pool = kv_pool(geometry, settings, GIB)
    assert (pool.blocks, pool.tokens, pool.block_size) == (blocks, tokens, 128)
    assert round(capacity(geometry, settings, pool, length), 2) == pytest.approx(concurrency, abs=0.006)


def test_a_fixed_pool_needs_no_memory():
    geometry = shape("llama-gqa")
    settings = on_vllm(2048, kv_pool_bytes=3_145_728)
    pool = kv_pool(geometry, settings, None)
    assert (pool.blocks, pool.tokens) == (24, 3_072)
    assert capacity(geometry, settings, pool, 2048) == 1.5
    overridden = kv_pool(geometry, on_vllm(2048, kv_pool_tokens=24 * 128), GIB)
    assert (overridden.blocks, overridden.tokens) == (24, 3_072)


def test_one_block_serves_nobody():
    """vLLM refused 16,384 tokens here and printed 8,064 = 63 x 128 as the longest that fits."""
    geometry, settings = shape("8b-shape"), on_vllm(16_384)
    pool = kv_pool(geometry, settings, GIB)
    assert vllm.longest(geometry, settings, pool) == 8_064
    assert capacity(geometry, settings, pool, 8_192) < 1 <= capacity(geometry, settings, pool, 8_064)


def test_older_versions_count_tokens_by_blocks():
    """EXAONE-4.0-32B in vLLM 0.11: 48 sliding and 16 full layers are 4 groups; 42,224 tokens at 10.28 x 4,096."""
    layers = (
        Layers(kind="sliding", count=48, kv_heads=8, qk_head_dim=128, v_head_dim=128, window=4096),
        Layers(kind="full", count=16, kv_heads=8, qk_head_dim=128, v_head_dim=128),
    )
    geometry = _bare(layers)
    settings = on_vllm(4096, engine_version="0.11.0", block_size=16)
    # 42,224 / 16 x 4 = 10,556 blocks; a request takes 256 + 3 x 257 of them.
    pool = kv_pool(geometry, settings, 10_556 * 16 * 16 * 4096 + 1)
    assert (pool.blocks, pool.tokens) == (10_556, 42_224)
    assert capacity(geometry, settings, pool, 4096) == pytest.approx(10.28, abs=0.005)


def test_nearly_equal_kinds_pad_the_smaller_up():
    """18 and 13 layers: padding to 18 is cheaper than groups of 13, so two groups of 18."""
    layers = (
        Layers(kind="full", count=18, kv_heads=1, qk_head_dim=64, v_head_dim=64),
        Layers(kind="sliding", count=13, kv_heads=1, qk_head_dim=64, v_head_dim=64, window=128),
    )
    page = 16 * 256
    pool = kv_pool(_bare(layers), on_vllm(1024, block_size=16), 100 * 18 * page)
    assert pool.blocks == 100
    # 64 full blocks, ceil(min(127 + 2048, 1024) / 16) + 1 = 65 sliding ones
    assert vllm.blocks_needed(_bare(layers), on_vllm(1024, block_size=16), 1024) == 64 + 65


def test_chunked_layers_need_one_chunk_and_one_step():
    """Llama 4 Maverick in vLLM 0.11: 756.20 requests of 8,192 tokens in 6,194,752 "tokens" of 16."""
    geometry = models.find("llama-4-maverick")
    settings = on_vllm(8192, engine_version="0.11.2", block_size=16, tensor_parallel=8, max_num_batched_tokens=8192)
    blocks = 6_194_752 // 16 * 4  # 36 chunked and 12 full layers: 4 groups of 12
    pool = kv_pool(geometry, settings, blocks * 12 * 16 * 512)
    assert (pool.blocks, pool.tokens) == (blocks, 6_194_752)
    assert capacity(geometry, settings, pool, 8192) == pytest.approx(756.2, abs=0.2)


def test_unequal_pages_are_evened_by_larger_blocks():
    """Full layers with half the bytes a token take blocks of twice the tokens (as Gemma 4: full 32, sliding 16)."""
    layers = (
        Layers(kind="sliding", count=10, kv_heads=8, qk_head_dim=128, v_head_dim=128, window=1024),
        Layers(kind="full", count=10, kv_heads=4, qk_head_dim=128, v_head_dim=128),
    )
    settings = on_vllm(8192, block_size=16)
    pool = kv_pool(_bare(layers), settings, 1000 * 10 * 16 * 4096)
    assert (pool.blocks, pool.block_size) == (1000, 32)
    # 8192 / 32 full, ceil((1023 + 2048) / 16) + 1 sliding
    assert vllm.blocks_needed(_bare(layers), settings, 8192) == 256 + 193


def test_drafts_keep_a_layer_of_their_own():
    geometry = shape("llama-gqa")
    plain, drafted = (kv_pool(geometry, on_vllm(2048, speculative_tokens=n), GIB) for n in (0, 2))
    assert drafted.blocks == plain.blocks * 4 // 5


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
