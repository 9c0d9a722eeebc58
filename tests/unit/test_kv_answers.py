"""Answers about a KV cache, on numbers worked by hand."""

import math
from dataclasses import replace

import pytest
from model_shapes import GIB, shape

from auditor.testing import LLAMA_8B, make_settings
from auditor.theory import answers
from auditor.theory.answers import Holding
from auditor.theory.carrying import Mix, PoolRange
from auditor.theory.kv.pool import kv_pool
from auditor.theory.memory import Memory

TOKEN = 32 * 8 * 256 * 2  # bytes of a token of Llama 3.1 8B: 32 layers, 8 heads, K and V of 128, 2 bytes
VLLM = make_settings()
POOL = kv_pool(LLAMA_8B, VLLM, 10 * GIB)  # 10 GiB / (16 x 128 KiB) = 5,120 blocks = 81,920 tokens
GEMMA = shape("gemma3-hybrid")  # 5 sliding layers of 512 tokens and a full one, 2 heads of 64: 512 bytes a layer


def test_requests_have_the_band_of_their_pool():
    """1,000 tokens take 63 blocks: 5,120 / 63, and half of it with half the pool."""
    half = kv_pool(LLAMA_8B, VLLM, 5 * GIB)
    found = answers.requests(LLAMA_8B, VLLM, PoolRange(POOL, half, POOL, False), Mix(((1.0, 1000),)))
    assert (found.low, found.point, found.high) == pytest.approx((2560 / 63, 5120 / 63, 5120 / 63))


def test_the_share_that_a_target_holds_may_exceed_the_pool():
    mix = Mix(((1.0, 1600),))  # 100 blocks: 51.2 fit
    assert answers.share_used(LLAMA_8B, VLLM, POOL, mix, 25.6) == pytest.approx(0.5)
    assert answers.share_used(LLAMA_8B, VLLM, POOL, mix, 102.4) == pytest.approx(2)
    empty = kv_pool(LLAMA_8B, VLLM, 0)
    assert answers.share_used(LLAMA_8B, VLLM, empty, mix, 1) == math.inf


def test_vllm_starts_only_with_room_for_one_request_of_the_limit():
    """5,119 of 5,120 blocks serve requests: 81,904 tokens."""
    assert answers.starts(LLAMA_8B, replace(VLLM, max_model_len=81_904), POOL)
    assert not answers.starts(LLAMA_8B, replace(VLLM, max_model_len=81_905), POOL)
    sglang = make_settings(engine="sglang", max_model_len=1_000_000)
    assert answers.starts(LLAMA_8B, sglang, kv_pool(LLAMA_8B, sglang, GIB))
    assert not answers.starts(LLAMA_8B, VLLM, replace(POOL, refusal="too few states"))


# --------------------------------------------------------------------------------------------------------------- waste


def test_the_end_of_the_last_block_is_wasted():
    """1,000 tokens in 63 blocks: 8 of 1,008 tokens."""
    found = answers.waste(LLAMA_8B, VLLM, POOL, 1000)
    assert found is not None
    assert (found.needed, found.taken) == (1000 * TOKEN, 1008 * TOKEN)
    assert (found.rounding, found.slack) == (pytest.approx(8 / 1008), 0)


def test_whole_blocks_waste_nothing():
    found = answers.waste(LLAMA_8B, VLLM, POOL, 1024)
    assert found is not None
    assert (found.rounding, found.slack) == (0, 0)


def test_layers_of_a_window_need_no_more_than_it():
    """4,096 tokens: 512 x 4,096 bytes in the full layer, 512 x 512 in each of the 5 others."""
    assert answers.held_bytes(GEMMA, VLLM, 4096) == 512 * 4096 + 5 * 512 * 512
    assert answers.held_bytes(GEMMA, VLLM, 100) == 6 * 512 * 100


def test_what_windows_keep_beyond_them_is_slack_not_rounding():
    """4,096 tokens: 256 blocks in the full layer, ceil(511 / 16) + 1 = 33 in each of 5 windows, and there 224 more for
    each of the two prompts that a step of 8,192 tokens reads, of 131,072 blocks.
    """
    found = answers.waste(GEMMA, VLLM, kv_pool(GEMMA, VLLM, GIB), 4096)
    assert found is not None
    assert found.rounding == 0
    requests = (131_072 - 2 * 5 * 224) / (256 + 5 * 33)
    assert found.taken == pytest.approx(GIB / requests)
    assert found.slack == pytest.approx(1 - found.needed / found.taken)


def test_growth_counts_windows_that_stand_still():
    """From 1,600 to 4,000 tokens only the full layer's blocks grow: 100 + 5 x 33 to 250 + 5 x 33."""
    pool = kv_pool(GEMMA, VLLM, GIB)
    short, long = (answers.share_used(GEMMA, VLLM, pool, Mix(((1.0, tokens),)), 100) for tokens in (1600, 4000))
    read = 8192 / 1600, 8192 / 4000  # prompts of a step, with 101 - 33 and 251 - 33 blocks more in each window
    assert short == pytest.approx(100 * 265 / (131_072 - read[0] * 5 * 68))
    assert long == pytest.approx(100 * 415 / (131_072 - read[1] * 5 * 218))


def test_many_together_hold_their_windows_and_one_alone_its_step():
    """5,000 blocks, steps of 2,048: one being read holds ceil((511 + 2048) / 16) + 1 = 161 in a window, others 33.

    One alone: n + 5 x 161 <= 4,999. Five: 5 (n + 5 x 33) + 5 (161 - 33) <= 5,000, so n = 707.
    """
    settings = replace(VLLM, max_num_batched_tokens=2048)
    pool = kv_pool(GEMMA, settings, 5000 * 16 * 512)
    assert answers.longest_alone(GEMMA, settings, pool) == 4194 * 16
    assert answers.longest_together(GEMMA, settings, pool, 5) == 707 * 16


def test_a_slots_unused_context_is_slack():
    """llama.cpp: 4 slots of 4,096 cells; 1,024 tokens use a quarter."""
    settings = make_settings(engine="llamacpp", max_model_len=4096, slots=4, block_size=None)
    found = answers.waste(LLAMA_8B, settings, kv_pool(LLAMA_8B, settings, None), 1024)
    assert found is not None
    assert (found.rounding, found.slack) == (0, pytest.approx(0.75))


def test_an_empty_pool_wastes_nothing_that_is_known():
    assert answers.waste(LLAMA_8B, VLLM, kv_pool(LLAMA_8B, VLLM, 0), 1000) is None


# ------------------------------------------------------------------------------------------------------------- context


def test_the_longest_request_alone_and_together():
    """64 share 5,120 blocks: 80 each, 1,280 tokens; 5,121 find no block."""
    assert answers.longest_alone(LLAMA_8B, VLLM, POOL) == 81_904
    assert answers.longest_together(LLAMA_8B, VLLM, POOL, 64) == 1280
    assert answers.longest_together(LLAMA_8B, VLLM, POOL, 5121) == 0


def test_each_rank_holds_its_own_longest_request():
    two = replace(VLLM, data_parallel=2, devices=2)
    assert answers.longest_alone(LLAMA_8B, two, POOL) == 81_904
    assert answers.longest_together(LLAMA_8B, two, POOL, 128) == 1280


def test_a_slot_bounds_its_request():
    settings = make_settings(engine="llamacpp", max_model_len=4096, slots=4, block_size=None)
    pool = kv_pool(LLAMA_8B, settings, None)
    assert answers.longest_alone(LLAMA_8B, settings, pool) == 4096
    assert answers.longest_together(LLAMA_8B, settings, pool, 4) == 4096
    assert answers.longest_together(LLAMA_8B, settings, pool, 5) == 0


# -------------------------------------------------------------------------------------------------------------- saving


def test_grouped_heads_save_by_their_number():
    """8 KV heads of 32: a quarter of the cache."""
    found = answers.saving(LLAMA_8B, VLLM)
    assert found is not None
    assert (found.kind, found.now, found.every_head) == ("GQA", TOKEN, 4 * TOKEN)
    assert found.share == 0.75


def test_latents_save_against_every_heads_keys_and_values():
    """4 layers, 576 values against 8 heads of 192 + 128; under TP 8 one head is left, and the latent whole."""
    found = answers.saving(shape("mla"), VLLM)
    assert found is not None
    assert (found.kind, found.now, found.every_head) == ("MLA", 4 * 576 * 2, 4 * 8 * 320 * 2)
    spread = answers.saving(shape("mla"), replace(VLLM, tensor_parallel=8, devices=8))
    assert spread is not None
    assert spread.every_head == 4 * 320 * 2
    assert spread.share < 0


def test_every_head_of_its_own_saves_nothing_and_one_for_all_is_mqa():
    mha = answers.saving(shape("llama-8b", num_key_value_heads=32), VLLM)
    mqa = answers.saving(shape("llama-8b", num_key_value_heads=1), VLLM)
    assert mha is not None
    assert mqa is not None
    assert (mha.kind, mha.share) == ("MHA", 0)
    assert (mqa.kind, mqa.share) == ("MQA", 1 - 1 / 32)


def test_without_known_heads_there_is_nothing_to_compare():
    assert answers.saving(replace(LLAMA_8B, attention_heads=0), VLLM) is None


# -------------------------------------------------------------------------------------------------------------- memory


def found(**changes: float) -> Memory:
    """80 GiB, of which the engine may take 72: 20 of weights, 4 of overhead, 48 of pool."""
    sizes = {"usable": 80, "budget": 72, "weights": 20, "overhead": 4, "overhead_low": 3, "overhead_high": 6}
    sizes |= {"pool": 48, "pool_low": 46, "pool_high": 49}
    return Memory(**{name: size * GIB for name, size in (sizes | changes).items()})


def test_the_parts_of_memory_add_up():
    split = answers.split(found(beyond=1), 48 * GIB, [Holding("chat", 10, 30 * GIB)])
    assert (split.idle, split.beyond, split.free) == (7 * GIB, GIB, 18 * GIB)
    held = sum(part.bytes for part in split.classes)
    assert split.idle + split.beyond + split.weights + split.overhead + held + split.free == split.usable


def test_a_pinned_pool_leaves_the_rest_idle_and_a_small_one_is_short():
    split = answers.split(found(), 10 * GIB, [Holding("chat", 10, 30 * GIB)])
    assert (split.idle, split.free) == (46 * GIB, -20 * GIB)
