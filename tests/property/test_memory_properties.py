"""What must be true of the memory of one device, whatever the model, settings and engine."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Experts, Geometry, Layers
from auditor.theory.memory import memory
from auditor.theory.settings import Settings

GIB = 1 << 30
several = settings(max_examples=60, deadline=None)
ENGINES = ("vllm", "sglang", "trtllm", "lmdeploy")
VERSIONS = {"vllm": (None, "0.6.4", "0.8.5", "0.11.0", "0.16.0", "0.19.0", "0.23.0", "0.32.0")}

HEADS = Layers(kind="full", count=32, kv_heads=8, qk_head_dim=128, v_head_dim=128)
LATENT = Layers(kind="mla", count=61, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576)
DENSE = Geometry(
    name="dense",
    architecture="LlamaForCausalLM",
    layers=(HEADS,),
    hidden_size=4096,
    vocab_size=128256,
    attention_heads=32,
    parameters=0,
    active_parameters=0,
    embedding_parameters=0,
    tied_embeddings=False,
    intermediate_size=14336,
)
EXPERTS = Experts(count=256, per_token=8, layers=58, parameters=3 * 7168 * 2048)
MIXTURE = replace(DENSE, layers=(LATENT,), hidden_size=7168, vocab_size=129280, attention_heads=128, experts=EXPERTS)
SEEING = replace(DENSE, vocab_size=262144, vision=True, intermediate_size=None)
models = st.sampled_from([DENSE, MIXTURE, SEEING])
devices = st.builds(
    lambda size, vendor: Device(
        key=f"{vendor}-{size}",
        name=vendor,
        vendor=vendor,
        kind="gpu",
        memory_bytes=size * GIB,
        usable_bytes=int(0.98 * size * GIB),
        bandwidth=0.0,
        flops={},
    ),
    st.sampled_from([16, 24, 48, 80, 141, 192]),
    st.sampled_from(["nvidia", "amd", "intel"]),
)


@st.composite
def setups(draw: st.DrawFn) -> Settings:
    engine = draw(st.sampled_from(ENGINES))
    devices = draw(st.sampled_from([1, 2, 4, 8]))
    return Settings(
        engine=engine,
        engine_version=draw(st.sampled_from(VERSIONS.get(engine, (None, "0.4.6", "0.5.5")))),
        tensor_parallel=devices,
        devices=devices,
        max_num_seqs=draw(st.sampled_from([None, 16, 256, 1024])),
        max_num_batched_tokens=draw(st.sampled_from([None, 512, 8192, 32768])),
        max_model_len=draw(st.sampled_from([None, 4096, 131072])),
        memory_fraction=draw(st.floats(0.3, 0.97)),
        enforce_eager=draw(st.booleans()),
        weight_bytes=float(draw(st.integers(1, 60)) * GIB),
    )


@several
@given(models, setups(), devices)
def test_parts_and_bounds(geometry: Geometry, setup: Settings, device: Device) -> None:
    found = memory(geometry, setup, device)
    assert 0 <= found.overhead_low <= found.overhead <= found.overhead_high
    assert found.pool_low <= found.pool <= found.pool_high
    assert abs(found.overhead - found.activations - found.graphs - found.other) < 1
    assert abs(found.budget - found.weights - found.overhead - found.pool) < 1
    assert abs(found.usable - found.budget - found.beyond - found.free) < 1
    assert min(found.activations, found.graphs, found.other, found.beyond, found.free) >= 0


@several
@given(models, setups(), devices, st.floats(0.0, 0.03))
def test_a_larger_fraction_leaves_more(geometry: Geometry, setup: Settings, device: Device, more: float) -> None:
    wider = replace(setup, memory_fraction=(setup.memory_fraction or 0.0) + more)
    less, most = memory(geometry, setup, device), memory(geometry, wider, device)
    if less.pool >= 0:  # where weights do not fit, a share of what is free is a share of nothing
        assert most.pool >= less.pool - 1
        assert most.free + most.beyond <= less.free + less.beyond + 1


@several
@given(models, setups(), devices, st.integers(1, 20))
def test_heavier_weights_leave_less(geometry: Geometry, setup: Settings, device: Device, more: int) -> None:
    heavier = replace(setup, weight_bytes=(setup.weight_bytes or 0.0) + more * GIB)
    assert memory(geometry, heavier, device).pool < memory(geometry, setup, device).pool


@several
@given(models, setups(), devices)
def test_more_devices_share_activations_and_cost_communicators(
    geometry: Geometry, setup: Settings, device: Device
) -> None:
    alone = replace(setup, tensor_parallel=1, devices=1)
    wide = replace(setup, tensor_parallel=2, devices=2)
    one, two = memory(geometry, alone, device), memory(geometry, wide, device)
    assert two.activations <= one.activations
    assert two.other >= one.other
    halved = memory(geometry, replace(wide, weight_bytes=(setup.weight_bytes or 0.0) / 2), device)
    assert halved.pool - two.pool > 0


@several
@given(models, setups(), devices, st.sampled_from([2, 4]))
def test_larger_steps_and_batches_never_leave_more(
    geometry: Geometry, setup: Settings, device: Device, times: int
) -> None:
    base = replace(setup, max_num_seqs=256, max_num_batched_tokens=4096)
    for larger in (
        replace(base, max_num_batched_tokens=4096 * times),
        replace(base, max_num_seqs=256 * times),
    ):
        assert memory(geometry, larger, device).pool <= memory(geometry, base, device).pool + 1


@several
@given(models, setups(), devices)
def test_graphs_cost_only_where_they_are_captured(geometry: Geometry, setup: Settings, device: Device) -> None:
    eager = memory(geometry, replace(setup, enforce_eager=True), device)
    captured = memory(geometry, replace(setup, enforce_eager=False), device)
    assert eager.graphs == 0
    assert captured.pool <= eager.pool + 1
