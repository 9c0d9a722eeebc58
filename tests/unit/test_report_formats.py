"""The formats against golden files, hostile strings and an empty report."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from machine_formats import BARE, hostile
from made_reports import EVIDENCE, GOOD, QUESTIONS, READY, REPORT, TTFT

from auditor.report.markdown import escape
from auditor.report.renderers import RENDERERS
from auditor.report.terminal import render_colour

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = {"terminal": "report.txt", "markdown": "report.md", "json": "report.json"}

NO_VERDICT = {"csv", "gitlab", "prometheus"}
"""Formats that list requests, findings or numbers and have no sentence."""


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_golden_report(name):
    assert RENDERERS[name](REPORT) == (GOLDEN / FILES[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_the_same_report_gives_the_same_bytes(name):
    assert RENDERERS[name](REPORT) == RENDERERS[name](replace(REPORT, name=REPORT.name))


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_an_empty_report_renders(name):
    assert ("READY: chat-prod" in RENDERERS[name](BARE)) == (name not in NO_VERDICT)


@pytest.mark.parametrize("name", sorted(RENDERERS))
def test_hostile_strings_carry_no_control_codes_and_stay_small(name):
    text = RENDERERS[name](hostile())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert len(text) < 1_000_000


def test_terminal_fits_80_columns():
    for report in (REPORT, READY):
        assert max(map(len, RENDERERS["terminal"](report).splitlines())) <= 80
    long = [line for line in RENDERERS["terminal"](hostile()).splitlines() if len(line) > 80]
    assert all("where" in line or not line.strip().count(" ") for line in long)


def test_colour_is_the_same_text():
    coloured = render_colour(REPORT)
    assert "\x1b[1;31mFAIL\x1b[0m W110" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == RENDERERS["terminal"](REPORT)
    assert "\x1b" not in RENDERERS["terminal"](REPORT)


def test_terminal_leaves_passes_to_one_line():
    text = RENDERERS["terminal"](replace(REPORT, findings=(GOOD, replace(GOOD, rule="M402"), TTFT)))
    assert "passed       M401, M402\n" in text
    assert "Panel 'TTFT'" not in text


ANSWERED = replace(
    READY,
    questions=(
        replace(QUESTIONS[0], answers=("Users wait 6 % for the first token: TPS matters.", "No conflict.")),
        *QUESTIONS[1:],
    ),
)


def test_terminal_shows_answers_when_all_is_well():
    text = RENDERERS["terminal"](ANSWERED)
    assert "\n  W  Users wait 6 % for the first token: TPS matters.\n     No conflict.\n" in text


def test_markdown_shows_answers_under_the_table_and_not_folded():
    first = RENDERERS["markdown"](ANSWERED).partition("<details>")[0]
    assert "\n- **W**: Users wait 6 % for the first token: TPS matters. No conflict.\n" in first


def test_json_carries_answers():
    questions = json.loads(RENDERERS["json"](ANSWERED))["questions"]
    assert questions[0]["answers"] == list(ANSWERED.questions[0].answers)
    assert questions[2]["answers"] == []


def test_markdown_has_no_markup_of_others():
    text = RENDERERS["markdown"](hostile())
    for forbidden in ("<script", "**b**", "@all", " #1", "://", "$x"):
        assert forbidden not in text.replace("\\$", "")
    assert not re.search(r"(?<!\\)\]\(", text)
    ours = re.sub(r"</?(details|summary)>", "", text)
    assert "<" not in ours


def test_markdown_tables_keep_their_columns():
    rows = [line for line in RENDERERS["markdown"](hostile()).splitlines() if line.startswith("| ")]
    assert rows
    for row in rows[:5]:
        assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_markdown_escapes_once():
    assert escape("a_b & <c>") == "a\\_b &amp; &lt;c&gt;"
    assert escape("mail me@here or see #12") == "mail me@&#8203;here or see #&#8203;12"


def test_markdown_folds_what_is_not_urgent():
    text = RENDERERS["markdown"](REPORT)
    first, _, rest = text.partition("<details>")
    assert "W110" in first
    assert "M401" not in first
    assert "M401 TTFT is covered" in rest
    assert "timeout" in rest


def test_markdown_says_how_many_requests_were_cut_off():
    stopped = replace(EVIDENCE.measurements[0], stopped="the time budget is spent")
    cut = replace(stopped, samples=tuple(replace(s, error=s.error and "cancelled") for s in stopped.samples))
    text = RENDERERS["markdown"](replace(REPORT, evidence=replace(EVIDENCE, measurements=(cut,))))
    assert "| slo | 4 | 3 |" in text
    assert "| the time budget is spent; 1 cut off |" in text
    assert "Failed requests" not in text


def test_json_is_versioned_and_keeps_provenance():
    data = json.loads(RENDERERS["json"](REPORT))
    assert data["schema_version"] == 1
    finding = next(f for f in data["findings"] if f["rule"] == "W110")
    assert finding["measured"]["provenance"] == "measured"
    assert finding["required"]["provenance"] == "declared"
    assert finding["where"] == "chat.yaml:31:12"
    load = data["evidence"]["measurements"][0]
    assert (load["requests"], load["failed"], load["ttft"]["p95"]) == (4, 1, "inf")
    assert "samples" not in load


def test_json_marks_the_unbounded_and_the_unknown():
    finding = replace(TTFT, measured=replace(TTFT.measured, high=float("inf"), low=float("nan")))
    data = json.loads(RENDERERS["json"](replace(REPORT, findings=(finding,))))
    assert data["findings"][0]["measured"]["high"] == "inf"
    assert data["findings"][0]["measured"]["low"] is None
