"""Judgements that checks share, on numbers worked by hand."""

import math
from dataclasses import replace

import pytest

from auditor.evidence import Conflict, Number
from auditor.measurement import Snapshot
from auditor.profile import Lengths, SharedPrefix, Slo, Traffic, TrafficClass
from auditor.testing import (
    H100,
    LLAMA_8B,
    make_evidence,
    make_load,
    make_measurement,
    make_profile,
    make_sample,
    make_served,
    make_settings,
)
from auditor.theory import carrying, deciding, dominance, judging, limits, physics
from auditor.theory.alternatives import alternatives, gains
from auditor.theory.shape import Curve, curve
from auditor.theory.statistics import Interval

# ----------------------------------------------------------------------------------------------------------------- SLO


def test_a_ceiling_counts_what_is_over_and_what_failed():
    judged = deciding.judge_ceiling([2.0, *[0.5] * 49, math.inf, *[0.5] * 49], 1.0, 0.95, 0.95)
    assert (judged.status, judged.n, judged.bad) == ("inconclusive", 100, 2)
    assert judged.missing == 24  # two over need 124
    assert judged.more == "24 more good requests"
    assert judged.verdict == "too close to call"


def test_two_misses_side_by_side_count_as_one_of_half_the_requests():
    """Autocorrelation 0.5 at lag 1: 100 requests are worth 50, one of them bad: 93 - 50 = 43 more, 86 real ones."""
    judged = deciding.judge_ceiling([*[0.5] * 98, 2.0, 2.0], 1.0, 0.95, 0.95)
    assert judged.effective == pytest.approx(50, abs=0.5)
    assert (judged.status, judged.missing) == ("inconclusive", 86)


def test_never_cannot_be_proven_and_one_case_disproves_it():
    assert deciding.judge_share([False] * 1000, 1.0, 0.95).more is not None
    assert "finite" in (deciding.judge_share([False] * 1000, 1.0, 0.95).more or "")
    assert deciding.judge_share([True] + [False] * 999, 1.0, 0.95).status == "fail"


def test_a_decided_outcome_lacks_nothing():
    assert deciding.judge_share([False] * 300, 0.99, 0.95).more is None


def test_the_interval_of_a_rate_is_that_of_the_time_turned_round():
    assert judging.inverse(Interval(0.01, 0.02, math.inf)) == Interval(0.0, 50.0, 100.0)
    assert judging.inverse(Interval(0.0, 0.02, 0.04)).high == math.inf


# ------------------------------------------------------------------------------------------------------------- in time


def test_growth_needs_a_slope_beyond_doubt_and_a_level_that_rose():
    up = judging.growth([(float(i), 0.1 + 0.1 * i) for i in range(30)], 0.95)
    flat = judging.growth([(float(i), 1.0 + 0.01 * (i % 3)) for i in range(30)], 0.95)
    slight = judging.growth([(float(i), 1.0 + 0.01 * i) for i in range(30)], 0.95)
    assert up is not None
    assert flat is not None
    assert slight is not None
    assert (up.grows, up.falls) == (True, False)
    assert (flat.grows, flat.falls) == (False, False)
    assert slight.slope.low > 0
    assert not slight.grows  # 1.045 to 1.245
    assert judging.growth([(0.0, 1.0)] * 8, 0.95) is None


def test_in_flight_counts_open_spans():
    """0-10, 5-15, 10-20: one open until 5, two until 10, then a third starts as the first ends."""
    seen = dict(judging.in_flight([(0, 10), (5, 15), (10, 20)], points=3))
    assert seen == {0: 1, 5: 2, 10: 2}
    assert judging.in_flight([]) == ()


def test_jitter_counts_streams_that_stall():
    """Ten gaps of 10 ms; one of four streams pauses 1 s. 20 x 10 ms = 0.2 s, but 0.5 s is the least."""
    steady = [0.01 * i for i in range(11)]
    paused = [t + (1.0 if i > 5 else 0.0) for i, t in enumerate(steady)]
    found = judging.jitter([steady, steady, steady, paused], 20, 0.5)
    assert found is not None
    assert (found.limit, found.stalls, found.n) == (0.5, 0.25, 4)
    assert found.median_gap == pytest.approx(0.01)
    assert found.largest_gap == pytest.approx(1.01)
    assert judging.jitter([[0.0, 1.0]], 20, 0.5) is None


# ------------------------------------------------------------------------------------------------------------- lengths

FLAT = Curve(((0.0, 100), (1.0, 100)))
RISING = Curve(((0.0, 0), (1.0, 1000)))


def test_the_share_of_longer_requests():
    assert judging.share_over(RISING, 750) == pytest.approx(0.25, abs=1e-3)
    assert judging.share_over(RISING, 1000) == 0
    assert judging.share_over(FLAT, 99) == 1


def test_the_share_of_requests_beyond_a_limit_sums_both_lengths():
    """Uniform 0..1000 plus 100 over 600: half. Two of them over 1000: half; over 1500: 0.5^2 / 2."""
    assert judging.share_beyond(RISING, FLAT, 600) == pytest.approx(0.5, abs=0.01)
    assert judging.share_beyond(RISING, RISING, 1000) == pytest.approx(0.5, abs=0.01)
    assert judging.share_beyond(RISING, RISING, 1500) == pytest.approx(0.125, abs=0.01)
    assert judging.share_beyond(FLAT, FLAT, 200) == 0


def test_leading_needs_a_clear_margin():
    assert judging.leading({"weights": 1.3, "kv": 1.0}) == "weights"
    assert judging.leading({"weights": 1.2, "kv": 1.0}) == "mixed"
    assert judging.leading({"weights": 1.0}) == "weights"
    assert judging.leading({}) == judging.leading({"kv": 0.0}) == "unknown"


def test_rank_is_nearest_rank():
    assert judging.rank([3, 1, 2, 4], 0.5) == 2
    assert judging.rank([3, 1, 2, 4], 0.95) == 4
    with pytest.raises(ValueError, match="at least one"):
        judging.rank([], 0.5)


def test_requests_take_whole_blocks():
    assert judging.fits(1600, 17, 16) == 50
    assert judging.fits(1600, 16) == 100


# ----------------------------------------------------------------------------------------------------------- dominance


def test_dominance_in_user_time():
    """Half the requests wait 1 of 2 s, half 0.1 of 1.0 s: 1.1 / 3."""
    waits = [(0.5, dominance.Wait(1.0, 0.01, 101)), (0.5, dominance.Wait(0.1, 0.009, 101))]
    assert dominance.overall(waits) == pytest.approx(1.1 / 3)
    assert dominance.overall([]) is None
    assert [dominance.leans(x) for x in (0.6, 0.5, 0.4)] == ["ttft", "both", "tps"]
    assert dominance.source([w for _, w in waits]) == "computed"
    assert dominance.source([dominance.Wait(1, 1, 1, n=5)]) == "measured"


# ----------------------------------------------------------------------------------------- pools, limits, alternatives


def test_the_pool_that_an_engine_reports():
    found = carrying.known_pool(None, 100, 16)
    assert found is not None
    assert (found.kv.tokens, found.kv.blocks, found.exact) == (1600, 100, True)
    assert carrying.known_pool(None, None, 16) is None


def test_a_pool_that_a_flag_fixes_has_no_band():
    found = carrying.computed_pool(LLAMA_8B, make_settings(kv_pool_tokens=32_000), None)
    assert found is not None
    assert found.exact
    assert found.kv.tokens == 32_000
    assert carrying.computed_pool(LLAMA_8B, make_settings(), None) is None
    assert carrying.computed_pool(None, make_settings(), H100) is None


def test_a_computed_pool_has_a_band():
    found = carrying.computed_pool(LLAMA_8B, make_settings(), H100)
    assert found is not None
    assert found.low.tokens < found.kv.tokens < found.high.tokens


def test_an_unknown_block_count_falls_back_to_whole_blocks():
    found = carrying.known_pool(16_000, None, None)
    assert found is not None
    assert carrying.at_once(LLAMA_8B, make_settings(), found.kv, 1000) == 16


def test_a_mix_is_carried_by_its_parts():
    """Half of those in flight fit 100 times, half 50 times: 1 / (0.005 + 0.01) = 66.7; a tenth is shared."""
    assert carrying.carried([(1, 100), (1, 50)]) == pytest.approx(66.67, abs=0.01)
    assert carrying.carried([(1, 100), (1, 50)], shared=0.1) == pytest.approx(60, abs=0.01)
    assert carrying.carried([(1, 100), (1, 0)]) == 0
    assert carrying.carried([]) == 0


def test_the_least_time_counts_only_what_must_exceed_the_ceiling():
    """A class of 4 % cannot break a p95; alone it can, at its q: 1 - 0.05 / 0.1 = 0.5 of its own prompts."""
    rising = curve(8000, max=16000)
    small, large = [(0.04, rising, FLAT)], [(0.1, rising, FLAT)]
    assert limits.least(LLAMA_8B, make_settings(), H100, small, 0.95) is None
    half = limits.least(LLAMA_8B, make_settings(), H100, large, 0.95)
    assert half is not None
    assert (half.prompt, half.sure) == (8000, half.seconds)
    assert half.seconds == pytest.approx(0.130, abs=0.001)  # 8,000 tokens: 129 TFLOP at 989 TFLOP/s


def test_physics_takes_the_median_of_each_length():
    """3,000 tokens cannot take 10 ms; one early event among five proves nothing."""
    one, all_five = [(3000, 0.01)] + [(3000, 0.06)] * 4, [(3000, 0.01)] * 5
    assert physics.beaten(LLAMA_8B, make_settings(), H100, one, [], 1.0) == ()
    (found,) = physics.beaten(LLAMA_8B, make_settings(), H100, all_five, [], 1.0)
    assert (found.phase, found.seconds) == ("prefill", 0.01)
    assert found.limit == pytest.approx(0.0447, abs=0.0005)


def test_alternatives_move_one_lever_each():
    levers = {a.field: a for a in alternatives(make_settings(), H100)}
    assert set(levers) == {"quantization", "kv_cache_dtype", "tensor_parallel"}
    assert levers["tensor_parallel"].settings.devices == 2
    assert levers["kv_cache_dtype"].settings.kv_bytes == 1.0
    spent = make_settings(weight_bits=8.0, kv_bytes=1.0)
    assert [a.field for a in alternatives(spent, H100)] == ["tensor_parallel"]


def test_llamacpp_has_its_own_levers():
    (lever,) = alternatives(make_settings(engine="llamacpp"), H100)
    assert (lever.field, lever.value, lever.settings.kv_bytes) == ("kv_cache_dtype", "q8_0", 34 / 32)


def test_gains_are_at_least_five_percent():
    found = list(gains(make_settings(), H100, lambda s: {16.0: 1.0, 8.0: 0.96}.get(s.weight_bits, 1.0)))
    assert found == []
    ((lever, now, then),) = gains(make_settings(), H100, lambda s: 0.5 if s.tensor_parallel == 2 else 1.0)
    assert (lever.field, now, then) == ("tensor_parallel", 1.0, 0.5)


# --------------------------------------------------------------------------------------------- what evidence tells


def test_objectives_of_a_metric_come_in_order_with_their_lines():
    slo = Slo(
        ttft={"p95": 1.0, "p50": 0.5}, tps={"p05": 25.0}, error_rate=0.01, classes={"rag": Slo(ttft={"p99": 3.0})}
    )
    profile = make_profile(slo=slo)
    found = profile.objectives("ttft")
    assert [(o.path, o.subject, o.limit) for o in found] == [
        ("slo.ttft.p95", "p95", 1.0),
        ("slo.ttft.p50", "p50", 0.5),
        ("slo.classes.rag.ttft.p99", "rag p99", 3.0),
    ]
    assert found[0].share == pytest.approx(0.95)
    (floor,) = profile.objectives("tps")
    assert floor.share == pytest.approx(0.95)
    (errors,) = profile.objectives("error_rate")
    assert (errors.share, errors.path, errors.subject) == (0.99, "slo.error_rate", "")


def test_what_a_request_holds_and_must_read():
    """1,000 + 200 at the median; 1,000 + 100 over its life; 400 of them shared by half the requests."""
    cls = TrafficClass(
        name="a",
        prompt_tokens=Lengths(p50=1000),
        output_tokens=Lengths(p50=200),
        shared_prefix=SharedPrefix(tokens=400, share=0.5),
        turns=2,
    )
    assert cls.held(0.5, prefix_once=False) == 1200
    assert cls.held(None, prefix_once=False) == 1100
    assert cls.held(0.5, prefix_once=True) == 1000
    assert cls.fresh.points[-1] == (1.0, 300)
    assert Traffic(classes=(cls,)).mean_lengths == (1000, 200)
    assert Traffic().mean_lengths == (0, 0)


def test_counters_move_from_before_to_after_the_drain():
    def moved(*snapshots: Snapshot) -> float | None:
        return make_measurement(snapshots=snapshots).moved("x")

    before = Snapshot(at=0, phase="before", values={"x": 10})
    assert (
        moved(before, Snapshot(at=1, phase="during", values={"x": 12}), Snapshot(at=2, phase="after", values={"x": 15}))
        == 5
    )
    assert moved(before, Snapshot(at=1, phase="during", values={"x": 12})) == 2
    assert moved(before, Snapshot(at=2, phase="after", values={"x": 3})) == 3  # the server started again
    assert moved(before, Snapshot(at=2, phase="after", values={})) is None
    assert moved(Snapshot(at=2, phase="after", values={"x": 3})) is None


def test_a_reply_at_once_is_buffered():
    assert make_sample().buffered is False
    assert make_sample(arrivals=(0.9,), first_tokens=100).buffered is True
    assert make_sample(tpot=0.0001).buffered is True  # 10,000 tokens a second
    assert make_sample(output_tokens=5).buffered is None
    assert make_sample(error="timeout", ttft=None).buffered is None


def test_a_decode_step_needs_every_stream():
    load = make_load("decode", concurrency=2, context=100)
    good = [make_sample(i, start=0.0, tpot=0.01) for i in range(2)]
    steps = make_measurement(good, load=load).steps
    assert steps is not None
    assert steps.seconds == pytest.approx(0.01)
    broken = [good[0], make_sample(1, error="timeout", ttft=None)]
    assert make_measurement(broken, load=load).steps is None


def test_points_of_the_idle_ladder_leave_out_the_network_and_cached_prompts():
    load = make_load("prefill", prompt_tokens=800)
    samples = [make_sample(0, output_tokens=1), make_sample(1, output_tokens=1, cached_tokens=700)]
    evidence = make_evidence(measurements=(make_measurement(samples, load=load),), served=make_served(round_trip=0.01))
    assert evidence.prefill_points == [(800, pytest.approx(0.03))]


def test_flags_are_spelled_for_the_engine_in_use():
    evidence = make_evidence(flags={"slots": "-np", "kv_cache_dtype": "-ctk"})
    assert evidence.spell("{max_num_seqs} and {kv_cache_dtype}, {nothing}") == "-np and -ctk, nothing"
    assert evidence.flag("max_model_len", "the context") == "the context"


def test_conflicts_know_their_sides():
    served = Conflict("deployment.max_num_seqs", "1", "p.yaml:1:1", "2", "served /x")
    assert (served.with_served, served.on_capacity) == (True, True)
    launch = Conflict("deployment.quantization", "a", "p.yaml:1:1", "b", "launch --quantization")
    assert (launch.with_served, launch.on_capacity) == (False, False)
    assert str(launch) == "deployment.quantization is a (p.yaml:1:1) and b (launch --quantization)"


def test_what_is_served_comes_before_what_is_declared():
    evidence = make_evidence(served=make_served(engine="sglang", max_model_len=4096))
    assert (evidence.engine, evidence.context) == ("sglang", 4096)
    silent = replace(evidence, served=make_served(max_model_len=None), settings=make_settings(max_model_len=100))
    assert silent.context == 100
    nothing = replace(evidence, served=None, settings=None)
    assert (nothing.engine, nothing.context) == ("generic", None)
    assert nothing.lacking == "the engine's settings"


def test_numbers_without_a_finite_bound_leave_it_open():
    number = Number.measured("TTFT p95", Interval(0.5, math.inf, math.inf), "s", 30)
    assert (number.value, number.low, number.high) == (None, 0.5, None)
    assert "failed requests" in number.note


def test_the_batch_is_the_replicas_share_up_to_the_batch_limits():
    evidence = make_evidence()
    assert evidence.batch == 16
    assert replace(evidence, served=make_served(max_num_seqs=8)).batch == 8
    ranks = make_settings(data_parallel=2, devices=2, max_num_seqs=5)
    assert replace(evidence, settings=ranks).batch == 10
    assert replace(evidence, profile=make_profile(traffic=Traffic())).batch is None


def test_a_floor_is_a_ceiling_in_seconds():
    profile = make_profile(slo=Slo(tps={"p05": 25.0, "p01": 0.0}, e2e={"p95": 2.0}))
    assert [o.seconds for o in profile.objectives("tps")] == [0.04, math.inf]
    assert profile.objectives("e2e")[0].seconds == 2.0


def test_silence_at_the_end_is_a_failure_however_few_independent_requests_it_is_worth():
    """40 good requests, then 20 that fail in a row: one event, but the service is gone."""
    counted = deciding.judge_share([False] * 40 + [True] * 20, 0.95, 0.95)
    judged = deciding.with_silence(counted, 20)
    assert (judged.status, judged.gone) == ("fail", 20)
    assert "the last 20 all failed" in judged.verdict
    assert deciding.with_silence(counted, 14).gone == 0


def test_a_gauge_is_held_where_it_stands_still_at_its_top():
    stands = [4.0] * 9 + [3.0] * 2
    assert judging.held(stands)
    assert not judging.held(stands[:9])
    assert not judging.held([4.0] * 7 + [3.0] * 4)
    assert not judging.held([])


def test_a_gauge_of_many_places_is_held_with_one_of_them_between_two_requests():
    """As read off an engine that runs 16 at once at most, while up to 38 wait."""
    read = [16.0] * 20 + [15.0] * 11 + [14.0]
    assert judging.held(read)
    assert not judging.held([16.0] * 20 + [15.0] * 5 + [14.0] * 8)
