"""What is left for the pool, against start-up logs of vLLM and rules of the other engines."""

from typing import Any

import pytest
from model_shapes import GIB, device, shape

from auditor.catalog import accelerators, models
from auditor.theory.memory import memory
from auditor.theory.settings import Settings


def vllm(**facts: Any) -> Settings:
    return Settings(**{"engine": "vllm", "max_num_seqs": 1024, "max_num_batched_tokens": 8192, **facts})


FP8: dict[str, Any] = {"quantization": "fp8", "weight_bits": 8.0}
LOGGED = [  # model, accelerator, settings, GiB that vLLM printed as available for the KV cache
    ("qwen3-32b", "h100-sxm", {"engine_version": "0.11.0", "memory_fraction": 0.90}, 4.45),
    (
        "qwen3-32b",
        "h100-sxm",
        {"engine_version": "0.11.0", "memory_fraction": 0.90, "tensor_parallel": 2, "devices": 2},
        34.49,
    ),
    (
        "llama-3.3-70b",
        "h200-sxm",
        {"engine_version": "0.16.0", "memory_fraction": 0.92, "tensor_parallel": 4, "devices": 4},
        90.30,
    ),
    (
        "llama-3.3-70b",
        "h200-sxm",
        {"engine_version": "0.18.0", "memory_fraction": 0.92, "tensor_parallel": 4, "devices": 4, **FP8},
        107.52,
    ),
    (
        "llama-3.3-70b",
        "h200-sxm",
        {"engine_version": "0.20.0", "memory_fraction": 0.92, "tensor_parallel": 4, "devices": 4},
        90.66,
    ),
    ("llama-3.3-70b", "mi300x", {"engine_version": "0.16.0", "memory_fraction": 0.92, **FP8}, 102.19),
    (
        "qwen3-235b-a22b",
        "h200-sxm",
        {"engine_version": "0.11.2", "memory_fraction": 0.92, "tensor_parallel": 4, "devices": 4},
        12.73,
    ),
]


@pytest.mark.parametrize(("name", "accelerator", "facts", "logged"), LOGGED)
def test_the_pool_that_vllm_found(name, accelerator, facts, logged):
    found = memory(models.find(name), vllm(**facts), accelerators.find(accelerator))
    assert found.pool / GIB == pytest.approx(logged, abs=0.05 * logged + 0.25)
    assert found.pool_low / GIB <= logged <= found.pool_high / GIB


def test_parts_add_up_and_the_band_brackets():
    found = memory(shape("llama-8b"), vllm(engine_version="0.18.0"), device())
    assert found.budget == pytest.approx(0.90 * 79.2 * GIB)
    assert found.pool == pytest.approx(found.budget - found.weights - found.overhead)
    assert found.pool_low < found.pool < found.pool_high
    # 3.7 copies x 1,024 x 128,256 x 4 bytes = 1.81 GiB, and 0.3 GiB outside PyTorch
    assert found.overhead / GIB == pytest.approx(1.81 + 0.3, abs=0.01)
    assert found.notes == ()


def test_versions_differ():
    default = [memory(shape("llama-8b"), vllm(engine_version=v), device()) for v in ("0.16.0", "0.18.0", "0.20.2")]
    assert [round(found.budget / device().usable_bytes, 2) for found in default] == [0.90, 0.90, 0.92]
    eager = memory(shape("llama-8b"), vllm(engine_version="0.20.2", enforce_eager=True), device())
    assert default[2].overhead - eager.overhead == pytest.approx(0.9 * GIB)


def test_what_is_not_known_is_said_and_widens_the_band():
    known = memory(shape("llama-8b"), vllm(engine_version="0.18.0"), device())
    for settings, accelerator, word in [
        (vllm(), device(), "version is not known"),
        (vllm(engine_version="0.6.4"), device(), "profiled whole"),
        (vllm(engine_version="0.18.0"), device(vendor="intel"), "on intel devices is not known"),
        (vllm(engine_version="0.18.0"), device(usable_bytes=None), "no fit is sure"),
        (vllm(engine_version="0.18.0"), device(usable_bytes=None, kind="unified"), "set in firmware"),
    ]:
        found = memory(shape("llama-8b"), settings, accelerator)
        assert any(word in note for note in found.notes), found.notes
        assert found.pool_high - found.pool_low > known.pool_high - known.pool_low
    vision = memory(models.find("gemma-3-27b"), vllm(engine_version="0.18.0"), device())
    assert any("vision encoder" in note for note in vision.notes)
    assert vision.pool - vision.pool_low > 14 * GIB


@pytest.mark.parametrize("kind", ["gpu", "unified"])
def test_nominal_memory_never_proves_a_fit_but_may_disprove_one(kind):
    nominal = device(usable_bytes=None, kind=kind)
    roomy = memory(shape("llama-8b"), vllm(engine_version="0.18.0"), nominal)
    assert roomy.pool > 0 > roomy.pool_low
    assert memory(models.find("llama-3.1-70b"), vllm(engine_version="0.18.0"), nominal).pool_high < 0


def test_default_sequences_depend_on_the_device():
    large, small = (
        memory(shape("llama-8b"), vllm(engine_version="0.18.0", max_num_seqs=None), where).overhead
        for where in (device(), device(usable_bytes=24 * GIB))
    )
    assert large - small == pytest.approx(3.7 * (1024 - 256) * 128_256 * 4)


def test_weights_that_do_not_fit_leave_a_negative_pool():
    assert memory(models.find("llama-3.1-70b"), vllm(engine_version="0.18.0"), device()).pool < 0


def test_sglang_subtracts_what_must_stay_free():
    """pool = after weights - before x (1 - F): with 36.54 GiB before and 35.57 after Qwen2.5-0.5B, 30.42 of pool
    and 4.55 left, F was 0.859 of what was there before.
    """
    settings = Settings(engine="sglang", memory_fraction=0.859)
    found = memory(models.find("qwen2.5-0.5b"), settings, device(usable_bytes=int((36.54 + 0.8) * GIB)))
    assert found.pool / GIB == pytest.approx(30.42, rel=0.01)
    unknown = memory(models.find("qwen2.5-0.5b"), Settings(engine="sglang"), device())
    assert any("mem_fraction_static" in note for note in unknown.notes)


def test_llamacpp_may_use_everything():
    found = memory(shape("llama-8b"), Settings(engine="llamacpp", ubatch=512), device())
    assert found.budget == found.usable == int(79.2 * GIB)
    assert found.overhead == 0.5 * GIB
    # at most 512 rows of 128,256 fp32 logits (250.5 MiB) and 1.5 GiB
    assert found.overhead_high / GIB == pytest.approx(0.2446 + 1.5, abs=0.001)


@pytest.mark.parametrize(("key", "share"), [("apple-m5-max-128gb", 0.75), ("apple-m2-24gb", 2 / 3)])
def test_macos_wires_a_share(key, share):
    apple = accelerators.find(key)
    found = memory(shape("llama-8b"), Settings(engine="llamacpp"), apple)
    assert found.usable == pytest.approx(apple.memory_bytes * share)
    assert any("macOS wires at most" in note for note in found.notes)


def test_tensorrt_takes_a_share_of_what_is_free():
    """Published log: Llama-3.1-8B on a 31.84 GiB card, 17.83 GiB free once loaded, 16.05 at 0.9 for the pool."""
    facts = Settings(engine="trtllm", memory_fraction=0.9, **FP8)
    model = models.find("llama-3.1-8b")
    found = memory(model, facts, device(usable_bytes=int(31.84 * GIB)))
    free = 31.84 * GIB - found.weights - 1.5 * GIB
    assert found.pool == pytest.approx(0.9 * free)
    assert found.pool_low < found.pool < found.pool_high
    assert any("not from running engines" in note for note in found.notes)
