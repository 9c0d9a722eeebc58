"""Histograms know counts at their bounds: intervals, what panels draw between, and verdicts that hold at both ends."""

import math

import pytest

from auditor.theory.buckets import Beyond, added, beyond, clean, decide, design_effect, holding, interpolated, scatter

INF = math.inf
# vLLM's bounds around 300 ms; of 100 requests 60 within 0.25 s, 96 within 0.5 s, 99 within 0.75 s.
BUCKETS = ((0.25, 60.0), (0.5, 96.0), (0.75, 99.0), (INF, 100.0))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0.3, (4.0, 40.0, 0.25, 0.5)),  # any of the 36 in (0.25, 0.5] may be beyond
        (0.5, (4.0, 4.0, 0.5, 0.5)),  # a bound belongs to its bucket
        (0.1, (40.0, 100.0, 0.0, 0.25)),
        (9.0, (0.0, 1.0, 0.75, INF)),  # nobody knows how long the last one took
    ],
)
def test_a_limit_inside_a_bucket_leaves_its_requests_open(limit, expected):
    found = beyond(BUCKETS, limit)
    assert (found.least, found.most, found.low, found.high) == expected
    assert found.n == 100


def test_a_limit_is_on_a_bound_however_it_was_parsed():
    assert beyond(BUCKETS, 0.1 + 0.4 + 1e-12).exact
    assert beyond(BUCKETS, 0.5 - 1e-12).exact


def test_no_buckets_are_no_answer():
    with pytest.raises(ValueError, match="without buckets"):
        beyond((), 1.0)
    assert holding((), 0.95) is None
    assert interpolated((), 0.95) is None
    assert interpolated(((INF, 5.0),), 0.95) is None
    assert interpolated(((0.5, 0.0), (INF, 0.0)), 0.95) is None


@pytest.mark.parametrize(
    ("quantile", "bucket"), [(0.5, (0.0, 0.25)), (0.6, (0.0, 0.25)), (0.61, (0.25, 0.5)), (1.0, (0.75, INF))]
)
def test_the_bucket_that_holds_a_quantile(quantile, bucket):
    assert holding(BUCKETS, quantile) == bucket


@pytest.mark.parametrize(
    ("quantile", "drawn"),
    [
        (0.30, 0.125),  # half-way through the first bucket, which starts at 0
        (0.78, 0.375),  # 18 of the 36 of the second
        (0.999, 0.75),  # above the highest finite bound: that bound
    ],
)
def test_a_panel_draws_a_straight_line_through_the_bucket(quantile, drawn):
    assert interpolated(BUCKETS, quantile) == pytest.approx(drawn)


def test_bounds_in_any_order_and_counts_that_fall_are_set_right():
    torn = ((0.5, 90.0), (0.25, 95.0), (INF, 97.0), (math.nan, 3.0))
    assert clean(torn, 100.0) == ((0.25, 95.0), (0.5, 95.0), (INF, 100.0))


def test_histograms_add_up_on_the_bounds_that_all_have():
    other = ((0.25, 1.0), (0.4, 2.0), (0.75, 3.0), (INF, 4.0))
    assert added([BUCKETS, (), other]) == ((0.25, 61.0), (0.75, 102.0), (INF, 104.0))
    assert added([]) == ()


@pytest.mark.parametrize(
    ("n", "least", "most", "outcome"),
    [
        (100, 0, 1, "pass"),  # the table of the rule: at p95, one of 100 may miss
        (100, 0, 2, "inconclusive"),
        (100, 10, 10, "fail"),
        (100, 9, 60, "inconclusive"),
        (100, 10, 60, "fail"),
        (20, 0, 0, "inconclusive"),  # 59 good ones are needed
        (59, 0, 0, "pass"),
        (0, 0, 0, "inconclusive"),
    ],
)
def test_both_ends_of_the_bucket_must_agree(n, least, most, outcome):
    assert decide(Beyond(n, least, most, 0.25, 0.5), 0.95, 0.95) == outcome


def test_requests_that_count_for_less_need_more_of_them():
    hundred = Beyond(100, 0, 0, 0.5, 0.5)
    assert decide(hundred, 0.95, 0.95, 1.6) == "pass"  # worth 62
    assert decide(hundred, 0.95, 0.95, 2.0) == "inconclusive"  # worth 50
    assert decide(hundred, 0.95, 0.95, 1e9) == "inconclusive"


def test_slices_that_are_all_bad_or_all_good_are_worth_one_request_each():
    """20 slices of 10, every tenth all bad: p = 0.1, sum (k - n p)^2 = 2 * 81 + 18 * 1 = 180, times 20/19, over
    200 * 0.09 = 18: 10.5 requests' worth of scatter. By twos, 10 groups of 20, it is 160 * 10/9 over 18, which is less.
    """
    slices = [(10.0, 10.0 if i % 10 == 9 else 0.0) for i in range(20)]
    assert design_effect(slices) == pytest.approx(180 * 20 / 19 / 18)


def test_a_bad_hour_shows_when_neighbours_are_joined():
    """40 slices of 10 with 10 bad in a row, half of each: alone 10 * (5 - 1.25)^2 + 30 * 1.25^2 = 187.5; joined by
    fours the scatter of a group is larger than that of a slice.
    """
    slices = [(10.0, 5.0 if i < 10 else 0.0) for i in range(40)]
    alone = 187.5 * 40 / 39 / (400 * 0.125 * 0.875)
    assert design_effect(slices) > 3 * alone


def test_slices_alike_and_few_slices_show_no_scatter():
    assert design_effect([(10.0, 1.0)] * 30) == 1.0
    assert design_effect([(10.0, 0.0)] * 30) == 1.0
    assert design_effect([(10.0, 10.0), (10.0, 0.0)]) == 1.0


def test_no_misses_are_worth_less_where_the_slowest_fifth_comes_in_crowds():
    quiet = ((0.25, 10.0), (0.5, 10.0), (INF, 10.0))
    busy = ((0.25, 0.0), (0.5, 10.0), (INF, 10.0))
    crowds = [busy if i % 5 == 0 else quiet for i in range(40)]
    assert scatter(crowds, 1.0) > 8
    assert scatter([((0.25, 8.0), (0.5, 10.0), (INF, 10.0))] * 40, 1.0) == 1.0
    assert scatter([], 1.0) == 1.0


def test_slices_are_worth_one_request_each_at_the_least():
    """Half a day busy, half quiet, nobody beyond the limit: 96 slices of 50 count as 95 requests, whose p95 passes."""
    quiet = ((0.25, 50.0), (0.5, 50.0), (INF, 50.0))
    busy = ((0.25, 0.0), (0.5, 50.0), (INF, 50.0))
    effect = scatter([quiet] * 48 + [busy] * 48, 1.0)
    assert effect == pytest.approx(50 * 96 / 95)
    assert decide(Beyond(4800, 0, 0, 0.5, 1.0), 0.95, 0.95, effect) == "pass"
    assert decide(Beyond(4800, 0, 0, 0.5, 1.0), 0.99, 0.95, effect) == "inconclusive"
