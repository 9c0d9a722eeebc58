"""What must hold of SGLang's, llama.cpp's, TensorRT-LLM's and LMDeploy's pools, whatever the model and the flags."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from auditor.theory.kv.geometry import Geometry, Layers, Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings

_GIB = 1 << 30

_layers = st.builds(
    lambda count, heads, size, window: Layers(
        kind="full" if window is None else "sliding",
        count=count,
        kv_heads=heads,
        qk_head_dim=size,
        v_head_dim=size,
        window=window,
    ),
    st.integers(1, 40),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([64, 128, 256]),
    st.none() | st.sampled_from([128, 512, 4096]),
)
_states = st.builds(
    lambda count, heads: Recurrent(
        kind="linear", count=count, heads=heads, head_dim=64, state_size=64, groups=8, conv_kernel=4
    ),
    st.integers(1, 40),
    st.sampled_from([8, 16, 32]),
)


def _model(layers: list[Layers], recurrent: list[Recurrent], architecture: str) -> Geometry:
    return Geometry(
        name="any",
        architecture=architecture,
        layers=tuple(layers),
        recurrent=tuple(recurrent),
        hidden_size=1024,
        vocab_size=1000,
        attention_heads=16,
        parameters=1,
        active_parameters=1,
        embedding_parameters=1,
        tied_embeddings=True,
    )


_architectures = st.sampled_from(["", "GptOssForCausalLM", "Gemma4ForCausalLM", "LlamaForCausalLM"])
_plain = st.builds(_model, st.lists(_layers, min_size=1, max_size=3), st.just([]), _architectures)
_any = st.builds(_model, st.lists(_layers, min_size=1, max_size=3), st.lists(_states, max_size=2), _architectures)
_sglang = st.builds(
    lambda version, page, ratio, drafted: Settings(
        engine="sglang",
        engine_version=version,
        block_size=page,
        swa_full_tokens_ratio=ratio,
        speculative_tokens=drafted,
        max_num_seqs=16,
    ),
    st.sampled_from(["0.5.3", "0.5.6", "0.5.9", "0.5.16", "0.5.23"]),
    st.sampled_from([1, 16, 64]),
    st.sampled_from([0.1, 0.5, 0.8, 1.0]),
    st.sampled_from([0, 3]),
)
_paged = st.builds(
    lambda engine, windows: Settings(engine=engine, window_pools=windows),
    st.sampled_from(["trtllm", "lmdeploy"]),
    st.booleans(),
)
_sizes = st.integers(0, 200 * _GIB)


@given(_any, _sglang, _sizes)
def test_tokens_and_states_stay_within_the_memory(geometry, settings, size):
    """Up to 0.5.16 SGLang does not count the padding slot, and drafts are reserved whatever there is."""
    pool = kv_pool(geometry, settings, size)
    if settings.engine_version == "0.5.23" and pool.state_slots:
        assert pool.bytes <= size * (1 + 1e-12)
    if not geometry.recurrent:
        assert pool.bytes <= size * (1 + 1e-12)
    assert pool.tokens % (settings.block_size or 1) == 0
    assert pool.tokens >= 0


@given(_plain, _paged, _sizes)
def test_blocks_stay_within_the_memory(geometry, settings, size):
    pool = kv_pool(geometry, settings, size)
    assert pool.bytes <= size * (1 + 1e-12)
    assert pool.blocks is not None
    assert pool.tokens == pool.blocks * (pool.block_size or 1)


@given(_any, _sglang, _sizes, st.integers(1, 200_000), st.integers(1, 50_000))
def test_longer_requests_never_fit_more_often(geometry, settings, size, length, more):
    pool = kv_pool(geometry, settings, size)
    assert capacity(geometry, settings, pool, length + more) <= capacity(geometry, settings, pool, length)


@given(_plain, _paged, _sizes, st.integers(1, 200_000), st.integers(1, 50_000))
def test_longer_requests_never_fit_more_often_in_blocks(geometry, settings, size, length, more):
    pool = kv_pool(geometry, settings, size)
    assert capacity(geometry, settings, pool, length + more) <= capacity(geometry, settings, pool, length)


@given(_plain, st.one_of(_sglang, _paged), _sizes, st.integers(0, 50 * _GIB))
def test_more_memory_never_holds_less(geometry, settings, size, more):
    assert kv_pool(geometry, settings, size + more).tokens >= kv_pool(geometry, settings, size).tokens


@given(_plain, st.one_of(_sglang, _paged), st.sampled_from([1, 2, 4, 8]))
def test_more_devices_never_hold_less(geometry, settings, degree):
    one, many = (replace(settings, tensor_parallel=n, devices=n) for n in (degree, 2 * degree))
    assert kv_pool(geometry, many, 8 * _GIB).tokens >= kv_pool(geometry, one, 8 * _GIB).tokens


@given(_plain, st.one_of(_sglang, _paged), _sizes)
def test_smaller_elements_never_hold_less(geometry, settings, size):
    half = replace(settings, kv_bytes=1.0, kv_cache_dtype="fp8")
    assert kv_pool(geometry, half, size).tokens >= kv_pool(geometry, settings, size).tokens


_llama = st.builds(
    lambda version, slots, unified, ubatch, full: Settings(
        engine="llamacpp",
        engine_version=version,
        slots=slots,
        kv_unified=unified,
        ubatch=ubatch,
        full_swa_cache=full,
    ),
    st.sampled_from(["b5000", "b5800", "b6900", None]),
    st.integers(1, 16),
    st.booleans(),
    st.sampled_from([64, 512, 2048]),
    st.booleans(),
)


@given(_any, _llama, st.integers(1, 300_000), st.integers(1, 100_000))
def test_a_longer_context_never_takes_less(geometry, settings, context, more):
    short, long = (kv_pool(geometry, replace(settings, max_model_len=n), None) for n in (context, context + more))
    assert long.bytes >= short.bytes
    assert long.tokens >= short.tokens >= context * (1 if settings.kv_unified else settings.slots or 1)


@given(_any, _llama, st.integers(1, 300_000))
def test_windows_never_take_more_than_full_layers(geometry, settings, context):
    windows = replace(settings, max_model_len=context, full_swa_cache=False)
    full = replace(windows, full_swa_cache=True)
    assert kv_pool(geometry, windows, None).bytes <= kv_pool(geometry, full, None).bytes


@given(_plain, _llama, st.integers(1, 1200))
def test_cells_are_found_again_from_their_bytes(geometry, settings, thousands):
    """A context and the bytes that it takes say the same, where any layer keeps the whole context."""
    assume(any(layer.window is None for layer in geometry.layers))
    given_context = kv_pool(geometry, replace(settings, max_model_len=thousands * 256), None)
    told = kv_pool(geometry, replace(settings, kv_pool_bytes=round(given_context.bytes)), None)
    assert abs(told.tokens - given_context.tokens) <= given_context.tokens * 1e-3


@given(_any, _llama, st.integers(1, 300_000), st.integers(1, 400_000))
def test_no_more_requests_than_slots(geometry, settings, context, length):
    pool = kv_pool(geometry, replace(settings, max_model_len=context), None)
    assert capacity(geometry, settings, pool, length) <= (settings.slots or 1)


@given(st.sampled_from(["sglang", "llamacpp", "trtllm", "lmdeploy"]), st.integers(1, 16), st.sampled_from([64, 128]))
def test_grouped_heads_that_are_as_many_as_the_queries_are_not_grouped(engine, heads, size):
    """GQA with as many key as query heads is MHA: 2 x heads x d values a token and layer."""
    one = Layers(kind="full", count=10, kv_heads=heads, qk_head_dim=size, v_head_dim=size)
    pool = kv_pool(_model([one], [], ""), Settings(engine=engine, max_model_len=1024), _GIB)
    assert pool.bytes_per_token == 10 * 2 * heads * size * 2
