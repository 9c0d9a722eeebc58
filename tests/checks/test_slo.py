"""A doubt about some requests must not hide what the others prove, and what shows no time is still a miss."""

import math
from dataclasses import replace

import pytest

from auditor import slo, verdict
from auditor.evidence import Evidence, Finding
from auditor.loads import Plan
from auditor.measurement import ClientHealth, Sample
from auditor.profile import Objective, Slo
from auditor.testing import make_evidence, make_load, make_measurement, make_sample, run_check, with_slo
from auditor.theory import deciding
from auditor.validity import family
from checks import kv_capacity, workload_shape

TTFT = Objective(metric="ttft", share=0.95, limit=1.5, path="slo.ttft.p95", percentile="p95")
LAGGING = ClientHealth(loop_lag_p99=0.02, loop_lag_max=0.03, peak_inflight=16, cpu_share=0.5)


def under_load(samples: list[Sample] | None = None, **rest: object) -> Evidence:
    return with_slo(make_evidence(), make_measurement(samples, **rest))


def decided(evidence: Evidence) -> dict[str, Finding]:
    checks = [workload_shape.CHECK, kv_capacity.CHECK]
    findings = [*family.judge(evidence), *(f for check in checks for f in run_check(check, evidence))]
    report = verdict.decide(findings, checks, evidence.profile, evidence, today="2026-01-01")
    return {f.rule: f for f in report.findings if f.subject != "max"}


def slow(ttft: float, **rest: object) -> list[Sample]:
    """A hundred requests whose first token takes that long, against 1.5 s."""
    return [make_sample(i, start=float(i), ttft=ttft, **rest) for i in range(100)]


def limited(index: int) -> Sample:
    return make_sample(index, error="http_429", ttft=None, rate_limited=True, status=429)


def test_one_refusal_by_quota_hides_no_failure_of_the_others():
    found = decided(under_load([limited(0), *slow(10.0)[1:]]))
    assert found["T505"].status == "inconclusive"
    assert (found["W110"].status, found["W110"].voided_by) == ("fail", ())


def test_refusals_by_quota_that_make_the_failure_void_it():
    found = decided(under_load([make_sample(i) if i % 3 else limited(i) for i in range(120)]))
    assert (found["W110"].status, found["W110"].voided_by) == ("inconclusive", ("T505",))
    assert (found["W113"].status, found["W113"].voided_by) == ("inconclusive", ("T505",))


def test_errors_beside_a_refusal_by_quota_still_fail():
    third = [make_sample(i, error=None if i % 3 else "http_5xx", ttft=0.04 if i % 3 else None) for i in range(1, 120)]
    found = decided(under_load([limited(0), *third]))
    assert found["W113"].status == "fail"


@pytest.mark.parametrize(("ttft", "status"), [(10.0, "fail"), (1.55, "inconclusive")])
def test_a_late_client_voids_only_what_its_lag_explains(ttft, status):
    """30 ms of lag, and up to 50 ms between two looks at it: 1.55 s may have been 1.47 s, 10 s were no 1.5 s."""
    found = decided(under_load(slow(ttft), client=LAGGING))
    assert found["T504"].status == "inconclusive"
    assert found["W110"].status == status


def test_a_late_client_hides_no_queue_that_the_server_counts():
    found = decided(under_load(gauges={"running": 8.0, "waiting": 8.0, "kv_usage": 0.97}, client=LAGGING))
    assert found["K305"].status == "fail"


@pytest.mark.parametrize(("estimated", "status"), [(1, "fail"), (100, "inconclusive")])
def test_estimated_tokens_void_a_tps_failure_that_they_could_have_made(estimated, status):
    """5 tok/s against 25: replies whose tokens were counted from events may have been five times as fast."""
    samples = [make_sample(i, start=30.0 * i, tpot=0.2, estimated=i < estimated) for i in range(100)]
    assert decided(under_load(samples))["W111"].status == status


@pytest.mark.parametrize(("estimated", "status"), [(1, "pass"), (20, "inconclusive")])
def test_estimated_tokens_void_a_tps_pass_that_they_could_have_made(estimated, status):
    """Of 100 requests one miss passes a p05 and twenty fail it."""
    assert decided(under_load([make_sample(i, estimated=i < estimated) for i in range(100)]))["W111"].status == status


# ------------------------------------------------------------------------------------------------------ a rate, not met


@pytest.mark.parametrize(("rate", "status"), [(14.0, "pass"), (28.0, "inconclusive")])
def test_a_load_below_the_declared_rate_passes_nothing(rate, status):
    """16 in flight, each for 1.05 s or so: 15 requests a second, no sign of how 28 fare (28 x 1.05 = 29.4)."""
    evidence = make_evidence()
    traffic = replace(evidence.profile.traffic, target_concurrency=None, request_rate=rate)
    evidence = replace(evidence, profile=replace(evidence.profile, traffic=traffic))
    found = decided(evidence)
    assert (found["T503"].status, found["W110"].status) == (status, status)
    if status == "inconclusive":
        assert "target_concurrency: 30" in found["T503"].remedies[0]


# ------------------------------------------------------------------------------------------------ what shows no time


def cut_off(index: int, ran: float, **rest: object) -> Sample:
    return make_sample(index, error="cancelled", ttft=None, start=20.0, closed=ran, **rest)


def test_requests_cut_off_beyond_the_limit_are_misses():
    found = decided(under_load([cut_off(i, 500.0) for i in range(16)], stopped="the time budget of 520 s is spent"))
    assert found["W110"].status == "fail"
    assert "16 of 16 requests miss it" in found["W110"].why
    assert "16 of them were under way, beyond the limit, when the probe ended" in found["W110"].why


def test_requests_cut_off_within_the_limit_say_nothing():
    evidence = under_load([make_sample(0), cut_off(1, 1.4), cut_off(2, 1.6)])
    assert [(s.index, value) for s, value in slo.readings(evidence, TTFT)] == [(0, 0.04), (2, math.inf)]


def test_a_first_token_seen_before_the_end_counts():
    seen = replace(cut_off(1, 400.0), ttft=0.3)
    assert [value for _, value in slo.readings(under_load([seen]), TTFT)] == [0.3]
    e2e = replace(TTFT, metric="e2e", limit=20.0)
    assert [value for _, value in slo.readings(under_load([seen]), e2e)] == [math.inf]


@pytest.mark.parametrize(("at_once", "status"), [(0, "pass"), (40, "fail")])
def test_replies_at_once_are_no_fast_streams(at_once, status):
    """Forty of a hundred replies of 100 tokens arrive within a millisecond: 100,000 tok/s is no decoding."""
    samples = [make_sample(i, ttft=0.9, tpot=1e-5) if i % 5 < at_once / 20 else make_sample(i) for i in range(100)]
    finding = decided(under_load(samples))["W111"]
    assert finding.status == status
    assert ("40 of them came all at once" in finding.why) == bool(at_once)


@pytest.mark.parametrize(("counted", "void"), [(800, None), (400, "pass"), (770, None), (840, None), (1600, "fail")])
def test_prompts_of_another_length_are_another_load(counted, void):
    """800 tokens were asked for: half of them fake a pass, twice as many a failure."""
    (finding,) = run_check(
        family.FAMILY, under_load([make_sample(i, prompt_tokens=counted) for i in range(90)]), "T502"
    )
    assert finding.status == ("inconclusive" if void else "pass")
    assert {v.partition(":")[2] for v in finding.voids} == ({void} if void else set())


# ---------------------------------------------------------------------------------------------- closed loop and bursts


def two_loads(closed: list[Sample], bursts: list[Sample]) -> Evidence:
    """The healthy deployment with a closed loop and independent arrivals beside it."""
    arrivals = tuple(float(i) for i in range(len(bursts)))
    opened = make_measurement(bursts, load=make_load(id="bursts", arrivals=arrivals, rate=1.0))
    return replace(make_evidence(), measurements=(make_measurement(closed), opened))


def spread(n: int, bad: int, **over: object) -> list[Sample]:
    return [make_sample(i, start=float(i), **(over if bad and i % (n // bad) == 1 else {})) for i in range(n)]


def judged(evidence: Evidence, objective: Objective = TTFT) -> deciding.Judged:
    found = slo.judged(evidence, objective)
    assert found is not None
    return found


def test_an_open_loop_counts_from_the_intended_time():
    """Sent 0.4 s late and answered after 1.2 s: its user waited 1.6 s, more than 1.5 s."""
    late = [make_sample(i, ttft=1.2, late=0.4) for i in range(20)]
    evidence = two_loads([make_sample(i) for i in range(20)], late)
    assert [value for _, value in slo.readings(evidence, TTFT)][20:] == [pytest.approx(1.6)] * 20
    tps = Objective(metric="tps", share=0.95, limit=25.0, path="slo.tps.p05", percentile="p05")
    assert [value for _, value in slo.readings(evidence, tps)][20:] == [pytest.approx(0.0096)] * 20


def test_a_request_cut_off_in_an_open_loop_waited_from_the_intended_time():
    """1.4 s under way, sent 0.2 s late: beyond 1.5 s."""
    cut = [replace(cut_off(0, 1.4), late=0.2), replace(cut_off(1, 1.4), late=0.05)]
    assert [s.index for s, _ in slo.readings(two_loads([], cut), TTFT)] == [0]


def test_both_loads_pass_together():
    """2 of 100 and 2 of 100 miss a p95: 4 of 200 may, 2 of 100 alone may not."""
    evidence = two_loads(spread(100, 2, ttft=2.0), spread(100, 2, ttft=2.0))
    assert (judged(evidence).status, judged(evidence).n, judged(evidence).bad) == ("pass", 200, 4)
    [finding] = [f for f in run_check(workload_shape.CHECK, evidence, "W110") if f.subject == "p95"]
    assert "4 of 200 requests miss it or fail (closed loop 2 of 100, bursts 2 of 100), 5 % may: " in finding.why


def test_a_closed_loop_hides_no_bursts():
    """None of 300 in the closed loop, 20 of 100 in bursts."""
    evidence = two_loads(spread(300, 0), spread(100, 20, ttft=2.0))
    assert (judged(evidence).status, judged(evidence).alone) == ("fail", "bursts")


def test_loads_are_read_one_after_the_other():
    """Each counts its starts from its own beginning: a wave at the end of one does not meet the other's requests."""
    evidence = two_loads([make_sample(i, start=float(i), ttft=0.1) for i in range(3)], spread(3, 0))
    assert [value for _, value in slo.readings(evidence, TTFT)] == [0.1, 0.1, 0.1, 0.04, 0.04, 0.04]


def test_a_reserve_makes_two_looks():
    """62 good requests do not pass at confidence 0.96; with 50 more, one of which misses, 0.99 takes 130."""
    closed = make_measurement([make_sample(i, start=float(i)) for i in range(62)])
    more = make_measurement(spread(60, 1, ttft=2.0), load=make_load(id="slo-2"))
    plan = Plan(loads=(closed.load,), reserve=(more.load,), requests=0, tokens=0, seconds=0.0)
    first = replace(make_evidence(), plan=plan, measurements=(closed,))
    assert slo.looks(first) == pytest.approx((0.96, 0.99))
    assert (judged(first).status, judged(first).missing) == ("inconclusive", 1)
    both = replace(first, measurements=(closed, more))
    assert (judged(both).status, judged(both).missing) == ("inconclusive", 8)


def test_a_service_that_stopped_answering_in_the_second_load_is_gone():
    """Twenty failures in a row at the end of the bursts; the closed loop before them was fine."""
    dead = [replace(s, error="timeout", ttft=None) if s.index >= 60 else s for s in spread(80, 0)]
    evidence = two_loads(spread(300, 0), dead)
    [finding] = run_check(workload_shape.CHECK, evidence, "W113")
    assert finding.status == "fail"
    assert "the last 20 all failed" in finding.why


# ------------------------------------------------------------------------------------------------------------- answers

ANSWER = Slo(first_answer={"p95": 3.0})


def thinking(silent: int, answer: float = 2.0) -> Evidence:
    """A hundred replies of a reasoning model, of which some end within their reasoning."""
    evidence = under_load([make_sample(i, first_answer=None if i % 100 < silent else answer) for i in range(100)])
    return replace(evidence, profile=replace(evidence.profile, slo=ANSWER))


@pytest.mark.parametrize(("silent", "status"), [(0, "pass"), (1, "pass"), (20, "inconclusive"), (100, "inconclusive")])
def test_a_reply_without_an_answer_is_never_a_pass_and_makes_no_failure(silent, status):
    """Of 100 one may miss a p95. Twenty would fail it, were they slow: they were cut short."""
    found = decided(thinking(silent))
    assert found["W114"].status == status
    assert found["T517"].status == ("inconclusive" if silent else "pass")
    assert (f"{silent} of them ended before an answer came." in found["W114"].why) == bool(silent)


def test_slow_answers_fail_whatever_the_silent_ones_would_have_been():
    found = decided(thinking(20, answer=4.0))
    assert (found["W114"].status, found["T517"].voids) == ("fail", ())


def test_without_an_slo_on_the_answer_none_is_looked_for():
    assert run_check(family.FAMILY, under_load(), "T517") == ()
