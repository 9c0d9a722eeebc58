"""GitHub's annotations, and that nobody else's text is a command to the runner."""

import json
import re
from dataclasses import replace

import pytest
from machine_formats import ACCEPTED, OPEN, REPORTS, hostile
from made_reports import READY, REPORT, TTFT

from auditor.evidence import Location
from auditor.report.github import render
from auditor.report.json import dumps
from auditor.report.lines import wrap
from auditor.report.renderers import RENDERERS

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:]*,?)+)::(.*)")


def parsed(text):
    """Commands as the runner takes them: name, properties, text, with its escapes undone."""
    found = []
    for line in text.splitlines():
        name, properties, data = COMMAND.fullmatch(line).groups()
        pairs = dict(pair.split("=", 1) for pair in properties.split(","))
        found.append((name, {key: _plain(value) for key, value in pairs.items()}, _plain(data)))
    return found


def _plain(text):
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_the_verdict_comes_first_then_the_worst():
    first, second, *_ = parsed(render(REPORT))
    assert first[:2] == ("error", {"title": "serving-audit"})
    assert first[2].startswith("NOT READY: chat-prod misses its TTFT SLO\n1 failed, 3 inconclusive,")
    assert second[:2] == (
        "error",
        {"file": "chat.yaml", "line": "31", "col": "12", "title": "W110 TTFT misses its SLO [rag p95]"},
    )
    assert second[2].splitlines()[0] == TTFT.why
    assert second[2].splitlines()[-2:] == ["change: add a replica", "more: audit explain W110"]


def test_what_is_waived_is_a_notice():
    [waived] = [c for c in parsed(render(REPORT)) if c[1]["title"].startswith("W112")]
    assert waived[0] == "notice"
    assert "waived: until 2027-01-31 by team-x: the batch job ends in May" in waived[2]


@pytest.mark.parametrize(
    ("report", "name"), [(READY, "notice"), (ACCEPTED, "notice"), (REPORT, "error"), (OPEN, "error")]
)
def test_the_verdict_is_an_error_where_the_exit_code_is_not_0(report, name):
    assert parsed(render(report))[0][0] == name
    assert any(command[0] == "error" for command in parsed(render(report))) == (report.exit_code != 0)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_line_is_one_of_our_commands(name):
    assert parsed(render(REPORTS[name]))


def test_properties_and_text_are_escaped():
    finding = replace(TTFT, title="50 %, at: once", why="100 % slow", where=Location("a,b:c%.yaml", 2))
    line = render(replace(REPORT, findings=(finding,))).splitlines()[1]
    assert line.startswith(
        "::error file=a%2Cb%3Ac%25.yaml,line=2,col=1,title=W110 50 %25%2C at%3A once [rag p95]::100 %25 slow%0A"
    )


def test_hostile_text_is_no_command():
    text = render(hostile())
    assert {name for name, _, _ in parsed(text)} <= {"error", "warning", "notice"}
    assert len(text.splitlines()) == 1 + 3 + 2  # the verdict; a failure, a warning and what stays open; two waivers
    assert len(text) < 100_000


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_no_format_on_stdout_is_a_command_to_the_runner(name):
    """A runner takes commands of its first form where a line begins, of its older form anywhere."""
    lines = RENDERERS[name](hostile(" ::error::x ##[add-mask]y ##vso[task.complete]z " * 20)).splitlines()
    if name != "github":
        assert not [line for line in lines if line.lstrip().startswith("::")]
        assert not [line for line in lines if re.search(r"##\w*\[", line)]


@pytest.mark.parametrize("before", range(60, 82))
def test_a_word_that_is_broken_over_lines_is_no_command_either(before):
    lines = wrap("y" * before + "::error::x", "  why        ", 13)
    assert not [line for line in lines if line.lstrip().startswith("::")]


def test_json_text_stays_what_it_was():
    assert json.loads(dumps(["###[x] \\\\##[y] #"])) == ["###[x] \\\\##[y] #"]
    assert "##" not in dumps(["###[x] \\\\##[y]"])
