"""Statistics against tables worked out by hand or published."""

import math
import random

import pytest

from auditor.theory import statistics as st

MINIMUM = [  # quantile, confidence, {bad: smallest n that passes}
    (0.50, 0.95, {0: 5, 1: 8, 2: 11, 3: 13, 5: 18, 10: 30}),
    (0.90, 0.95, {0: 29, 1: 46, 2: 61, 3: 76, 5: 103, 10: 167}),
    (0.90, 0.99, {0: 44, 1: 64, 2: 81, 3: 97, 5: 127, 10: 197}),
    (0.95, 0.95, {0: 59, 1: 93, 2: 124, 3: 153, 5: 208, 10: 336}),
    (0.95, 0.99, {0: 90, 1: 130, 2: 165, 3: 198, 5: 259, 10: 398}),
    (0.99, 0.95, {0: 299, 1: 473, 2: 628, 3: 773, 5: 1049, 10: 1693}),
    (0.99, 0.99, {0: 459, 1: 662, 2: 838, 3: 1001, 5: 1307, 10: 2010}),
]
LIMITS = [  # n, quantile, most bad that pass (None: cannot), fewest bad that fail, at confidence 0.95
    (20, 0.50, 5, 15), (20, 0.90, None, 5), (20, 0.95, None, 4), (20, 0.99, None, 2),
    (30, 0.50, 10, 20), (30, 0.90, 0, 7), (30, 0.95, None, 5),
    (60, 0.50, 23, 37), (60, 0.90, 1, 11), (60, 0.95, 0, 7), (60, 0.99, None, 3),
    (100, 0.50, 41, 59), (100, 0.90, 4, 16), (100, 0.95, 1, 10), (100, 0.99, None, 4),
    (200, 0.90, 12, 28), (200, 0.95, 4, 16), (200, 0.99, None, 6),
    (300, 0.95, 8, 22), (300, 0.99, 0, 7),
    (500, 0.50, 231, 269), (500, 0.95, 16, 34), (500, 0.99, 1, 10),
    (1000, 0.50, 473, 527), (1000, 0.90, 84, 117), (1000, 0.95, 38, 63), (1000, 0.99, 4, 16),
]  # fmt: skip


@pytest.mark.parametrize(("quantile", "confidence", "table"), MINIMUM)
def test_smallest_number_of_requests_that_can_pass(quantile, confidence, table):
    for bad, n in table.items():
        assert st.needed(quantile, confidence, bad) == n
        assert st.judge(n, bad, quantile, confidence) == "pass"
        assert st.judge(n - 1, bad, quantile, confidence) != "pass"


def test_needed_with_none_bad_is_the_closed_form():
    assert st.needed(0.95, 0.95) == math.ceil(math.log(0.05) / math.log(0.95)) == 59


@pytest.mark.parametrize(("n", "quantile", "most", "fewest"), LIMITS)
def test_the_edges_of_the_three_outcomes(n, quantile, most, fewest):
    if most is None:
        assert st.judge(n, 0, quantile, 0.95) == "inconclusive"
    else:
        assert st.judge(n, most, quantile, 0.95) == "pass"
        assert st.judge(n, most + 1, quantile, 0.95) == "inconclusive"
    assert st.judge(n, fewest, quantile, 0.95) == "fail"
    assert st.judge(n, fewest - 1, quantile, 0.95) != "fail"


def test_missing_counts_further_good_requests():
    assert st.missing(40, 0, 0.95, 0.95) == 19
    assert st.missing(60, 1, 0.95, 0.95) == 33
    assert st.missing(300, 1, 0.95, 0.95) == 0


def test_no_requests_decide_nothing():
    assert st.judge(0, 0, 0.95, 0.95) == "inconclusive"


def test_dependence_shrinks_the_sample_against_either_verdict():
    # 200 requests, 4 over: a pass if independent. Worth 100, the 4 become 2 of 100: beyond 1, so not shown.
    assert st.judge(200, 4, 0.95, 0.95) == "pass"
    assert st.judge(200, 4, 0.95, 0.95, effective=100) == "inconclusive"
    # 19 over of 200 fail; worth 100 they are 9.5, rounded down to 9 for the fail test, which needs 10.
    assert st.judge(200, 19, 0.95, 0.95) == "fail"
    assert st.judge(200, 19, 0.95, 0.95, effective=100) == "inconclusive"


def test_impossible_demands_are_refused():
    with pytest.raises(ValueError, match="no number of requests"):
        st.needed(1.0, 0.95)


RANKS = [
    (0.95, 73, 65, 73), (0.95, 100, 90, 100), (0.95, 200, 184, 197), (0.95, 500, 465, 485), (0.95, 1000, 936, 964),
    (0.99, 368, 360, 368), (0.99, 500, 490, 500), (0.99, 1000, 983, 997),
    (0.90, 50, 41, 50), (0.90, 100, 84, 96), (0.50, 30, 10, 21), (0.50, 100, 40, 61),
]  # fmt: skip


@pytest.mark.parametrize(("quantile", "n", "lower", "upper"), RANKS)
def test_ranks_that_bound_a_quantile(quantile, n, lower, upper):
    assert st.quantile_ranks(n, quantile, 0.95) == (lower, upper)


def test_too_few_values_leave_the_upper_bound_open():
    assert st.quantile_ranks(71, 0.95, 0.95)[1] is None
    interval = st.quantile_interval([float(i) for i in range(1, 21)], 0.95, 0.95)
    assert interval.point == 19.0  # nearest rank: ceil(0.95 x 20) = 19
    assert interval.high == math.inf
    assert st.quantile_interval([1.0, 2.0], 0.5, 0.95).low == 0.0


def test_failed_requests_push_the_quantile_to_infinity():
    values = [0.1] * 190 + [math.inf] * 10
    interval = st.quantile_interval(values, 0.95, 0.95)
    assert interval.point == 0.1
    assert interval.high == math.inf


def test_clopper_pearson():
    # One-sided 95 % upper bounds are the upper ends of two-sided 90 % intervals.
    assert st.share_interval(100, 0, 0.90).high == pytest.approx(0.0295, abs=5e-5)
    assert st.share_interval(100, 1, 0.90).high == pytest.approx(0.0466, abs=5e-5)
    assert st.share_interval(200, 5, 0.90).high == pytest.approx(0.0518, abs=5e-5)
    assert st.share_interval(500, 5, 0.90).high == pytest.approx(0.0209, abs=5e-5)
    # The textbook case 8 of 20 at 95 %: (0.1912, 0.6395).
    interval = st.share_interval(20, 8, 0.95)
    assert interval.low == pytest.approx(0.1912, abs=5e-5)
    assert interval.high == pytest.approx(0.6395, abs=5e-5)
    assert st.share_interval(0, 0, 0.95) == st.Interval(0.0, 0.0, 1.0)
    assert st.share_interval(7, 7, 0.95).high == 1.0


def test_binomial_tails_are_exact():
    assert st.binomial_at_most(5, 2, 0.5) == pytest.approx(16 / 32)
    assert st.binomial_at_least(4, 3, 0.25) == pytest.approx(13 / 256)
    assert st.binomial_at_most(10_000, 0, 0.01) == pytest.approx(0.99**10_000, rel=1e-9)
    assert st.binomial_at_least(3, 3, 0.0) == 0.0
    assert st.binomial_at_most(3, 2, 1.0) == 0.0
    assert st.binomial_at_least(3, 1, 1.0) == st.binomial_at_most(3, 1, 0.0) == 1.0
    assert st.binomial_at_most(3, -1, 0.5) == 0.0


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.7062), (2, 4.30265), (10, 2.22814), (30, 2.04227), (1000, 1.96234)])
def test_student_t_table(freedom, t):
    assert st.t_quantile(0.975, freedom) == pytest.approx(t, rel=1e-5)


def test_t_quantile_wants_the_upper_half():
    assert st.t_quantile(0.5, 5) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match=r"0\.5 <= probability"):
        st.t_quantile(0.3, 5)


def test_mean_interval():
    interval = st.mean_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.95)
    # s = sqrt(2.5), t(4) = 2.77645: 3 +- 2.77645 * 1.58114 / 2.23607 = 3 +- 1.96324
    assert (interval.low, interval.high) == pytest.approx((1.03676, 4.96324), abs=1e-5)
    assert st.mean_interval([2.0], 0.95) == st.Interval(-math.inf, 2.0, math.inf)


def test_slope():
    # Residuals of y on 2x: 0.1, -0.2, 0.1 around 2x + 0.0; slope exactly 2, s^2 = 0.06 / 1, t(1) = 12.7062
    interval = st.slope([1, 2, 3], [2.1, 3.8, 6.1], 0.95)
    assert interval.point == pytest.approx(2.0)
    assert interval.high - interval.point == pytest.approx(12.7062 * math.sqrt(0.06 / 2), rel=1e-5)
    assert st.slope([1, 1, 1], [1, 2, 3], 0.95).high == math.inf
    assert st.slope([1], [1], 0.95).low == -math.inf
    assert st.slope([1, 2], [1, 3], 0.95) == st.Interval(-math.inf, 2.0, math.inf)


def test_empty_inputs_are_refused():
    for call in (
        lambda: st.median([]),
        lambda: st.mean_interval([], 0.95),
        lambda: st.quantile_interval([], 0.5, 0.95),
    ):
        with pytest.raises(ValueError, match="at least one"):
            call()


def test_median():
    assert st.median([3.0, 1.0, 2.0]) == 2.0
    assert st.median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_effective_size_sees_waves():
    rng = random.Random(7)
    independent = [rng.random() < 0.1 for _ in range(400)]
    waves = [outcome for _ in range(40) for outcome in [rng.random() < 0.1] * 10]
    assert st.effective_size(independent) > 300
    # Blocks of ten have autocorrelation 1 - j/10 at lag j: n / (1 + 2 x 4.5) = n / 10.
    assert 25 < st.effective_size(waves) < 90
    assert st.effective_size([False] * 50) == 50.0


def test_steady_start_drops_the_warm_up():
    rng = random.Random(3)
    steady = [1.0 + rng.gauss(0, 0.05) for _ in range(180)]
    ramp = [5.0 - 0.2 * i for i in range(20)]
    assert 15 <= st.steady_start(ramp + steady) <= 60
    assert st.steady_start(steady) <= 45
    assert st.steady_start([9.0] + [1.0] * 9) == 0  # too few to tell
    late = [5.0] * 65 + [1.0] * 35  # settles only after half-way
    assert st.steady_start(late) == 100
