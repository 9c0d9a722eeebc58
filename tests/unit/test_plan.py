"""What the plan sends, against numbers worked by hand (n tables: k = 0 -> ceil(ln(1-c)/ln p))."""

from collections import Counter

import pytest

from auditor.emulator.spec import Spec
from auditor.emulator.virtual import VirtualSource
from auditor.loads import Load, Plan, Shape
from auditor.measurement import Measurement, Sample, Served
from auditor.plan.demands import demands
from auditor.plan.make import make_plan, without_loads
from auditor.plan.pace import Pace, concurrency, seconds
from auditor.plan.stopping import stop_rule, time_for
from auditor.profile import (
    Budget,
    Endpoint,
    Lengths,
    Probe,
    Profile,
    SharedPrefix,
    Slo,
    Traffic,
    TrafficClass,
)


def profile(**changes: object) -> Profile:
    """Two classes 0.75/0.25 at 8 in flight, p95 TTFT and 1 % errors."""
    base: dict[str, object] = {
        "version": 1,
        "name": "t",
        "endpoint": Endpoint(url="http://127.0.0.1:1/v1"),
        "traffic": Traffic(
            target_concurrency=8,
            classes=(
                TrafficClass(
                    name="a", share=0.75, prompt_tokens=Lengths(p50=100, p95=200), output_tokens=Lengths(p50=50)
                ),
                TrafficClass(name="b", share=0.25, prompt_tokens=Lengths(p50=1000), output_tokens=Lengths(p50=20)),
            ),
        ),
        "slo": Slo(ttft={"p95": 1.0}, error_rate=0.01),
        "probe": Probe(budget=Budget(duration=600, requests=2000, tokens=4_000_000)),
    }
    return Profile(**(base | changes))  # type: ignore[arg-type]


def target(plan: Plan) -> tuple[Shape, ...]:
    """The requests on which the SLOs are judged: those of the closed loop, then those of the bursts."""
    return tuple(s for load in plan.loads if load.purpose == "slo" for s in load.shapes)


def load_named(plan_loads: tuple[Load, ...], name: str) -> Load:
    return next(load for load in plan_loads if load.id == name)


def test_slots_begin_at_random_ages_so_that_replies_of_one_length_never_march_in_step() -> None:
    one = TrafficClass(name="a", prompt_tokens=Lengths(p50=200), output_tokens=Lengths(p50=100))
    many = Traffic(target_concurrency=16, classes=(one,))
    closed = load_named(make_plan(profile(traffic=many)).loads, "slo")
    rests = sorted(shape.output_tokens for shape in closed.warmup)
    assert all(50 + 3 * i <= rest <= 54 + 3 * (i + 1) for i, rest in enumerate(rests))
    assert rests != [shape.output_tokens for shape in closed.warmup]
    measured = VirtualSource(Spec(jitter=0.0, pool_tokens=40_000)).measure(closed)
    begun = sorted(sample.start for sample in measured.samples)[:16]
    assert len(set(begun)) >= 12  # not in one crowd, as they would be after replies of one length


def test_requests_come_from_the_rule_that_needs_most() -> None:
    # error rate 1 % at 0.95 with two misses allowed needs 628 requests; p95 needs 124
    plan = make_plan(profile())
    closed, bursts = load_named(plan.loads, "slo"), load_named(plan.loads, "bursts")
    assert (len(closed.shapes), len(bursts.shapes)) == (314, 314)
    assert closed.concurrency == 8
    assert (len(closed.warmup), len(bursts.warmup)) == (8, 8)


def test_the_closed_loop_gets_three_turnovers_of_five() -> None:
    """40 in flight take 200 requests to be steady, more than the 124 that p95 wants: 120 closed and 80 in bursts."""
    many = Traffic(target_concurrency=40, classes=profile().traffic.classes)
    small = Probe(budget=Budget(duration=600, requests=500, tokens=4_000_000))
    plan = make_plan(profile(traffic=many, probe=small, slo=Slo(ttft={"p95": 1.0})))
    assert [len(load_named(plan.loads, name).shapes) for name in ("slo", "bursts")] == [120, 80]


def test_bursts_arrive_by_chance_but_as_many_as_asked() -> None:
    """8 of warm-up in the first 8 mean gaps, 314 in the 314 after; independent users come as close as chance brings
    them: 63 % of the gaps are shorter than the mean (1 - 1/e).
    """
    bursts = load_named(make_plan(profile()).loads, "bursts")
    assert bursts.rate is None
    assert len(bursts.arrivals) == 8 + 314
    assert (bursts.arrivals[0], bursts.arrivals[8]) == (0, 8)
    assert list(bursts.arrivals) == sorted(bursts.arrivals)
    assert bursts.arrivals[-1] < 8 + 314
    gaps = [later - at for at, later in zip(bursts.arrivals[8:], bursts.arrivals[9:], strict=False)]
    assert 0.56 <= sum(gap < 1 for gap in gaps) / len(gaps) <= 0.70


def test_bursts_come_at_the_declared_rate_where_there_is_one() -> None:
    rate = Traffic(request_rate=5.0, classes=profile().traffic.classes)
    assert load_named(make_plan(profile(traffic=rate)).loads, "bursts").rate == 5.0


def test_workers_that_wait_for_their_replies_send_all_requests_in_the_closed_loop() -> None:
    closed = Traffic(target_concurrency=8, arrivals="closed", classes=profile().traffic.classes)
    plan = make_plan(profile(traffic=closed))
    assert [load.id for load in plan.loads if load.purpose == "slo"] == ["slo"]
    assert len(load_named(plan.loads, "slo").shapes) == 628  # as many as both loops have, see above
    assert [load.id for load in plan.reserve] == ["slo-2"]
    assert not any("bursts" in note.message for note in plan.notes)


def test_more_is_kept_in_reserve_where_the_budget_has_room() -> None:
    """2 x (124 + 16) requests for p95 with two misses, and 63 of the ladders and the cold one: 343 of 400."""
    slo = Slo(ttft={"p95": 1.0})
    plan = make_plan(profile(slo=slo, probe=Probe(budget=Budget(duration=600, requests=400, tokens=4_000_000))))
    assert [load.id for load in plan.reserve] == ["slo-2", "bursts-2"]
    assert [len(load.shapes) for load in plan.reserve] == [62, 62]
    assert plan.requests == sum(len(load.shapes) + len(load.warmup) for load in (*plan.loads, *plan.reserve))
    assert {load.shapes for load in plan.reserve}.isdisjoint({load.shapes for load in plan.loads})
    small = make_plan(profile(slo=slo, probe=Probe(budget=Budget(duration=600, requests=250, tokens=4_000_000))))
    assert small.reserve == ()


def test_no_reserve_where_there_is_no_time_for_it() -> None:
    """322 requests of 325 + 42.5 tokens in the mean, 8 at once: at 10 ms a step 80 s of prompts and 17 s of replies."""
    slow = Pace(per_prompt_token=1e-3, per_step=0.01)
    slo = Slo(ttft={"p95": 1.0})
    long, short = (Probe(budget=Budget(duration=d, requests=2000, tokens=4_000_000)) for d in (600, 200))
    assert make_plan(profile(slo=slo, probe=long), None, slow).reserve
    assert not make_plan(profile(slo=slo, probe=short), None, slow).reserve


def test_what_was_spent_before_the_plan_is_taken_off_the_budget() -> None:
    served = Served(engine="vllm", api="chat", spent_requests=10, spent_tokens=50_000)
    small = Probe(budget=Budget(duration=600, requests=300, tokens=100_000))
    plan = make_plan(profile(probe=small), served)
    assert plan.requests <= 290
    assert plan.tokens <= 50_000


def test_a_larger_budget_bears_more_misses() -> None:
    # p95 at 0.95: 2 misses take 124 requests, 3 take 153, 5 take 208, 10 take 336; a quarter of the budget may go there
    for requests, planned in ((400, 124), (700, 153), (900, 208), (2000, 336), (20_000, 336)):
        probe = Probe(budget=Budget(duration=600, requests=requests, tokens=4_000_000))
        plan = make_plan(profile(slo=Slo(ttft={"p95": 1.0}), probe=probe))
        assert len(target(plan)) == planned


def test_a_class_slo_needs_its_share_of_the_mix() -> None:
    wanted = Slo(classes={"b": Slo(ttft={"p95": 1.0})})
    shapes = target(make_plan(profile(slo=wanted)))
    assert len(shapes) == 124 * 4
    assert Counter(s.cls for s in shapes) == {"a": 372, "b": 124}


@pytest.mark.parametrize(
    ("slo", "least"),
    [
        (Slo(ttft={"p95": 1.0}), 59),
        (Slo(e2e={"p99": 1.0}), 299),
        (Slo(tps={"p05": 20.0}), 59),
        (Slo(tps={"p50": 20.0}), 5),
        (Slo(error_rate=0.1), 29),
    ],
)
def test_least_requests_to_pass(slo: Slo, least: int) -> None:
    assert [d.least for d in demands(profile(slo=slo))] == [least]


def test_what_the_budget_cannot_decide_is_said_before_sending() -> None:
    small = Probe(budget=Budget(duration=600, requests=100, tokens=4_000_000))
    plan = make_plan(profile(probe=small))
    assert len(target(plan)) == 75 - 2 * 8  # three quarters of the budget, warm-up taken off
    [note] = [n for n in plan.notes if "slo.error_rate" in n.message]
    assert note.rules == ("W113",)
    assert "needs 299 requests to pass and the budget allows 59" in note.message
    assert plan.requests <= 100


def test_tokens_of_the_plan_stay_within_the_budget() -> None:
    small = Probe(budget=Budget(duration=600, requests=2000, tokens=60_000))
    plan = make_plan(profile(probe=small))
    assert plan.tokens <= 60_000
    assert any("left out" in n.message for n in plan.notes)


def test_lengths_follow_the_declared_percentiles() -> None:
    slo = load_named(make_plan(profile()).loads, "slo")
    prompts = sorted(s.prompt_tokens for s in slo.shapes if s.cls == "a")
    assert abs(prompts[len(prompts) // 2] - 100) <= 2
    assert abs(prompts[int(0.95 * len(prompts))] - 200) <= 4


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert make_plan(profile()) == make_plan(profile())
    other = make_plan(profile(probe=Probe(seed=1)))
    assert load_named(other.loads, "slo").shapes != load_named(make_plan(profile()).loads, "slo").shapes


def test_lengths_beyond_the_context_are_cut() -> None:
    plan = make_plan(profile(), Served(engine="vllm", api="chat", max_model_len=128))
    assert all(s.prompt_tokens + s.output_tokens < 128 for load in plan.loads for s in load.shapes)


def test_shared_prefixes_are_dealt_by_share() -> None:
    cls = TrafficClass(
        name="rag",
        prompt_tokens=Lengths(p50=1000),
        output_tokens=Lengths(p50=10),
        shared_prefix=SharedPrefix(tokens=400, share=0.5, distinct=2),
    )
    plan = make_plan(profile(traffic=Traffic(target_concurrency=4, classes=(cls,)), slo=Slo(ttft={"p95": 1.0})))
    assert Counter(s.prefix for s in target(plan)) == {0: 84, 1: 84, None: 168}
    assert {s.prefix_tokens for s in target(plan)} == {0, 400}


def test_traffic_that_shares_prefixes_is_sent_without_them_too() -> None:
    shared = SharedPrefix(tokens=400, share=0.5, distinct=2)
    cls = TrafficClass(name="rag", prompt_tokens=Lengths(p50=1000), output_tokens=Lengths(p50=10), shared_prefix=shared)
    plan = make_plan(profile(traffic=Traffic(target_concurrency=4, classes=(cls,)), slo=Slo(ttft={"p95": 1.0})))
    alone = load_named(plan.loads, "unshared")
    assert (len(alone.shapes), len(alone.warmup), alone.concurrency, alone.purpose) == (20, 4, 4, "unshared")
    assert {s.prefix for s in alone.shapes} == {None}
    assert plan.loads[-1] == alone
    assert all(load.id != "unshared" for load in make_plan(profile()).loads)


def test_an_endpoint_elsewhere_is_loaded_slowly_at_first() -> None:
    def ramps(url: str) -> dict[str, bool]:
        plan = make_plan(profile(endpoint=Endpoint(url=url)))
        return {load.id: load.ramp for load in (*plan.loads, *plan.reserve) if load.purpose == "slo"}

    none = {"slo": False, "bursts": False, "slo-2": False, "bursts-2": False}
    assert ramps("http://127.0.0.1:8000/v1") == none
    assert ramps("http://10.1.2.3:8000/v1") == none | {"slo": True}


def test_ladders_come_after_the_slo_load() -> None:
    purposes = [load.purpose for load in make_plan(profile()).loads]
    assert purposes[:3] == ["cold", "slo", "slo"]
    assert set(purposes[3:]) == {"prefill", "decode"}


def test_decode_ladder_covers_batches_at_two_contexts() -> None:
    ladder = [load for load in make_plan(profile()).loads if load.purpose == "decode"]
    assert {load.concurrency for load in ladder} == {1, 2, 4, 8}
    contexts = {load.context for load in ladder}
    assert len(contexts) == 2
    assert max(c or 0 for c in contexts) >= 8 * min(c or 0 for c in contexts)


def test_a_request_rate_becomes_a_concurrency_by_littles_law() -> None:
    rate = Traffic(request_rate=5.0, classes=profile().traffic.classes)
    # mean of medians: 325 prompt and 42.5 output tokens: 325 x 1 ms + 42.5 x 20 ms = 1.175 s; 5/s x 1.175 s = 5.9
    assert concurrency(profile(traffic=rate), Pace(per_prompt_token=0.001, per_step=0.02)) == 6


def test_more_load_than_time_is_said() -> None:
    plan = make_plan(profile(), None, Pace(per_prompt_token=0.01, per_step=0.1))
    assert any("s allowed" in n.message for n in plan.notes)
    assert plan.seconds == 600


@pytest.mark.parametrize(("replicas", "took"), [(1, 11.0), (2, 6.0)])
def test_prompts_in_flight_share_their_replicas_devices(replicas: int, took: float) -> None:
    """Ten at once, 1,000 + 100 tokens each: 10 x 1 s of prompts on each replica's share, and 100 steps of 10 ms."""
    shape = Shape(cls="chat", prompt_tokens=1000, output_tokens=100)
    load = Load(id="slo", purpose="slo", concurrency=10, shapes=(shape,) * 10)
    assert seconds(load, Pace(per_prompt_token=1e-3, per_step=1e-2), replicas) == pytest.approx(took)


def test_an_open_loop_takes_its_schedule() -> None:
    """Ten at one a second, 100 steps of 10 ms each: the last comes at 9 s and stays 1 s of prompt and 1 s of reply."""
    shape = Shape(cls="chat", prompt_tokens=1000, output_tokens=100)
    times = tuple(float(n) for n in range(10))
    load = Load(id="bursts", purpose="slo", concurrency=1, shapes=(shape,) * 10, arrivals=times, rate=1.0)
    assert seconds(load, Pace(per_prompt_token=1e-3, per_step=1e-2), 1) == pytest.approx(9 + 1 + 1)


def test_no_classes_no_load() -> None:
    plan = make_plan(profile(traffic=Traffic(target_concurrency=8)))
    assert plan.loads == ()
    assert "traffic.classes" in plan.notes[0].message


def test_an_endpoint_that_must_not_be_loaded_gets_nothing() -> None:
    plan = without_loads(make_plan(profile()), "allow_load is not set")
    assert plan.loads == ()
    assert plan.requests == 0
    assert plan.notes[-1].message == "allow_load is not set"


def _samples(count: int, error: str | None) -> list[Sample]:
    return [
        Sample(load="slo", index=i, cls="a", start=0, asked_prompt_tokens=1, asked_output_tokens=1, error=error)
        for i in range(count)
    ]


def test_stop_rule() -> None:
    load = Load(id="slo", purpose="slo", concurrency=4, shapes=(Shape(cls="a", prompt_tokens=1, output_tokens=1),))
    budget = Budget(duration=10)
    assert stop_rule(load, _samples(100, None), 5, budget) is None
    assert "time budget" in str(stop_rule(load, _samples(1, None), 11, budget))
    assert stop_rule(load, _samples(19, "connect"), 5, budget) is None
    assert "all failed (connect)" in str(stop_rule(load, _samples(20, "connect"), 5, budget))
    assert stop_rule(load, [*_samples(20, "connect"), *_samples(1, None)], 5, budget) is None
    assert stop_rule(load, _samples(1, None), 5, Budget(tokens=1000), 1000) is None
    assert stop_rule(load, _samples(1, None), 5, Budget(tokens=1000), 1001) == "the token budget of 1,000 is spent"


def test_time_for_more() -> None:
    """40 requests took 10 s: 20 more take 5; three quarters of 20 s may go to the SLOs."""
    shape = Shape(cls="a", prompt_tokens=1, output_tokens=1)
    before = Load(id="slo", purpose="slo", concurrency=4, shapes=(shape,) * 30, warmup=(shape,) * 10)
    more = Load(id="slo-2", purpose="slo", concurrency=4, shapes=(shape,) * 20)
    measured = [Measurement(load=before, samples=(), duration=10.0)]
    assert time_for([more], measured, 10.0, Budget(duration=20))
    assert not time_for([more], measured, 10.1, Budget(duration=20))


@pytest.mark.parametrize(
    ("requests", "tokens"), [(1, 4_000_000), (2, 4_000_000), (7, 4_000_000), (400, 700), (400, 90)]
)
def test_a_small_budget_is_never_exceeded(requests: int, tokens: int) -> None:
    plan = make_plan(profile(probe=Probe(budget=Budget(duration=600, requests=requests, tokens=tokens))))
    assert plan.requests <= requests
    assert plan.tokens <= tokens
    assert plan.requests == sum(len(load.shapes) + len(load.warmup) for load in plan.loads)


def test_warm_up_leaves_most_of_a_small_budget_to_the_measurement() -> None:
    many = Traffic(target_concurrency=1000, classes=profile().traffic.classes)
    plan = make_plan(profile(traffic=many, probe=Probe(budget=Budget(duration=600, requests=400, tokens=4_000_000))))
    loads = [load_named(plan.loads, name) for name in ("slo", "bursts")]
    sizes = [(len(load.warmup), len(load.shapes), load.concurrency) for load in loads]
    assert sizes == [(50, 120, 120), (50, 80, 1000)]  # of 300, three quarters of 400
    assert plan.requests <= 400
    assert any("a steady state at 1000 in flight takes 5000 requests" in note.message for note in plan.notes)


def test_a_budget_without_room_for_one_request_sends_nothing() -> None:
    plan = make_plan(profile(probe=Probe(budget=Budget(duration=600, requests=100, tokens=100))))
    assert plan.loads == ()
    assert plan.notes[0].message.startswith("probe.budget has no room for one request of this traffic")


def test_a_request_rate_without_bound_is_bounded() -> None:
    assert concurrency(profile(traffic=Traffic(request_rate=1e12, classes=profile().traffic.classes))) == 100_000


def test_the_prefill_ladder_goes_on_to_lengths_that_fill_the_device_where_that_is_cheap() -> None:
    """The traffic's longest is 1,000; five of 4,096 at 0.1 ms a token take 2 s of 600, at 2 ms 41 s."""

    def lengths(pace: Pace | None) -> list[int | None]:
        plan = make_plan(profile(), Served(engine="vllm", api="chat", max_model_len=16_384), pace)
        return [load.prompt_tokens for load in plan.loads if load.purpose == "prefill"]

    assert lengths(Pace(per_prompt_token=1e-4, per_step=0.02)) == [32, 256, 1000, 1024, 2048, 4096]
    assert lengths(Pace(per_prompt_token=2e-3, per_step=0.02)) == [32, 256, 1000, 1024, 2048]
    assert lengths(None) == [32, 256, 1000]


def test_streams_of_a_decode_load_still_decode_when_the_last_prompt_was_read() -> None:
    """8 x 1,000 tokens are read in 4 steps of 2,048: replies are as much longer."""
    ladder = {load.id: load for load in make_plan(profile(), None, None, 2048).loads if load.purpose == "decode"}
    assert ladder["decode-8x1000"].shapes[0].output_tokens == 48 + 4
    assert ladder["decode-1x125"].shapes[0].output_tokens == 48 + 1


def test_contexts_are_shorter_where_prompts_would_take_too_many_steps() -> None:
    """256 x 8,000 tokens would take 1,000 steps of 2,048; 96 steps hold 768 tokens each."""
    cls = TrafficClass(name="a", prompt_tokens=Lengths(p50=8000), output_tokens=Lengths(p50=50))
    budget = Probe(budget=Budget(duration=600, requests=10_000, tokens=40_000_000))
    plan = make_plan(profile(traffic=Traffic(target_concurrency=256, classes=(cls,)), probe=budget))
    ladder = {(load.concurrency, load.context) for load in plan.loads if load.purpose == "decode"}
    assert (256, 768) in ladder
    assert (256, 96) in ladder
    assert (1, 8000) in ladder
