"""The source without sockets: it plays what the emulator's server serves, and keeps a closed loop."""

import asyncio
from dataclasses import replace

import pytest

from auditor.emulator.clock import run_virtual
from auditor.emulator.server import Emulator
from auditor.emulator.spec import Spec
from auditor.emulator.virtual import VirtualSource
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Target

SPEC = Spec(jitter=0.0, pool_tokens=40_000)


class Constant:
    """Ten milliseconds a step, and a hundred microseconds more for each prompt token read in it."""

    frontend = 0.002
    frontend_per_token = 0.0

    def step(self, contexts, chunks):
        return 0.010 + 1e-4 * sum(new for new, _ in chunks)


def load(concurrency: int, count: int, prompt: int = 100, output: int = 5, **more: object) -> Load:
    shape = Shape(cls="x", prompt_tokens=prompt, output_tokens=output)
    fields: dict[str, object] = {"id": "l", "purpose": "decode", "concurrency": concurrency, "shapes": (shape,) * count}
    return Load(**(fields | more))  # type: ignore[arg-type]


def test_times_are_those_of_the_law():
    """100 prompt tokens: 2 + 10 + 10 ms to the first token, then 10 ms each."""
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 2))
    assert [s.start for s in measured.samples] == pytest.approx([0.0, 0.062])
    for sample in measured.samples:
        assert sample.good
        assert sample.ttft == pytest.approx(0.022)
        assert sample.e2e == pytest.approx(0.062)
        assert (sample.prompt_tokens, sample.output_tokens, len(sample.arrivals)) == (100, 5, 5)
    assert measured.duration == pytest.approx(0.124)


def test_the_loop_is_closed():
    measured = VirtualSource(SPEC, Constant()).measure(load(3, 9))
    spans = [(s.start, s.start + (s.closed or 0)) for s in measured.samples]
    starts = sorted(start for start, _ in spans)
    assert len(starts) == 9
    for start in starts[3:]:  # each begins as another ends
        assert any(abs(end - start) < 1e-9 for _, end in spans)
    assert measured.client.peak_inflight == 3


def test_an_open_loop_follows_its_times_whatever_is_in_flight():
    """Each takes 62 ms alone; ten a second with two at once: the second pair comes while nothing is in flight."""
    times = (0.0, 0.0, 1.0, 1.0)
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 4, arrivals=times, rate=10.0))
    assert [s.start for s in measured.samples] == pytest.approx([0.0, 0.0, 0.1, 0.1])
    assert measured.client.peak_inflight == 2
    assert [s.late for s in measured.samples] == [0.0] * 4
    # Both prompts are read in one step: 2 + 10 + 2 x 10 ms.
    assert [s.ttft for s in measured.samples] == pytest.approx([0.032] * 4)


def test_arrivals_count_warm_up_first():
    warm = Shape(cls="x", prompt_tokens=10, output_tokens=1)
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 2, warmup=(warm,), arrivals=(0.0, 1.0, 2.5), rate=2.0))
    assert [s.start for s in measured.warmup] == pytest.approx([0.0])
    assert [s.start for s in measured.samples] == pytest.approx([0.5, 1.25])


def test_an_open_loop_that_is_stopped_sends_no_more():
    source = VirtualSource(SPEC, Constant())
    times = tuple(float(i) for i in range(10))
    measured = source.measure(load(1, 10, arrivals=times, rate=10.0), None, lambda s: "enough" if len(s) == 2 else None)
    assert measured.stopped == "enough"
    assert len([s for s in measured.samples if s.good]) == 2
    assert len(measured.samples) < 10
    assert source.measure(load(1, 1)).samples[0].good


def turns(*prompts: int) -> tuple[Shape, ...]:
    return tuple(Shape(cls="x", prompt_tokens=n, output_tokens=2, talk=0, turn=i) for i, n in enumerate(prompts))


def test_turns_of_a_conversation_follow_each_other_and_are_found_in_the_cache():
    """Whole units of 16 tokens are found again: 96 of 100 tokens, 192 of 200."""
    single = Shape(cls="x", prompt_tokens=100, output_tokens=2)
    measured = VirtualSource(SPEC, Constant()).measure(load(2, 4, shapes=(*turns(100, 200, 300), single)))
    assert [s.cached_tokens for s in measured.samples] == [0, 96, 192, 0]
    first, second, third, _ = measured.samples
    assert second.start == pytest.approx(first.start + first.e2e)
    assert third.start == pytest.approx(second.start + second.e2e)


def test_in_an_open_loop_a_turn_waits_for_the_reply():
    measured = VirtualSource(SPEC, Constant()).measure(
        load(1, 3, shapes=turns(100, 200, 300), arrivals=(0, 1, 50), rate=100.0)
    )
    first, second, third = measured.samples
    assert second.start == pytest.approx(first.e2e)
    assert third.start == pytest.approx(0.5)


def test_blocks_of_a_log_are_found_again():
    shared, other = (Shape(cls="x", prompt_tokens=1100, output_tokens=1, blocks=ids) for ids in ((1, 2), (1, 3)))
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 3, shapes=(shared, other, shared)))
    assert [s.cached_tokens for s in measured.samples] == [0, 512, 1024]


def test_warm_up_goes_first_and_is_kept_apart():
    warm = Shape(cls="x", prompt_tokens=10, output_tokens=1)
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 2, warmup=(warm, warm)))
    assert (len(measured.warmup), len(measured.samples)) == (2, 2)
    assert max(s.start for s in measured.warmup) < min(s.start for s in measured.samples)


def test_what_does_not_fit_the_context_fails_at_once():
    measured = VirtualSource(replace(SPEC, max_model_len=128), Constant()).measure(load(1, 2, prompt=125, output=5))
    assert [s.error for s in measured.samples] == ["http_4xx", "http_4xx"]


def test_a_stop_rule_cancels_what_is_in_flight():
    source, seen = VirtualSource(SPEC, Constant()), []
    measured = source.measure(load(2, 10), seen.append, lambda samples: "enough" if len(samples) == 2 else None)
    assert measured.stopped == "enough"
    assert [s.good for s in seen[:2]] == [True, True]
    assert {s.error for s in seen[2:]} == {"cancelled"}
    assert len(measured.samples) == len(seen) < 10
    assert all(s.closed is not None for s in measured.samples)
    assert all(not engine.scheduler.running for engine in source.engines)
    assert source.measure(load(1, 1)).samples[0].good


def test_shared_prefixes_are_found_again():
    shape = Shape(cls="x", prompt_tokens=100, output_tokens=2, prefix=0, prefix_tokens=64)
    measured = VirtualSource(SPEC, Constant()).measure(load(1, 2, shapes=(shape, shape)))
    assert [s.cached_tokens for s in measured.samples] == [0, 64]
    assert [s.ttft for s in measured.samples] == pytest.approx([0.022, 0.0156])


def test_gauges_and_preemptions_show():
    """Eight requests that start in 2,048 tokens and grow to 4,096 do not fit 12,000 together."""
    tight = replace(SPEC, pool_tokens=12_000, max_model_len=8192)
    measured = VirtualSource(tight, Constant()).measure(load(8, 8, prompt=1000, output=1000))
    assert all(s.good for s in measured.samples)
    assert (measured.moved("preemptions") or 0) > 0
    assert max(value for _, value in measured.gauge("kv_usage")) > 0.9
    assert measured.gauge("waiting")


@pytest.mark.parametrize("flavour", ["vllm", "sglang"])
def test_it_measures_what_a_socket_does(flavour):
    """The same load on the same deployment, with its own law, over a real socket in virtual time."""
    block = 16 if flavour == "vllm" else 1
    spec = replace(SPEC, flavour=flavour, block_size=block, template_tokens=0)
    asked = load(4, 8, prompt=300, output=20)
    here = VirtualSource(spec).measure(asked)
    there = run_virtual(_over_a_socket(spec, asked))
    for mine, theirs in zip(here.samples, there.samples, strict=True):
        assert theirs.good
        assert mine.ttft == pytest.approx(theirs.ttft, rel=0.02, abs=2e-4)
        assert mine.e2e == pytest.approx(theirs.e2e, rel=0.02, abs=2e-4)


async def _over_a_socket(spec: Spec, asked: Load) -> Measurement:
    emulator = Emulator(spec)
    await emulator.start()
    try:
        target = Target(url=emulator.url, model=spec.model, api="completions", force="min_tokens")
        return await LocalSource(target, Prompts(seed=0, tokens_per_word=1.0, template_tokens=0)).run(asked)
    finally:
        await emulator.stop()
        await asyncio.sleep(0)
