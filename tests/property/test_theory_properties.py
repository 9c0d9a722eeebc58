"""What must hold for every model, setting and load: more of what costs never comes out cheaper."""

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.catalog import accelerators, models
from auditor.theory import roofline, shape, statistics
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.memory import memory
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes, streamed_bytes

GIB = 1 << 30
MODELS = [
    models.find(name)
    for name in (
        "llama-3.1-8b",
        "llama-3.1-70b",
        "qwen3-0.6b",
        "qwen3-235b-a22b",
        "mistral-7b-instruct-v0.1",
        "gemma-3-27b",
        "deepseek-v3",
        "deepseek-v2-lite",
        "gpt-oss-20b",
        "llama-4-scout",
        "llama-2-7b",
    )
]
DEVICES = [
    accelerators.find(n) for n in ("h100", "a100-80gb", "rtx-4090", "b200", "mi300x", "l4", "m5-max-128gb", "gb10")
]
PACKED = [
    {"quantization": None, "weight_bits": 16.0, "compute_dtype": "bf16"},
    {"quantization": "fp8", "weight_bits": 8.0, "compute_dtype": "fp8"},
    {"quantization": "awq", "weight_bits": 4.156, "compute_dtype": "bf16"},
    {"quantization": "nvfp4", "weight_bits": 4.5, "compute_dtype": "fp4"},
]


@st.composite
def setups(draw: st.DrawFn, engines: tuple[str, ...] = ("vllm", "sglang", "llamacpp", "trtllm")) -> Settings:
    """Settings of one engine that its launcher would accept."""
    engine = draw(st.sampled_from(engines))
    tensor = draw(st.sampled_from([1, 2, 4, 8])) if engine != "llamacpp" else 1
    pipeline = draw(st.sampled_from([1, 1, 2]))
    data = draw(st.sampled_from([1, 1, 2])) if engine in {"vllm", "sglang"} else 1
    return Settings(
        engine=engine,
        engine_version=draw(st.sampled_from([None, "0.11.0", "0.18.0", "0.32.0"])),
        devices=tensor * pipeline * data,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=data,
        kv_bytes=draw(st.sampled_from([2.0, 1.0, 34 / 32])),
        block_size=draw(st.sampled_from([16, 64, 128])) if engine != "llamacpp" else None,
        max_model_len=draw(st.sampled_from([2048, 4096, 32768])),
        max_num_seqs=draw(st.sampled_from([8, 256, 1024])),
        max_num_batched_tokens=draw(st.sampled_from([512, 2048, 8192])),
        hybrid_kv_manager=draw(st.booleans()),
        speculative_tokens=draw(st.sampled_from([0, 0, 2])),
        slots=draw(st.sampled_from([1, 4])),
        kv_unified=draw(st.booleans()),
        **draw(st.sampled_from(PACKED)),
    )


pools = st.floats(min_value=0.5, max_value=200).map(lambda gib: gib * GIB)
lengths = st.integers(min_value=1, max_value=32768)
several = settings(max_examples=150, deadline=None)


@several
@given(st.sampled_from(MODELS), setups(), pools, lengths, lengths)
def test_longer_requests_never_fit_more_often(
    model: Geometry, setup: Settings, size: float, one: int, other: int
) -> None:
    pool = kv_pool(model, setup, size)
    shorter, longer = sorted((one, other))
    assert capacity(model, setup, pool, longer) <= capacity(model, setup, pool, shorter)


@several
@given(st.sampled_from(MODELS), setups(("vllm", "sglang", "trtllm")), pools, pools)
def test_more_bytes_never_hold_fewer_tokens(model: Geometry, setup: Settings, one: float, other: float) -> None:
    smaller, larger = (kv_pool(model, setup, size) for size in sorted((one, other)))
    assert smaller.tokens <= larger.tokens
    assert smaller.bytes <= larger.bytes


@several
@given(st.sampled_from(MODELS), setups(("vllm", "sglang", "trtllm")), pools)
def test_a_pool_never_takes_more_than_its_bytes(model: Geometry, setup: Settings, size: float) -> None:
    pool = kv_pool(model, setup, size)
    assert pool.bytes <= size
    # Every token of a request as long as all windows and steps is held in every layer.
    if all(group.window is None for group in model.layers):
        assert pool.tokens * pool.bytes_per_token <= size * (1 + 1e-9)


@several
@given(st.sampled_from(MODELS), setups(("vllm", "sglang", "trtllm")), pools, lengths)
def test_what_fits_at_once_fits_in_bytes(model: Geometry, setup: Settings, size: float, length: int) -> None:
    """N requests of one length, with only the tokens that their windows still see, take no more than the pool."""
    pool = kv_pool(model, setup, size)
    rank = math.floor(capacity(model, setup, pool, length) / setup.data_parallel)
    seen = 0.0
    for group in model.layers:
        only = replace(model, layers=(group,))
        token = kv_pool(only, replace(setup, engine="trtllm", block_size=1), size).bytes_per_token
        seen += token * min(length, group.window or length)
    assert rank * seen <= size * (1 + 1e-9)


@several
@given(st.sampled_from(MODELS), setups(("vllm", "sglang")), pools)
def test_more_devices_never_hold_less(model: Geometry, setup: Settings, size: float) -> None:
    alone = replace(setup, tensor_parallel=1, data_parallel=1, devices=setup.pipeline_parallel)
    wide = replace(alone, tensor_parallel=2, devices=2 * setup.pipeline_parallel)
    assert kv_pool(model, alone, size).tokens <= kv_pool(model, wide, size).tokens
    assert per_device_bytes(model, wide) <= per_device_bytes(model, alone)


@several
@given(setups(), pools, lengths, st.integers(1, 64), st.sampled_from([64, 128]), st.integers(1, 80))
def test_grouped_heads_that_are_all_heads_are_mha(
    setup: Settings, size: float, length: int, heads: int, width: int, count: int
) -> None:
    grouped = Layers(kind="full", count=count, kv_heads=heads, qk_head_dim=width, v_head_dim=width)
    model = replace(MODELS[0], layers=(grouped,), attention_heads=heads)
    single = replace(setup, tensor_parallel=1, data_parallel=1, pipeline_parallel=1, devices=1)
    single = replace(single, speculative_tokens=0)  # a draft keeps layers of its own, which are none of the model's
    pool = kv_pool(model, single, size)
    # the textbook's 2 x heads x head size x bytes a layer
    assert pool.bytes_per_token == 2 * heads * width * single.kv_bytes * count
    assert capacity(model, single, pool, length) >= 0


@several
@given(st.sampled_from(MODELS), setups(), st.sampled_from(DEVICES))
def test_memory_adds_up(model: Geometry, setup: Settings, device: Device) -> None:
    found = memory(model, setup, device)
    assert found.budget <= found.usable <= device.memory_bytes
    assert found.overhead_low <= found.overhead <= found.overhead_high
    assert found.pool_low <= found.pool <= found.pool_high
    assert math.isclose(found.pool, found.budget - found.weights - found.overhead, abs_tol=1.0)


@several
@given(st.sampled_from(MODELS), setups(), st.integers(1, 512))
def test_a_step_reads_at_most_what_is_stored(model: Geometry, setup: Settings, batch: int) -> None:
    least = streamed_bytes(model, setup, batch, limit=True)
    likely = streamed_bytes(model, setup, batch, limit=False)
    assert 0 < least <= likely <= per_device_bytes(model, setup) * (1 + 1e-9)
    alone = replace(setup, devices=1, tensor_parallel=1, data_parallel=1, pipeline_parallel=1, expert_parallel=1)
    # One device that holds all of it, tables and copies beside the weights included.
    assert per_device_bytes(model, setup) <= per_device_bytes(model, alone) * (1 + 1e-9)
    assert likely <= streamed_bytes(model, setup, batch + 1, limit=False)


@several
@given(
    st.sampled_from(MODELS),
    setups(),
    st.sampled_from(DEVICES),
    st.integers(1, 512),
    st.integers(1, 100_000),
    st.floats(0, 50),
)
def test_no_prediction_beats_its_limit(
    model: Geometry, setup: Settings, device: Device, batch: int, context: int, ratio: float
) -> None:
    step = roofline.predict_decode(model, setup, device, batch, context, ratio)
    limit = roofline.decode_limit(model, setup, device, batch, context).seconds / (1 + setup.speculative_tokens)
    assert 0 < limit <= step.low <= step.seconds <= step.high
    prompt = roofline.predict_prefill(model, setup, device, context)
    floor = roofline.prefill_limit(model, setup, device, context)
    assert 0 < floor.seconds <= prompt.low <= prompt.seconds <= prompt.high


@several
@given(
    st.sampled_from(MODELS),
    setups(),
    st.sampled_from(DEVICES),
    st.integers(1, 256),
    st.integers(1, 30_000),
)
def test_more_work_never_takes_less_time(
    model: Geometry, setup: Settings, device: Device, batch: int, context: int
) -> None:
    def limit(b: int, c: int) -> float:
        return roofline.decode_limit(model, setup, device, b, c).seconds

    # Beyond its first chunk a chunked layer may see one key.
    assert limit(batch, context) <= limit(batch + 1, context)
    if all(group.kind != "chunked" for group in model.layers):
        assert limit(batch, context) <= limit(batch, context + 1000)
    prompts = [roofline.prefill_limit(model, setup, device, n).seconds for n in (context, context + 1000)]
    assert prompts[0] <= prompts[1]


@several
@given(
    st.integers(0, 400),
    st.integers(0, 400),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_verdicts_move_one_way(n: int, bad: int, quantile: float, confidence: float) -> None:
    bad = min(bad, n)
    order = ("pass", "inconclusive", "fail")
    now = order.index(statistics.judge(n, bad, quantile, confidence))
    if bad < n:
        assert now <= order.index(statistics.judge(n, bad + 1, quantile, confidence))
    more = statistics.missing(n, bad, quantile, confidence)
    assert statistics.judge(n + more, bad, quantile, confidence) == "pass"
    assert more == 0 or statistics.judge(n + more - 1, bad, quantile, confidence) != "pass"


@several
@given(st.integers(1, 300), st.integers(0, 300), st.sampled_from([0.8, 0.95]))
def test_share_intervals_hold_their_point(n: int, bad: int, confidence: float) -> None:
    bad = min(n, bad)
    interval = statistics.share_interval(n, bad, confidence)
    assert 0 <= interval.low <= interval.point + 1e-12
    assert interval.point - 1e-12 <= interval.high <= 1


@several
@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_quantile_intervals_hold_their_point(values: list[float], quantile: float) -> None:
    interval = statistics.quantile_interval(values, quantile, 0.95)
    assert interval.low <= interval.point <= interval.high


@several
@given(st.lists(st.integers(1, 100_000), min_size=4, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_length_curves_rise(points: list[int], one: float, other: float) -> None:
    lengths_curve = shape.curve(*sorted(points))
    low, high = sorted((one, other))
    assert shape.at(lengths_curve, low) <= shape.at(lengths_curve, high)
    assert shape.at(lengths_curve, 0) <= shape.mean(lengths_curve) + 1e-6
    assert shape.mean(lengths_curve) <= shape.at(lengths_curve, 1) + 1e-6
