"""The terminal report: worst first, each card in one order, the verdict on the last line, 80 columns."""

import re
from dataclasses import replace

import pytest
from drawn_reports import failing, healthy, offline, stopped
from made_reports import READY, REPORT

from auditor.report.terminal import render, render_colour
from auditor.report.words import ORDER, shown, weight


def _labels(card):
    return re.findall(r"^  ([a-z][a-z ]*?)  +\S", card, re.MULTILINE)


def test_a_card_says_what_was_seen_what_is_asked_where_why_and_what_to_change():
    card = re.search(r"^FAIL W110.*?\n\n", render(REPORT), re.DOTALL | re.MULTILINE)[0]
    assert _labels(card) == ["measured", "required", "where", "why", "change", "numbers"]


def test_the_worst_come_first():
    weights = [ORDER.index(weight(finding)) for finding in shown(failing())]
    assert weights == sorted(weights)
    headings = re.findall(r"^(FAIL|INCONCLUSIVE|warn|waived) [A-Z]\d", render(failing()), re.MULTILINE)
    assert len(headings) == len(weights)


def test_findings_stand_before_how_it_came_about():
    text = render(failing())
    assert text.index("\nINCONCLUSIVE ") < text.index("the traffic as measured") < text.index("products of one step")


@pytest.mark.parametrize(("report", "start"), [(REPORT, "NOT READY: 1 failed, 3 in"), (READY, "READY: 1 passed")])
def test_the_last_line_has_the_verdict_and_the_counts(report, start):
    assert re.split(r"\n(?! )", render(report).rstrip("\n"))[-1].startswith(start)


@pytest.mark.parametrize("report", [healthy, failing, offline, stopped])
def test_lines_have_at_most_80_columns(report):
    assert max(map(len, render(report()).splitlines())) <= 80


def test_colour_changes_no_character():
    bare = re.sub(r"\x1b\[[\d;]*m", "", render_colour(failing()))
    assert bare == render(failing())


def test_a_place_that_is_long_is_never_broken():
    place = replace(REPORT.findings[-1].where, file="a-folder-with-a-long-name/" * 5 + "chat.yaml")
    text = render(replace(REPORT, findings=(replace(REPORT.findings[-1], where=place),)))
    assert str(place) in text
