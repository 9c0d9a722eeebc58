"""The ladders by themselves, where neither model nor device is known: what made the points is read off again."""

import pytest

from auditor.theory import parts
from auditor.theory.idle import by_length, idle
from auditor.theory.ladders import Step
from auditor.theory.step_costs import plain_costs

LENGTHS = (32, 256, 1024, 4096, 16384)


def test_a_prompt_between_two_lengths_is_read_off_straight():
    """20 ms and 30 us a token."""
    found = idle([(n, 0.02 + 3e-5 * n) for n in LENGTHS])
    assert found is not None
    assert found.seconds(2048) == pytest.approx(0.02 + 3e-5 * 2048)
    assert found.fixed == pytest.approx(0.02 + 3e-5 * 32)
    assert found.error == pytest.approx(0.0625)  # each length was measured once: 1.25 x 0.05


def test_beyond_the_ladder_it_is_reckoned_and_not_told():
    found = idle([(n, 0.02 + 3e-5 * n) for n in LENGTHS])
    assert found is not None
    assert found.seconds(20000) is None
    assert found.seconds(16384 + 300) is not None  # texts of one plan
    assert found.seconds(16) is None
    assert found.reckoned(16) == found.fixed
    assert found.reckoned(32768) == pytest.approx(0.02 + 3e-5 * 32768)


def test_attention_bends_what_lies_beyond():
    """1 ns a pair of tokens: four times the time for twice the tokens."""
    found = idle([(n, 1e-9 * n * n) for n in (1024, 4096)])
    assert found is not None
    assert found.reckoned(8192) == pytest.approx(1e-9 * 8192**2)


def test_times_that_stay_the_same_stay_the_same_beyond():
    found = idle([(n, 0.5) for n in LENGTHS])
    assert found is not None
    assert found.reckoned(1e6) == pytest.approx(0.5)


def test_prompts_of_one_plan_are_one_length():
    assert [len(group) for group in by_length([(30, 1), (31, 1), (32, 1), (1994, 2), (2004, 2), (2048, 2)])] == [
        3,
        2,
        1,
    ]


def test_one_length_is_no_ladder():
    assert idle([(100, 0.03), (101, 0.04)]) is None
    assert idle([]) is None


def test_one_request_far_off_does_not_move_a_length():
    points = [(n, (0.02 + 3e-5 * n) * s) for n in LENGTHS for s in (0.99, 1.0, 1.0, 1.01)]
    found = idle([*points, (4096, 2.0)])
    assert found is not None
    assert found.seconds(4096) == pytest.approx(0.02 + 3e-5 * 4096, rel=0.01)
    assert found.noise is None


def test_lengths_that_take_less_than_shorter_ones_are_noise():
    """Every second length three times as slow: up to ln 3 / 2 = 0.55 off any law that never falls."""
    found = idle([(n, (0.02 + 3e-5 * n) * (3 if i % 2 else 1)) for i, n in enumerate((32, 64, 96, 128, 160))])
    assert found is not None
    assert found.noise is not None


def steps(contexts: tuple[int, ...], cached: float = 4e-8) -> tuple[Step, ...]:
    """6 ms, 20 us for each of 1, 4, 16 and 64 sequences, 40 ns for each token in the cache."""
    return tuple(Step(b, c, 0.006 + 2e-5 * b + cached * b * c, 1e-6) for b in (1, 4, 16, 64) for c in contexts)


def test_the_parts_of_a_step_are_read_off_batch_and_context():
    costs = plain_costs(steps((500, 4000)))
    assert costs is not None
    assert parts.measured_decode(costs, 64, 2000) == {
        "weights or overhead": pytest.approx(0.00602, rel=1e-3),
        "compute": pytest.approx(63 * 2e-5, rel=1e-3),
        "kv": pytest.approx(4e-8 * 64 * 2000, rel=1e-3),
    }


def test_one_context_cannot_tell_cache_from_compute():
    costs = plain_costs(steps((500,)))
    assert parts.measured_decode(costs, 64, 500) == {}
    assert "no batch was measured at two contexts" in (parts.unreadable(costs) or "")


def test_a_cache_that_costs_nothing_costs_nothing():
    costs = plain_costs(steps((500, 4000), cached=0.0))
    assert costs is not None
    assert parts.measured_decode(costs, 64, 2000)["kv"] == pytest.approx(0.0, abs=1e-6)


def test_one_batch_is_no_ladder():
    costs = plain_costs(tuple(step for step in steps((500, 4000)) if step.batch == 4))
    assert "one batch was measured" in (parts.unreadable(costs) or "")
    assert plain_costs(()) is None
    assert parts.unreadable(None) is None
