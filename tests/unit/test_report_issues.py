"""What findings mean to machines, and that no format says something else than the exit code."""

from dataclasses import replace

import pytest
from machine_formats import ACCEPTED, BARE, OPEN, REPORTS, hostile
from made_reports import ABSENT, CACHED, EAGER, EVIDENCE, GOOD, KV, READY, REPORT, TTFT, UNSEEN, VOIDED, WAIVED

from auditor.evidence import Location
from auditor.report.issues import issues, passing, path, worth_telling


def _levels(report):
    return {(i.finding.rule, i.finding.status): i.level for i in issues(report) if i.finding.rule != "waiver"}


def test_levels_of_a_failing_report():
    assert _levels(REPORT) == {
        ("W110", "fail"): "error",
        ("K302", "inconclusive"): "error",
        ("W113", "inconclusive"): "error",
        ("K304", "skip"): "error",
        ("W112", "fail"): "note",
        ("T501", "inconclusive"): "warning",
        ("H205", "warn"): "note",
        ("M401", "pass"): "pass",
        ("H206", "skip"): "skip",
    }


def test_what_stays_open_does_not_block_where_that_is_accepted():
    assert not passing(OPEN)
    assert _levels(OPEN)["K302", "inconclusive"] == _levels(OPEN)["K304", "skip"] == "error"
    assert passing(ACCEPTED)
    assert _levels(ACCEPTED)["K302", "inconclusive"] == _levels(ACCEPTED)["K304", "skip"] == "warning"


def test_an_advisory_failure_is_a_warning():
    assert _levels(replace(READY, findings=(replace(TTFT, deciding=False),))) == {("W110", "fail"): "warning"}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_something_is_an_error_exactly_where_the_exit_code_is_not_0(name):
    report = REPORTS[name]
    assert any(i.level == "error" for i in issues(report)) == (not passing(report))


def test_a_verdict_that_no_finding_explains_is_an_error_itself():
    [cut] = worth_telling(REPORTS["cut short"])
    assert (cut.finding.rule, cut.level, cut.page) == ("verdict", "error", None)
    assert cut.text == "READY: chat-prod\nmissing: Ctrl-C"
    [open_] = worth_telling(REPORTS["undecided"])
    assert open_.text == "INCONCLUSIVE: chat-prod"


def test_worst_first_and_only_what_somebody_should_look_at():
    told = [i.finding.rule for i in worth_telling(REPORT)]
    assert told[0] == "W110"
    assert set(told) == {"W110", "K302", "W113", "T501", "H205", "W112", "waiver", "K304"}
    assert worth_telling(READY) == ()


def test_waivers_are_told_of_by_name():
    said = {i.finding.title: i for i in issues(REPORT) if i.finding.rule == "waiver"}
    assert said["expired"].level == "error"
    assert said["expired"].name == "waiver expired [H206]"
    assert said["not needed"].level == "warning"
    assert said["not needed"].summary == "M420 (chat.yaml:40:5)"
    assert {i.level for i in issues(replace(ACCEPTED, findings=())) if i.finding.rule == "waiver"} == {"warning"}


def test_names_and_fingerprints_are_each_one_s_own():
    twins = (
        GOOD,
        replace(GOOD, why="Panel 'TTFT 2' shows it."),
        TTFT,
        KV,
        CACHED,
        VOIDED,
        EAGER,
        ABSENT,
        UNSEEN,
        WAIVED,
    )
    found = issues(replace(REPORT, findings=twins))
    assert len({i.name for i in found}) == len({i.fingerprint for i in found}) == len(found)
    assert {i.name for i in found if i.finding.rule == "M401"} == {"M401 TTFT is covered", "M401 TTFT is covered (2)"}


def test_a_text_tells_what_a_card_tells():
    text = next(i.text for i in issues(REPORT) if i.finding.rule == "W110")
    assert text.splitlines() == [
        TTFT.why,
        "measured: TTFT p95 2.4 s (95 % interval 2.312 to 2.52 s; n=200)",
        "required: TTFT p95 1.5 s (declared)",
        "change: raise --max-num-batched-tokens from 2048 to 8192",
        "change: add a replica",
    ]


def test_a_finding_without_a_place_points_to_the_head_of_the_profile():
    [issue] = issues(replace(READY, findings=(replace(TTFT, where=None),)))
    assert issue.place == Location("chat.yaml", 1)
    [nowhere] = issues(replace(READY, findings=(TTFT,), evidence=replace(EVIDENCE, lines={})))
    assert nowhere.place == TTFT.where
    [lost] = issues(replace(BARE, findings=(replace(TTFT, where=None),)))
    assert lost.place is None


@pytest.mark.parametrize(
    ("file", "shown"),
    [("./a/b.yaml", "a/b.yaml"), ("..\\b.yaml", "../b.yaml"), ("/abs/b.yaml", "/abs/b.yaml"), ("", "profile")],
)
def test_paths(file, shown):
    assert path(Location(file, 1)) == shown


def test_hostile_text_is_lines_of_harmless_words():
    for issue in issues(hostile()):
        for part in (issue.name, issue.summary, *(text for _, text in issue.details)):
            assert part.isprintable()
            assert len(part) < 2000
