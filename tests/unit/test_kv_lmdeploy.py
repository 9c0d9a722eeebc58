"""LMDeploy's blocks, worked by hand from its source: no engine was run."""

from typing import Any

import pytest
from kv_shapes import DEEPSEEK_R1, attention, delta_net, model

from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings

LLAMA_8B = model(attention(32, 8, 128))


def on_lmdeploy(**changes: Any) -> Settings:
    return Settings(**{"engine": "lmdeploy", **changes})


def pool_of(geometry: Geometry, size: float | None = None, **changes: Any) -> KvPool:
    return kv_pool(geometry, on_lmdeploy(**changes), size)


def test_blocks_of_sixty_four_tokens():
    pool = pool_of(LLAMA_8B, 100 * 64 * 131_072 + 5)
    assert (pool.blocks, pool.block_size, pool.tokens) == (100, 64, 6400)
    assert "not checked on a running engine" in pool.rule
    assert capacity(LLAMA_8B, on_lmdeploy(), pool, 65) == 50
    assert pool_of(LLAMA_8B, kv_pool_tokens=6_450).blocks == 100


QUANTISED = [  # format, bytes of a head's keys and values with two scales and two zero points of 16 bits
    ("int8", 2 * 128 + 8),
    ("int4", 2 * 64 + 8),
    ("auto", 2 * 256),
]


@pytest.mark.parametrize(("word", "head"), QUANTISED)
def test_quantised_values_have_scales(word, head):
    kv_bytes = {"int8": 1.0, "int4": 0.5, "auto": 2.0}[word]
    pool = pool_of(LLAMA_8B, 100 * 64 * 32 * 8 * head, kv_cache_dtype=word, kv_bytes=kv_bytes)
    assert pool.blocks == 100


def test_latents():
    assert pool_of(DEEPSEEK_R1, 64 * 61 * 1152, tensor_parallel=8, devices=8).blocks == 1
    assert pool_of(DEEPSEEK_R1, 64 * 61 * (576 + 4), kv_cache_dtype="int8", kv_bytes=1.0).blocks == 1


def test_tensor_parallelism_divides_heads():
    assert pool_of(LLAMA_8B, 100 * 64 * 131_072 / 8, tensor_parallel=8, devices=8).blocks == 100


def test_recurrent_states_are_refused():
    with pytest.raises(ValueError, match="recurrent states is not known"):
        pool_of(model(attention(2, 2, 64), delta_net(6, 8)), 1e9)


def test_a_pool_without_any_size_is_refused():
    with pytest.raises(ValueError, match="needs its bytes or its number of tokens"):
        pool_of(LLAMA_8B)
