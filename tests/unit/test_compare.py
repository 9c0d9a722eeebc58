"""A run held against the runs before it."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from auditor.compare import Against, compare, other_traffic
from auditor.compared import Change, Comparison
from auditor.evidence import Evidence
from auditor.measurement import Measurement, Sample
from auditor.profile import Probe, Slo, Traffic
from auditor.report.compare import RENDERERS
from auditor.testing import make_evidence, make_measurement, make_profile, run_check
from checks.workload_shape import CHECK

EVIDENCE = make_evidence()
(LOAD,) = EVIDENCE.loads("slo")


def with_load(*loads: Measurement, evidence: Evidence = EVIDENCE) -> Evidence:
    rest = [m for m in evidence.measurements if m.load.purpose != "slo"]
    return replace(evidence, measurements=(*loads, *rest))


def each(change: Callable[[Sample], Sample], load: Measurement = LOAD) -> Measurement:
    return replace(load, samples=tuple(map(change, load.samples)))


def slowed(sample: Sample, first: float = 1.0, then: float = 1.0) -> Sample:
    """A request whose first token takes `first` times as long, and every token after it `then` times."""
    ttft = first * (sample.ttft or 0.0)
    arrivals = tuple(ttft + then * (at - (sample.ttft or 0.0)) for at in sample.arrivals)
    return replace(sample, start=then * sample.start, ttft=ttft, arrivals=arrivals, e2e=arrivals[-1])


def of(new: Evidence, *olds: Evidence, **rest: float) -> Comparison:
    return compare([Against(f"runs/{i}", old) for i, old in enumerate(olds or (EVIDENCE,))], new, **rest)


def row(found: Comparison, name: str) -> Change:
    return next(change for change in found.changes if change.name == name)


def test_a_run_is_the_same_as_itself() -> None:
    found = of(EVIDENCE)
    assert (found.status, found.exit_code, found.missing) == ("same", 0, None)
    assert {c.status for c in found.changes if c.deciding} == {"same"}
    assert all(c.change == pytest.approx(0, abs=1e-6) for c in found.changes)
    assert found.verdict_line.startswith("SAME: healthy: Nothing is slower by what counts than in runs/0 of ")


def test_a_fifth_more_is_worse_and_the_sizes_are_told() -> None:
    found = of(with_load(each(lambda s: slowed(s, 1.2, 1.2))))
    assert (found.status, found.exit_code) == ("worse", 1)
    ttft, tpot = row(found, "TTFT (slo)"), row(found, "TPOT (slo)")
    assert (ttft.status, tpot.status) == ("worse", "worse")
    assert ttft.change == pytest.approx(0.2, abs=1e-6)
    assert tpot.old == pytest.approx(0.0096)
    assert tpot.new == pytest.approx(0.01152)
    assert "+20 %" in found.why


def test_a_fifth_less_is_better() -> None:
    found = of(with_load(each(lambda s: slowed(s, 0.8, 0.8))))
    assert (found.status, found.exit_code) == ("better", 0), found.missing


def test_a_change_that_is_certain_and_small_is_none() -> None:
    """5 % is beyond chance, and less than what counts; from 3 % on it does."""
    slower = with_load(each(lambda s: slowed(s, 1.05, 1.05)))
    assert of(slower).status == "same"
    assert of(slower, min_effect=0.03).status == "worse"


def test_a_few_milliseconds_of_a_first_token_are_no_change() -> None:
    """A fifth of 20 ms is what a network adds; a fifth of 10 ms for each token is not."""
    quick = with_load(each(lambda s: slowed(s, 0.25, 1.0)))
    slower = with_load(each(lambda s: slowed(s, 0.3, 1.0)))
    assert row(of(slower, quick), "TTFT (slo)").change == pytest.approx(0.2, abs=1e-6)
    assert of(slower, quick).status == "same"


def test_failures_are_worse_whatever_the_others_take() -> None:
    failing = each(lambda s: replace(s, error="timeout") if s.index % 20 == 0 else s)
    found = of(with_load(failing))
    change = row(found, "failures (slo)")
    assert (change.status, change.old, change.new, change.change) == ("worse", 0.0, 0.05, pytest.approx(0.05))
    assert found.status == "worse"


def test_failures_of_one_moment_are_one_accident() -> None:
    """Twelve requests in a row, as when a replica restarts, are no more than one event; as many apart are."""
    at_once = each(lambda s: replace(s, error="timeout") if 100 <= s.index < 112 else s)
    apart = each(lambda s: replace(s, error="timeout") if s.index * 7919 % 200 < 12 else s)
    assert [sum(not s.good for s in load.samples) for load in (at_once, apart)] == [12, 12]
    assert row(of(with_load(at_once)), "failures (slo)").status == "unclear"
    assert row(of(with_load(apart)), "failures (slo)").status == "worse"


def test_failed_requests_stay_in_the_base() -> None:
    failing = each(lambda s: replace(s, error="timeout") if s.index % 5 else s)
    change = row(of(with_load(failing)), "TTFT (slo)")
    assert (change.status, change.new, change.n_new) == ("worse", None, 200)


def test_too_few_requests_leave_it_open_and_say_how_many_would_tell() -> None:
    def noisy(seed: int) -> Evidence:
        few = replace(LOAD, samples=LOAD.samples[:40])
        return with_load(each(lambda s: slowed(s, math.exp(((s.index * 37 + seed) % 41 - 20) / 40)), few))

    found = of(noisy(19), noisy(0))
    ttft = row(found, "TTFT (slo)")
    assert (found.status, found.exit_code, ttft.status) == ("unclear", 4, "unclear")
    assert ttft.missing is not None
    assert 100 < ttft.missing < 40 * 20
    alone = replace(found, changes=(replace(ttft, doubts=()),))
    assert alone.missing == f"about {ttft.missing} more requests in each run"


def test_runs_of_the_same_requests_are_compared_request_by_request() -> None:
    assert row(of(EVIDENCE), "TTFT (slo)").paired
    other = replace(LOAD.load, shapes=tuple(replace(s, prompt_tokens=801) for s in LOAD.load.shapes))
    assert not row(of(with_load(replace(LOAD, load=other))), "TTFT (slo)").paired


def test_another_operating_point_is_not_compared_and_it_says_so() -> None:
    wide = replace(LOAD, load=replace(LOAD.load, concurrency=32))
    found = of(with_load(wide))
    assert found.changes == ()
    assert found.status == "unclear"
    assert found.notes == ("slo is not compared: it ran at 32 in flight, in the baseline at 16 in flight",)
    assert found.missing == found.notes[0]


def test_arrivals_at_a_rate_that_followed_from_the_service_are_not_compared() -> None:
    def open_loop(rate: float) -> Measurement:
        arrivals = tuple(float(i) for i in range(200))
        return replace(LOAD, load=replace(LOAD.load, id="bursts", arrivals=arrivals, rate=rate))

    found = of(with_load(LOAD, open_loop(4.0)), with_load(LOAD, open_loop(5.0)))
    assert {change.load for change in found.changes} == {"slo"}
    assert found.notes == (
        "bursts is not compared: it ran at 4 requests a second, in the baseline at 5 requests a second",
    )
    assert {change.load for change in of(*[with_load(LOAD, open_loop(4.0))] * 2).changes} == {"slo", "bursts"}


def test_other_traffic_is_not_compared() -> None:
    heavier = replace(EVIDENCE, profile=make_profile(traffic=Traffic(target_concurrency=32)))
    assert other_traffic(EVIDENCE, heavier) == "traffic.target_concurrency"
    assert of(heavier).changes == ()
    assert other_traffic(EVIDENCE, replace(EVIDENCE, metrics_version=EVIDENCE.metrics_version + 1)) == "metrics_version"
    assert other_traffic(EVIDENCE, EVIDENCE) is None


def test_a_class_that_is_slower_is_found_among_others_that_are_not() -> None:
    classes = EVIDENCE.profile.traffic.classes
    both = replace(EVIDENCE.profile.traffic, classes=(*classes, replace(classes[0], name="rag")))
    evidence = replace(EVIDENCE, profile=make_profile(traffic=both))
    mixed = each(lambda s: replace(s, cls="rag" if s.index % 4 == 0 else "chat"))
    slow = each(lambda s: replace(slowed(s, 1.5, 1.5), start=s.start) if s.cls == "rag" else s, mixed)
    found = of(with_load(slow, evidence=evidence), with_load(mixed, evidence=evidence))
    assert row(found, "TTFT [rag] (slo)").status == "worse"
    assert row(found, "TTFT [chat] (slo)").status == "same"
    assert found.status == "worse"


def test_a_tail_that_is_slower_is_found_where_the_middle_is_not() -> None:
    """The SLO is on p95: one request of ten takes three times as long, in no order."""
    narrow = replace(LOAD, load=replace(LOAD.load, concurrency=4))
    slow = each(lambda s: slowed(s, 3.0) if s.index * 7919 % 10 == 0 else s, narrow)
    goals = replace(EVIDENCE, profile=make_profile(slo=Slo(ttft={"p95": 1.5})))
    found = of(with_load(slow, evidence=goals), with_load(narrow, evidence=goals))
    assert row(found, "TTFT p95 (slo)").status == "worse"
    assert row(found, "TTFT (slo)").status == "same"


def test_a_tail_among_many_classes_is_found_at_high_confidence() -> None:
    """Each of many rows must be less likely by chance than any share of so many resamples."""
    only = EVIDENCE.profile.traffic.classes[0]
    many = replace(EVIDENCE.profile.traffic, classes=tuple(replace(only, name=name) for name in "abcd"))
    profile = make_profile(traffic=many, slo=Slo(ttft={"p95": 1.5}), probe=Probe(confidence=0.99))
    mixed = each(lambda s: replace(s, cls="abcd"[s.index % 4]), replace(LOAD, load=replace(LOAD.load, concurrency=2)))
    slow = each(lambda s: slowed(s, 4.0) if s.index * 7919 % 10 == 0 else s, mixed)
    evidence = replace(EVIDENCE, profile=profile)
    found = of(with_load(slow, evidence=evidence), with_load(mixed, evidence=evidence))
    assert len(found.changes) > 10
    assert row(found, "TTFT p95 (slo)").status == "worse"


def test_baselines_that_differ_among_themselves_make_a_change_of_that_size_none() -> None:
    """Runs that differ by 30 % by chance say nothing of 20 %: neither that it is slower nor that it is not."""
    slow, slower = (with_load(each(lambda s, by=by: slowed(s, by, by))) for by in (1.3, 1.25))
    assert of(slower).status == "worse"
    found = of(slower, EVIDENCE, slow, with_load(each(lambda s: slowed(s, 1.02, 1.02))))
    assert found.noise == pytest.approx(0.3, abs=1e-6)
    assert (found.status, found.exit_code) == ("unclear", 4)
    assert found.missing == "baseline runs that differ by less than 30 % among themselves"
    assert row(found, "TTFT (slo)").counts == pytest.approx(0.3, abs=1e-6)
    assert of(EVIDENCE, EVIDENCE, slow, EVIDENCE).status == "same"
    assert found.against.endswith(" and 2 more")


def test_a_doubt_about_either_run_leaves_open_what_it_could_have_faked() -> None:
    """Cached prompts make a run look good: the new one's `same`, the baseline's `worse`."""
    cached = with_load(each(lambda s: replace(s, cached_tokens=s.prompt_tokens)))
    found = of(cached)
    assert row(found, "TTFT (slo)").status == "unclear"
    assert found.missing is not None
    assert found.missing.startswith("T501 in the run: ")
    slower = with_load(each(lambda s: slowed(s, 1.2, 1.2)))
    assert row(of(slower, cached), "TTFT (slo)").doubts[0].startswith("T501 in the baseline: ")
    slow_all_the_same = with_load(each(lambda s: slowed(s, 1.5), *cached.loads("slo")))
    assert row(of(slow_all_the_same), "TTFT (slo)").status == "worse"


def test_the_doubts_are_those_of_the_baseline_in_the_middle() -> None:
    def by(factor: float, *, cached: bool = False) -> Evidence:
        tokens = {"cached_tokens": 512} if cached else {}
        return with_load(each(lambda s: replace(slowed(s, factor, factor), **tokens)))

    among = of(by(1.3), by(1.0, cached=True), by(1.02), by(1.05))
    assert (row(among, "TTFT (slo)").status, row(among, "TTFT (slo)").doubts) == ("worse", ())
    among = of(by(1.3), by(1.0), by(1.02, cached=True), by(1.05))
    assert row(among, "TTFT (slo)").doubts[0].startswith("T501 in the baseline: ")


def test_what_differs_is_named_for_whoever_looks_for_the_cause() -> None:
    assert EVIDENCE.settings is not None
    changed = replace(EVIDENCE, settings=replace(EVIDENCE.settings, engine_version="0.19.0", max_num_seqs=64))
    assert of(changed).differences == (
        "engine_version: 0.18.0 before, 0.19.0 now",
        "max_num_seqs: 256 before, 64 now",
    )


def test_a_limit_that_both_servers_told_is_named_whatever_the_profile_declares() -> None:
    assert EVIDENCE.served is not None
    old = replace(EVIDENCE, served=replace(EVIDENCE.served, max_num_seqs=16))
    new = replace(EVIDENCE, served=replace(EVIDENCE.served, max_num_seqs=48))
    assert of(new, old).differences == ("max_num_seqs: 16 before, 48 now",)


def test_other_prompt_texts_are_compared_and_named() -> None:
    """A log's lengths are compared themselves; other texts of equal lengths may still take another time."""
    traffic = replace(EVIDENCE.profile.traffic, prompts="ours.txt")
    assert of(replace(EVIDENCE, profile=make_profile(traffic=traffic))).differences == (
        "prompts: not told before, ours.txt now",
    )


@pytest.mark.parametrize(("by", "status"), [(1.2, "fail"), (1.0, "pass"), (0.8, "pass")])
def test_the_rule_says_what_the_comparison_says(by: float, status: str) -> None:
    new = with_load(each(lambda s: slowed(s, by, by)))
    (finding,) = run_check(CHECK, replace(new, compared=of(new)), "W140")
    assert (finding.status, finding.deciding, finding.severity) == (status, True, "high")
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(by - 1, abs=1e-6)
    assert bool(finding.remedies) == (status == "fail")


def test_the_rule_is_silent_without_a_baseline_and_open_where_nothing_compares() -> None:
    assert run_check(CHECK, EVIDENCE, "W140") == ()
    nothing = with_load(make_measurement(()))
    (finding,) = run_check(CHECK, replace(nothing, compared=of(nothing)), "W140")
    assert (finding.status, finding.missing) == ("inconclusive", "requests of both runs at one operating point")


def test_each_format_tells_it() -> None:
    new = with_load(each(lambda s: slowed(s, 1.2, 1.2)))
    found = of(replace(new, profile=replace(new.profile, name="<b>\x1b[31m|x")))
    text, review, data = (RENDERERS[name](found) for name in ("terminal", "markdown", "json"))
    assert "WORSE" in text
    assert "\x1b" not in text + review + data
    assert "<b>" not in review
    assert json.loads(data)["exit_code"] == 1
    assert json.loads(data)["changes"][0]["status"] == "worse"
    assert all(len(line) <= 80 for line in text.splitlines())
