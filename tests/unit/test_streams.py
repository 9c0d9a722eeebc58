"""Steps that streams share, on times worked by hand."""

import pytest

from auditor.theory.streams import clump, common_steps, time_at


def test_time_at_a_level():
    """Two at once from 5 to 10."""
    assert time_at([(0, 10), (5, 15)], 2) == 5
    assert time_at([(0, 10), (5, 15)], 1) == 15
    assert time_at([(0, 10)], 2) == 0


def test_the_common_step_is_read_while_all_streams_decode():
    """The first stream crawls at 1 s a token until the second has its first token at 3 s, then both take 0.1 s."""
    first = (0.0, 1.0, 2.0, 3.0, 3.1, 3.2, 3.3)
    second = (3.0, 3.1, 3.2, 3.3)
    found = common_steps([(first, 1.0), (second, 1.0)])
    assert found is not None
    assert (found.seconds, found.count) == (pytest.approx(0.1), 3)
    assert common_steps([(first, 1.0), ((9.0, 9.1, 9.2), 1.0)]) is None
    assert common_steps([]) is None


def test_coalesced_events_carry_several_tokens():
    found = common_steps([((0.0, 0.4, 0.8, 1.2), 4.0)])
    assert found is not None
    assert found.seconds == pytest.approx(0.1)


def test_the_error_is_that_of_one_streams_steps():
    """Gaps of 0.09 and 0.11 in turn spread by 0.01; eight of them leave 0.01 / sqrt(8), however many streams say so."""
    times = [0.0]
    for gap in (0.09, 0.11) * 4:
        times.append(times[-1] + gap)
    for streams in (1, 5):
        found = common_steps([(tuple(times), 1.0)] * streams)
        assert found is not None
        assert (found.seconds, found.count) == (pytest.approx(0.1), 8)
        assert found.error == pytest.approx(0.01 / 8**0.5)


def test_a_stall_of_one_step_is_left_out():
    """Twenty steps of 0.1 s and one of 2 s: a mean would say 0.19."""
    times = [0.1 * i for i in range(11)] + [3.0 + 0.1 * i for i in range(11)]
    found = common_steps([(tuple(times), 1.0)])
    assert found is not None
    assert found.seconds == pytest.approx(0.1)


def test_steps_that_a_neighbour_slows_are_left_out():
    """Every fifth of 40 steps of 0.1 s takes 0.2 s, for whatever else runs there: the mean would say 0.12."""
    times = [0.0]
    for i in range(40):
        times.append(times[-1] + (0.2 if i % 5 == 4 else 0.1))
    found = common_steps([(tuple(times), 1.0)])
    assert found is not None
    assert found.seconds == pytest.approx(0.1)


def test_events_that_come_together_count_with_the_gaps_before_them():
    """Of 50 steps of 0.1 s every third event comes with the next one: gaps of 0.1, 0.2 and 0 in turn, in the mean 0.1;
    the middle half alone would say 0.08 to 0.12.
    """
    times = [0.1 * (i + 1 if i % 3 == 1 else i) for i in range(61)]
    found = common_steps([(tuple(times), 1.0)])
    assert found is not None
    assert found.seconds == pytest.approx(0.1, rel=0.02)


def test_tokens_that_come_in_bursts_all_count():
    """Ten at once every second are 0.1 s a token: the last of 21 events comes 2 s after the first."""
    times = tuple(float(i // 10) for i in range(21))
    found = common_steps([(times, 1.0)])
    assert found is not None
    assert found.seconds == pytest.approx(0.1)


def test_a_buffer_shows_as_clumps_after_silences():
    """Three clumps of 65 events, 5 s apart."""
    held = [5.0 * k + 0.0001 * i for k in range(3) for i in range(65)]
    assert clump(held) == 65
    assert clump([0.02 * i for i in range(100)]) is None
    assert clump([0.0005 * i for i in range(100)]) is None  # two thousand tokens a second: fast, and nothing held back
    assert clump([0.02 * k + 0.0001 * i for k in range(30) for i in range(4)]) is None  # four of a draft at each step
    assert clump([0.002 * k + 0.0001 * i for k in range(30) for i in range(20)]) is None  # silences of a fast decoder
    assert clump([]) is clump([1.0]) is None
