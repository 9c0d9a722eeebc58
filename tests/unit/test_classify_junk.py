"""Ladders that no such deployment gives: nothing is named for certain, and no share of a peak is told."""

from collections.abc import Callable

import pytest

from auditor.instruments.load import Theory, asked, theory
from auditor.theory.classify import Classification, classify
from auditor.theory.ladders import Ladders, Step
from auditor.theory.step_costs import plain_costs

DENSE, LARGE, EXPERTS = ("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("qwen3-30b-a3b", 1)
CROSSED = tuple((batch, context) for batch in (1, 8, 32, 64) for context in (128, 2048))
LENGTHS = (32, 256, 1024, 4096, 8192)


def deployment(model: tuple[str, int]) -> Theory:
    found, _ = asked({"model": model[0], "accelerator": "h100-sxm", "count": model[1], "engine": "vllm"})
    return theory(found)


def told(
    model: tuple[str, int],
    step: Callable[[int, int], float] | None = None,
    ttft: Callable[[int], float] | None = None,
    at: tuple[tuple[int, int], ...] = CROSSED,
) -> Classification:
    """What is made of steps and prompts that take this long, measured three times within 1 %."""
    steps = [Step(b, c, step(b, c), 0.01 * step(b, c)) for b, c in at for _ in range(3)] if step else []
    prompts = [(n, ttft(n)) for n in LENGTHS for _ in range(3)] if ttft else []
    ladders = Ladders(batch=64, context=1200, prompt=1000, steps=tuple(steps), prompts=tuple(prompts))
    return classify(*deployment(model), ladders)


STEPS = {
    "they fall with the batch": lambda b, _: 1 / b,
    "they fall with the context": lambda _, c: 10 / c,
    "they take no time": lambda b, c: 1e-12,
    "10 ms for each stream": lambda b, _: 0.01 * b,
    "millions of seconds": lambda b, _: 1e6 * b,
    "by streams and context alone": lambda b, c: 1e-5 * b * c,
}


@pytest.mark.parametrize("model", [DENSE, LARGE, EXPERTS])
@pytest.mark.parametrize("law", STEPS)
def test_steps_that_no_deployment_takes_are_named_for_nothing(model, law):
    found = told(model, STEPS[law])
    assert found.decode is not None
    assert not found.decode.certain
    assert found.weights is not None
    assert not found.weights.identified
    assert found.cache is None or not found.cache.identified


def test_experts_that_are_read_in_no_time_contradict_a_constant_step():
    """One stream reads 8 of 128 experts, 64 nearly all: 61 GB over 3.35 TB/s are 18 ms, of which one stream has 1."""
    found = told(EXPERTS, lambda *_: 0.02)
    assert found.decode is not None
    assert found.decode.conflict is not None
    assert "off any law of weights" in found.decode.conflict
    few = told(EXPERTS, lambda b, _: 0.02 + 1e-4 * b, at=((1, 128), (8, 128), (64, 128))).decode
    assert few is not None
    assert not few.certain


def test_a_constant_that_outlasts_the_weights_by_far_is_overhead():
    """0.3 s for whatever batch: the 18 ms by which experts differ do not show."""
    for model in (DENSE, LARGE, EXPERTS):
        found = told(model, lambda *_: 0.3).decode
        assert found is not None
        assert (found.bound, found.certain) == ("overhead", True)


PROMPTS = {
    "they take no time": lambda _: 1e-12,
    "they fall": lambda n: 1 / n,
    "50 ms whatever comes": lambda _: 0.05,  # 8,192 tokens of 2 x 6.98e9 FLOP each take 116 ms at 989 TFLOP/s
}


@pytest.mark.parametrize("law", PROMPTS)
def test_prompts_that_no_device_reads_are_named_for_nothing(law):
    found = told(DENSE, ttft=PROMPTS[law])
    assert found.prefill is not None
    assert not found.prefill.certain
    assert all(share is None or not share.identified for share in (found.flops, found.attention))
    assert found.fused is None


def test_prompts_that_are_too_fast_say_so_and_tell_steps_nothing():
    """What products reach of the peak is not taken from prompts that no device reads."""
    steps = lambda b, c: 6e-3 + 1e-5 * b + 4.4e-8 * b * c  # noqa: E731
    alone, beside = told(DENSE, steps), told(DENSE, steps, lambda n: 1e-9 * n)
    assert beside.prefill is not None
    assert beside.prefill.conflict is not None
    assert "read faster than the device can" in beside.prefill.conflict
    assert beside.decode == alone.decode


def test_falling_steps_are_unreadable_without_model_and_device_too():
    """A step of 64 streams takes a 64th of one stream's."""
    costs = plain_costs([Step(b, c, 1 / b) for b, c in CROSSED])
    assert costs is not None
    assert costs.noise is not None
    rising = plain_costs([Step(b, c, 0.01 + 1e-4 * b + 1e-7 * b * c) for b, c in CROSSED])
    assert rising is not None
    assert (rising.noise, rising.falls) == (None, 0.0)
