"""JUnit XML: its published schema, its counts, and what a pipeline makes of it."""

from xml.etree import ElementTree

import pytest
from machine_formats import ACCEPTED, OPEN, REPORTS, hostile
from made_reports import READY, REPORT

from auditor.report.junit import render
from tests.published import junit_schema


def _cases(report):
    root = ElementTree.fromstring(render(report))
    return {(suite.get("name"), case.get("name")): case for suite in root for case in suite.iter("testcase")}


def _kind(case):
    return [child.tag for child in case]


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_it_fits_the_schema(name):
    assert [str(error) for error in junit_schema().iter_errors(render(REPORTS[name]))] == []


def test_the_schema_refuses_what_does_not_fit():
    assert list(junit_schema().iter_errors(render(READY).replace("<testcase ", "<testcase nonsense='1' ", 1)))


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_it_fails_exactly_where_the_exit_code_is_not_0(name):
    root = ElementTree.fromstring(render(REPORTS[name]))
    failed = int(root.get("failures")) + int(root.get("errors"))
    assert (failed > 0) == (REPORTS[name].exit_code != 0)


def test_counts_are_those_of_the_cases():
    root = ElementTree.fromstring(render(REPORT))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("12", "3", "3")
    [suite] = [suite for suite in root if suite.get("name") == "K KV capacity"]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2",
        "failures": "0",
        "errors": "2",
        "skipped": "0",
    }


def test_each_finding_is_a_case_of_its_question():
    cases = _cases(REPORT)
    failed = cases["W Workload shape", "W110 TTFT misses its SLO [rag p95]"]
    assert failed.get("classname") == "chat-prod.W Workload shape"
    assert _kind(failed) == ["failure"]
    assert failed[0].get("message").startswith("38 of 200 requests took longer than 1.5 s")
    assert "where: chat.yaml:31:12\nmore: audit explain W110\nfingerprint: " in failed[0].text
    assert "change: add a replica" in failed[0].text
    assert _kind(cases["K KV capacity", "K304 Preemption"]) == ["error"]
    assert _kind(cases["H Bottleneck", "H206 Attention backend"]) == ["skipped"]
    assert cases["H Bottleneck", "H206 Attention backend"][0].get("message") == "the server does not tell it"
    waived = cases["W Workload shape", "W112 E2E misses its SLO [rag p95]"]
    assert waived[0].get("message") == "waived until 2027-01-31 by team-x: the batch job ends in May"
    assert _kind(cases["H Bottleneck", "H205 Kernel capture is off"]) == ["system-out"]
    assert _kind(cases["Measurement validity", "T501 Cached prompts"]) == ["system-out"]
    assert _kind(cases["Waivers", "waiver expired [H206]"]) == ["failure"]


def test_a_question_that_was_not_asked_has_an_empty_suite():
    root = ElementTree.fromstring(render(READY))
    [suite] = [suite for suite in root if suite.get("name") == "H Bottleneck"]
    assert suite.get("tests") == "0"


@pytest.mark.parametrize(
    ("report", "tag"), [(READY, "system-out"), (ACCEPTED, "system-out"), (REPORT, "failure"), (OPEN, "error")]
)
def test_the_verdict_is_a_case(report, tag):
    [element] = _cases(report)["Verdict", "verdict"]
    assert element.tag == tag
    assert element.text.startswith(report.verdict_line)


def test_an_interrupted_run_is_an_error():
    [element] = _cases(REPORTS["interrupted"])["Verdict", "verdict"]
    assert element.tag == "error"
    assert "stopped early: Ctrl-C" in element.text


def test_hostile_text_is_text():
    root = ElementTree.fromstring(render(hostile()))
    assert {element.tag for element in root.iter()} <= {
        *("testsuites", "testsuite", "testcase", "properties", "property"),
        *("failure", "error", "skipped", "system-out"),
    }
    assert "<script>alert(1)</script>" in "".join(root.itertext())
