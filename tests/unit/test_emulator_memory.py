"""The emulator's own memory arithmetic and law of time, against hand-worked numbers."""

from dataclasses import replace

import pytest

from auditor.catalog import accelerators, models
from auditor.emulator.memory import GIB, kv_bytes_per_token, pool_size, weight_bytes
from auditor.emulator.spec import DEFAULT_GEOMETRY, Faults, Spec, served, spec_from
from auditor.emulator.timing import law
from auditor.engines.settings import resolve
from auditor.errors import UsageError
from auditor.profile import Deployment, Endpoint, Probe, Profile
from auditor.theory.kv.geometry import Experts, Layers, Recurrent
from auditor.theory.kv.pool import capacity, kv_pool
from auditor.theory.settings import Settings


def test_weights_of_llama_8b():
    """Bf16: 2 bytes a parameter. Fp8: 1 byte, but both embedding matrices keep 2."""
    assert weight_bytes(Spec()) == 16_060_522_496
    assert weight_bytes(Spec(weight_bits=8)) == 8_030_261_248 + 2 * 525_336_576
    assert weight_bytes(Spec(tensor_parallel=2)) == 8_030_261_248
    assert weight_bytes(Spec(geometry=replace(DEFAULT_GEOMETRY, weight_bytes=9_000), pipeline_parallel=2)) == 4_500


def test_kv_of_llama_8b_is_128_kib_per_token():
    assert kv_bytes_per_token(Spec()) == 2 * 32 * 8 * 128 * 2
    assert kv_bytes_per_token(Spec(kv_bytes=1.0)) == 65_536
    assert kv_bytes_per_token(Spec(tensor_parallel=16)) == 2 * 32 * 1 * 128 * 2  # one KV head is left on each device


def test_kv_of_mla_is_not_divided_by_tensor_parallelism():
    layers = (Layers(kind="mla", count=61, kv_heads=1, qk_head_dim=192, v_head_dim=128, latent_dim=576),)
    spec = Spec(geometry=replace(DEFAULT_GEOMETRY, layers=layers), tensor_parallel=8)
    assert kv_bytes_per_token(spec) == 61 * 576 * 2
    assert kv_bytes_per_token(replace(spec, kv_bytes=1.0, kv_cache_dtype="fp8_ds_mla")) == 61 * 656
    # 64 sequences of 8,192 tokens read 36.8 GB of latents a step on every device: 11 ms at 3.35 TB/s.
    assert law(spec).step([8192] * 64, []) - law(spec).step([1] * 64, []) > 0.011


SLIDING = Layers(kind="sliding", count=5, kv_heads=2, qk_head_dim=64, v_head_dim=64, window=512)
FULL = replace(SLIDING, kind="full", count=1, window=None)
GEMMA = replace(DEFAULT_GEOMETRY, layers=(SLIDING, FULL))
CPU_RUN = {"block_size": 128, "max_model_len": 4096, "max_num_batched_tokens": 2048, "pool_bytes": 2**30}


@pytest.mark.parametrize(
    ("step", "manager", "tokens", "requests"),
    [(1024, True, 489_845, 119.59), (256, True, 871_543, 212.78), (1024, False, 349_440, 85.31)],
)
def test_sliding_layers_stop_growing_as_vllm_logs_it(step, manager, tokens, requests):
    """vLLM 0.32.0 on a CPU, a GiB: 5 sliding layers of 512 and a full one, steps of 2,048 and 512 tokens, and without
    the hybrid manager. There one step is in flight, here two of half the size.
    """
    spec = Spec(geometry=GEMMA, hybrid_manager=manager, **(CPU_RUN | {"max_num_batched_tokens": step}))
    size = pool_size(spec)
    assert (size.tokens, round(size.requests, 2)) == (tokens, requests)


DELTA = Recurrent(
    kind="linear", count=3, heads=32, head_dim=128, state_size=128, groups=16, conv_kernel=4, state_bytes=4.0
)
HYBRID = replace(DEFAULT_GEOMETRY, layers=(FULL,), recurrent=(DELTA,))


def test_states_are_held_in_blocks_that_grow_until_one_fits():
    """8,192 x 3 x 2 + 32 x 128 x 128 x 4 = 2,146,304 bytes of state, 512 of a token: blocks of 4,192 tokens. A request
    takes one for each of three recurrent layers whatever its length, and one more each 4,192 tokens.
    """
    size = pool_size(Spec(geometry=HYBRID, pool_bytes=2**30, max_model_len=8192, max_num_seqs=64))
    assert size.page == 4192
    assert size.slots == 2**30 // 2_146_304 * 4192
    assert [size.needs(tokens) // 4192 for tokens in (1, 4192, 4193, 8384)] == [4, 4, 5, 5]
    assert size.requests == pytest.approx(500 / 5)
    drafted = pool_size(
        Spec(geometry=HYBRID, pool_bytes=2**30, max_model_len=8192, max_num_seqs=64, speculative_tokens=1)
    )
    assert drafted.needs(1) // drafted.page == 7  # a state more for each draft


def test_sglang_keeps_states_beside_its_tokens():
    """0.9 / 1.9 of a GiB less a spare one, over 3 x 2,146,304 bytes: 77 slots; with prefixes five for each request."""
    spec = Spec(flavour="sglang", version="0.5.23", block_size=1, geometry=HYBRID, pool_bytes=2**30, state_bytes=4.0)
    size = pool_size(spec)
    assert size.running == int((2**30 * 0.9 / 1.9 - 6_438_912) // 6_438_912) // 5
    assert size.tokens == (2**30 - 78 * 6_438_912) // 512
    assert pool_size(replace(spec, prefix_caching=False)).running == 77


def test_sglang_keeps_sliding_layers_apart_for_some_models_alone():
    spec = Spec(flavour="sglang", geometry=GEMMA)
    assert kv_bytes_per_token(spec) == 6 * 512
    own = replace(GEMMA, architecture="GptOssForCausalLM")
    assert kv_bytes_per_token(replace(spec, geometry=own)) == 512 + 0.8 * 5 * 512


def test_the_pool_is_what_weights_and_overhead_leave():
    size = pool_size(Spec())
    budget = 79.2 * GIB * 0.92
    left = budget - 16_060_522_496
    assert left - 0.036 * budget < size.bytes < left - 0.015 * budget
    assert size.tokens % 16 == 0
    assert size.bytes == size.tokens * 131_072
    assert pool_size(Spec(seed=1)).tokens != size.tokens


def test_a_fixed_pool_is_taken_as_it_is():
    assert pool_size(Spec(pool_tokens=9000)).tokens == 8992  # whole blocks of 16
    assert pool_size(Spec(pool_bytes=2**30, max_model_len=4096)).tokens == 8192


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(pool_tokens=8192), "max_model_len"),  # one block is kept back, so 8,192 tokens do not fit 8,192
        (Spec(weight_bits=80), "do not fit"),
        (Spec(flavour="sglang", pool_tokens=1), "holds no request"),
        (Spec(geometry=HYBRID, pool_bytes=2**28, max_model_len=2048), "max_num_seqs 256 exceeds the 125 blocks"),
        (Spec(geometry=replace(HYBRID, layers=())), "without attention"),
        (Spec(flavour="sglang", geometry=HYBRID, pool_bytes=2**24, block_size=1), "no request's state"),
    ],
)
def test_what_would_not_start_is_refused_in_one_line(spec, words):
    with pytest.raises(UsageError, match=words) as caught:
        pool_size(spec)
    assert "\n" not in str(caught.value)


def test_served_differs_from_declared_where_it_drifted():
    spec = Spec(faults=Faults(drifted={"max_num_seqs": 8, "max_model_len": 2048}))
    assert (served(spec).max_num_seqs, served(spec).max_model_len, served(spec).version) == (8, 2048, "0.32.0")
    assert served(Spec()) == Spec()


# ---------------------------------------------------------------------------------------------------------------- law


def test_decode_is_never_faster_than_its_bytes():
    """Llama 8B in bf16 on 3.35 TB/s: 14 GB of layers and 1 GB of head take at least 4.48 ms."""
    for seed in range(20):
        step = law(Spec(seed=seed)).step([100], [])
        assert 4.48e-3 < step < 8e-3


def test_prefill_is_never_faster_than_its_flops():
    """4,000 tokens are 2 x 6.98e9 x 4,000 FLOP: 56 ms at 989 TFLOP/s."""
    for seed in range(20):
        assert 0.0564 < law(Spec(seed=seed)).step([], [(4000, 0)]) < 0.15


def test_batches_are_padded_to_captured_sizes():
    steps = law(Spec(jitter=0.0)).step
    per_sequence = law(Spec(jitter=0.0)).per_sequence
    big = law(Spec(enforce_eager=True)).step
    # In the compute-bound range 257 sequences cost as 272 do, apart from the host's part and the KV read.
    assert steps([0] * 272, []) - steps([0] * 257, []) == pytest.approx(15 * per_sequence)
    assert big([0] * 272, []) - big([0] * 257, []) > 15 * per_sequence


def test_without_graphs_a_layer_takes_at_least_its_launch():
    eager = law(Spec(enforce_eager=True))
    tiny = replace(DEFAULT_GEOMETRY, parameters=10**7, active_parameters=10**6, embedding_parameters=10**6)
    step = law(Spec(geometry=tiny, enforce_eager=True)).step([1], [])
    assert step > 32 * eager.launch
    assert law(Spec(geometry=tiny)).step([1], []) < step / 2


def test_a_device_without_the_compute_dtype_takes_the_next_best():
    prefill = law(Spec(compute_dtype="fp4")).step([], [(4000, 0)])
    assert prefill == law(Spec(compute_dtype="bf16")).step([], [(4000, 0)])
    int8 = replace(Spec().device, flops={"int8": 1e12})
    assert law(Spec(device=int8)).step([], [(4000, 0)]) > 50


def test_long_contexts_and_many_sequences_take_longer():
    step = law(Spec()).step
    assert step([1000] * 64, []) < step([8000] * 64, []) < step([8000] * 128, [])


def test_few_experts_are_read_for_few_tokens():
    """An eighth of the experts for one token, nearly all for a hundred."""
    experts = Experts(count=8, per_token=1, layers=32, parameters=10**8)
    moe = replace(DEFAULT_GEOMETRY, experts=experts, active_parameters=4 * 10**9)
    assert law(Spec(geometry=moe)).step([1] * 100, []) > 3 * law(Spec(geometry=moe)).step([1], [])


def test_speculation_computes_more_tokens_a_step():
    assert law(Spec(speculative_tokens=4)).step([0] * 128, []) > 1.5 * law(Spec()).step([0] * 128, [])


# --------------------------------------------------------------------------------------------------------------- spec


def _profile(**deployment):
    return Profile(
        version=1, name="p", endpoint=Endpoint(url="emulator"), deployment=Deployment(**deployment), probe=Probe(seed=5)
    )


def test_spec_from_a_profile():
    settings = Settings(engine="vllm", engine_version="0.18.0", max_num_seqs=128, block_size=32, memory_fraction=0.9)
    spec = spec_from(_profile(replicas=2), DEFAULT_GEOMETRY, Spec().device, settings)
    assert (spec.flavour, spec.version, spec.replicas, spec.seed) == ("vllm", "0.18.0", 2, 5)
    assert (spec.max_num_seqs, spec.block_size, spec.memory_fraction) == (128, 32, 0.9)
    assert spec.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert spec.max_model_len == 131_072


def test_spec_of_sglang_has_its_defaults():
    spec = spec_from(_profile(), DEFAULT_GEOMETRY, Spec().device, Settings(engine="sglang"), api_key="k")
    assert (spec.flavour, spec.block_size, spec.version, spec.api_key) == ("sglang", 1, "0.5.23", "k")


def test_engines_that_cannot_be_played_are_refused():
    with pytest.raises(UsageError, match="llamacpp"):
        spec_from(_profile(), DEFAULT_GEOMETRY, Spec().device, Settings(engine="llamacpp"))


# ------------------------------------------------------------------------------------------ two arithmetics, one engine


@pytest.mark.parametrize("version", ["0.19.0", "0.32.0"])
@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3.5-35B-A3B",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "LiquidAI/LFM2-1.2B",
        "google/gemma-3-27b-it",
        "openai/gpt-oss-120b",
        "deepseek-ai/DeepSeek-V3.2",
        "meta-llama/Llama-3.1-8B-Instruct",
    ],
)
def test_the_emulator_tells_what_the_auditor_computes(name, version):
    """Both were written apart; where they agree an emulated audit shows no difference of its own making."""
    geometry, device = models.find(name), accelerators.find("h200-sxm")
    declared = Profile(
        version=1,
        name="p",
        endpoint=Endpoint(url="emulator", engine="vllm"),
        deployment=Deployment(engine_version=version, max_model_len=8192, max_num_seqs=64),
    )
    settings, _ = resolve(declared, None, None, geometry, device)
    mode = "none" if geometry.recurrent else settings.mamba_cache_mode
    settings = replace(settings, kv_pool_bytes=32 * GIB, mamba_cache_mode=mode)
    size, kv = pool_size(spec_from(declared, geometry, device, settings)), kv_pool(geometry, settings, None)
    assert (size.slots // size.page, size.page) == (kv.blocks, kv.block_size)
    assert size.requests == pytest.approx(capacity(geometry, settings, kv, 8192))
