"""GitLab's code quality report: its format, and severities that agree with the verdict."""

import json

import pytest
from machine_formats import ACCEPTED, REPORTS
from made_reports import READY, REPORT, TTFT

from auditor.fingerprints import fingerprints
from auditor.report.gitlab import render
from tests.published import gitlab_schema, problems

SCHEMA = gitlab_schema()


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_it_fits_the_format(name):
    assert problems(json.loads(render(REPORTS[name])), SCHEMA) == []


def test_the_format_refuses_what_does_not_fit():
    entry = json.loads(render(REPORT))[0]
    assert problems([{**entry, "severity": "error"}], SCHEMA)
    assert problems([{**entry, "location": {"path": "./chat.yaml", "lines": {"begin": 1}}}], SCHEMA)


def test_an_entry():
    assert json.loads(render(REPORT))[0] == {
        "description": f"W110 TTFT misses its SLO [rag p95]: {TTFT.why}",
        "check_name": "W110",
        "fingerprint": fingerprints("chat-prod", [TTFT])[0],
        "severity": "blocker",
        "location": {"path": "chat.yaml", "lines": {"begin": 31}},
    }


def test_severities():
    found = {entry["check_name"]: entry["severity"] for entry in json.loads(render(REPORT))}
    assert found["K302"] == found["K304"] == "critical"
    assert (found["T501"], found["H205"], found["W112"]) == ("minor", "info", "info")
    accepted = {entry["check_name"]: entry["severity"] for entry in json.loads(render(ACCEPTED))}
    assert accepted["K302"] == "minor"


def test_a_waiver_is_told_with_its_finding():
    [waived] = [entry for entry in json.loads(render(REPORT)) if entry["check_name"] == "W112"]
    assert waived["description"].endswith(" (waived until 2027-01-31 by team-x: the batch job ends in May)")


def test_nothing_to_look_at_is_an_empty_array():
    assert render(READY) == "[]\n"


def test_fingerprints_are_each_one_s_own():
    prints = [entry["fingerprint"] for entry in json.loads(render(REPORT))]
    assert len(set(prints)) == len(prints)
