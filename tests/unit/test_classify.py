"""What bounds a phase, told from ladders whose law is known: Llama-3.1-8B on one H100, times worked by hand.

One token's products are 2 x 7.50e9 FLOP = 15.2 us at 989 TFLOP/s; weights are 15.0 GB = 4.48 ms at 3.35 TB/s; a cached
token is 131,072 bytes = 39.1 ns.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_shapes import device, shape

from auditor.catalog import models
from auditor.theory.classify import classify
from auditor.theory.knee import knee
from auditor.theory.ladders import Ladders, Step
from auditor.theory.prompt_costs import prompt_costs
from auditor.theory.settings import Settings
from auditor.theory.step_costs import step_costs

LLAMA = shape("llama-8b")
H100 = device(interconnect="NVLink4 900", confidence="A")
VLLM = Settings(engine="vllm", max_num_batched_tokens=8192)
WEIGHTS, TOKEN, CACHED = 4.48e-3, 15.17e-6, 39.1e-9
LENGTHS = (32, 256, 1024, 2048, 4096, 8000)


def prompts(
    rest: float = 0.008, products: float = 0.7, attention: float = 0.4, weights: float = 0.85
) -> tuple[tuple[float, float], ...]:
    """TTFT of each length, five times: products of 2 x 6.98e9 FLOP a token, attention of 262,144 FLOP a pair of tokens
    that see each other, both as a share of 989 TFLOP/s; or one reading of the weights.
    """
    found = []
    for n in LENGTHS:
        multiplied = 13.96e9 * n / 989e12 / products + 262_144 * n * n / 989e12 / attention
        found += [(n, rest + max(WEIGHTS / weights, multiplied))] * 5
    return tuple(found)


def steps(rest: float = 0.002, cache: float = 0.8, each: float = 4e-6, products: float = 0.7) -> tuple[Step, ...]:
    """Steps of 1, 8, 32 and 64 streams at 500 and 4,000 tokens."""
    return tuple(
        Step(
            b,
            c,
            rest + max(WEIGHTS / 0.85, TOKEN / products * b) + CACHED / cache * b * c + each * b,
            1e-5,
        )
        for b in (1, 8, 32, 64)
        for c in (500, 4000)
    )


def told(batch: float = 64, context: float = 4000, prompt: float = 4000, **rest: object):
    fields = {"prompts": prompts(), "steps": steps(), "batch": batch, "context": context, "prompt": prompt}
    return classify(LLAMA, VLLM, H100, Ladders(**(fields | rest)))  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- decode


def test_the_cache_bounds_many_streams_at_long_contexts():
    """64 x 4,000 tokens take 12.5 ms at 80 % of the bandwidth, weights 5.3, the rest 2.3."""
    found = told()
    assert found.decode is not None
    assert (found.decode.bound, found.decode.certain) == ("kv", True)
    assert found.decode.parts["kv"].point == pytest.approx(12.5e-3, rel=0.03)
    assert found.decode.parts["weights"].low < 5.3e-3 < found.decode.parts["weights"].high
    assert found.decode.parts["overhead"].low < 2.3e-3 < found.decode.parts["overhead"].high
    assert found.decode.seconds == pytest.approx(0.002 + 5.27e-3 + 12.5e-3 + 2.6e-4, rel=0.01)


def test_weights_bound_few_streams_at_short_contexts():
    found = told(batch=8, context=500, steps=steps(rest=0.0008))
    assert found.decode is not None
    assert (found.decode.bound, found.decode.certain) == ("weights", True)


def test_overhead_bounds_where_steps_take_far_longer_than_their_bytes():
    found = told(batch=8, context=500, steps=steps(rest=0.015))
    assert found.decode is not None
    assert (found.decode.bound, found.decode.certain) == ("overhead", True)
    assert found.decode.parts["overhead"].point == pytest.approx(0.015, rel=0.1)


def test_compute_bounds_where_the_device_is_short_of_it():
    """A tenth of the FLOP/s: 64 tokens take 13.9 ms, one reading of the weights 5.3."""
    slow = device(flops={"bf16": 98.9e12, "fp16": 98.9e12})
    law = tuple(
        Step(b, c, 0.001 + max(WEIGHTS / 0.85, 10 * TOKEN / 0.7 * b) + CACHED / 0.8 * b * c, 1e-5)
        for b in (1, 8, 32, 64)
        for c in (100, 800)
    )
    ladder = tuple((n, 0.008 + 10 * 13.96e9 * n / 989e12 / 0.7 + 10 * 262_144 * n * n / 989e12 / 0.4) for n in LENGTHS)
    found = classify(LLAMA, VLLM, slow, Ladders(prompts=ladder, steps=law, batch=64, context=200, prompt=1000))
    assert found.decode is not None
    assert found.decode.bound == "compute"
    assert found.decode.parts["compute"].point == pytest.approx(13.9e-3, rel=0.1)
    assert found.prefill is not None
    assert (found.prefill.bound, found.prefill.certain) == ("compute", True)


def test_the_caches_share_of_the_bandwidth_comes_from_contexts_alone():
    """Whatever else grows with the batch (here 40 us a stream) is not the cache's."""
    for each in (0.0, 40e-6):
        found = told(steps=steps(each=each, cache=0.7))
        assert found.cache is not None
        assert found.cache.identified
        assert found.cache.share.point == pytest.approx(0.7, rel=0.02)


def test_the_weights_share_is_bounded_by_what_a_step_takes():
    """A step of 5.2 ms in all reads at 86 % at least, and nothing beyond 93 % is likely."""
    found = told(steps=steps(rest=0.0, each=0.0))
    assert found.weights is not None
    assert found.weights.identified
    assert found.weights.share.low == pytest.approx(0.85, abs=0.01)
    loose = told()
    assert loose.weights is not None
    assert loose.weights.lacking is not None
    assert "within" in loose.weights.lacking


def test_one_context_leaves_the_cache_to_what_is_usual():
    found = told(steps=tuple(step for step in steps() if step.context == 4000))
    assert found.cache is None
    assert found.decode is not None
    assert found.decode.parts["kv"].low < 12.5e-3 < found.decode.parts["kv"].high
    assert found.decode.conflict == "steps do not grow with the context"


def test_a_ladder_below_the_target_says_so():
    found = told(batch=200)
    assert found.decode is not None
    assert found.decode.conflict is not None
    assert "ends at 64 streams" in found.decode.conflict
    assert not found.decode.certain


def test_weights_that_come_faster_than_the_device_reads_are_doubted():
    """15 GB in 3 ms would be 5 TB/s."""
    found = told(batch=8, context=500, steps=tuple(replace(s, seconds=s.seconds - 4e-3) for s in steps(rest=0.0015)))
    assert found.decode is not None
    assert "read faster than the device can" in (found.decode.conflict or "")


def test_noise_is_no_evidence():
    scattered = tuple(replace(s, seconds=s.seconds * (2.5 if i % 2 else 1)) for i, s in enumerate(steps(cache=8e3)))
    found = told(steps=scattered)
    assert found.decode is not None
    assert not found.decode.certain


def test_experts_are_told_apart_from_products():
    """Qwen3-30B-A3B: a step of 32 reads most of its 128 experts a layer; 57 GB at 3.35 TB/s and 85 % are 20 ms."""
    qwen = models.find("Qwen/Qwen3-30B-A3B")
    law = tuple(
        Step(b, c, 0.003 + (0.9e-3 + (1 - (1 - 8 / 128) ** b) * 17.3e-3) / 0.85 + b * c * 98_304 / 3.35e12 / 0.8, 2e-5)
        for b in (1, 4, 16, 32)
        for c in (200, 1600)
    )
    found = classify(qwen, VLLM, H100, Ladders(prompts=(), steps=law, batch=32, context=800, prompt=800))
    assert found.decode is not None
    assert found.decode.bound == "weights"
    assert found.weights is not None
    assert found.weights.lacking == "it depends on the experts"


def test_launches_one_by_one_hide_what_kernels_take():
    """Without graphs a step of 32 layers waits 12 ms for launches, whatever the batch and the context."""
    eager = replace(VLLM, enforce_eager=True)
    law = tuple(Step(b, c, 0.0125 + 4e-6 * b, 3e-5) for b in (1, 4, 8) for c in (100, 400))
    found = classify(LLAMA, eager, H100, Ladders(prompts=prompts(), steps=law, batch=8, context=200, prompt=200))
    assert found.decode is not None
    assert found.decode.bound == "overhead"
    assert found.cache is None or found.cache.lacking == "launches may hide it"


def test_few_tokens_fill_no_tiles_where_there_are_none():
    """With a tenth of the FLOP/s one token's products take 152 us at the peak: 0.7 ms at the 22 % of llama.cpp, which
    multiplies it as a vector; several ms for engines whose tiles it does not fill.
    """
    slow = device(flops={"bf16": 98.9e12, "fp16": 98.9e12})
    law = tuple(Step(b, c, 0.006 + CACHED / 0.8 * b * c, 1e-5) for b in (1, 2) for c in (100, 800))
    for engine, likely in (("llamacpp", 0.7e-3), ("vllm", 3.5e-3)):
        ladders = Ladders(prompts=(), steps=law, batch=1, context=200, prompt=1000)
        found = classify(LLAMA, Settings(engine=engine), slow, ladders).decode
        assert found is not None
        assert found.parts["compute"].point == pytest.approx(likely, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "accepted", "word"),
    [
        ({}, 2.2, "speculation"),
        ({"speculative_tokens": 3}, 1.0, "speculation"),
        ({"pipeline_parallel": 2}, 1.0, "pipeline"),
    ],
)
def test_steps_that_are_not_one_token_on_one_device_are_not_read(changes, accepted, word):
    ladders = Ladders(prompts=prompts(), steps=steps(), batch=64, context=4000, prompt=4000, accepted=accepted)
    found = classify(LLAMA, replace(VLLM, **changes), H100, ladders)
    assert found.decode is None
    assert found.prefill is not None
    assert any(word in note for note in found.notes)


def test_what_queued_and_what_was_chunked_is_named():
    found = classify(
        LLAMA,
        replace(VLLM, max_num_batched_tokens=2048),
        H100,
        Ladders(prompts=prompts(), steps=steps(), batch=64, context=4000, prompt=4000, queued=((128, 4000),)),
    )
    assert any("128 streams at 4,000 tokens never decoded all at once" in note for note in found.notes)
    assert "prompts of more than 2,048 tokens were read in chunks" in found.notes


# -------------------------------------------------------------------------------------------------------------- prefill


def test_long_prompts_are_bound_by_compute():
    """8,000 tokens: 161 ms of products at 70 %, 42 of attention at 40 %, 8 besides."""
    found = told(prompt=8000)
    assert found.prefill is not None
    assert (found.prefill.bound, found.prefill.certain) == ("compute", True)
    assert found.prefill.parts["compute"].point == pytest.approx(0.203, rel=0.05)
    assert found.flops is not None
    assert found.flops.share.low < (0.113 + 0.017) / 0.203 < found.flops.share.high


def test_short_prompts_are_bound_by_what_they_cannot_avoid():
    """64 tokens: 5.3 ms of weights; 0.3 ms beside leaves them bound by these, 20 ms by overhead. Products of tiles that
    64 tokens do not fill may take as long as the weights, so that is never certain.
    """
    for rest, bound, certain in ((0.0003, "weights", False), (0.02, "overhead", True)):
        found = told(prompt=64, prompts=prompts(rest=rest))
        assert found.prefill is not None
        assert (found.prefill.bound, found.prefill.certain) == (bound, certain)


def test_attention_that_runs_slowly_is_told():
    """Fused attention reaches a fifth of the peak or more; attention that writes its scores to memory some 3 %."""
    assert told().fused is not False
    slow = told(prompts=prompts(attention=0.03))
    assert slow.fused is False
    assert slow.attention is not None
    assert slow.attention.share.point == pytest.approx(0.03, rel=0.2)
    ladders = Ladders(prompts=long_prompts(), steps=(), batch=1, context=30_000, prompt=30_000)
    assert classify(LLAMA, VLLM, H100, ladders).fused is True
    assert classify(LLAMA, VLLM, device(confidence="C"), ladders).fused is None  # a share of no certain peak


def long_prompts() -> tuple[tuple[float, float], ...]:
    lengths = (32, 1024, 4096, 16_384, 32_768, 65_536)
    law = [(n, 0.008 + 13.96e9 * n / 989e12 / 0.7 + 262_144 * n * n / 989e12 / 0.4) for n in lengths]
    return tuple(point for point in law for _ in range(5))


def test_shares_of_long_ladders_are_identified():
    found = prompt_costs(LLAMA, replace(VLLM, max_num_batched_tokens=None), H100, long_prompts())
    assert found is not None
    assert found.attention is not None
    assert found.attention.point == pytest.approx(0.4, rel=0.1)
    assert found.products is not None
    assert found.products.low < 0.7 < found.products.high


def test_two_lengths_are_needed():
    assert prompt_costs(LLAMA, VLLM, H100, [(100, 0.02), (100, 0.021)]) is None
    assert prompt_costs(LLAMA, VLLM, H100, []) is None
    assert step_costs(LLAMA, VLLM, H100, []) is None
    assert told(prompts=(), steps=()).notes == ()


# ----------------------------------------------------------------------------------------------------------------- knee


def test_the_knee_is_the_last_batch_that_yields_more():
    """1 to 64 streams: 100, 400, 800, 810 and 805 tokens a second; 1 % more is no gain."""
    rates = ((1, 100), (4, 400), (16, 800), (32, 810), (64, 805))
    found = knee([(b, b / rate, 1e-4) for b, rate in rates])
    assert found is not None
    assert (found.batch, found.reached) == (16, True)
    assert found.rate == pytest.approx(800)
    rising = knee([(b, 0.01 + b * 1e-4, 1e-5) for b in (1, 4, 16)])
    assert rising is not None
    assert (rising.batch, rising.reached) == (16, False)
    assert knee([(4, 0.01, 0.0)]) is None


# ----------------------------------------------------------------------------------------------------------- any ladder

TIMES = st.floats(1e-6, 1e3)
STEPS = st.lists(st.builds(Step, st.floats(1, 2000), st.floats(1, 1e6), TIMES, st.floats(0, 1)), max_size=8)
PROMPTS = st.lists(st.tuples(st.floats(1, 1e6), TIMES), max_size=12)


@settings(deadline=None, max_examples=60)
@given(STEPS, PROMPTS, st.floats(1, 2000), st.floats(1, 1e6), st.booleans())
def test_whatever_was_measured_is_told_without_breaking(ladder, points, batch, context, eager):
    ladders = Ladders(prompts=tuple(points), steps=tuple(ladder), batch=batch, context=context, prompt=context)
    found = classify(LLAMA, replace(VLLM, enforce_eager=eager), H100, ladders)
    for phase in (found.prefill, found.decode):
        for part in phase.parts.values() if phase is not None else ():
            assert 0 <= part.low <= part.point <= part.high
    for share in (found.weights, found.cache, found.flops, found.attention):
        assert share is None or share.share.low <= share.share.point <= share.share.high
