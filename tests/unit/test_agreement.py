"""A told pool against the arithmetic: figures that vLLM 0.32.0 logs on a CPU (block 128, 1 GiB, bfloat16).

Gemma-3's shape with 5 sliding layers of 512 and a full one, 2 KV heads of 64, asked for 4,096 tokens a request: 489,845
tokens and 119.59 requests at once with steps of 2,048 tokens, 871,543 and 212.78 with steps of 512, 349,440 and 85.31
without the hybrid manager. By hand: a block of one layer is 128 x 2 x 2 x 64 x 2 = 65,536 bytes, so 16,384 of them; a
request takes 32 for the full layer and ceil((511 + 2,048) / 128) + 1 = 21 for each sliding one, 137 in all.
"""

from dataclasses import replace

import pytest

from auditor.catalog import accelerators, models
from auditor.theory.agreement import Cause, Told, as_told, causes, compare, implied_share
from auditor.theory.kv.geometry import Geometry, Layers, Recurrent
from auditor.theory.settings import Settings

LLAMA = models.find("meta-llama/Llama-3.1-8B-Instruct")
H100 = accelerators.find("h100-sxm")
GIB = 2**30


def layers(kind: str, count: int, window: int | None = None) -> Layers:
    return Layers(kind=kind, count=count, kv_heads=2, qk_head_dim=64, v_head_dim=64, window=window)  # type: ignore[arg-type]


GEMMA = replace(LLAMA, layers=(layers("sliding", 5, 512), layers("full", 1)), architecture="Gemma3ForCausalLM")
CPU = Settings(
    engine="vllm",
    engine_version="0.32.0",
    vendor="cpu",
    block_size=128,
    max_model_len=4096,
    max_num_seqs=16,
    max_num_batched_tokens=2048,
    kv_pool_bytes=GIB,
)


def gemma(requests: float, blocks: int = 16384) -> Told:
    return Told(blocks=blocks, block_size=128, requests=requests, length=4096)


def only(geometry: Geometry, settings: Settings, told: Told, unit: str):
    [figure] = [f for f in compare(geometry, settings, None, told) if f.unit.startswith(unit)]
    return figure


def test_a_hybrids_blocks_and_requests_are_those_that_the_engine_tells():
    found = compare(GEMMA, CPU, None, gemma(119.59))
    assert [figure.unit for figure in found] == ["blocks", "requests of 4,096 tokens"]
    assert all(figure.agrees and figure.exact for figure in found)
    assert found[0].ours == 16384
    assert found[1].ours == pytest.approx(16384 / 137)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (gemma(212.78), Cause("max_num_batched_tokens", "512")),
        (gemma(85.31, 2730), Cause("hybrid_kv_manager", "off")),
    ],
)
def test_a_setting_that_would_explain_the_difference_is_named(told, cause):
    assert not all(figure.agrees for figure in compare(GEMMA, CPU, None, told))
    assert causes(GEMMA, CPU, None, told)[0] == cause


def test_two_steps_in_flight_look_like_steps_of_twice_the_tokens():
    """ceil((511 + 1,024) / 128) + 1 = 13 blocks for each of five sliding layers, 32 for the full one."""
    found = causes(GEMMA, replace(CPU, max_num_batched_tokens=512), None, gemma(16384 / 97))
    assert found == (Cause("max_num_batched_tokens", "1024"), Cause("async_scheduling", "on"))


def test_an_8_bit_cache_doubles_the_blocks():
    """Llama's block of 16 tokens is 2 MiB, so a GiB is 512 blocks; 1,024 are what one byte a value gives."""
    settings = Settings(engine="vllm", block_size=16, kv_pool_bytes=GIB, max_model_len=4096)
    told = Told(blocks=1024, block_size=16)
    figure = only(LLAMA, settings, told, "blocks")
    assert (figure.ours, figure.off, figure.agrees) == (512, -0.5, False)
    assert causes(LLAMA, settings, None, told)[0] == Cause("kv_cache_dtype", "fp8")


def test_a_pool_five_percent_smaller_than_its_bytes_has_no_explanation():
    settings = Settings(engine="vllm", block_size=16, kv_pool_bytes=GIB, max_model_len=4096)
    told = Told(blocks=487, block_size=16)
    assert not only(LLAMA, settings, told, "blocks").agrees
    assert causes(LLAMA, settings, None, told) == ()
    assert implied_share(LLAMA, settings, H100, told) is None  # a flag fixes it, whatever the memory


def test_another_value_of_the_flag_that_fixes_the_pool_is_named_first():
    settings = Settings(engine="vllm", block_size=16, kv_pool_bytes=GIB, max_model_len=4096)
    told = Told(blocks=256, block_size=16, bytes=GIB // 2)
    assert causes(LLAMA, settings, None, told)[0] == Cause("kv_pool_bytes", str(GIB // 2))


def test_blocks_of_another_size_are_compared_by_their_tokens():
    settings = Settings(engine="vllm", block_size=16, kv_pool_bytes=GIB, max_model_len=8192)
    figure = only(LLAMA, settings, Told(blocks=256, block_size=32, tokens=8192), "tokens")
    assert (figure.ours, figure.told, figure.agrees) == (8192, 8192, True)


def test_an_estimated_pool_agrees_within_its_range_alone():
    settings = Settings(engine="vllm", engine_version="0.18.0", block_size=16, max_model_len=8192, memory_fraction=0.92)
    [figure] = compare(LLAMA, settings, H100, Told(blocks=1, block_size=16))
    assert not figure.exact
    assert figure.low < figure.ours < figure.high
    for blocks, agrees in ((figure.low, True), (figure.high, True), (figure.low * 0.95, False)):
        [found] = compare(LLAMA, settings, H100, Told(blocks=round(blocks), block_size=16))
        assert found.agrees is agrees


def test_a_smaller_share_of_the_memory_is_told_by_the_pool_it_gives():
    """A tenth of the H100's 79.2 GiB less for the pool."""
    settings = Settings(engine="vllm", engine_version="0.18.0", block_size=16, max_model_len=8192, memory_fraction=0.92)
    [figure] = compare(LLAMA, settings, H100, Told(blocks=1, block_size=16))
    blocks = round(figure.ours - 0.1 * 79.2 * GIB / 2**21)
    share = implied_share(LLAMA, settings, H100, Told(blocks=blocks, block_size=16))
    assert share == pytest.approx(0.82, abs=0.001)


def test_the_bytes_that_sglang_tells_make_its_tokens_exact():
    """131,072 bytes a token: 8 GiB hold 65,536."""
    settings = Settings(engine="sglang", engine_version="0.5.23", block_size=1, memory_fraction=0.85)
    figure = only(LLAMA, settings, Told(tokens=65536, bytes=8 * GIB), "tokens")
    assert (figure.ours, figure.exact, figure.agrees) == (65536, True, True)
    assert not only(LLAMA, settings, Told(tokens=62000, bytes=8 * GIB), "tokens").agrees
    assert compare(LLAMA, settings, None, Told(tokens=62000, bytes=2**23)) == ()  # told in GiB with three digits


DELTA = Recurrent(
    kind="linear", count=3, heads=32, head_dim=128, state_size=128, groups=16, conv_kernel=4, state_bytes=4.0
)
HYBRID = replace(LLAMA, layers=(layers("full", 1),), recurrent=(DELTA,))


@pytest.mark.parametrize(("mode", "requests"), [("none", 1000 / 4), ("align", 1000 / 7)])
def test_a_request_of_a_hybrid_takes_blocks_for_its_states(mode, requests):
    """A state is 8,192 x 3 x 2 + 32 x 128 x 128 x 4 = 2,146,304 bytes, so a block holds 4,192 tokens of 512 bytes. 4096
    tokens take one for the full layer, and each of three recurrent ones takes one, or two where prefixes are kept.
    """
    settings = Settings(
        engine="vllm", engine_version="0.19.0", vendor="nvidia", block_size=16, mamba_cache_mode=mode, max_num_seqs=16
    )
    told = Told(blocks=1000, requests=requests, length=4096)
    assert only(HYBRID, settings, told, "requests").ours == pytest.approx(requests)
    kv = as_told(HYBRID, settings, told)
    assert kv is not None
    assert (kv.blocks, kv.block_size) == (1000, 4192)
    other = replace(settings, mamba_cache_mode="align" if mode == "none" else "none")
    assert causes(HYBRID, other, None, told)[0] == Cause("mamba_cache_mode", mode)


def test_what_is_told_by_nobody_is_compared_with_nothing():
    assert compare(LLAMA, CPU, None, Told()) == ()
    assert compare(LLAMA, Settings(engine="vllm", block_size=16), None, Told(blocks=5)) == ()
    assert as_told(LLAMA, CPU, Told()) is None
