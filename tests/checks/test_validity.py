"""T rules on hand-made measurements: what each could have faked, and that it touches nothing else."""

from dataclasses import replace

import pytest

from auditor import verdict
from auditor.evidence import Evidence, Finding
from auditor.loads import Plan, PlanNote, Shape
from auditor.measurement import ClientHealth, Floor, Sample
from auditor.profile import Slo
from auditor.testing import (
    H100,
    make_evidence,
    make_load,
    make_measurement,
    make_sample,
    make_served,
    make_settings,
    run_check,
    with_slo,
)
from auditor.validity import family
from checks import workload_shape

FAMILY = family.FAMILY


def only(rule: str, evidence: Evidence) -> Finding:
    (finding,) = run_check(FAMILY, evidence, rule)
    return finding


def under_load(samples: list[Sample] | None = None, **rest: object) -> Evidence:
    return with_slo(make_evidence(), make_measurement(samples, **rest))


def edited(**changes: object) -> Evidence:
    """The healthy load with every sample changed alike."""
    return under_load([replace(s, **changes) for s in make_measurement().samples])  # type: ignore[arg-type]


def test_a_healthy_measurement_is_in_no_doubt():
    assert {f.status for f in family.judge(make_evidence())} <= {"pass", "skip"}


def test_without_measurements_nothing_can_be_invalid():
    assert family.judge(replace(make_evidence(), measurements=())) == ()


# ---------------------------------------------------------------------------------------------- looks better than it is


@pytest.mark.parametrize(("cached", "status"), [(0, "pass"), (60, "pass"), (400, "inconclusive"), (None, "skip")])
def test_cached_prompts_void_passes(cached, status):
    """Of about 980 prompt tokens in the mean: 60 less 32 for the template are 3 %, 400 less 32 are 37 %."""
    finding = only("T501", edited(cached_tokens=cached))
    assert finding.status == status
    if status == "inconclusive":
        assert "W110:pass" in finding.voids
        assert "K304:pass" in finding.voids
        assert not [v for v in finding.voids if v.endswith(":fail")]


def test_declared_prefixes_may_be_cached():
    shapes = tuple(
        Shape(cls="chat", prompt_tokens=800, output_tokens=100, prefix=0, prefix_tokens=600) for _ in range(100)
    )
    samples = [make_sample(i, cached_tokens=600) for i in range(100)]
    evidence = under_load(samples, load=make_load(shapes=shapes))
    assert only("T501", evidence).status == "pass"
    assert only("T501", under_load(samples)).status == "inconclusive"


@pytest.mark.parametrize(("hits", "status"), [(1000.0, "pass"), (150_000.0, "inconclusive")])
def test_prefix_cache_counters_stand_in_for_usage(hits, status):
    """200 requests of 800 tokens; 32 tokens each are the template's."""
    evidence = under_load(counters={"prefix_hits": hits, "prefix_queries": 160_000.0})
    assert only("T501", evidence).status == status


@pytest.mark.parametrize(("got", "status"), [(100, "pass"), (96, "pass"), (94, "inconclusive")])
def test_short_replies_void_passes(got, status):
    finding = only("T502", under_load([make_sample(i, output_tokens=got, asked_output_tokens=100) for i in range(90)]))
    assert finding.status == status
    if status == "inconclusive":
        assert finding.measured is not None
        assert finding.measured.value == pytest.approx(0.94)
        assert "W112:pass" in finding.voids


def test_short_replies_need_counts():
    assert only("T502", under_load([make_sample(error="timeout", ttft=None)])).status == "skip"


def test_concurrency_that_was_not_reached_voids_passes():
    finding = only("T503", under_load(client=ClientHealth(peak_inflight=9, loop_lag_p99=0.0)))
    assert finding.status == "inconclusive"
    assert "W110:pass" in finding.voids
    assert finding.missing == "a load at the declared concurrency"


def test_concurrency_reached_only_for_a_moment_is_not_reached():
    """16 start together, then one at a time."""
    samples = [make_sample(i, start=0.0) for i in range(16)]
    samples += [make_sample(16 + i, start=2.0 + i) for i in range(40)]
    assert only("T503", under_load(samples)).status == "inconclusive"


def test_a_load_below_the_target_is_not_the_target():
    evidence = under_load(load=make_load(concurrency=8), client=ClientHealth(peak_inflight=8))
    assert only("T503", evidence).status == "inconclusive"
    assert only("T503", make_evidence()).status == "pass"


def fast(**changes: object) -> Evidence:
    """One stream at 1 ms a token; reading 15 GB of weights takes 4.5 ms."""
    samples = [make_sample(i, tpot=0.001) for i in range(90)]
    return replace(under_load(samples), **changes)  # type: ignore[arg-type]


def test_faster_than_physics_voids_what_rests_on_it():
    finding = only("T506", fast())
    assert (finding.status, finding.subject) == ("inconclusive", "decode")
    assert "W111:pass" in finding.voids
    assert "W110:pass" not in finding.voids
    assert not [v for v in finding.voids if v.endswith(":fail")]


def test_a_prompt_faster_than_physics_voids_ttft():
    """3,000 tokens take 45 ms at least."""
    ladder = make_measurement(
        [make_sample(i, load="p", ttft=0.01, output_tokens=1, prompt_tokens=3000) for i in range(5)],
        load=make_load("prefill", prompt_tokens=3000),
    )
    evidence = replace(make_evidence(), measurements=(make_measurement(), ladder))
    finding = only("T506", evidence)
    assert (finding.status, finding.subject) == ("inconclusive", "prefill")
    assert "W110:pass" in finding.voids


def test_speculation_moves_the_limit_by_its_accept_length():
    """4.5 ms for 1 + 3 tokens is 1.1 ms: 1.2 ms is possible then, and of unknown yield anything is."""
    samples = [make_sample(i, tpot=0.0012) for i in range(90)]
    counted = under_load(samples, counters={"spec_drafts": 100.0, "spec_accepted": 300.0})
    speculating = {"settings": make_settings(speculative_tokens=3)}
    assert only("T506", replace(counted, **speculating)).status == "pass"
    assert only("T506", counted).status == "inconclusive"
    assert "decode left out" in only("T506", replace(under_load(samples, counters={}), **speculating)).why


def test_provisional_hardware_voids_nothing():
    finding = only("T506", fast(device=replace(H100, confidence="C")))
    assert (finding.status, finding.voids) == ("warn", ())
    assert only("T506", fast(device=None)).status == "skip"


def test_a_buffered_stream_voids_what_needs_gaps_but_no_failure():
    at_once = [make_sample(i, arrivals=(0.9,), ttft=0.9, e2e=0.9, first_tokens=100) for i in range(60)]
    finding = only("T507", under_load(at_once))
    assert finding.status == "inconclusive"
    assert "K307:pass" in finding.voids
    assert not [v for v in finding.voids if v.endswith(":fail")]


def test_replies_that_were_not_streamed_are_no_stream():
    assert only("T507", under_load([make_sample(i, error="not_streamed") for i in range(5)])).status == "inconclusive"


def test_coarse_events_warn():
    """100 tokens in 5 events: 99 / 4 = 25 tokens each."""
    coarse = [make_sample(i, arrivals=(0.1, 0.3, 0.5, 0.7, 0.9), ttft=0.1, e2e=0.9) for i in range(20)]
    finding = only("T507", under_load(coarse))
    assert (finding.status, finding.voids) == ("warn", ())
    assert only("T507", under_load([make_sample(i, output_tokens=1) for i in range(9)])).status == "skip"


def test_speculation_on_synthetic_text_voids_tps_passes():
    speculating = replace(make_evidence(), served=make_served(speculative="eagle"))
    finding = only("T511", speculating)
    assert finding.status == "inconclusive"
    assert finding.voids == ("W111:pass", "W112:pass")
    own = replace(speculating.profile, traffic=replace(speculating.profile.traffic, prompts="prompts.jsonl"))
    assert only("T511", replace(speculating, profile=own)).status == "pass"


# ----------------------------------------------------------------------------------------------- looks worse than it is


@pytest.mark.parametrize(
    ("lag", "cpu", "status"),
    [(0.004, 0.5, "pass"), (0.014, 0.5, "pass"), (0.016, 0.5, "inconclusive"), (0.001, 0.97, "inconclusive")],
)
def test_a_client_that_was_the_bottleneck_voids_failures(lag, cpu, status):
    """TTFT SLO 1.5 s: 15 ms of lag are allowed."""
    client = ClientHealth(loop_lag_p99=lag, cpu_share=cpu, peak_inflight=16)
    finding = only("T504", under_load(client=client))
    assert finding.status == status
    if status == "inconclusive":
        assert "W110:fail" in finding.voids
        assert "K304:fail" not in finding.voids
        assert not [v for v in finding.voids if v.endswith(":pass")]


def test_a_client_that_did_not_watch_itself_is_skipped():
    assert only("T504", under_load(client=ClientHealth(peak_inflight=16))).status == "skip"


def test_a_gateways_quota_voids_failures_and_is_named():
    limited = [
        make_sample(
            i, error="http_429", ttft=None, rate_limited=True, retry_after=30.0, detail="60 requests per minute"
        )
        for i in range(40)
    ]
    finding = only("T505", under_load([*limited, *(make_sample(40 + i) for i in range(60))]))
    assert finding.status == "inconclusive"
    assert "40 of 100" in finding.why
    assert "60 requests per minute" in finding.why
    assert "30 s" in finding.why
    assert "W113:fail" in finding.voids
    assert "K304:fail" not in finding.voids


def test_an_engines_own_refusals_are_failures():
    refused = [make_sample(i, error="http_429", ttft=None) for i in range(40)]
    assert only("T505", under_load(refused)).status == "pass"


@pytest.mark.parametrize(
    ("counted", "running", "status"),
    [(205.0, 16.0, "pass"), (400.0, 16.0, "inconclusive"), (200.0, 30.0, "inconclusive")],
)
def test_foreign_traffic_voids_failures(counted, running, status):
    finding = only("T508", under_load(counters={"requests": counted}, gauges={"running": running}))
    assert finding.status == status
    if status == "inconclusive":
        assert {"W110:fail", "K304:fail"} <= set(finding.voids)
        assert not [v for v in finding.voids if v.endswith(":pass")]


@pytest.mark.parametrize(("waiting", "status"), [(0.0, "pass"), (3.0, "inconclusive")])
def test_without_a_request_counter_the_gauges_alone_are_held_against_the_load(waiting, status):
    """Sixteen are in flight here; 16 running and 3 waiting are more than 17."""
    finding = only("T508", under_load(counters={"preemptions": 0.0}, gauges={"running": 16.0, "waiting": waiting}))
    assert finding.status == status
    if status == "pass":
        assert finding.confidence == "medium"
        assert finding.why.startswith("Never more than 16 requests ran or waited at the server with 16 in flight here.")
    else:
        assert "19 were there at once with 16 in flight" in finding.why


def test_foreign_traffic_needs_the_servers_counters():
    assert only("T508", under_load(counters={}, gauges={})).status == "skip"


# ---------------------------------------------------------------------------------------------------------- either way


def test_fewer_than_four_requests_a_slot_never_settle():
    """16 slots take 64 requests, warm-up included."""
    finding = only("T509", under_load([make_sample(i) for i in range(48)]))
    assert finding.status == "inconclusive"
    assert finding.missing == "16 more requests"
    assert "W110:pass" in finding.voids
    warm = tuple(make_sample(i, start=-1.0) for i in range(16))
    assert only("T509", under_load([make_sample(i) for i in range(48)], warmup=warm)).status == "pass"


def moving(first: float, last: float) -> Evidence:
    n = 100
    return under_load([make_sample(i, start=float(i), ttft=first + (last - first) * i / (n - 1)) for i in range(n)])


def test_ttft_that_keeps_growing_voids_passes_only():
    finding = only("T509", moving(0.1, 2.0))
    assert finding.status == "inconclusive"
    assert "W110:pass" in finding.voids
    assert "W110:fail" not in finding.voids


def test_ttft_that_keeps_falling_voids_failures_only():
    finding = only("T509", moving(2.0, 0.1))
    assert "W110:fail" in finding.voids
    assert "W110:pass" not in finding.voids


def test_ttft_that_settles_is_told_and_voids_nothing():
    """Up by 40 ms a request for 30 requests, then 1.3 s and 1.31 s in turn, half of them over the median."""
    samples = [make_sample(i, start=float(i), ttft=0.1 + 0.04 * min(i, 30) + 0.01 * (i % 2)) for i in range(84)]
    finding = only("T509", under_load(samples))
    assert (finding.status, finding.voids) == ("warn", ())
    assert "and settles" in finding.why


@pytest.mark.parametrize("count", [80, 100])
def test_steadiness_and_overload_never_contradict_each_other(count):
    """What W120 calls unsettled is not steady here: 80 or 100 requests, each 0.1 s slower than the last."""
    samples = [make_sample(i, start=float(i), ttft=0.1 + 0.1 * i) for i in range(count)]
    evidence = under_load(samples, gauges={"running": 16.0, "waiting": 0.0})
    (overload,) = run_check(workload_shape.CHECK, evidence, "W120")
    assert "not settled" in overload.why
    assert only("T509", evidence).status == "inconclusive"


def test_dependent_requests_are_told():
    waves = [make_sample(i, ttft=0.5 if (i // 20) % 2 else 0.1) for i in range(200)]
    finding = only("T516", under_load(waves))
    assert (finding.status, finding.voids) == ("warn", ())
    assert "independent" in finding.why


def test_steadiness_needs_requests():
    assert only("T509", under_load([make_sample(error="timeout", ttft=None)])).status == "skip"


def test_estimated_tokens_void_tps_either_way():
    finding = only("T510", edited(estimated=True))
    assert set(finding.voids) == {"W111:pass", "W111:fail"}


def test_a_load_that_stopped_early_voids_passes():
    finding = only("T512", under_load([make_sample(i) for i in range(50)], stopped="interrupted"))
    assert finding.status == "inconclusive"
    assert finding.missing == "the rest of load slo, 150 requests"
    assert "W110:pass" in finding.voids


@pytest.mark.parametrize(("failed", "status"), [(14, "pass"), (15, "inconclusive")])
def test_a_load_that_nobody_answered_at_the_end_voids_passes(failed, status):
    """Too few for the probe to give up, too many for chance."""
    samples = [make_sample(i, start=float(i)) for i in range(60)]
    samples += [make_sample(60 + i, start=60.0 + i, error="connect", ttft=None) for i in range(failed)]
    finding = only("T512", under_load(samples))
    assert finding.status == status
    assert ("K304:pass" in finding.voids) == (status == "inconclusive")


def test_a_ladder_that_stopped_early_only_warns():
    evidence = make_evidence()
    cut = replace(evidence.measurements[-1], stopped="the time budget is spent")
    finding = only("T512", replace(evidence, measurements=(*evidence.measurements[:-1], cut)))
    assert (finding.status, finding.voids) == ("warn", ())


def test_loads_that_never_ran_are_named():
    """The budget ended in the SLO load: two prefill and one decode load were planned after it."""
    loads = [make_load("prefill", id=f"p{n}") for n in (32, 256)] + [make_load("decode", id="d1")]
    slo = make_measurement([make_sample(i) for i in range(50)], stopped="the time budget of 150 s is spent")
    plan = Plan(loads=(slo.load, *loads), requests=0, tokens=0, seconds=0.0)
    cut, rest = run_check(FAMILY, replace(make_evidence(), plan=plan, measurements=(slo,)), "T512")
    assert (cut.status, rest.status) == ("inconclusive", "warn")
    assert rest.why == (
        "Planned and never run: the prefill ladder (2 loads) and the decode ladder (1 load). "
        "The probe had ended before: the time budget of 150 s is spent. "
        "H202, H203, H204, H207, W103 are judged without."
    )


def test_notes_on_the_same_rules_are_one_finding():
    notes = tuple(PlanNote(f"{name} left out", ("H202",)) for name in ("decode-8x16", "decode-8x120"))
    plan = Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=(*notes, PlanNote("too short", ("W110",))))
    found = run_check(FAMILY, replace(make_evidence(), plan=plan), "T512")
    assert [f.why for f in found] == [
        "Known before the load: decode-8x16 left out; decode-8x120 left out.",
        "Known before the load: too short.",
    ]


def test_what_the_budget_cannot_decide_was_known_before():
    notes = (PlanNote("slo.ttft at 0.99 needs 299 requests and the budget allows 200", ("W110",)),)
    plan = Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=notes)
    finding = only("T512", replace(make_evidence(), plan=plan))
    assert finding.status == "warn"
    assert "299 requests" in finding.why


# ------------------------------------------------------------------------------------------------------- with a verdict


def decided(evidence: Evidence) -> dict[str, Finding]:
    check = workload_shape.CHECK
    findings = [*family.judge(evidence), *run_check(check, evidence)]
    report = verdict.decide(findings, [check], evidence.profile, evidence, today="2026-01-01")
    return {f.rule: f for f in report.findings}


def test_a_voided_pass_is_inconclusive_and_says_by_what():
    short = [replace(s, asked_output_tokens=s.asked_output_tokens * 2) for s in make_measurement().samples]
    found = decided(under_load(short))
    assert found["W110"].status == "inconclusive"
    assert found["W110"].voided_by == ("T502",)


def test_a_failure_under_a_doubt_that_voids_passes_stays_a_failure():
    slow = [make_sample(i, ttft=9.0, asked_output_tokens=200) for i in range(100)]
    evidence = under_load(slow)
    slo = replace(evidence.profile, slo=Slo(ttft={"p95": 1.0}))
    assert decided(replace(evidence, profile=slo))["W110"].status == "fail"


def test_several_loads_are_told_apart():
    second = make_measurement(load=make_load(id="slo-2"))
    evidence = replace(make_evidence(), measurements=(make_measurement(), second))
    assert [f.subject for f in run_check(FAMILY, evidence, "T510")] == ["slo", "slo-2"]


def test_a_few_requests_of_others_explain_no_preemption():
    """228 counted where 200 were sent is a seventh more; 440 is another matter."""
    few = only("T508", under_load(counters={"requests": 228.0}, gauges={"running": 16.0}))
    assert few.status == "inconclusive"
    assert "K304:fail" not in few.voids
    assert "W110:fail" in few.voids
    many = only("T508", under_load(counters={"requests": 440.0}, gauges={"running": 16.0}))
    assert "K304:fail" in many.voids


# -------------------------------------------------------------------------------------- the client, the load's balance


def health(**rest: object) -> ClientHealth:
    return ClientHealth(peak_inflight=16, **rest)  # type: ignore[arg-type]


def test_what_the_kernel_timed_holds_no_lag_of_the_client():
    """A second of lag, read off the loop; the arrival times are the kernel's."""
    slow = {"loop_lag_p99": 1.0, "loop_lag_max": 2.0, "cpu_share": 0.99}
    assert only("T504", under_load(client=health(**slow))).status == "inconclusive"
    finding = only("T504", under_load(client=health(clock="kernel", **slow)))
    assert finding.status == "pass"
    assert "lagged 1 s" in finding.why


@pytest.mark.parametrize(("late", "status"), [(0.019, "pass"), (0.021, "inconclusive")])
def test_a_starved_client_knows_no_token_from_the_next_even_by_the_kernels_clock(late, status):
    """A first token that is read with later ones looks late, and leaves too little time to the rest."""
    slow = {"loop_lag_p99": 0.9, "loop_lag_max": 16.0, "cpu_share": 0.99}
    finding = only("T504", under_load(client=health(clock="kernel", late_reads=late, **slow)))
    assert finding.status == status
    assert ({"W110:fail", "W111:pass", "K307:pass"} <= set(finding.voids)) == (status == "inconclusive")


@pytest.mark.parametrize(("p99", "status"), [(0.014, "pass"), (0.016, "inconclusive")])
def test_what_the_client_adds_is_held_against_the_tightest_limit(p99, status):
    """1 % of 1.5 s are 15 ms."""
    finding = only("T513", under_load(client=health(floor=Floor(0.0002, p99, 1e-5))))
    assert finding.status == status
    assert ("W110:fail" in finding.voids) == (status == "inconclusive")
    assert not [v for v in finding.voids if v.endswith(":pass")]


def test_a_failure_that_the_client_does_not_explain_stands():
    """30 ms added: 1.52 s may have been 1.49 s, 3 s were no 1.5 s."""
    floor = health(floor=Floor(0.001, 0.03, 1e-5))
    near = [make_sample(i, start=float(i), ttft=1.52) for i in range(100)]
    far = [make_sample(i, start=float(i), ttft=3.0) for i in range(100)]
    assert "W110:fail" in only("T513", under_load(near, client=floor)).voids
    assert "W110:fail" not in only("T513", under_load(far, client=floor)).voids


def test_without_a_self_check_nothing_is_known_of_what_the_client_adds():
    assert only("T513", make_evidence()).status == "skip"


def opened(samples: list[Sample], **rest: object) -> Evidence:
    """Independent arrivals, one a second, beside the healthy closed loop."""
    load = make_load(id="bursts", arrivals=tuple(map(float, range(len(samples)))), rate=1.0, shapes=())
    return replace(make_evidence(), measurements=(make_measurement(), make_measurement(samples, load=load, **rest)))


def test_an_open_loop_is_held_against_its_schedule_not_against_a_concurrency():
    on_time = [make_sample(i, start=float(i), late=0.0) for i in range(100)]
    evidence = opened(on_time, client=ClientHealth(peak_inflight=3))
    assert [f.subject for f in run_check(FAMILY, evidence, "T503")] == ["slo"]
    finding = only("T514", evidence)
    assert (finding.status, finding.subject) == ("pass", "bursts")
    assert run_check(FAMILY, make_evidence(), "T514") == ()


def test_requests_sent_late_void_both_ways():
    """A tenth of them 200 ms late; 10 % of 1.5 s are 150 ms. 1.48 s from sending are 1.68 s from when it was due."""
    waits = [0.2 if i % 10 == 0 else 0.0 for i in range(100)]
    samples = [make_sample(i, start=i + late, late=late, ttft=1.48) for i, late in enumerate(waits)]
    finding = only("T514", opened(samples))
    assert finding.status == "inconclusive"
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(0.2)
    assert {"W110:pass", "K305:pass", "W110:fail"} <= set(finding.voids)
    assert "W110:fail" not in only("T514", opened([replace(s, ttft=9.0) for s in samples])).voids


def test_requests_sent_a_little_late_make_a_service_look_worse_never_better():
    """50 ms are over 1 % of 1.5 s and under 10 % of it; requests stay 2 s, of which 5 % are 100 ms."""
    waits = [0.05 if i % 10 == 0 else 0.0 for i in range(100)]
    samples = [make_sample(i, start=i + late, late=late, ttft=1.48, closed=2.0) for i, late in enumerate(waits)]
    finding = only("T514", opened(samples))
    assert finding.status == "inconclusive"
    assert "W110:fail" in finding.voids
    assert not [void for void in finding.voids if void.endswith(":pass")]
    brief = [replace(s, ttft=0.5, e2e=0.6, closed=0.6) for s in samples]
    assert "K305:pass" in only("T514", opened(brief)).voids


@pytest.mark.parametrize(("slower", "status"), [(1.01, "pass"), (1.03, "inconclusive")])
def test_a_rate_that_was_not_reached_is_another_load(slower, status):
    """100 requests in 99 s; with 1 ms of lateness for each second or three the schedule takes 1 or 3 % longer."""
    samples = [make_sample(i, start=0.001 * i * slower, late=0.001 * i * (slower - 1)) for i in range(100)]
    finding = only("T514", opened(samples))
    assert finding.status == status
    off = next(n.value for n in finding.numbers if "beyond" in n.name)
    assert off == pytest.approx(slower - 1)


def test_without_intended_times_nothing_is_known_of_the_schedule():
    assert only("T514", opened([make_sample(i, start=float(i)) for i in range(10)])).status == "skip"


def test_what_comes_goes():
    """Four slots, each request 2 s: 4 in flight, 2 a second, 2 s each."""
    samples = [make_sample(i, start=float(2 * (i // 4)), closed=2.0) for i in range(80)]
    (finding,) = run_check(FAMILY, under_load(samples), "T515")
    assert finding.status == "pass"
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(4.0)


def test_what_stays_ever_longer_is_out_of_balance():
    """One a second for 400 s, each staying a second longer than the last: at the end 200 s' worth of them are open, and
    all stay 200 s in the mean. In flight in the mean: t - t/2 over 400 s, half of it: 100, against 200 by Little's law.
    """
    samples = [make_sample(i, start=float(i), closed=1.0 + i) for i in range(400)]
    finding = only("T515", under_load(samples))
    assert finding.status == "inconclusive"
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(100, rel=0.02)
    assert finding.required is not None
    assert finding.required.value == pytest.approx(200, rel=0.02)
    assert set(finding.voids) == {"W110:pass", "W111:pass", "W112:pass", "W114:pass"}


def test_the_error_of_a_balance_is_that_of_its_ends():
    """Four in flight over 38 s, each 2 s: residual lives of E[R^2] = 8 / 6 = 1.33; sqrt(2 x 4 x 1.33) / 152 = 2.1 %.
    One end more or less: E[R] = 1 s of 38 s, 2.6 %.
    """
    samples = [make_sample(i, start=float(2 * (i // 4)), closed=2.0) for i in range(80)]
    allowed = next(n.value for n in only("T515", under_load(samples)).numbers if "allowed" in n.name)
    assert allowed == pytest.approx(0.05 + 3 * 0.0215 + 0.0263, abs=0.001)


def test_balance_needs_to_know_when_requests_ended():
    assert only("T515", under_load([make_sample(i, start=0.1 * i) for i in range(20)])).status == "skip"


@pytest.mark.parametrize(("clump", "status"), [(4, "pass"), (16, "inconclusive")])
def test_replies_that_a_proxy_held_back_hide_gaps(clump, status):
    """Tokens come together, 16 at a time, a second apart; the proxy names itself."""
    arrivals = tuple(0.5 + (i // clump) * 1.0 + (i % clump) * 0.0001 for i in range(96))
    one = {"arrivals": arrivals, "ttft": 0.5, "e2e": arrivals[-1], "output_tokens": 96, "via": "nginx"}
    samples = [make_sample(i, **one) for i in range(30)]
    finding = only("T507", under_load(samples))
    assert finding.status == status
    if status == "inconclusive":
        assert finding.why.startswith("30 of 30 replies came in bursts of 16 tokens: this path hides gaps and TPS")
        assert "(it names nginx)" in finding.why
        assert "K307:pass" in finding.voids


# ---------------------------------------------------------------------------------------------- bursts that never ran


def without_bursts(samples: list[Sample] | None = None, **rest: object) -> Evidence:
    closed = make_measurement(samples, **rest)
    bursts = make_load(id="bursts", arrivals=(0.0, 1.0), rate=1.0)
    plan = Plan(loads=(closed.load, bursts), requests=0, tokens=0, seconds=0.0)
    return replace(make_evidence(), plan=plan, measurements=(closed,))


def test_bursts_that_never_ran_void_what_the_closed_loop_passed():
    finding = only("T512", without_bursts())
    assert (finding.status, finding.missing) == ("inconclusive", "load bursts")
    assert "W110:pass" in finding.voids
    assert "K304:pass" not in finding.voids


def test_bursts_that_could_not_help_any_more_are_no_doubt():
    slow = [make_sample(i, ttft=9.0) for i in range(100)]
    finding = only("T512", without_bursts(slow))
    assert (finding.status, finding.voids) == ("warn", ())
    assert finding.why == "Load bursts was left out: slo.ttft.p95 fails whatever it brings."
