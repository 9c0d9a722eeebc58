"""The search against services whose capacity is known: it ends, it never claims more than it saw, and it is close."""

import math

from hypothesis import given
from hypothesis import strategies as st

from auditor.theory.bracket import RESOLUTION, bracket, next_level

OUTCOMES = st.sampled_from(["pass", "fail", "inconclusive"])
POINTS = st.lists(st.tuples(st.integers(1, 500), OUTCOMES), max_size=12)


def _search(judge, start, most, *, step=1.0, least=1.0):
    points = []
    while (level := next_level(points, start, least, most, step=step)) is not None:
        points.append((level, judge(level)))
        assert len(points) < 40
    return points


@given(st.integers(0, 3000), st.integers(1, 500), st.integers(1, 2000))
def test_the_capacity_of_a_service_is_found_to_a_tenth(capacity: int, start: int, most: int) -> None:
    points = _search(lambda level: "pass" if level <= capacity else "fail", start, most)
    found = bracket(points)
    assert found.passed is None or found.passed <= capacity
    assert found.failed is None or found.failed > capacity
    if capacity >= most:
        assert found.passed == most
    elif capacity < 1:
        assert (found.passed, found.failed) == (None, 1)
    else:
        assert capacity - found.passed <= max(1, RESOLUTION * found.passed)
        assert found.settled(step=1.0)


@given(st.floats(0.01, 100), st.floats(0.1, 50))
def test_rates_need_no_grid(capacity: float, start: float) -> None:
    points = _search(lambda rate: "pass" if rate <= capacity else "fail", start, 200.0, step=0.0, least=0.005)
    found = bracket(points)
    assert found.passed <= capacity < found.failed <= (1 + RESOLUTION) * found.passed + 1e-6


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 300))
def test_what_decides_nothing_is_neither_a_pass_nor_a_fail(sure: int, more: int, start: int) -> None:
    """Up to `sure` passes, beyond `sure + more` fails, between the two nothing is decided."""

    def judge(level):
        return "pass" if level <= sure else "fail" if level > sure + more else "inconclusive"

    points = _search(judge, start, 4000)
    found = bracket(points)
    assert found.passed <= sure
    assert sure - found.passed <= max(1, RESOLUTION * found.passed)
    assert found.failed is None or found.failed > sure + more
    assert all(sure < level <= sure + more for level in found.undecided)


@given(POINTS)
def test_a_bracket_holds_only_what_was_measured(points) -> None:
    found = bracket(points)
    assert found.passed is None or (found.passed, "pass") in points
    assert found.failed is None or (found.failed, "fail") in points
    assert all((level, "inconclusive") in points for level in found.undecided)
    low, high = (found.passed or 0), (found.failed or math.inf)
    assert low < high
    assert all(low < level < high for level in found.undecided)
    assert all(level >= high for level in found.upset)


@given(POINTS, st.integers(1, 200), st.integers(1, 500))
def test_no_level_is_measured_twice_nor_beyond_the_bounds(points, start: int, most: int) -> None:
    level = next_level(points, start, 1.0, most, step=1.0)
    if level is not None:
        assert 1 <= level <= most
        assert level not in {found for found, _ in points}
        assert level == int(level)
