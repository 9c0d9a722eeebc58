"""Least squares on points worked by hand."""

import math

import pytest

from auditor.theory.leastsquares import solve


def test_a_line_through_its_points():
    found = solve([[1, x] for x in (0, 1, 2, 3)], [2 + 3 * x for x in (0, 1, 2, 3)], [1.0] * 4)
    assert found is not None
    assert found.coefficients == pytest.approx((2, 3))
    assert found.scatter == pytest.approx(0, abs=1e-9)
    assert found.freedom == 2
    assert found.value([1, 10]) == pytest.approx(32)


def test_errors_follow_from_those_of_the_values():
    """x = -1, 0, 1 with errors 0.1: the level has the error 0.1 / sqrt(3), the slope 0.1 / sqrt(2)."""
    found = solve([[1, x] for x in (-1, 0, 1)], [4, 5, 6], [0.1] * 3)
    assert found is not None
    assert found.errors == pytest.approx((0.1 / math.sqrt(3), 0.1 / math.sqrt(2)))
    assert found.inflation == pytest.approx((1, 1))
    assert found.error([1, 2]) == pytest.approx(0.1 * math.sqrt(1 / 3 + 4 / 2))


def test_errors_grow_where_points_scatter_more_than_they_say():
    """Deviations +0.3, -0.3, -0.3, +0.3 from a level of 5: sqrt(4 x 0.09 / 3) = 0.346 a point, not 0.1."""
    found = solve([[1.0]] * 4, [5.3, 4.7, 4.7, 5.3], [0.1] * 4)
    assert found is not None
    assert found.coefficients == pytest.approx((5.0,))
    assert found.errors == pytest.approx((math.sqrt(0.36 / 3) / 2,))


def test_precise_points_count_more():
    """Level of 1 +- 1 and 4 +- 0.5: (1 / 1 + 4 / 0.25) / (1 + 4) = 3.4."""
    found = solve([[1.0], [1.0]], [1, 4], [1.0, 0.5])
    assert found is not None
    assert found.coefficients == pytest.approx((3.4,))


def test_coefficients_are_never_negative():
    """A line that falls is best as a level."""
    found = solve([[1, x] for x in (0, 1, 2)], [3.0, 2.0, 1.0], [1.0] * 3)
    assert found is not None
    assert found.coefficients == pytest.approx((2, 0))
    assert found.errors[1] == math.inf


def test_one_point_far_off_hardly_moves_the_law():
    points = [(x, 1 + 2 * x + (0.01 if x % 2 else -0.01)) for x in range(10)]
    points[4] = (4, 60.0)
    found = solve([[1, x] for x, _ in points], [y for _, y in points], [0.01] * 10)
    assert found is not None
    assert found.coefficients == pytest.approx((1, 2), abs=0.1)


def test_columns_that_are_alike_inflate_errors():
    apart = solve([[1, x] for x in (1, 2, 30, 40)], [1.0, 1.1, 3.9, 5.0], [0.1] * 4)
    alike = solve([[1, x] for x in (30, 31, 39, 40)], [3.9, 4.0, 4.9, 5.0], [0.1] * 4)
    assert apart is not None
    assert alike is not None
    assert max(apart.inflation) < 2
    assert max(alike.inflation) > 5


def test_what_cannot_be_told():
    assert solve([], [], []) is None
    assert solve([[0.0], [0.0]], [1.0, 2.0], [1.0, 1.0]) is None
    twice = solve([[1, 2], [2, 4], [3, 6]], [1, 2, 3], [1.0] * 3)  # a column and its double: one of them tells all
    one = solve([[1.0, 2.0]], [3.0], [1.0])
    for found in (twice, one):
        assert found is not None
        assert 0.0 in found.coefficients
