"""A plan's loads in their order: rates read off the loop before, more where it decides, an end within the budget."""

import asyncio
from collections.abc import Sequence

import pytest

from auditor.loads import Load, Plan, Shape
from auditor.measurement import Measurement, Sample
from auditor.probe.session import Judge, Watcher, run_plan
from auditor.profile import Budget

SHAPE = Shape(cls="a", prompt_tokens=100, output_tokens=10)


def load(name: str, count: int = 4, **more: object) -> Load:
    fields: dict[str, object] = {"purpose": "slo", "concurrency": 2, "shapes": (SHAPE,) * count}
    return Load(id=name, **(fields | more))  # type: ignore[arg-type]


CLOSED = load("slo")
BURSTS = load("bursts", arrivals=(0.0, 1.0, 2.0, 3.0))
LADDER = load("decode", purpose="decode")
MORE = (load("slo-2"), load("bursts-2", arrivals=(0.0, 1.0, 2.0, 3.0)))


def sample(of: Load, index: int, error: str | None = None, prompt: int | None = 100) -> Sample:
    """Two slots, half a second a request: 4 requests a second."""
    return Sample(
        load=of.id,
        index=index,
        cls="a",
        start=0.5 * (index // 2),
        closed=0.5,
        e2e=0.5,
        ttft=0.1,
        asked_prompt_tokens=100,
        asked_output_tokens=10,
        prompt_tokens=prompt,
        output_tokens=10,
        error=error,
    )


class Source:
    """Answers each load at once, every request with `error`; remembers what it was asked."""

    def __init__(self, error: str | None = None, prompt: int = 100) -> None:
        self.sent: list[Load] = []
        self.error, self.prompt = error, prompt

    async def run(self, load, on_sample=None, stop=None):  # type: ignore[no-untyped-def]
        self.sent.append(load)
        samples: list[Sample] = []
        stopped = None
        for index in range(len(load.shapes)):
            samples.append(sample(load, index, self.error, self.prompt))
            on_sample(samples[-1])
            if stopped := stop(samples):
                break
        warmup = tuple(sample(load, index) for index in range(len(load.warmup)))
        return Measurement(load=load, samples=tuple(samples), warmup=warmup, duration=1.0, stopped=stopped)


def run(
    source: Source, *loads: Load, reserve: Sequence[Load] = (), judge: Judge | None = None, **rest: int
) -> tuple[Measurement, ...]:
    plan = Plan(loads=loads, reserve=tuple(reserve), requests=0, tokens=0, seconds=0)
    watcher = Watcher(lambda _: None, lambda *_: None, lambda _: None)
    budget = Budget(duration=60, requests=100, tokens=rest.pop("tokens", 10_000))
    return asyncio.run(run_plan(plan, source, budget, watcher, judge=judge, **rest))


def ids(source: Source) -> list[str]:
    return [each.id for each in source.sent]


def test_bursts_come_at_the_rate_that_the_closed_loop_reached() -> None:
    source = Source()
    measured = run(source, CLOSED, BURSTS, LADDER)
    assert ids(source) == ["slo", "bursts", "decode"]
    assert source.sent[1].rate == pytest.approx(4.0)
    assert measured[1].load.rate == pytest.approx(4.0)


def test_a_declared_rate_is_kept() -> None:
    source = Source()
    run(source, CLOSED, load("bursts", arrivals=(0.0, 1.0, 2.0, 3.0), rate=7.0))
    assert source.sent[1].rate == 7.0


def test_without_a_good_request_there_is_no_rate_to_send_at() -> None:
    source = Source(error="http_5xx")
    run(source, CLOSED, BURSTS, LADDER)
    assert ids(source) == ["slo", "decode"]


def test_more_is_sent_only_where_it_decides() -> None:
    asked: list[int] = []

    def more(measured: Sequence[Measurement]) -> str | None:
        asked.append(len(measured))
        return "37 more good requests decide"

    source = Source()
    run(source, CLOSED, BURSTS, LADDER, reserve=MORE, judge=Judge(more=more))
    assert ids(source) == ["slo", "bursts", "slo-2", "bursts-2", "decode"]
    assert asked == [2]
    source = Source()
    run(source, CLOSED, BURSTS, LADDER, reserve=MORE)
    assert ids(source) == ["slo", "bursts", "decode"]


def test_more_is_not_sent_without_the_time_for_it() -> None:
    """Eight requests took 2 s of the 45 s that the SLOs may take: twelve hundred more would take 300 s."""
    source = Source()
    long = (load("slo-2", count=1200),)
    run(source, CLOSED, BURSTS, LADDER, reserve=long, judge=Judge(more=lambda _: "more decide"))
    assert ids(source) == ["slo", "bursts", "decode"]


def test_what_cannot_change_the_outcome_is_not_sent_but_ladders_are() -> None:
    def decided(measured: Sequence[Measurement]) -> str | None:
        return "it fails for certain" if len(measured) == 1 else None

    source = Source()
    run(source, CLOSED, BURSTS, LADDER, judge=Judge(decided=decided))
    assert ids(source) == ["slo", "decode"]


def test_the_token_budget_ends_the_probe() -> None:
    """A server that counts 200 tokens for prompts of 100: 210 a request, 1,000 allowed, the fifth request is over."""
    source = Source(prompt=200)
    measured = run(source, CLOSED, load("slo-b"), LADDER, tokens=1000)
    assert [len(m.samples) for m in measured] == [4, 1]
    assert measured[-1].stopped == "the token budget of 1,000 is spent"


def test_what_was_spent_before_counts() -> None:
    """Four requests of 110 tokens in a budget of 1,000 of which 700 are spent: the third is over."""
    measured = run(Source(), CLOSED, tokens=1000, spent_tokens=700)
    assert [len(m.samples) for m in measured] == [3]


def test_warm_up_counts() -> None:
    """Two requests of warm-up and four measured are 660 tokens: the next load's first is over 700."""
    measured = run(Source(), load("slo", warmup=(SHAPE, SHAPE)), LADDER, tokens=700)
    assert [len(m.samples) for m in measured] == [4, 1]
