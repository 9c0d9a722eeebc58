"""Length curves and the two faces of dominance, by hand."""

import pytest

from auditor.theory import shape


def test_a_curve_runs_through_its_percentiles():
    lengths = shape.curve(3000, 8000, None, 16000)
    assert [shape.at(lengths, u) for u in (0.5, 0.95, 1.0)] == [3000, 8000, 16000]
    assert shape.at(lengths, 0.725) == 5500  # half way between the median and p95
    assert shape.at(lengths, 0.0) == 562  # 3000^2 / 16000, the mirrored tail
    # 0.5 x (562 + 3000)/2 + 0.45 x (3000 + 8000)/2 + 0.05 x (8000 + 16000)/2
    assert shape.mean(lengths) == pytest.approx(890.5 + 2475 + 600)


def test_one_number_is_a_fixed_length():
    fixed = shape.curve(500)
    assert {shape.at(fixed, u / 10) for u in range(11)} == {500}
    assert shape.mean(fixed) == 500


def test_without_a_maximum_the_tail_ends_at_the_last_percentile():
    lengths = shape.curve(100, 200, 400)
    assert shape.at(lengths, 0.99) == shape.at(lengths, 1.0) == shape.at(lengths, 2.0) == 400
    assert shape.at(lengths, -1) == 25


def test_lengths_that_shrink_are_refused():
    with pytest.raises(ValueError, match=r"share 0\.95 \(200\) is below"):
        shape.curve(300, 200)


def test_what_a_request_waits_for():
    # 0.5 s to the first token, then 99 tokens of 10 ms: 0.5 of 1.49 s
    assert shape.user_time(0.5, 0.01, 100) == pytest.approx(0.5 / 1.49)
    assert shape.user_time(0.5, 0.01, 1) == 1.0
    assert shape.user_time(0.0, 0.0, 1) == 0.0


def test_the_device_can_see_it_the_other_way_round():
    # 68 ms of prefill for 3000 tokens against 149 steps of 17 ms shared by 64 streams (39.6 ms): 63 % prefill,
    # while a user who waits 0.1 s for the first token and 2.5 s for the reply sees 4 %.
    assert shape.device_time(0.068, 3000, 150, 0.017, 64) == pytest.approx(0.632, abs=0.001)
    assert shape.user_time(0.1, 0.017, 150) == pytest.approx(0.038, abs=0.001)
    assert shape.device_time(0.068, 0, 150, 0.017, 64) == 0.0
    assert shape.device_time(0.0, 0, 1, 0.0, 1) == 0.0
