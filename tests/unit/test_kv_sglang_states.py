"""SGLang's slots for recurrent states against what 0.5.23 printed (its own allocator, on a CPU), and its source.

A line reads "Mamba Cache is allocated. max_mamba_cache_size: N, conv_state size: X GB, ssm_state size: Y GB".
"""

from typing import Any

import pytest
from kv_shapes import GIB, attention, delta_net, mamba2, model

from auditor.theory.kv.cells import KvPool
from auditor.theory.kv.geometry import Geometry, Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.kv.sglang_state import slot_bytes, slots_per_request
from auditor.theory.settings import Settings

# The model that was run: two full layers of 2 x 64 and six delta nets of 8 x 32.
NEXT = model(
    attention(2, 2, 64),
    Recurrent(kind="linear", count=6, heads=8, head_dim=32, state_size=32, groups=4, conv_kernel=4),
    architecture="Qwen3NextForCausalLM",
)


def on_sglang(**changes: Any) -> Settings:
    return Settings(**{"engine": "sglang", "engine_version": "0.5.23", **changes})


def pool_of(geometry: Geometry, size: float | None = None, **changes: Any) -> KvPool:
    return kv_pool(geometry, on_sglang(**changes), size)


STATES = [  # settings, slots and tokens as printed; six layers of 3,072 bytes of window and 32,768 of matrix
    ({}, 1_628, 380_104, 215_040),
    ({"mamba_full_ratio": 0.3, "state_bytes": 2.0}, 1_091, 415_245, 116_736),
    ({"mamba_slots": 100}, 100, 664_078, 215_040),
    ({"prefix_caching": False, "max_num_seqs": 16}, 16, 750_373, 215_040),
]


@pytest.mark.parametrize(("changes", "slots", "tokens", "size"), STATES)
def test_states_come_off_first(changes, slots, tokens, size):
    """0.5.23: max_mamba_cache_size and #tokens of one start; what they take together is the memory that there was."""
    assert slot_bytes(NEXT, on_sglang(**changes)) == size
    room = (slots + 1) * size + tokens * 1024 + 512
    pool = pool_of(NEXT, room, **changes)
    assert (pool.state_slots, pool.tokens) == (slots, tokens)
    assert pool.state_bytes == (slots + 1) * size
    assert pool.bytes <= room


def test_states_are_allocated_with_one_more():
    """max_mamba_cache_size 36,065: windows of 0.62 GB and matrices of 6.60 GB, beside --max-total-tokens 5000."""
    pool = pool_of(NEXT, kv_pool_tokens=5000, mamba_slots=36_065)
    assert pool.tokens == 5000
    assert pool.state_bytes == 36_066 * 6 * (3_072 + 32_768)
    assert pool.state_bytes / GIB == pytest.approx(0.62 + 6.60, abs=0.01)


def test_a_logged_pool_is_tokens_alone():
    logged = pool_of(NEXT, kv_pool_bytes=1000 * 1024, mamba_slots=50)
    assert (logged.tokens, logged.state_slots) == (1000, 50)
    # 0.9 of what tokens take: 921,600 bytes are four slots, one of them for padding.
    assert pool_of(NEXT, kv_pool_bytes=1000 * 1024).state_slots == 3


RELEASES = [  # release; of 1,000 slots' worth of bytes at a ratio of 1, slots and slots' worth of tokens
    ("0.5.3", 512, 488),  # a fixed number where no flag limits the requests
    ("0.5.6", 500, 500),
    ("0.5.16", 500, 500),
    ("0.5.17", 499, 500),  # the padding slot counts
]


@pytest.mark.parametrize(("version", "slots", "tokens"), RELEASES)
def test_slots_by_release(version, slots, tokens):
    per = 215_040
    pool = pool_of(NEXT, 1000 * per, engine_version=version, mamba_full_ratio=1.0)
    assert pool.state_slots == slots
    assert pool.tokens == tokens * per // 1024


DRAFTED = [  # release; with 4 drafted tokens, 24 requests and 1,000 slots' worth of bytes at a ratio of 1
    ("0.5.6", 100, 500),  # 500 / (1 + 4) slots, and as many drafts of each
    ("0.5.16", 452, 452),  # 24 x 4 come off before the halves
    ("0.5.17", 275, 1000 - 276 - 100),  # (500 - 5) / (1 + 4 / 5), then (24 + 1) x 4 beside the slots
]


@pytest.mark.parametrize(("version", "slots", "tokens"), DRAFTED)
def test_drafts_keep_states_of_their_own(version, slots, tokens):
    per = 215_040
    facts = {"engine_version": version, "mamba_full_ratio": 1.0, "speculative_tokens": 4, "max_num_seqs": 24}
    pool = pool_of(NEXT, 1000 * per, draft_layers=0, **facts)
    assert pool.state_slots == slots
    assert pool.tokens == tokens * per // 1024


def test_states_bound_the_requests():
    settings = on_sglang(mamba_slots=24)
    pool = kv_pool(NEXT, settings, 100_000 * 1024)
    assert slots_per_request(NEXT, settings) == 5
    assert capacity(NEXT, settings, pool, 100) == 4
    alone = on_sglang(mamba_slots=24, prefix_caching=False)
    assert capacity(NEXT, alone, kv_pool(NEXT, alone, 100_000 * 1024), 100) == 24


SLOTS = [  # release, layers, slots of one running request
    ("0.5.3", delta_net(6, 8), 1),
    ("0.5.6", delta_net(6, 8), 3),
    ("0.5.6", mamba2(6, 8, 64, 128, 8), 1),
    ("0.5.12", mamba2(6, 8, 64, 128, 8), 3),
    ("0.5.14", delta_net(6, 8), 5),
    (
        "0.5.23",
        Recurrent(kind="short_conv", count=10, heads=1536, head_dim=1, state_size=0, groups=0, conv_kernel=3),
        3,
    ),
]


@pytest.mark.parametrize(("version", "layer", "slots"), SLOTS)
def test_prefixes_keep_states(version, layer, slots):
    assert slots_per_request(model(attention(2, 2, 64), layer), on_sglang(engine_version=version)) == slots


def test_too_few_states_are_refused():
    pool = pool_of(NEXT, kv_pool_tokens=5000, mamba_slots=4)
    assert pool.refusal is not None
    assert "4 state slots" in pool.refusal


def test_states_are_divided_by_tp_and_shared_by_inner_ranks():
    """Two devices: half of heads and channels; the flag's slots are those of all ranks inside the TP group."""
    assert slot_bytes(NEXT, on_sglang(tensor_parallel=2, devices=2)) == 215_040 / 2
    inside = {"devices": 2, "tensor_parallel": 2, "data_parallel": 2}
    assert slot_bytes(NEXT, on_sglang(**inside)) == 215_040
    assert pool_of(NEXT, kv_pool_tokens=500, mamba_slots=100, **inside).state_slots == 50


def test_matrices_are_fp32_where_nobody_says_otherwise():
    """A model's own word (mamba_ssm_dtype) counts, and a flag more; windows are bf16 whatever is computed in."""
    own = model(attention(2, 2, 64), delta_net(1, 8, key_heads=4, element=2.0))
    window, matrix = (2 * 4 + 8) * 128 * 3 * 2, 8 * 128 * 128
    assert slot_bytes(own, on_sglang(compute_dtype="fp32")) == window + 2 * matrix
    assert slot_bytes(own, on_sglang(state_bytes=4.0)) == window + 4 * matrix


def test_states_alone_have_tokens_by_the_context():
    falcon = model(mamba2(6, 8, 64, 128, 8), max_position=4096)
    assert pool_of(falcon, GIB).tokens == 4096
    assert pool_of(falcon, GIB, max_model_len=1024).tokens == 1024


def test_memory_that_holds_nothing_has_no_slots():
    pool = pool_of(NEXT, 0.0)
    assert (pool.tokens, pool.state_slots) == (0, 0)
    assert capacity(NEXT, on_sglang(), pool, 10) == 0


def test_the_rule_is_told_in_words():
    assert "states of 215,040 bytes and one more" in pool_of(NEXT, GIB).rule
