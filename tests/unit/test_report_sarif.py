"""SARIF 2.1.0: its published schema, and what code scanning needs of it."""

import json
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from machine_formats import REPORTS, hostile
from made_reports import EVIDENCE, READY, REPORT, TTFT

from auditor.evidence import Location
from auditor.fingerprints import fingerprints
from auditor.report.sarif import render
from tests.published import problems, sarif_schema


def _run(report):
    [run] = json.loads(render(report))["runs"]
    return run


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_it_fits_the_schema(name):
    assert problems(json.loads(render(REPORTS[name])), sarif_schema()) == []


def test_the_schema_refuses_what_does_not_fit():
    assert problems(json.loads(render(REPORT).replace('"level": "error"', '"level": "fatal"')), sarif_schema())


def test_a_result_points_at_the_profile_s_line():
    result = _run(REPORT)["results"][0]
    assert result["ruleId"] == "W110"
    assert result["level"] == "error"
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "chat.yaml", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 31, "startColumn": 12},
            }
        }
    ]
    assert result["message"]["text"].startswith("W110 TTFT misses its SLO \\[rag p95\\]: 38 of 200 requests took")
    assert result["properties"]["measured"] == {
        "name": "TTFT p95",
        "value": 2.4,
        "unit": "s",
        "provenance": "measured",
        "low": 2.3125,
        "high": 2.52,
        "n": 200,
    }


def test_every_result_has_a_rule_a_place_and_a_fingerprint_of_its_own():
    run = _run(REPORT)
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [r["ruleId"] for r in run["results"]]
    assert all(result["locations"] for result in run["results"])
    prints = [result["partialFingerprints"]["servingAudit/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints) == 9
    assert fingerprints("chat-prod", [TTFT])[0] == prints[0]
    assert run["results"][0]["partialFingerprints"]["primaryLocationLineHash"] == f"{prints[0]}:1"


def test_what_is_fine_is_no_result_but_a_rule():
    run = _run(READY)
    assert run["results"] == []
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["M401"]


def test_rules_say_where_help_is():
    help_ = {rule["id"]: rule["help"]["text"] for rule in _run(REPORT)["tool"]["driver"]["rules"]}
    assert help_["W110"] == "audit explain W110"
    assert help_["waiver"].startswith("A waiver past its last day covers nothing")


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_result_is_an_error_exactly_where_the_exit_code_is_not_0(name):
    levels = {result["level"] for result in _run(REPORTS[name])["results"]}
    assert ("error" in levels) == (REPORTS[name].exit_code != 0)


def test_a_waived_failure_is_suppressed_and_no_error():
    [waived] = [result for result in _run(REPORT)["results"] if result["ruleId"] == "W112"]
    assert waived["level"] == "note"
    assert waived["suppressions"] == [
        {
            "kind": "external",
            "status": "accepted",
            "justification": "until 2027-01-31 by team-x: the batch job ends in May",
        }
    ]


def test_the_invocation_tells_how_the_audit_ended():
    [ended] = _run(REPORT)["invocations"]
    assert (ended["executionSuccessful"], ended["exitCode"]) == (True, 1)
    [cut] = _run(REPORTS["interrupted"])["invocations"]
    assert (cut["executionSuccessful"], cut["exitCode"]) == (False, 130)
    assert cut["toolExecutionNotifications"] == [{"level": "error", "message": {"text": "Ctrl-C"}}]
    [noted] = _run(replace(READY, evidence=replace(EVIDENCE, problems=("no page",))))["invocations"]
    assert noted["toolExecutionNotifications"] == [{"level": "note", "message": {"text": "no page"}}]


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b/ü.yaml", "a%20b/%C3%BC.yaml"),
        ("/srv/x.yaml", "file:///srv/x.yaml"),
        ("C:\\x\\y.yaml", "file:///C:/x/y.yaml"),
        ("//evil/x.yaml", "file:////evil/x.yaml"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("../up.yaml", "../up.yaml"),
    ],
)
def test_paths_are_uris(file, uri):
    report = replace(REPORT, findings=(replace(TTFT, where=Location(file, 3)),))
    artifact = _run(report)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == uri
    assert urlsplit(uri).scheme in ("", "file")


def test_hostile_text_holds_no_links():
    run = _run(hostile())
    for result in run["results"]:
        assert "[x]" not in result["message"]["text"]
        assert "\\[x\\](http://evil)" in result["message"]["text"]
    assert len(render(hostile())) < 200_000
