"""What bounds engines on a CPU: ladders as engines took them on two cores of 45 GB/s, where a profiler told the truth.

Gemma 3 270M as GGUF under llama.cpp spent 85 % of its samples in dot products of quantised weights (ggml_vec_dot_q8_0,
ggml_gemm_q4_K), which took 42 ms a token on one thread and 24 ms on two: that is compute, as memory gives the 164 MB in
3.6 ms.
"""

from dataclasses import replace

import pytest
from model_shapes import shape

from auditor.catalog import models
from auditor.theory.classify import PhaseBound, classify
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import Ladders, Step
from auditor.theory.settings import Settings

CPU = Device(
    key="this-cpu",
    name="this CPU (two cores)",
    vendor="intel",
    kind="cpu",
    memory_bytes=8 << 30,
    usable_bytes=8 << 30,
    bandwidth=45e9,
    flops={"fp32": 532e9, "fp16": 1065e9, "bf16": 8520e9, "int8": 17040e9},
    figures={"memory": "A", "bandwidth": "B", "flops": "C"},
)
GEMMA = models.find("google/gemma-3-270m")
PACKED = Settings(engine="llamacpp", quantization="q4_k_m", weight_bits=4.9, weight_bytes=164e6)
PLAIN = Settings(engine="llamacpp", compute_dtype="fp16", weight_bytes=536e6)
PROMPTS = ((31, 0.0986), (199, 0.481), (255, 0.634), (1023, 2.55))
STEPS = ((1, 49, 0.0246), (1, 224, 0.0253), (2, 49, 0.0315), (2, 224, 0.0335), (4, 49, 0.0480), (4, 224, 0.0500))


def ladders(batch: float, steps: tuple[tuple[int, int, float], ...] = STEPS, **rest: object) -> Ladders:
    fields = {"prompts": PROMPTS * 3, "context": 113.0, "prompt": 120.0} | rest
    return Ladders(batch=batch, steps=tuple(Step(b, c, t, 0.01 * t) for b, c, t in steps), **fields)  # type: ignore[arg-type]


def decode(geometry: Geometry, settings: Settings, found: Ladders, device: Device = CPU) -> PhaseBound:
    told = classify(geometry, settings, device, found).decode
    assert told is not None
    return told


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_unpacking_weights_takes_longer_than_reading_them(batch: int) -> None:
    found = decode(GEMMA, PACKED, ladders(batch))
    assert (found.bound, found.certain) == ("compute", True)
    assert found.parts["weights"].point < 0.25 * found.parts["compute"].point


def test_prompts_compute() -> None:
    found = classify(GEMMA, PACKED, CPU, ladders(4)).prefill
    assert found is not None
    assert (found.bound, found.certain) == ("compute", True)
    assert found.parts["overhead"].high < 0.02  # the layers' barriers and the tokeniser, not the shortest prompt's time


def test_one_thread_computes_too() -> None:
    """One of the two cores: 42 ms a token, 86 ms for four sequences."""
    found = decode(GEMMA, PACKED, ladders(4, ((1, 49, 0.042), (1, 224, 0.043), (4, 49, 0.086), (4, 224, 0.088))))
    assert (found.bound, found.certain) == ("compute", True)


def test_plain_weights_leave_the_choice_open() -> None:
    """536 MB take 12 ms from memory at its best, 30 ms at 0.4 of it: 33 ms may be either."""
    steps = ((1, 49, 0.0330), (1, 224, 0.0333), (4, 49, 0.0600), (4, 224, 0.0606))
    found = decode(GEMMA, PLAIN, ladders(1, steps))
    assert found.bound == "compute"
    assert set(found.possible) == {"compute", "weights"}


def test_steps_that_take_as_long_as_memory_are_bound_by_weights() -> None:
    """Llama-3.1-8B in 4.9 GB on sixteen cores of the same memory: 4.9 / 45 = 109 ms, a step takes 121."""
    cores = replace(CPU, flops={name: 8 * peak for name, peak in CPU.flops.items()})
    steps = ((1, 49, 0.121), (1, 224, 0.122), (2, 49, 0.122), (2, 224, 0.123))
    settings = replace(PACKED, weight_bytes=4.9e9)
    prompts = tuple((n, 0.13 + n * 7e-3) for n in (30, 200, 1000))
    found = decode(shape("llama-8b"), settings, ladders(1, steps, prompts=prompts), cores)
    assert (found.bound, found.certain) == ("weights", True)


# vLLM 0.32.0 with 2.6 million weights in bf16, eager: 30 times the time of its bytes, and hardly more for four streams.
TINY = shape("llama-gqa")
EAGER = Settings(engine="vllm", enforce_eager=True, max_num_batched_tokens=4096)
TINY_STEPS = (
    (1, 274, 0.00336),
    (1, 2024, 0.00370),
    (2, 274, 0.00376),
    (2, 2025, 0.00410),
    (4, 274, 0.00373),
    (4, 2026, 0.00480),
)
TINY_PROMPTS = ((31, 0.0081), (254, 0.0149), (1023, 0.0411), (2001, 0.0868))


def tiny() -> Ladders:
    return ladders(4, TINY_STEPS, prompts=TINY_PROMPTS * 3, context=1158.0, prompt=1137.0)


def test_what_an_engine_does_between_its_kernels_is_overhead() -> None:
    found = decode(TINY, EAGER, tiny())
    assert (found.bound, found.certain) == ("overhead", True)


def test_what_grows_with_a_prompt_hides_behind_no_launch() -> None:
    """33 of 46 ms came with the tokens beyond the shortest prompt's."""
    found = classify(TINY, EAGER, CPU, tiny()).prefill
    assert found is not None
    assert (found.bound, found.certain) == ("compute", True)
    assert found.parts["compute"].low > 0.025


def test_no_share_of_an_upper_bound_is_told() -> None:
    told = classify(TINY, EAGER, CPU, tiny())
    assert told.flops is not None
    assert told.flops.lacking == "the peak is no more than an upper bound"
    assert told.fused is None


def test_prompts_of_about_one_length_are_read_together() -> None:
    """A tokeniser makes 1,994 to 2,004 tokens of texts of one plan: one length, of which the middle time counts."""
    scattered = tuple((n + off, t * slow) for n, t in TINY_PROMPTS for off, slow in ((-1, 0.97), (0, 1.0), (1, 3.0)))
    together = classify(TINY, EAGER, CPU, replace(tiny(), prompts=scattered)).prefill
    assert together is not None
    assert together.seconds == pytest.approx(0.0463, rel=0.03)
