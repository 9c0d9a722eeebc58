"""TensorRT-LLM's blocks, worked by hand from its source: no engine was run."""

from typing import Any

import pytest
from kv_shapes import DEEPSEEK_R1, DEEPSEEK_V32, GPT_OSS_20B, attention, delta_net, model

from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings

LLAMA_8B = model(attention(32, 8, 128))


def on_trtllm(**changes: Any) -> Settings:
    return Settings(**{"engine": "trtllm", **changes})


def pool_of(geometry: Geometry, size: float | None = None, **changes: Any) -> KvPool:
    return kv_pool(geometry, on_trtllm(**changes), size)


def test_blocks_of_thirty_two_tokens():
    """32 x 8 x 256 x 2 = 131,072 bytes a token; 1,000 blocks and a bit."""
    pool = pool_of(LLAMA_8B, 1000 * 32 * 131_072 + 100)
    assert (pool.blocks, pool.block_size, pool.tokens) == (1000, 32, 32_000)
    assert pool.bytes == 1000 * 32 * 131_072
    assert "not checked on a running engine" in pool.rule
    assert pool_of(LLAMA_8B, 1000 * 64 * 131_072, block_size=64).blocks == 1000


def test_the_smaller_of_memory_and_max_tokens():
    assert pool_of(LLAMA_8B, 1000 * 32 * 131_072, kv_pool_tokens=1_650).blocks == 51
    assert pool_of(LLAMA_8B, 1000 * 32 * 131_072, kv_pool_tokens=99_000).blocks == 1000
    assert pool_of(LLAMA_8B, kv_pool_tokens=1_650).tokens == 51 * 32


def test_heads_are_divided_upwards():
    """Ten heads on four devices are three each: 3 x 256 x 2 bytes."""
    assert pool_of(model(attention(1, 10, 128)), 320 * 1536, tensor_parallel=4, devices=4).tokens == 320
    assert pool_of(model(attention(1, 2, 128)), 320 * 512, tensor_parallel=4, devices=4).tokens == 320


def test_latents_and_index_keys():
    assert pool_of(DEEPSEEK_R1, 320 * 61 * 1152, tensor_parallel=8, devices=8).tokens == 320
    assert pool_of(DEEPSEEK_V32, 320 * 61 * (576 + 132), kv_bytes=1.0, kv_cache_dtype="fp8").tokens == 320


def test_nvfp4_values_have_a_scale_for_sixteen():
    assert pool_of(LLAMA_8B, 320 * 32 * 8 * 256 * 9 / 16, kv_bytes=9 / 16, kv_cache_dtype="nvfp4").tokens == 320


def test_every_layer_is_kept_in_full_unless_windows_are_given():
    assert pool_of(GPT_OSS_20B, 320 * 24 * 2048).sliding_tokens is None
    assert pool_of(GPT_OSS_20B, 320 * 24 * 2048).tokens == 320


def test_windows_share_the_memory_equally():
    """Half of it for 12 full and half for 12 sliding layers, whatever max_tokens says."""
    flags = {"window_pools": True, "kv_pool_tokens": 64}
    pool = pool_of(GPT_OSS_20B, 2 * 640 * 12 * 2048, **flags)
    assert (pool.tokens, pool.sliding_tokens) == (640, 640)
    assert pool.bytes == 2 * 640 * 12 * 2048
    # 640 / 128 sliding, 640 / 320 full
    assert capacity(GPT_OSS_20B, on_trtllm(**flags), pool, 128) == 5
    assert capacity(GPT_OSS_20B, on_trtllm(**flags), pool, 300) == 2
    assert pool_of(GPT_OSS_20B, 0.0, window_pools=True).sliding_tokens == 0


def test_requests_take_whole_blocks():
    pool = pool_of(LLAMA_8B, 1000 * 32 * 131_072)
    assert capacity(LLAMA_8B, on_trtllm(), pool, 33) == 32_000 / 64
    assert capacity(LLAMA_8B, on_trtllm(data_parallel=2, devices=2), pool, 33) == 2 * 32_000 / 64


def test_a_pipeline_stage_holds_its_layers():
    assert pool_of(LLAMA_8B, 320 * 11 * 4096, pipeline_parallel=3, devices=3).tokens == 320


def test_recurrent_states_are_refused():
    with pytest.raises(ValueError, match="recurrent states is not known"):
        pool_of(model(attention(2, 2, 64), delta_net(6, 8)), 1e9)


def test_a_pool_without_any_size_is_refused():
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        pool_of(LLAMA_8B)
