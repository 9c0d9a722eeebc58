"""The search by hand."""

from auditor.theory.bracket import Bracket, bracket, next_level


def _next(*points, start=64, least=1.0, most=1024.0, step=1.0):
    return next_level(points, start, least, most, step=step)


def test_it_starts_at_the_target_doubles_and_bisects() -> None:
    """sqrt(64 x 128) = 90.5; sqrt(64 x 91) = 76.3; sqrt(76 x 91) = 83.2; from 76 to 83 is less than a tenth of 76."""
    assert _next() == 64
    assert _next((64, "pass")) == 128
    assert _next((64, "pass"), (128, "fail")) == 91
    assert _next((64, "pass"), (128, "fail"), (91, "fail")) == 76
    assert _next((64, "pass"), (128, "fail"), (91, "fail"), (76, "pass")) == 83
    assert _next((64, "pass"), (128, "fail"), (91, "fail"), (76, "pass"), (83, "fail")) is None


def test_it_halves_down_to_one() -> None:
    assert _next((3, "fail"), start=3) == 2
    assert _next((3, "fail"), (2, "fail"), start=3) == 1
    assert _next((3, "fail"), (2, "fail"), (1, "fail"), start=3) is None


def test_it_goes_no_further_than_it_may() -> None:
    assert _next((64, "pass"), most=100.0) == 100
    assert _next((64, "pass"), (100, "pass"), most=100.0) is None


def test_what_decides_nothing_sends_the_search_below_it() -> None:
    assert _next((64, "inconclusive")) == 32
    assert _next((64, "inconclusive"), (32, "pass")) == 45
    assert bracket([(64, "inconclusive"), (32, "pass")]) == Bracket(32, None, (64,))


def test_what_decides_nothing_is_no_end_of_the_bracket() -> None:
    """Between 10 and 11 nothing fits: the search looks for a level above that fails."""
    open_ends = [(10, "pass"), (11, "inconclusive"), (14, "inconclusive")]
    assert _next(*open_ends) == 28
    assert _next(*open_ends, (28, "fail")) is None
    assert _next(*open_ends, most=14.0) is None


def test_a_pass_above_a_fail_counts_for_nothing() -> None:
    found = bracket([(32, "pass"), (48, "fail"), (64, "pass")])
    assert found == Bracket(32, 48, (), (64,))
    assert found.reaches(32) is True
    assert found.reaches(40) is None
    assert found.reaches(48) is False


def test_a_fail_outweighs_a_pass_of_the_same_level() -> None:
    assert bracket([(8, "pass"), (8, "fail")]) == Bracket(None, 8, (), (8,))


def test_settled_is_from_a_pass_to_a_fail() -> None:
    assert Bracket(60, 66).settled()
    assert not Bracket(60, 67).settled()
    assert not Bracket(60, None).settled()
    assert not Bracket(60, 100, (62,)).settled()
    assert Bracket(2, 3).settled(step=1.0)
    assert Bracket(None, 1).settled(step=1.0)
    assert not Bracket(None, 2).settled(step=1.0)
