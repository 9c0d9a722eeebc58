"""Passive audits: an SLO passes only if it would wherever in its bucket the limit lies, and never without data."""

from dataclasses import replace

import pytest

from auditor.evidence import Evidence
from auditor.measurement import Histogram
from auditor.profile import Objective, Slo, Traffic
from auditor.testing import make_evidence, make_profile, run_check
from auditor.theory.buckets import Beyond
from auditor.watch import Observed, Slice
from checks import workload_shape
from checks.passive import _open

INF = float("inf")
BOUNDS = (0.25, 0.5, 1.0)
HEALTHY = {"requests": 100.0, "errors": 0.0, "refusals": 0.0, "aborted": 0.0, "unknown": 0.0, "up": 1.0}
ALIVE = HEALTHY | {"in_flight": 16.0, "waiting": 0.0, "waiting_least": 0.0}


def histogram(within, count, bounds=BOUNDS):
    """Cumulative counts at the bounds."""
    return Histogram(
        sum=0.1 * count,
        count=float(count),
        buckets=(*zip(bounds, map(float, within), strict=True), (INF, float(count))),
    )


def times(scale, histograms):
    return {
        name: Histogram(sum=h.sum * scale, count=h.count * scale, buckets=tuple((b, c * scale) for b, c in h.buckets))
        for name, h in histograms.items()
    }


def window(ttft=(100, 100, 100), count=100, slices=20, values=None, **rest):
    """20 slices that are alike, each with 100 requests; `values` of each slice."""
    each = ALIVE | (values or {})
    histograms = {"ttft": histogram(ttft, count)} | rest.pop("more", {})
    counted = ("requests", "errors", "refusals", "aborted", "unknown")
    total = {name: value * (slices if name in counted else 1) for name, value in each.items()} | {"instances": 1.0}
    parts = tuple(Slice(start=900.0 * i, seconds=900.0, histograms=histograms, values=each) for i in range(slices))
    fields = {"histograms": times(slices, histograms), "values": total | rest.pop("total", {}), "slices": parts} | rest
    return Observed(source="http://prometheus", window=900.0 * slices, passive=True, **fields)


def evidence(observed, **slo):
    profile = make_profile(slo=Slo(**(slo or {"ttft": {"p95": 0.5}})))
    return replace(make_evidence(measurements=()), profile=profile, observed=observed)


def judged(found: Evidence, rule: str = "W110"):
    (finding,) = run_check(workload_shape.CHECK, found, rule)
    return finding


def test_a_limit_on_a_bound_passes_by_exact_counts():
    found = judged(evidence(window(ttft=(50, 99, 100))))
    assert (found.status, found.deciding, found.confidence) == ("pass", True, "medium")
    assert found.why == (
        "TTFT p95 over 5 h by the engine's own clock: 20 of 2,000 requests miss 500 ms or failed, 5 % may: pass, also "
        "in the 20 slices of 15 min at the target's load."
    )
    assert (found.measured.name, found.measured.value, found.measured.provenance) == (
        "TTFT p95, at most",
        0.5,
        "served",
    )
    assert found.measured.note == "250 ms to 500 ms is its bucket, of 2,000 requests"


def test_a_limit_inside_a_bucket_passes_only_if_all_of_it_may_miss():
    """300 ms in (0.25, 0.5]: 2 of 100 took longer than 0.25 s, 6 of 100 would be too many."""
    assert judged(evidence(window(ttft=(98, 99, 100)), ttft={"p95": 0.3})).status == "pass"
    found = judged(evidence(window(ttft=(90, 99, 100)), ttft={"p95": 0.3}))
    assert found.status == "inconclusive"
    assert found.missing == (
        "the limit lies inside a bucket, 250 ms to 500 ms: set the SLO or a bound of the histogram there, or measure "
        "requests"
    )
    assert "20 to 200 of 2,000 requests miss 300 ms" in found.why


def test_what_certainly_misses_fails_whatever_is_inside_the_bucket():
    found = judged(evidence(window(ttft=(10, 90, 100)), ttft={"p95": 0.3}))
    assert found.status == "fail"
    assert "what the way to users adds comes on top" in found.why


def test_a_limit_above_the_highest_bound_knows_only_that_bound():
    assert judged(evidence(window(ttft=(50, 80, 90)), ttft={"p95": 9.0})).status == "inconclusive"
    found = judged(evidence(window(ttft=(50, 80, 99)), ttft={"p95": 9.0}))
    assert (found.status, found.measured.value) == ("pass", 1.0)
    beyond = judged(evidence(window(ttft=(50, 80, 90)), ttft={"p95": 9.0}))
    assert (beyond.measured.name, beyond.measured.value) == ("TTFT p95, more than", 1.0)


@pytest.mark.parametrize(
    "observed",
    [
        window(histograms={}),
        window(ttft=(0, 0, 0), count=0),
        window(histograms={"ttft": Histogram(sum=9.0, count=90.0)}),
        Observed(source="p", window=3600.0, passive=True),
    ],
)
def test_no_data_never_passes(observed):
    found = judged(evidence(observed))
    assert (found.status, found.deciding) == ("inconclusive", True)
    assert found.missing == "requests in the engine's histogram of ttft within the window"
    errors = judged(evidence(replace(observed, values={}), error_rate=0.05), "W113")
    assert (errors.status, errors.deciding) == ("inconclusive", True)
    assert judged(evidence(Observed(source="p", window=9.0, passive=True)), "W120").status == "skip"


def test_few_requests_do_not_pass():
    found = judged(evidence(window(ttft=(1, 1, 1), count=1)))
    assert found.status == "inconclusive"
    assert "20 requests do not decide it: take a longer window" in found.missing


def test_requests_of_bad_hours_are_worth_less():
    """2 of 40 slices miss all their 100: 5 % of 4,000 by count, but two bad quarters of an hour by worth."""
    observed = window(ttft=(100, 100, 100), slices=40)
    bad = {"ttft": histogram((0, 0, 100), 100)}
    parts = tuple(replace(s, histograms=bad) if i in (7, 8) else s for i, s in enumerate(observed.slices))
    total = {"ttft": histogram((3800, 3800, 4000), 4000)}
    assert (
        judged(evidence(replace(observed, slices=parts, histograms=total), ttft={"p90": 0.5})).status == "inconclusive"
    )
    even = window(ttft=(95, 95, 100), slices=40)
    assert judged(evidence(even, ttft={"p90": 0.5})).status == "pass"


@pytest.mark.parametrize(
    ("values", "total", "words"),
    [
        ({"in_flight": 3.0}, {}, "no slice held the target of 16: at most 3 requests in flight"),
        ({}, {"in_flight": None}, None),
        ({}, {"instances": 2.0}, "Prometheus has 2 targets of the engine at the end, the profile 1 replica"),
    ],
)
def test_a_window_that_may_show_another_service_does_not_pass(values, total, words):
    observed = window(values=values)
    observed = replace(observed, values={k: v for k, v in (observed.values | total).items() if v is not None})
    found = judged(evidence(observed))
    assert (found.status == "inconclusive") == (words is not None)
    assert (words or "") in found.why


def test_numbers_that_others_may_have_made_fail_nobody():
    found = judged(evidence(window(ttft=(10, 20, 100), total={"instances": 3.0})))
    assert found.status == "inconclusive"


def test_without_up_and_without_counters_of_failures_nothing_passes():
    observed = window()
    for gone, words in (("up", "(up)"), ("errors refusals aborted", "counts no failed requests")):
        values = {k: v for k, v in observed.values.items() if k not in gone.split()}
        assert words in judged(evidence(replace(observed, values=values))).missing


@pytest.mark.parametrize("lost", ["errors", "refusals", "aborted", "unknown"])
def test_requests_that_no_histogram_holds_are_misses_where_a_pass_is_at_stake(lost):
    """10 of 110 never got a first token, or nobody knows: more than 5 %."""
    found = judged(evidence(window(values={lost: 10.0})))
    assert found.status == ("fail" if lost in ("errors", "refusals") else "inconclusive")


def test_requests_under_way_at_the_end_are_not_good_ones():
    few = {"slices": 10, "count": 10, "ttft": (10, 10, 10)}
    assert judged(evidence(window(**few, total={"pending": 9.0}))).status == "inconclusive"
    assert judged(evidence(window(**few))).status == "pass"


def test_few_slices_tell_nothing_of_crowds():
    """Quarters of an hour that are bad one in ten, 9 of them: four windows of ten hold none of the bad ones."""
    found = judged(evidence(window(slices=9)))
    assert found.status == "inconclusive"
    assert "9 slices with requests cannot tell bad times from bad requests: take a longer window" in found.why
    some = window(slices=40)
    night = tuple(s if i < 9 else replace(s, histograms={}) for i, s in enumerate(some.slices))
    assert judged(evidence(replace(some, slices=night))).status == "inconclusive"
    errors = judged(evidence(window(slices=9), error_rate=0.05), "W113")
    assert (errors.status, "9 slices" in errors.missing) == ("inconclusive", True)


def test_failures_of_one_bad_hour_are_worth_less():
    """60 of 4,000 fail, 1.5 % where 2 % may: over all slices alike that passes, in one of them it is one bad time."""
    spread = window(slices=40, values={"errors": 1.5}, ttft=(100, 100, 100))
    assert judged(evidence(spread, ttft={"p98": 0.5})).status == "pass"
    parts = tuple(replace(s, values=s.values | {"errors": 60.0 * (i == 7)}) for i, s in enumerate(spread.slices))
    assert judged(evidence(replace(spread, slices=parts), ttft={"p98": 0.5})).status == "inconclusive"


def test_a_few_busy_slices_scatter_as_the_window_does():
    """5 busy slices of 100 without a miss; of the other 35 every seventh missed half of its requests."""
    some = window(slices=40, values={"in_flight": 1.0})
    bad = {"ttft": histogram((0, 50, 100), 100)}
    parts = tuple(
        replace(s, values=ALIVE) if i < 5 else replace(s, histograms=bad) if i % 7 == 0 else s
        for i, s in enumerate(some.slices)
    )
    total = {"ttft": histogram((3500, 3750, 4000), 4000)}
    found = judged(evidence(replace(some, slices=parts, histograms=total), ttft={"p80": 0.5}))
    assert "the 5 slices of 15 min at the target's load do not show it: 0 of 500 miss, worth" in found.why


def test_busy_slices_must_pass_by_themselves():
    """90 quiet slices without a miss, every tenth at the target with 20 % misses: 2 % over the window."""
    quiet = Slice(
        start=0.0,
        seconds=900.0,
        histograms={"ttft": histogram((100, 100, 100), 100)},
        values=ALIVE | {"in_flight": 1.0},
    )
    busy = replace(quiet, histograms={"ttft": histogram((10, 80, 100), 100)}, values=ALIVE)
    slices = tuple(replace(busy if i % 10 == 9 else quiet, start=900.0 * i) for i in range(100))
    total = {"ttft": histogram((9100, 9800, 10000), 10000)}
    observed = replace(window(slices=100), slices=slices, histograms=total)
    found = judged(evidence(observed, ttft={"p90": 0.5}))
    assert found.status == "inconclusive"
    assert "the 10 slices of 15 min at the target's load do not show it: 200 of 1,000 miss" in found.why


def test_misses_beyond_the_target_are_no_failure_of_it():
    """The target is 16; half of the slices had 40 in flight, where one in five missed."""
    some = window(slices=40)
    crowded = {"ttft": histogram((10, 80, 100), 100)}
    parts = tuple(
        replace(s, histograms=crowded, values=s.values | {"in_flight": 40.0}) if i % 2 else s
        for i, s in enumerate(some.slices)
    )
    values, total = some.values | {"in_flight": 40.0}, {"ttft": histogram((2200, 3600, 4000), 4000)}
    found = judged(evidence(replace(some, slices=parts, values=values, histograms=total)))
    assert found.status == "inconclusive"
    assert found.missing == (
        "not in the slices up to the target of 16: users had up to 40 in flight; declare what they send"
    )
    everywhere = tuple(replace(s, histograms=crowded) for s in parts)
    worse = {"ttft": histogram((400, 3200, 4000), 4000)}
    assert judged(evidence(replace(some, slices=everywhere, values=values, histograms=worse))).status == "fail"


def test_a_window_that_prometheus_has_a_part_of_says_so():
    observed = window(slices=40)
    parts = tuple(s if i >= 20 else replace(s, histograms={}) for i, s in enumerate(observed.slices))
    found = judged(evidence(replace(observed, slices=parts, histograms=times(20, parts[-1].histograms))))
    assert found.why.startswith("TTFT p95 over the 5 h of 10 h that are there, by the engine's own clock")


def test_a_rate_is_reached_by_first_tokens_a_second():
    def rated(rate):
        found = evidence(window())
        return replace(found, profile=replace(found.profile, traffic=Traffic(request_rate=rate)))

    assert judged(rated(0.1)).status == "pass"  # 100 in 900 s
    assert "no slice had the target's rate" in judged(rated(1.0)).missing


def test_times_per_token_count_only_by_request():
    """25 tok/s is 40 ms a token, on a bound; 100 requests with times of their own, or 5,000 gaps."""
    by_request = {"tpot": histogram((99, 100, 100), 100, (0.04, 0.05, 0.1))}
    found = judged(evidence(window(more=by_request), tps={"p05": 25.0}), "W111")
    assert (found.status, found.measured.unit) == ("pass", "tok/s")
    assert (found.measured.name, found.measured.value) == ("TPS p05, at least", pytest.approx(25.0))
    gaps = {"tpot": histogram((4999, 5000, 5000), 5000, (0.04, 0.05, 0.1))}
    lost = judged(evidence(window(more=gaps), tps={"p05": 25.0}), "W111")
    assert lost.status == "inconclusive"
    assert "each token's own" in lost.missing


def test_what_users_of_the_window_waited_for_is_told_by_its_means():
    """0.1 s to the first token, 0.1 s a token: of a reply of 107 tokens in the mean the first waits for a hundredth."""
    found = judged(evidence(window(more={"tpot": histogram((0, 0, 100), 100)})), "W102")
    assert (found.status, found.measured.provenance) == ("pass", "measured")
    assert found.measured.value == pytest.approx(0.01, abs=0.002)


def test_classes_and_first_answers_are_on_no_histogram():
    found = run_check(workload_shape.CHECK, evidence(window(), classes={"chat": Slo(ttft={"p95": 0.5})}), "W110")
    assert [f.status for f in found] == ["inconclusive"]
    assert judged(evidence(window(), first_answer={"p95": 5.0}), "W114").status == "inconclusive"


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, "pass"),
        ({"errors": 20.0}, "fail"),
        ({"aborted": 20.0}, "inconclusive"),  # given up by their users, or broken off
        ({"unknown": 20.0}, "inconclusive"),
    ],
)
def test_error_rates_by_the_engines_counters(values, status):
    found = judged(evidence(window(values=values), error_rate=0.05), "W113")
    assert (found.status, found.deciding) == (status, True)


def test_without_up_no_error_rate_passes():
    observed = window()
    values = {k: v for k, v in observed.values.items() if k != "up"}
    assert judged(evidence(replace(observed, values=values), error_rate=0.05), "W113").status == "inconclusive"


def queue(least, **rest):
    observed = window(**rest)
    parts = tuple(
        replace(s, values=s.values | {"waiting_least": float(x)}) for s, x in zip(observed.slices, least, strict=True)
    )
    return judged(evidence(replace(observed, slices=parts)), "W120")


def test_a_queue_that_grows_without_a_pause_is_overload():
    assert queue([0] * 20).status == "pass"
    found = queue([0] * 8 + [3 * i for i in range(1, 13)])
    assert found.status == "fail"
    assert "over 3 h without ever being empty" in found.why
    assert queue([0] * 8 + [4] * 12).status == "warn"
    assert queue([0] * 20, values={"in_flight": 2.0}).status == "inconclusive"


def test_a_bucket_is_not_blamed_where_all_of_it_may_miss():
    """7 of 1,060 are few at the bucket's worst end; worth 37 that fare by themselves they prove no p95."""
    whole = Beyond(1060, 0, 7, 1.0, 2.5)
    objective = Objective(metric="ttft", share=0.95, limit=2.0, path="slo.ttft.p95")
    assert "inside a bucket" in _open(whole, objective, 28.6, "inconclusive")
    assert "worth 37 that fare by themselves" in _open(whole, objective, 28.6, "pass")
