"""What to change: each lever computed again, ranked, and left out where it helps nothing."""

import math
from dataclasses import replace

import pytest
from model_shapes import GIB

from auditor.catalog import accelerators
from auditor.testing import H100, LLAMA_8B, make_settings
from auditor.theory.alternatives import next_up
from auditor.theory.carrying import Mix, computed_pool
from auditor.theory.changes import changes, measure
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

MIX = Mix(((1.0, 4096.0),))
H200 = accelerators.find("h200-sxm")


def found(settings: Settings, target: float | None = None, replicas: int = 1, geometry: Geometry = LLAMA_8B):
    levers = changes((geometry, settings, H100), MIX, target, (H200, settings), replicas)
    return {(lever.field, lever.value): lever for lever in levers}


def test_the_change_with_the_most_requests_comes_first():
    levers = list(found(make_settings()).values())
    assert [lever.requests for lever in levers] == sorted((lever.requests for lever in levers), reverse=True)
    assert {lever.field for lever in levers} >= {"tensor_parallel", "kv_cache_dtype", "quantization", "accelerator"}


def test_an_8_bit_cache_holds_twice_as_much():
    now = measure(LLAMA_8B, make_settings(), H100, MIX)
    half = found(make_settings())["kv_cache_dtype", "fp8"]
    assert now is not None
    assert half.requests == pytest.approx(2 * now.requests, rel=1e-3)
    assert (half.weights, half.devices) == (now.weights, 1)


def test_a_lever_that_helps_nothing_is_left_out():
    """All layers are full: smaller steps free no window; nothing is drafted; the batch limit is the target."""
    fields = {field for field, _ in found(make_settings(max_num_seqs=64), target=64)}
    assert not fields & {"max_num_batched_tokens", "speculative", "max_num_seqs", "hybrid_kv_manager"}


def test_speculation_off_frees_its_layer():
    drafting = make_settings(speculative_tokens=3, draft_layers=1)
    off = found(drafting)["speculative", "off"]
    plain = measure(LLAMA_8B, make_settings(), H100, MIX)
    assert plain is not None
    assert off.requests == plain.requests


def test_tensor_parallelism_must_divide_the_heads():
    odd = replace(LLAMA_8B, attention_heads=33)
    assert not any(field == "tensor_parallel" for field, _ in found(make_settings(), geometry=odd))


def test_a_larger_share_of_memory_is_named_where_it_is_safe():
    """SGLang's activations and graphs live in what its fraction leaves; vLLM's activations in its share."""
    sglang = make_settings(engine="sglang", engine_version="0.5.9", memory_fraction=0.85)
    assert {value for field, value in found(sglang) if field == "gpu_memory_utilization"} == {"0.88"}
    assert {value for field, value in found(make_settings()) if field == "gpu_memory_utilization"} == {"0.95"}


def test_replicas_are_as_many_as_carry_the_target():
    now = measure(LLAMA_8B, make_settings(), H100, MIX)
    assert now is not None
    target = 2.5 * now.requests
    lever = found(make_settings(), target=target)["replicas", "3"]
    assert (lever.requests, lever.devices) == (pytest.approx(3 * now.requests), 3)
    assert ("replicas", "2") in found(make_settings(), target=now.requests)
    assert ("replicas", "5") in found(make_settings(), target=now.requests, replicas=4)


def test_other_levers_count_every_replica():
    one, four = found(make_settings()), found(make_settings(), replicas=4)
    key = ("kv_cache_dtype", "fp8")
    assert (four[key].requests, four[key].devices) == (4 * one[key].requests, 4)


def test_measured_weights_move_in_the_proportion_of_the_computed_ones():
    """Twice the TP halves nearly all of Llama's weights (norms are copied); an 8-bit cache leaves them."""
    levers = found(make_settings(weight_bytes=20.0 * GIB))
    assert levers["tensor_parallel", "2"].weights == pytest.approx(10 * GIB, rel=0.01)
    assert levers["kv_cache_dtype", "fp8"].weights == 20 * GIB


def test_weights_of_unknown_parts_are_not_guessed():
    bare = replace(LLAMA_8B, parameters=0)
    fields = {field for field, _ in found(make_settings(weight_bytes=20.0 * GIB), geometry=bare)}
    assert fields & {"kv_cache_dtype", "accelerator"} == {"kv_cache_dtype", "accelerator"}
    assert not fields & {"tensor_parallel", "quantization"}


def test_a_limit_that_keeps_the_engine_from_starting_is_lowered_first():
    """60 GiB of weights leave too little for a request of a million tokens: the limit is what surely fits."""
    settings = make_settings(max_model_len=1_000_000, weight_bytes=60.0 * GIB)
    first, *rest = changes((LLAMA_8B, settings, H100), MIX, None)
    pool = computed_pool(LLAMA_8B, settings, H100)
    assert pool is not None
    assert first.field == "max_model_len"
    assert 0 <= 16 * (pool.low.blocks or 0) - int(first.value) <= 256 + 16
    assert (first.starts, first.verdict) == (True, "fits")
    assert all(lever.starts for lever in rest)
    limits = {lever.field: int(dict(lever.also)["max_model_len"]) for lever in rest}
    assert limits["kv_cache_dtype"] == pytest.approx(2 * int(first.value), abs=512)


def test_without_lengths_the_context_is_what_fits():
    """A quarter of the context of Llama-3.1 fits; without lengths to hold, a shorter limit is the first way out."""
    settings = make_settings(max_model_len=131_072, weight_bytes=68.0 * GIB)
    first, *_ = changes((LLAMA_8B, settings, H100), None, None)
    assert (first.field, first.verdict, math.floor(first.requests)) == ("max_model_len", "fits", 1)


def test_counts_end_at_the_batch_limit():
    """Room for hundreds, but 16 run at once: the limit is what is to change, and nothing else brings more."""
    settings = make_settings(max_num_seqs=16, max_model_len=32_768)
    levers = found(settings, target=64)
    assert {field for field, _ in levers} == {"max_num_seqs", "replicas"}
    assert levers["max_num_seqs", "64"].requests == 64
    assert levers["replicas", "4"].requests == 64


def test_nothing_is_to_change_where_there_is_room_to_spare():
    assert found(make_settings(), target=4) == {}


def test_rows_say_whether_the_target_surely_fits():
    now = measure(LLAMA_8B, make_settings(), H100, MIX, 4)
    edge = measure(LLAMA_8B, make_settings(), H100, MIX, now and math.floor(now.requests))
    over = measure(LLAMA_8B, make_settings(), H100, MIX, 10_000)
    assert [one and one.verdict for one in (now, edge, over)] == ["fits", "may fit", "does not fit"]


@pytest.mark.parametrize(
    ("engine", "value"), [("vllm", "fp8"), ("sglang", "fp8_e4m3"), ("trtllm", "fp8"), ("lmdeploy", "8")]
)
def test_values_are_those_that_the_flag_takes(engine, value):
    levers = found(make_settings(engine=engine, engine_version=None))
    assert ("kv_cache_dtype", value) in levers
    loads = engine in {"vllm", "sglang"}
    assert (("quantization", "fp8") in levers, ("checkpoint", "fp8") in levers) == (loads, not loads)
    assert ("checkpoint", "awq") in levers


def test_slots_of_llamacpp_get_the_context_that_their_requests_need():
    """8 requests of 4,096 tokens: 8 slots of 4,096 cells."""
    settings = make_settings(engine="llamacpp", engine_version=None, max_model_len=32768, slots=4, block_size=None)
    lever = found(settings, target=8)["context", "32768"]
    assert (lever.also, lever.requests, lever.pool_tokens) == ((("slots", "8"),), 8, 32768)


def test_slots_are_no_more_than_memory_holds():
    """4,096 cells are 0.5 GiB; 79.2 GiB less 15 of weights hold some 125 such slots."""
    settings = make_settings(engine="llamacpp", engine_version=None, max_model_len=32768, slots=4, block_size=None)
    levers = [lever for (field, _), lever in found(settings, target=10_000).items() if field == "context"]
    assert [(100 < int(dict(lever.also)["slots"]) < 130, lever.verdict) for lever in levers] == [(True, "does not fit")]


def test_without_a_pool_there_is_nothing_to_compare():
    assert changes((LLAMA_8B, make_settings(), None), MIX, None) == ()
    assert measure(LLAMA_8B, make_settings(), None, MIX) is None


def test_the_next_accelerator_up_is_less_in_nothing():
    """GH200 96GB and H200 come after the H100; a card with more memory and less bandwidth does not."""
    larger = next_up(H100, accelerators.devices())
    assert larger is not None
    assert (larger.usable_bytes or 0) > 1.1 * (H100.usable_bytes or 0)
    assert larger.bandwidth >= H100.bandwidth
    assert larger.vendor == "nvidia"
    assert next_up(H200, [H100]) is None
    assert next_up(H100, accelerators.devices(), 8) == H200
    assert next_up(replace(H100, usable_bytes=None), [H200]) is None
