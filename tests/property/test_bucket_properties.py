"""What a histogram says of requests is never more than the requests themselves say."""

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from auditor.theory.buckets import added, beyond, clean, decide, design_effect, holding, interpolated, scatter
from auditor.theory.judging import rank
from auditor.theory.statistics import judge

SECONDS = st.floats(min_value=0.001, max_value=30.0)
TIMES = st.lists(SECONDS, min_size=1, max_size=300)
BOUNDS = st.lists(SECONDS, min_size=1, max_size=12, unique=True).map(sorted)
SHARES = st.sampled_from([0.5, 0.9, 0.95, 0.99])


def table(times, bounds):
    return (*((b, float(sum(t <= b for t in times))) for b in bounds), (math.inf, float(len(times))))


@given(TIMES, BOUNDS, SECONDS)
def test_the_requests_beyond_a_limit_lie_between_both_ends(times, bounds, limit):
    found = beyond(table(times, bounds), limit)
    near = any(math.isclose(b, limit, rel_tol=2e-6) for b in bounds)  # a limit on a bound is that bound
    assert near or found.least <= sum(t > limit for t in times) <= found.most
    assert found.low <= limit * 1.01
    assert found.high >= limit * 0.99


@given(TIMES, BOUNDS, SECONDS, SHARES)
def test_a_verdict_by_buckets_is_that_of_the_requests(times, bounds, limit, share):
    if any(math.isclose(b, limit, rel_tol=2e-6) for b in bounds):
        return
    said = decide(beyond(table(times, bounds), limit), share, 0.95)
    own = judge(len(times), sum(t > limit for t in times), share, 0.95)
    assert said in (own, "inconclusive")


@given(TIMES, BOUNDS, SHARES)
def test_a_percentile_lies_in_the_bucket_that_holds_it_and_a_panel_draws_it_there(times, bounds, share):
    counts = table(times, bounds)
    low, high = holding(counts, share)
    assert low < rank(times, share) <= high or math.isclose(low, rank(times, share))
    drawn = interpolated(counts, share)
    assert drawn <= bounds[-1] + 1e-9
    if high < math.inf and share * len(times) == math.ceil(share * len(times)):
        assert low - 1e-9 <= drawn <= high + 1e-9


@given(st.lists(TIMES, min_size=1, max_size=6), BOUNDS)
def test_slices_add_up_to_the_whole(slices, bounds):
    assert added(table(times, bounds) for times in slices) == table([t for times in slices for t in times], bounds)


@given(st.lists(st.tuples(st.floats(0.01, 9), st.floats(0, 50)), max_size=8), st.floats(0, 60))
def test_torn_histograms_are_set_right(pairs, count):
    counts = [c for _, c in clean(pairs, count)]
    assert counts == sorted(counts)
    assert counts[-1] == count


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), max_size=60))
def test_a_request_counts_for_one_at_the_most(slices):
    assert design_effect([(n, round(n * share)) for n, share in slices]) >= 1


def test_at_the_limit_few_windows_pass_by_chance():
    """2,000 requests in 96 slices, 5 % of which miss: a pass at confidence 0.95 is wrong, and rare, in 400 windows."""
    draw = random.Random(7)
    passed = 0
    for _ in range(400):
        slices = [[(1.0 if draw.random() < 0.05 else 0.2 + 0.3 * draw.random()) for _ in range(21)] for _ in range(96)]
        tables = [table(times, (0.25, 0.5)) for times in slices]
        passed += decide(beyond(added(tables), 0.5), 0.95, 0.95, scatter(tables, 0.5)) == "pass"
    assert passed <= 30  # 20 are due; 30 or fewer in 98 of 100 such tests


def test_crowds_at_the_limit_pass_no_more_often():
    """Each twentieth slice is all bad: by counts alone nearly half of the windows would pass."""
    draw = random.Random(11)
    passed = 0
    for _ in range(400):
        bad = [draw.random() < 0.05 for _ in range(96)]
        tables = [table([1.0 if is_bad else 0.2] * 21, (0.25, 0.5)) for is_bad in bad]
        passed += decide(beyond(added(tables), 0.5), 0.95, 0.95, scatter(tables, 0.5)) == "pass"
    assert passed <= 30
