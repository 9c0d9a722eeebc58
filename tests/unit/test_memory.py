"""Memory of one device: what is usable, the parts, and the rules of the engines other than vLLM on GPUs."""

from dataclasses import replace
from typing import Any

import pytest
from memory_logs import model
from model_shapes import GIB, device

from auditor.theory.memory import memory
from auditor.theory.overhead.sglang import automatic_fraction
from auditor.theory.settings import Settings

LLAMA = model("llama-3.1-8b")
WEIGHTS = 15 * GIB


def settings(engine: str, **facts: Any) -> Settings:
    return Settings(**{"engine": engine, "weight_bytes": float(WEIGHTS), "max_num_seqs": 256, **facts})


ENGINES = ("vllm", "sglang", "llamacpp", "trtllm", "lmdeploy", "generic")


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_add_up_and_the_band_brackets(engine):
    found = memory(LLAMA, settings(engine, engine_version="0.18.0"), device())
    assert found.weights == WEIGHTS
    assert found.pool == pytest.approx(found.budget - found.weights - found.overhead)
    assert found.overhead == pytest.approx(found.activations + found.graphs + found.other)
    assert 0 <= found.overhead_low < found.overhead < found.overhead_high
    assert found.pool_low < found.pool < found.pool_high
    whole = found.weights + found.overhead + found.pool + found.beyond + found.free
    assert whole == pytest.approx(found.usable)


@pytest.mark.parametrize("kind", ["gpu", "unified"])
def test_nominal_memory_never_proves_a_fit_but_may_disprove_one(kind):
    nominal = device(usable_bytes=None, kind=kind)
    roomy = memory(LLAMA, settings("vllm", engine_version="0.18.0"), nominal)
    assert roomy.pool > 0 > roomy.pool_low
    assert any(("no fit is sure" if kind == "gpu" else "set in firmware") in note for note in roomy.notes)
    assert memory(LLAMA, settings("vllm", weight_bytes=140.0 * GIB), nominal).pool_high < 0


def test_weights_that_do_not_fit_leave_a_negative_pool():
    assert memory(LLAMA, settings("vllm", weight_bytes=75.0 * GIB), device()).pool < 0


@pytest.mark.parametrize(
    ("gib", "share"),
    # llama.cpp prints recommendedMaxWorkingSetSize = 11453.25, 17179.89 and 103079.22 MB on 16, 24 and 128 GiB
    [(16, 11453.25e6 / 2**34), (24, 17179.89e6 / (24 * 2**30)), (128, 103079.22e6 / 2**37)],
)
def test_macos_wires_a_share(gib, share):
    apple = device(vendor="apple", kind="unified", memory_bytes=gib * GIB, usable_bytes=None, key="apple", name="Apple")
    found = memory(LLAMA, settings("llamacpp"), apple)
    assert found.usable == pytest.approx(gib * GIB * share, rel=1e-5)
    assert any("iogpu.wired_limit_mb" in note for note in found.notes)
    raised = memory(LLAMA, settings("llamacpp"), replace(apple, usable_bytes=(gib - 4) * GIB))
    assert raised.usable == (gib - 4) * GIB


# -------------------------------------------------------------------------------------------------------------- SGLang


def test_sglang_subtracts_what_must_stay_free():
    """pool = after loading - before x (1 - F): of 36.54 GiB before and 35.57 after, F = 0.859 leaves 30.42."""
    facts = settings("sglang", memory_fraction=0.859, weight_bytes=0.97 * GIB)
    found = memory(LLAMA, facts, device(usable_bytes=int((36.54 + 0.7) * GIB)))
    assert found.pool / GIB == pytest.approx(35.57 - 36.54 * 0.141)
    assert found.pool / GIB == pytest.approx(30.42, abs=0.01)
    # what is free of it all: (1 - F) x before, half of it likely used by activations and graphs
    assert (found.beyond + found.free) / GIB == pytest.approx(36.54 * 0.141)


@pytest.mark.parametrize(
    ("version", "usable", "facts", "fraction"),
    [
        ("0.3.6", 79.2, {"tensor_parallel": 8}, 0.82),
        ("0.4.3.post2", 79.2, {"tensor_parallel": 8}, 0.81),
        ("0.4.5", 139.8, {}, 0.88),
        # min(0.88 + 48 x 0.12 / 139.8, (139.8 - 18) / 139.8)
        ("0.4.6.post5", 139.8, {}, 121.8 / 139.8),
        ("0.4.6.post5", 79.2, {"tensor_parallel": 4}, 0.85),
        ("0.4.6.post5", 95.1, {"tensor_parallel": 4}, 0.88),
        # 9.5 + 4 / 2 GiB free of 79.2
        ("0.5.2", 79.2, {"tensor_parallel": 4}, 0.855),
        # 2.8 + 0.1 and 2 for drafts of 22.06
        ("0.4.9.post6", 22.06, {"speculative_tokens": 3}, 0.778),
        ("0.5.2", 178.4, {}, 0.821),
        # 512 + 1.5 x 8192 + 2 x 256 + 128 = 13,440 MiB of 81,100.8
        ("0.5.5", 79.2, {}, 0.834),
        # 512 + 1.5 x 2048 + 2 x 24 + 128 = 3,760 of 22,589.4
        ("0.5.5", 22.06, {}, 0.834),
        # 512 + 1.5 x 8192 + 2 x 512 + 1024, and 3 x 512 x 8 x 1.5 for DP attention: 33,280
        ("0.5.5", 79.2, {"tensor_parallel": 8, "data_parallel": 8, "devices": 8}, 0.59),
        # 58 sizes of prompts up to 8,192 tokens at 8 MiB more
        ("0.5.23", 79.2, {}, 0.829),
        (None, 79.2, {}, 0.829),
        # no graphs of batches on a prefill instance; on a decode instance 2,048 tokens and no prompts: 10 GiB
        ("0.5.23", 79.2, {"disaggregated": "prefill"}, 0.835),
        ("0.5.23", 79.2, {"disaggregated": "decode"}, 0.874),
        # 8 tokens for each of the 1,500 requests that a flag lets run, 512 + 1.5 x 12,000 + 128 + 2 x 256 = 19,152; of
        # the 256 of the largest graph where none does
        ("0.5.23", 79.2, {"disaggregated": "decode", "max_num_seqs": 1500, "speculative_tokens": 8}, 0.764),
        ("0.5.23", 79.2, {"disaggregated": "decode", "max_num_seqs": 2048, "speculative_tokens": 8}, 0.874),
        ("0.5.23", 79.2, {"enforce_eager": True}, 0.841),
    ],
)
def test_sglangs_own_fraction(version, usable, facts, fraction):
    found = automatic_fraction(LLAMA, settings("sglang", engine_version=version, **facts), usable * GIB)
    assert found == pytest.approx(fraction, abs=0.0006)


def test_sglang_leaves_more_for_images_and_says_what_it_assumes():
    plain = automatic_fraction(LLAMA, settings("sglang"), 79.2 * GIB)
    assert automatic_fraction(model("llama-3.1-8b", vision=True), settings("sglang"), 79.2 * GIB) == 0.95 * plain
    notes = memory(LLAMA, settings("sglang"), device(vendor="intel")).notes
    assert [word for word in ("0.829", "newest rule", "intel") if any(word in note for note in notes)] == [
        "0.829",
        "newest rule",
        "intel",
    ]


def test_mla_reserves_more_for_graphs_of_prompts():
    """512 + 1.5 x 8192 + 128 x 8 + 2 x 512 + 1,536 = 16,384 MiB of 81,100.8; with DP attention 4.5 x 512 x 8 more."""
    facts = settings("sglang", tensor_parallel=8, devices=8)
    assert automatic_fraction(model("deepseek-r1"), facts, 79.2 * GIB) == pytest.approx(0.798)
    ranks = replace(facts, data_parallel=8)
    assert automatic_fraction(model("deepseek-r1"), ranks, 79.2 * GIB) == pytest.approx(0.571)


def test_sglang_keeps_room_for_images_since_0_5_18():
    """SGLANG_VLM_CACHE_SIZE_MB, 100 MiB by default (sgl-project/sglang pull request 34141)."""
    facts = settings("sglang", memory_fraction=0.8)
    for images, kept in ((True, 100 * 2**20), (False, 0)):
        geometry = model("llama-3.1-8b", vision=images)
        before, since = (
            memory(geometry, replace(facts, engine_version=version), device()) for version in ("0.5.17", "0.5.18")
        )
        assert before.pool - since.pool == pytest.approx(kept)
        assert any("images" in note for note in since.notes) == images


# ----------------------------------------------------------------------------------------------------------- llama.cpp


def test_llamacpp_may_use_everything():
    """A step of 512 tokens: 4 x 512 x (3 x 14,336 + 7 x 4,096) bytes; logits of every token on top before #23861."""
    found = memory(LLAMA, settings("llamacpp", ubatch=512, engine_version="b10000"), device())
    assert found.budget == found.usable == int(79.2 * GIB)
    assert found.free == found.beyond == 0
    assert found.activations == 4 * 512 * (3 * 14_336 + 7 * 4_096)
    old = memory(LLAMA, settings("llamacpp", ubatch=512, engine_version="b9272"), device())  # as in issue 23527
    assert old.activations == 512 * 128_256 * 4


def test_llamacpp_of_a_small_model_by_its_log():
    """Gemma-3-270M, build 11434: CPU compute buffers of 21.28 and 89.11 MiB at 512 and 2,048 tokens."""
    gemma = model("llama-3.1-8b", hidden_size=640, intermediate_size=2048, vocab_size=262_144)
    for ubatch, logged in ((512, 21.28), (2048, 89.11)):
        found = memory(gemma, settings("llamacpp", ubatch=ubatch, engine_version="b11434"), device(kind="cpu"))
        assert found.activations / 2**20 == pytest.approx(logged, rel=0.08)
        assert found.overhead_low / 2**20 < logged < found.overhead_high / 2**20


@pytest.mark.parametrize(("context", "logged"), [(2048, 164), (32_768, 2144)])
def test_llamacpp_writes_scores_without_flash_attention(context, logged):
    """CUDA0 compute buffers in MiB of a 7B with 32 heads (fedora-copr/logdetective, pull request 106)."""
    mistral = model("llama-3.1-8b", vocab_size=32_000)
    facts = settings("llamacpp", ubatch=512, engine_version="b4000", max_model_len=context, fused_attention=False)
    assert memory(mistral, facts, device()).activations == logged * 2**20


def test_llamacpp_keeps_steps_in_flight_and_a_projector():
    one = memory(LLAMA, settings("llamacpp"), device())
    two = memory(LLAMA, settings("llamacpp", pipeline_parallel=2), device())
    buffer = 1.5 * one.activations + 4 * 512 * 128_256
    assert two.overhead_high - one.overhead_high == pytest.approx(3 * buffer)
    assert any("mmproj" in n for n in memory(model("llama-3.1-8b", vision=True), settings("llamacpp"), device()).notes)


# --------------------------------------------------------------------------------------------- rules from documentation


def test_tensorrt_takes_a_share_of_what_is_free():
    """Issue 4275 of NVIDIA/TensorRT-LLM: on an RTX 5090 of 31.84 GiB 17.83 are free once Llama-3.1-8B is loaded in fp8,
    and 16.05 of them are the pool's.
    """
    facts = settings("trtllm", weight_bytes=8.5 * GIB, memory_fraction=0.9, max_num_seqs=None)
    found = memory(LLAMA, facts, device(usable_bytes=int(31.84 * GIB)))
    free = found.usable - found.weights - found.overhead
    assert found.pool == pytest.approx(0.9 * free)
    assert found.pool_low / GIB < 16.05 < found.pool_high / GIB
    assert any("not checked on a running engine" in note for note in found.notes)


def test_lmdeploy_reserves_logits_before_its_share():
    """Its PyTorch engine reserves (8192 + 2 x 256) x 128,256 x 2 bytes before the share of 0.8, TurboMind nothing."""
    found = memory(LLAMA, settings("lmdeploy"), device())
    assert found.activations == 0.5 * (8192 + 512) * 128_256 * 2
    assert found.pool == pytest.approx(0.8 * (found.usable - found.weights - found.overhead))


# ------------------------------------------------------------------------------------------------------- vLLM on a CPU


@pytest.mark.parametrize(
    ("facts", "pool"),
    [
        ({"engine_version": "0.9.2"}, 4.0),
        ({"engine_version": "0.18.0"}, 64.0),
        ({"engine_version": "0.32.0", "kv_pool_bytes": GIB}, 1.0),
        ({"engine_version": "0.32.0", "memory_fraction": 0.5}, 64.0 - 15 - 1.2),
    ],
)
def test_vllm_on_a_cpu(facts, pool):
    machine = device(kind="cpu", vendor="cpu", memory_bytes=128 * GIB, usable_bytes=128 * GIB)
    found = memory(LLAMA, settings("vllm", **facts), machine)
    assert found.pool / GIB == pytest.approx(pool)
    assert (found.pool_low == found.pool) == (found.pool_high == found.pool) == ("memory_fraction" not in facts)
