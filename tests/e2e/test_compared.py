"""How often a comparison of runs is right where the truth is known."""

from collections import Counter

import pytest

from tests.e2e.compared import Pair, compared
from tests.spread import spread

pytestmark = pytest.mark.slow

PAIRS = 100
WRONG = 11  # of 100: the 5 % promised, and nearly three deviations of chance


def outcomes(same: bool, factor: float, pairs: int = PAIRS) -> Counter[str]:
    found = spread(compared, [Pair(number, same, factor) for number in range(pairs)])
    return Counter(comparison.status for comparison in found)


@pytest.mark.parametrize("same", [True, False], ids=["the same requests", "other requests"])
def test_equal_runs_are_called_worse_no_more_often_than_promised(same: bool) -> None:
    seen = outcomes(same, 1.0)
    assert (seen["worse"] <= WRONG, seen["better"] <= WRONG) == (True, True), seen
    assert seen["same"] >= (0.95 if same else 0.8) * PAIRS, seen


@pytest.mark.parametrize("same", [True, False], ids=["the same requests", "other requests"])
def test_a_run_whose_steps_take_a_fifth_longer_is_worse(same: bool) -> None:
    seen = outcomes(same, 1.2, 40)
    assert seen["worse"] >= 38, seen


def test_a_run_that_is_a_fifth_faster_is_never_called_worse() -> None:
    seen = outcomes(False, 1 / 1.2, 30)
    assert (seen["worse"], seen["better"] >= 27) == (0, True), seen
