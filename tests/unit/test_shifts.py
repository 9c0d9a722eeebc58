"""Shifts between two runs, against published examples and against runs whose truth is known."""

import math
import random

import pytest

from auditor.theory.shifts import NEVER, holm, inflation, of_pairs, of_quantile, of_samples, of_shares
from tests.unit.waves import SOURCES, Source

# Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, table 4.1 (constant of water diffusion, at term and
# at 12 to 26 weeks) and table 3.1 (Hamilton's depression scale factor before and after)
AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLY = [1.15, 0.88, 0.90, 0.74, 1.21]
BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]


def test_the_shift_of_two_samples_is_the_published_one() -> None:
    found = of_samples(EARLY, AT_TERM, 0.05)
    assert math.log(found.factor.point) == pytest.approx(0.305, abs=1e-6)  # their example 4.3
    assert 0.05 < found.worse < 0.2  # exactly 0.1272, their example 4.1; here by Student's t of few requests
    assert found.worse + found.better == pytest.approx(1)


def test_the_shift_of_pairs_is_the_published_one() -> None:
    found = of_pairs([b - a for a, b in zip(BEFORE, AFTER, strict=True)], 0.05)
    assert math.log(found.factor.point) == pytest.approx(-0.46, abs=1e-6)  # their example 3.3
    assert 0.005 < found.better < 0.05  # exactly 0.0195, their example 3.1


def test_equal_runs_shift_by_nothing_and_identical_ones_for_certain() -> None:
    values = [math.log(1 + i % 7) for i in range(50)]
    assert of_samples(values, values, 0.05).factor.point == pytest.approx(1)
    alike = of_pairs([0.0] * 50, 0.05)
    assert (alike.factor.point, alike.worse, alike.better) == (pytest.approx(1), 1.0, 1.0)


def test_failed_requests_are_slower_than_all_others() -> None:
    good = random.Random(3).sample([math.log(1 + i / 100) for i in range(100)], 100)
    bad = [NEVER if random.Random(i).random() < 0.6 else x for i, x in enumerate(good)]
    assert of_samples(good, bad, 0.05).factor.point > 1e6
    assert of_pairs([b - a for a, b in zip(good, bad, strict=True)], 0.05).worse < 1e-6
    assert of_samples(bad, good, 0.05).better < 1e-6


@pytest.mark.parametrize("shift", [of_samples, of_pairs])
def test_no_requests_have_no_shift(shift) -> None:
    with pytest.raises(ValueError, match="needs requests"):
        shift([], [], 0.05) if shift is of_samples else shift([], 0.05)


def test_holm_s_procedure_by_hand() -> None:
    """0.01 x 3, then 0.02 x 2 where that is more, then 0.04 x 1, which must not be less than the one before."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_shares_are_those_of_the_papers() -> None:
    """Newcombe 1998, table II (a): 56 of 70 against 48 of 80. Fisher's tea: all but one pair guessed, 17 of 70."""
    interval, _, _ = of_shares((48, 80), (56, 70), 0.025)
    assert (interval.low, interval.point, interval.high) == pytest.approx((0.0524, 0.2, 0.3339), abs=5e-5)
    _, worse, better = of_shares((1, 4), (3, 4), 0.025)
    assert (worse, better) == (pytest.approx(17 / 70), pytest.approx(69 / 70))


def test_failures_that_come_together_count_once() -> None:
    """Ten in a row of a hundred: rho_j = (10 - j) / 10 less what a mean of 0.1 takes off, so that about ten are one."""
    in_a_row = [40 <= i < 50 for i in range(100)]
    assert 8 < inflation(in_a_row) < 11
    assert inflation([i % 10 == 0 for i in range(100)]) == 1.0
    assert inflation([False] * 50) == inflation([]) == 1.0
    interval, worse, better = of_shares((0, 100), (10, 100), 0.025, alike=10.0)
    assert (worse, better) == (pytest.approx(0.5), 1.0)  # one of ten against none of ten
    assert interval.low < 0 < interval.point == pytest.approx(0.1)


def test_a_percentile_moves_where_only_the_tail_does() -> None:
    rng = random.Random(1)
    old = [rng.gauss(0, 0.1) for _ in range(300)]
    new = [x + (0.5 if i % 10 == 0 else 0.0) for i, x in enumerate(old)]
    found = of_quantile(old, new, 0.95, 0.05, 3, paired=True)
    assert found is not None
    assert found.worse < 1e-6  # fewer resamples than that: Student's t tells it
    assert 1.2 < found.factor.low < found.factor.point < found.factor.high < 1.8
    assert of_quantile(old, new, 0.95, 0.05, 100, paired=True) is None
    assert of_quantile(old, new, 0.95, 0.05, 3, paired=True) == found


def rates(source: Source, slower: float, trials: int, n: int = 250) -> tuple[float, float]:
    """How often a run is told to be slower beyond chance, and how often by a tenth at least."""
    told = counted = 0
    for trial in range(trials):
        runs = [[math.log(x) for x in source(random.Random(f"{side} {trial}"), n, 0.05)[0]] for side in "ab"]
        found = of_samples(runs[0], [x + math.log(slower) for x in runs[1]], 0.05)
        told += found.worse <= 0.05
        counted += found.worse <= 0.05 and found.factor.point > 1.1
    return told / trials, counted / trials


@pytest.mark.parametrize("name", ["independent", "waves of 10", "autoregressive, 0.8"])
def test_equal_runs_are_told_apart_no_more_often_than_promised(name: str) -> None:
    told, counted = rates(SOURCES[name], 1.0, 60)
    assert max(told, counted) <= 0.12  # 5 % promised, and 2.5 deviations of chance over 60 trials


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_equal_runs_that_depend_in_any_way_are_told_apart_no_more_often_than_promised(name: str) -> None:
    told, counted = rates(SOURCES[name], 1.0, 300)
    assert max(told, counted) <= 0.09, (told, counted)  # three deviations; a full queue is the hardest


def test_a_run_that_is_a_fifth_slower_is_found() -> None:
    assert rates(SOURCES["independent"], 1.2, 40)[1] >= 0.95
    assert rates(SOURCES["waves of 3"], 1.2, 40)[1] >= 0.7
