"""Markdown for a review: what a reader sees before unfolding anything, and pictures as characters."""

import re
from dataclasses import replace

from drawn_reports import failing, healthy
from made_reports import REPORT

from auditor.report.markdown import render
from auditor.report.words import shown


def _first_screen(report):
    return render(report).partition("<details>")[0]


def test_the_first_screen_is_one_and_has_the_worst_with_what_to_change():
    first = _first_screen(failing())
    assert len(first.splitlines()) <= 40
    listed = re.findall(r"^- \*\*(FAIL|INCONCLUSIVE) (\w\d{3})", first, re.MULTILINE)
    assert 0 < len(listed) <= 5
    assert f"- and {len(shown(failing())) - len(listed)} more below" in first


def test_the_first_screen_names_measure_remedy_and_place():
    first = _first_screen(REPORT)
    assert (
        "- **FAIL W110 TTFT misses its SLO \\[rag p95\\]**: 38 of 200 requests took longer than 1.5 s; at most 4 may "
        "for p95 to hold with 95 % confidence. *Change*: raise --max-num-batched-tokens from 2048 to 8192. "
        "(chat.yaml:31:12)\n"
    ) in first
    assert "voided" not in first  # what another finding voids is that one's to say


def test_every_finding_stands_in_full_in_a_fold():
    rest = render(REPORT).partition("<details>")[2]
    for finding in shown(REPORT):
        assert re.search(rf"^### \S+ {finding.rule} ", rest, re.MULTILINE)


def test_pictures_stand_as_characters_under_their_question():
    text = render(healthy())
    for letter, title in (
        ("W", "TTFT over prompt length"),
        ("H", "Roofline"),
        ("K", "Memory"),
        ("M", "Coverage ladder"),
    ):
        fold = re.search(rf"<summary>{letter} [^<]* in pictures</summary>(.*?)</details>", text, re.DOTALL)[1]
        assert f"**{title}" in fold
        assert fold.count("````") % 2 == 0


def test_no_name_closes_the_fence_of_a_picture():
    evidence = failing().evidence
    items = tuple(replace(item, concept="```\n````x") for item in evidence.coverage.items)
    text = render(replace(failing(), evidence=replace(evidence, coverage=replace(evidence.coverage, items=items))))
    fences = [line for line in text.splitlines() if line.startswith("```")]
    assert set(fences) == {"````text", "````"}


def test_folds_close_where_they_open():
    text = render(failing())
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") > 5
