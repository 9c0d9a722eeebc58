"""Replay of a traffic log, by hand."""

from itertools import pairwise

import pytest

from auditor.loads import Logged
from auditor.plan.feed import feed
from auditor.plan.make import make_plan
from auditor.profile import Budget, Endpoint, Lengths, Probe, Profile, Slo, Traffic, TrafficClass

OBSERVED = TrafficClass(name="observed", prompt_tokens=Lengths(p50=100), output_tokens=Lengths(p50=10))


def profile(**traffic: object) -> Profile:
    base: dict[str, object] = {"target_concurrency": 4, "classes": (OBSERVED,)}
    return Profile(
        version=1,
        name="t",
        endpoint=Endpoint(url="http://127.0.0.1:1/v1"),
        traffic=Traffic(**(base | traffic)),  # type: ignore[arg-type]
        slo=Slo(ttft={"p95": 1.0}),
        probe=Probe(budget=Budget(duration=600, requests=400, tokens=4_000_000)),
    )


def log(*times: float) -> list[Logged]:
    return [Logged(at, 100 + n, 10 + n) for n, at in enumerate(times)]


def test_requests_are_sent_in_the_order_and_with_the_lengths_of_the_log() -> None:
    made = feed(profile(), None, log(0, 1, 2, 5, 6), 5)
    shapes = made.shapes("slo", 1, 3)
    assert [(s.cls, s.prompt_tokens, s.output_tokens) for s in shapes] == [
        ("observed", 101, 11),
        ("observed", 102, 12),
        ("observed", 103, 13),
    ]


def test_times_become_mean_gaps() -> None:
    """From 1 s to 6 s in three gaps: the mean is 5/3 s."""
    made = feed(profile(), None, log(0, 1, 2, 5, 6), 5)
    assert made.arrivals("bursts", 1, 1, 3) == pytest.approx((0, 0.6, 2.4, 3.0))


def test_the_busiest_part_of_a_long_log_is_taken() -> None:
    made = feed(profile(), None, log(0, 100, 200, 201, 202, 300), 3)
    assert [s.prompt_tokens for s in made.shapes("slo", 0, 9)] == [102, 103, 104]


def test_a_short_log_begins_anew_and_shares_nothing_with_its_first_lap() -> None:
    """Three requests in two seconds, one each second: the fourth comes a second after the third."""
    rows = [Logged(float(n), 2000, 10, (7,)) for n in range(3)]
    made = feed(profile(), None, rows, 6)
    assert [row.at for row in made.rows] == [0, 1, 2, 3, 4, 5]
    assert [s.prefix_tokens for s in made.logged] == [0, 512, 512, 0, 512, 512]
    assert made.logged[0].blocks != made.logged[3].blocks


def test_blocks_that_came_before_may_be_cached_up_to_the_first_new_one() -> None:
    """Of 1,100 tokens two whole blocks can be shared, and at least one token is a prompt's own."""
    rows = [Logged(None, 1100, 10, ids) for ids in ((1, 2, 3), (1, 2, 4), (1, 9, 2), (5, 2, 3))]
    made = feed(profile(), None, rows, 4)
    assert [s.blocks for s in made.logged] == [(1, 2), (1, 2), (1, 9), (5, 2)]
    assert [s.prefix_tokens for s in made.logged] == [0, 1024, 512, 0]


def test_lengths_beyond_the_context_are_cut_with_their_blocks() -> None:
    made = feed(profile(), 1024, [Logged(0.0, 5000, 100, tuple(range(9)))], 1)
    [shape] = made.logged
    assert shape.prompt_tokens + shape.output_tokens < 1024
    assert shape.blocks == (0,)


def test_a_log_of_lengths_alone_is_no_replay() -> None:
    made = feed(profile(), None, [Logged(None, 100, 10)] * 5, 5)
    assert made.logged == ()
    assert len(made.shapes("slo", 0, 8)) == 8


def test_a_plan_replays_its_log() -> None:
    plan = make_plan(profile(), log=log(*(n + (n % 2) / 2 for n in range(40))))
    loads = {load.id: load for load in plan.loads}
    assert loads["slo"].warmup[0].prompt_tokens == 100
    assert loads["slo"].shapes[0].prompt_tokens == 104
    first = len(loads["slo"].warmup) + len(loads["slo"].shapes)
    assert loads["bursts"].warmup[0].prompt_tokens == 100 + first % 40
    gaps = [b - a for a, b in pairwise(loads["bursts"].arrivals)]
    assert gaps[0] / gaps[1] in (pytest.approx(3.0), pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("kind", "shares"), [("constant", (0.5, 0.5)), ("ramp", (0.375, 0.625))]
)  # a ramp from half to one and a half of the mean: its first half has 3/8 of the requests
def test_declared_arrivals(kind: str, shares: tuple[float, float]) -> None:
    at = feed(profile(arrivals=kind), None, (), 0).arrivals("bursts", 0, 0, 800)
    early = sum(t < 400 for t in at) / 800
    assert early == pytest.approx(shares[0], abs=0.0 if kind == "constant" else 0.05)
    assert list(at) == sorted(at)
    assert max(at) < 800


def test_bursts_crowd_more_than_independent_users() -> None:
    """Squared gaps in the mean: 2 for exponential gaps, 1 + 1/0.25 = 5 for those of bursts."""

    def squared(kind: str) -> float:
        at = feed(profile(arrivals=kind), None, (), 0).arrivals("bursts", 0, 0, 4000)
        return sum((b - a) ** 2 for a, b in pairwise(at)) / len(at)

    assert squared("poisson") == pytest.approx(2, rel=0.15)
    assert squared("bursts") == pytest.approx(5, rel=0.2)


def test_requests_too_long_for_any_budget_are_planned_as_none() -> None:
    huge = TrafficClass(name="observed", prompt_tokens=Lengths(p50=10**9), output_tokens=Lengths(p50=10**9))
    assert make_plan(profile(classes=(huge,)), log=[Logged(0.0, 10**9, 10**9)]).loads == ()
    assert feed(profile(), None, log(0.0, 1.0), 0).rows == ()
