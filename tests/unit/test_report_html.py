"""The HTML report as text: self-contained, well formed, labelled, harmless, the same bytes each time."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from drawn_reports import failing, healthy, offline, stopped
from made_reports import READY, REPORT

from auditor.evidence import Location
from auditor.report.html import render

REPORTS = {"failing": failing, "healthy": healthy, "offline": offline, "stopped": stopped}
VOID = {"meta", "link", "path", "line", "rect", "circle"}


class _Page(HTMLParser):
    """Tags that do not close in order, ids, and what attributes point at."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.ids, self.tags, self.attributes = [], [], [], Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, *pair) for pair in attrs]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.mark.parametrize("name", REPORTS)
def test_tags_close_ids_are_unique_and_references_lead_somewhere(name):
    page = _Page(render(REPORTS[name]()))
    assert (page.open, page.wrong) == ([], [])
    assert [i for i, count in Counter(page.ids).items() if count > 1] == []
    wanted = [v for _, key, v in page.attributes if key == "aria-labelledby"]
    wanted += [v[1:] for _, key, v in page.attributes if key == "href" and v.startswith("#")]
    assert wanted
    assert set(wanted) <= set(page.ids)


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_needs_nothing_else_and_runs_nothing(name):
    text = render(REPORTS[name]())
    page = _Page(text)
    assert page.tags["script"] == 0
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert all(v.startswith(("#", "data:")) for _, key, v in page.attributes if key in ("src", "href"))
    assert "@import" not in text
    assert "url(" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", REPORTS)
def test_each_picture_says_in_words_what_it_shows(name):
    page = _Page(render(REPORTS[name]()))
    labels = [v for tag, key, v in page.attributes if (tag, key) == ("svg", "aria-label")]
    assert len(labels) == page.tags["svg"] == page.tags["figure"] > 0
    assert all(len(label) > 40 for label in labels)


@pytest.mark.parametrize("name", REPORTS)
def test_no_column_is_without_a_name(name):
    assert '<th scope="col"></th>' not in render(REPORTS[name]())


def test_verdict_questions_findings_and_waivers_are_there():
    text = render(REPORT)
    for words in (
        "NOT READY",
        "chat-prod misses its TTFT SLO",
        "FAIL</span> W110 TTFT misses its SLO [rag p95]",
        "raise --max-num-batched-tokens from 2048 to 8192",
        "TTFT p95 2.4 s (95 % interval 2.312 to 2.52 s; n=200)",
        "chat.yaml:31:12",
        "until 2027-01-31 by team-x: the batch job ends in May",
        "Expired waiver: H206, expired 2026-01-31",
        "Unused waiver: M420 (chat.yaml:40:5)",
        "1 failed, 3 inconclusive, 1 warned, 1 waived, 1 passed, 1 undecided, 1 skipped.",
        "not asked",
        "Decode is bound by weights (predicted).",
    ):
        assert words in text


def test_the_worst_finding_comes_first():
    cards = re.findall(r'<article class="card (\w+)">', render(REPORT))
    assert cards == ["fail", "inconclusive", "inconclusive", "inconclusive", "warn", "waived"]


def test_a_run_that_was_stopped_says_so():
    assert "<dt>Stopped early</dt><dd>interrupted</dd>" in render(stopped())


def test_what_others_wrote_is_text_and_nothing_else():
    evil = "</style></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"' {{ 7*7 }} {% raw %}\x00\u202e"
    finding = replace(
        REPORT.findings[-1], title=evil, why=evil, subject=evil, remedies=(evil,), where=Location(evil, 1)
    )
    evidence = failing().evidence
    served = replace(evidence.served, model=evil, warnings=(evil,), engine=evil)
    loads = tuple(replace(m, load=replace(m.load, id=evil)) for m in evidence.measurements)
    items = tuple(replace(item, concept=evil, where=(evil,)) for item in evidence.coverage.items)
    coverage = replace(evidence.coverage, items=items)
    hostile = replace(evidence, served=served, measurements=loads, coverage=coverage, problems=(evil,))
    text = render(replace(REPORT, findings=(finding,), evidence=hostile, verdict_line=evil, interrupted=evil))
    page = _Page(text)
    assert page.tags["script"] == page.tags["img"] == 0
    assert (page.open, page.wrong) == ([], [])
    assert not [key for _, key, _ in page.attributes if key.startswith("on")]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_the_same_report_gives_the_same_bytes():
    assert render(failing()) == render(failing())


def test_a_report_without_findings_says_that_nothing_is_wrong():
    assert "Nothing failed, warned or stayed open." in render(READY)
