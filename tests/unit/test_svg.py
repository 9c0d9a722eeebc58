"""Axes, ticks and marks of the small SVGs, by hand-worked places."""

import math
import re

import pytest

from auditor.report import svg
from auditor.report.picture import Bar, bars


def test_a_linear_axis_starts_at_zero_and_ends_on_a_round_value():
    axis = svg.Axis.over([3.0, 17.0], (0.0, 100.0))
    assert (axis.low, axis.high) == (0.0, 20.0)  # steps of 5: the smallest of 1, 2, 5 x 10^n that is 17 / 5 or more
    assert axis(10.0) == 50.0
    assert axis.ticks() == [0.0, 5.0, 10.0, 15.0, 20.0]


def test_a_logarithmic_axis_gives_each_decade_the_same_room():
    axis = svg.Axis.over([0.01, 100.0], (200.0, 0.0), log=True)
    assert [axis(v) for v in (0.01, 0.1, 1.0, 100.0)] == pytest.approx([200.0, 150.0, 100.0, 0.0])
    assert axis.ticks() == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0])


def test_what_lies_beyond_an_axis_stands_at_its_end():
    axis = svg.Axis(1.0, 10.0, 0.0, 90.0)
    assert (axis(0.2), axis(math.inf)) == (0.0, 90.0)


def test_an_axis_over_nothing_or_one_value_still_has_two_ends():
    assert svg.Axis.over([], (0.0, 10.0))(0.5) == 5.0
    for alike in ([0.2], [50.0, 49.9999999999]):
        axis = svg.Axis.over(alike, (0.0, 10.0), log=True)
        assert 0.0 <= axis(alike[0]) < axis(2 * alike[0]) == 10.0
    assert svg.Axis.over([0.0, 0.0], (0.0, 10.0)).high > 0


def test_words_are_escaped_and_cleaned_wherever_they_stand():
    drawn = svg.text(1, 2, '<script>"\x1b[31m&\u202e', "tick")
    assert drawn == '<text class="tick" x="1" y="2">&lt;script&gt;&quot; &amp;</text>'


def test_dots_on_one_place_are_drawn_once():
    assert svg.dots([(1.2, 2.0), (0.9, 2.4), (7.0, 2.0)], "d") == '<path class="d" d="M1 2h0M7 2h0"/>'
    assert svg.dots([], "d") == ""


def test_a_legend_wraps_at_the_width():
    keys = [svg.Key("line", "a", "x" * 30), svg.Key("line", "b", "y" * 30), svg.Key("dot", "c", "z")]
    drawn, bottom = svg.legend(keys)
    rows = [float(y) for y in re.findall(r'<text class="key" x="[\d.]+" y="([\d.]+)"', drawn)]
    assert rows == [16.0, 33.0, 33.0]  # 211 units each: the second does not fit beside the first
    assert bottom == 29 + 8.5


def test_limits_close_to_each_other_keep_their_words_apart():
    axis = svg.Axis(0.0, 100.0, 200.0, 0.0)
    plot = svg.Plot(svg.Axis(0.0, 1.0, 0.0, 400.0), axis, "", "", str, str)
    drawn = plot.limits([(50.0, "p50"), (51.0, "p95")])
    places = [float(y) for y in re.findall(r'<text class="halo" x="398" y="([\d.]+)"', drawn)]
    assert places == [96.0, 82.0]  # 4 above its line, then 14 higher instead of 94


def test_bars_show_what_is_sure_what_may_be_and_the_mark():
    drawn = list(bars([Bar("a", "1 s", 17.0, 34.0), Bar("failed", "failed", None)], 34.0, 25.5))
    assert drawn[0] == f"{'a':<22}{'1 s':<20}{'#' * 17}{'=' * 9}|{'=' * 7}"  # 25.5 of 34: cell 26
    assert drawn[1] == f"{'failed':<22}failed"


def test_bars_without_any_length_are_words_alone():
    assert list(bars([Bar("a", "0 s", 0.0)])) == [f"{'a':<22}0 s"]
