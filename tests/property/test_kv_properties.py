"""What must hold for vLLM's cache whatever the model's layers, the release and the settings."""

import math
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from auditor.catalog import hf
from auditor.theory.kv import vllm
from auditor.theory.kv.cells import layer_bytes
from auditor.theory.kv.geometry import Geometry, Indexer, Layers, Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.kv.state import all_state_bytes
from auditor.theory.kv.vllm_groups import layout
from auditor.theory.settings import Settings

GIB = 1 << 30
RELEASES = [None, "0.7.3", "0.8.5", "0.11.0", "0.13.0", "0.18.0", "0.20.2", "0.26.0", "0.32.0"]

several = settings(max_examples=150, deadline=None)
counts = st.integers(1, 40)
lengths = st.integers(1, 40_000)
sizes = st.integers(GIB // 2, 200 * GIB)


@st.composite
def attention(draw: st.DrawFn) -> tuple[Layers, ...]:
    """One or two kinds of layers with equal pages, or pages of which one is a multiple of the other."""
    size, heads = draw(st.sampled_from([64, 128])), draw(st.sampled_from([4, 8, 16]))
    window = draw(st.sampled_from([128, 1024, 4096]))
    full = Layers(kind="full", count=draw(counts), kv_heads=heads, qk_head_dim=size, v_head_dim=size)
    kind = draw(st.sampled_from(["none", "sliding", "chunked", "all"]))
    if kind == "none":
        return (full,)
    if kind == "all":
        return (replace(full, kind="sliding", window=window),)
    wide = draw(st.sampled_from([heads, 2 * heads])) if kind == "sliding" else heads
    return (
        replace(
            full, kind="sliding" if kind == "sliding" else "chunked", count=draw(counts), kv_heads=wide, window=window
        ),
        full,
    )


@st.composite
def models(draw: st.DrawFn) -> Geometry:
    """A model that vLLM serves: attention, latents with or without an indexer, or full layers beside states."""
    kind = draw(st.sampled_from(["attention", "latent", "hybrid"]))
    recurrent: tuple[Recurrent, ...] = ()
    indexer = None
    if kind == "attention":
        layers = draw(attention())
    elif kind == "latent":
        count = draw(counts)
        layers = (Layers(kind="mla", count=count, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576),)
        indexer = Indexer(count=count, token_bytes=132) if draw(st.booleans()) else None
    else:
        layers = (Layers(kind="full", count=draw(counts), kv_heads=2, qk_head_dim=256, v_head_dim=256),)
        heads = draw(st.sampled_from([16, 32, 64]))
        recurrent = (
            Recurrent(
                kind=draw(st.sampled_from(["linear", "mamba2"])),
                count=draw(counts),
                heads=heads,
                head_dim=64,
                state_size=128,
                groups=8,
                conv_kernel=4,
                state_bytes=draw(st.sampled_from([None, 4.0])),
            ),
        )
    return Geometry(
        name="drawn",
        architecture="",
        layers=layers,
        recurrent=recurrent,
        indexer=indexer,
        hidden_size=1024,
        vocab_size=1000,
        attention_heads=16,
        parameters=10_000_000,
        active_parameters=9_000_000,
        embedding_parameters=1_024_000,
        tied_embeddings=True,
    )


@st.composite
def setups(draw: st.DrawFn) -> Settings:
    tensor, stages = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 1, 2, 3]))
    return Settings(
        engine="vllm",
        engine_version=draw(st.sampled_from(RELEASES)),
        devices=tensor * stages,
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        kv_bytes=draw(st.sampled_from([1.0, 2.0])),
        block_size=draw(st.sampled_from([None, 16, 64, 128])),
        max_model_len=draw(st.sampled_from([2048, 40_000])),
        max_num_batched_tokens=draw(st.sampled_from([512, 2048, 8192])),
        speculative_tokens=draw(st.sampled_from([0, 0, 2])),
        mamba_cache_mode=draw(st.sampled_from([None, "align", "all"])),
        steps_in_flight=draw(st.sampled_from([None, 1])),
    )


def served(model: Geometry, setup: Settings) -> None:
    """Leave out what this release refuses."""
    try:
        layout(model, setup)
    except ValueError:
        assume(False)


@several
@given(models(), setups(), sizes, lengths, lengths)
def test_longer_requests_need_more_and_fit_less(
    model: Geometry, setup: Settings, size: int, one: int, other: int
) -> None:
    served(model, setup)
    pool = kv_pool(model, setup, size)
    shorter, longer = sorted((one, other))
    assert vllm.blocks_needed(model, setup, shorter) <= vllm.blocks_needed(model, setup, longer)
    assert capacity(model, setup, pool, shorter) >= capacity(model, setup, pool, longer)


@several
@given(models(), setups(), sizes, sizes, lengths)
def test_more_bytes_never_hold_less(model: Geometry, setup: Settings, one: int, other: int, length: int) -> None:
    served(model, setup)
    smaller, larger = (kv_pool(model, setup, size) for size in sorted((one, other)))
    assert smaller.tokens <= larger.tokens
    assert capacity(model, setup, smaller, length) <= capacity(model, setup, larger, length)


@several
@given(models(), setups(), sizes)
def test_blocks_fill_the_pool_and_no_more(model: Geometry, setup: Settings, size: int) -> None:
    served(model, setup)
    pool, block = kv_pool(model, setup, size), layout(model, setup).block_bytes
    assert pool.bytes <= size < pool.bytes + block


@several
@given(models(), setups(), sizes, lengths)
def test_requests_at_once_fit_in_the_blocks_and_one_more_does_not(
    model: Geometry, setup: Settings, size: int, length: int
) -> None:
    served(model, setup)
    pool = kv_pool(model, setup, size)
    many, each = math.floor(capacity(model, setup, pool, length)), vllm.blocks_needed(model, setup, length)
    assert pool.blocks is not None
    assert many * each <= pool.blocks
    assert (many + 1) * each >= pool.blocks


@several
@given(models(), setups(), sizes, lengths)
def test_what_requests_hold_is_never_more_than_the_pool(
    model: Geometry, setup: Settings, size: int, length: int
) -> None:
    """Tokens that windows still see, in every layer of the model, and a state each, against all stages' pools."""
    served(model, setup)
    if model.indexer is not None and setup.kv_cache_dtype == "auto":  # which packed sparse latents up to 0.11.0
        setup = replace(setup, kv_cache_dtype="bf16")
    pool = kv_pool(model, setup, size)
    tokens = sum(g.count * layer_bytes(g, setup) * min(length, g.window or length) for g in model.layers)
    keys = model.indexer.count * model.indexer.token_bytes * length if model.indexer else 0
    states = all_state_bytes(model, replace(setup, pipeline_parallel=1)) if layout(model, setup).tables > 1 else 0.0
    held = tokens + keys + states
    assert math.floor(capacity(model, setup, pool, length)) * held <= size * setup.pipeline_parallel


@several
@given(models(), setups(), sizes, lengths)
def test_wider_tensor_parallelism_never_holds_less(model: Geometry, setup: Settings, size: int, length: int) -> None:
    """Except for states, whose blocks are aligned anew."""
    assume(not model.recurrent)
    served(model, setup)
    wide = replace(setup, tensor_parallel=2 * setup.tensor_parallel, devices=2 * setup.devices)
    served(model, wide)
    narrow_fits, wide_fits = (capacity(model, s, kv_pool(model, s, size), length) for s in (setup, wide))
    assert narrow_fits <= wide_fits * (1 + 1e-9)


@several
@given(models(), setups(), sizes)
def test_the_longest_request_fits_alone(model: Geometry, setup: Settings, size: int) -> None:
    served(model, setup)
    pool = kv_pool(model, setup, size)
    longest = vllm.longest(model, setup, pool)
    assume(longest > 0)
    assert capacity(model, setup, pool, longest) >= 1


@several
@given(models(), setups())
def test_every_layer_lies_in_a_group_and_few_are_padding(model: Geometry, setup: Settings) -> None:
    served(model, setup)
    found = layout(model, setup)
    for kind in found.kinds:
        if kind.groups and found.tables > 1:
            assert (kind.groups - 1) * found.group_size < kind.layers <= kind.groups * found.group_size


@several
@given(st.integers(1, 64), st.sampled_from([64, 128]), st.integers(1, 80), setups(), sizes)
def test_grouped_heads_that_are_all_heads_are_mha(
    heads: int, width: int, layers: int, setup: Settings, size: int
) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": heads * width,
        "intermediate_size": 256,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
    }
    plain = hf.geometry(config, "mha")
    grouped = hf.geometry({**config, "num_key_value_heads": heads, "head_dim": width}, "gqa")
    assert kv_pool(plain, setup, size) == kv_pool(grouped, setup, size)
    single = replace(setup, tensor_parallel=1, pipeline_parallel=1, speculative_tokens=0)
    # the textbook's 2 x layers x heads x head size x bytes
    block = layout(plain, single).block
    assert layout(plain, single).block_bytes == 2 * layers * heads * width * setup.kv_bytes * block
