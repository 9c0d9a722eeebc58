"""Which queries must return data for an alert ever to fire."""

import pytest

from auditor.monitoring.subject import stored_names, subjects

CASES = {
    "rate(a[5m])": ("rate(a[5m])",),
    "a > 5": ("a{}",),
    "5 < a": ("a{}",),
    "(a{x='1'} >= 0.9)": ('a{x="1"}',),
    "a > b": ("a{}", "b{}"),
    "a > 1 and on() b == 0": ("a{}", "b{}"),
    "a > 1 unless b == 0": ("a{}",),
    "a > 1 or b < 2": ("((a{})) or ((b{}))",),
    "sum by (pod) (a > 1) > 0": ("sum by (pod)(a{})",),
    "a > bool 1": ("a > bool 1",),
    "absent(a)": ("(a{} or absent(a{}))",),
    "absent_over_time(a[5m]) == 1": ("(last_over_time(a{}[5m]) or absent_over_time(a{}[5m]))",),
    "vector(1) > 0": ("vector(1) > 0",),
    "a > ": ("a > ",),
    "max_over_time((a > 0.9)[10m:1m]) > 0": ("max_over_time((a{})[10m:1m])",),
}


@pytest.mark.parametrize("query", CASES)
def test_a_threshold_is_left_out(query: str) -> None:
    assert subjects(query) == CASES[query]


def test_names_are_those_on_both_sides_and_within_ranges() -> None:
    assert stored_names('rate(a[5m]) > b unless on() {__name__="c:d"} and a') == ("a", "b", "c:d")
    assert stored_names('{job="x"} or vector(1)') == ()
    assert stored_names("sum(") == ()
