"""Metrics of a report: Prometheus' own readers take them, and they say what the report says."""

import math
import shutil
import subprocess
from dataclasses import replace

import pytest
from machine_formats import BARE, REPORTS, hostile
from made_reports import EVIDENCE, REPORT
from prometheus_client.parser import text_string_to_metric_families

from auditor.compared import Change, Comparison
from auditor.report.prometheus import render


def _series(report):
    """Values by name without prefix and labels without the audit's."""
    families = list(text_string_to_metric_families(render(report)))
    assert {family.type for family in families} == {"gauge"}
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels.pop("audit") for sample in samples} == {report.name} or len(report.name) > 100
    return [(s.name.removeprefix("serving_audit_"), s.labels, s.value) for s in samples]


def _value(report, metric, /, **labels):
    [value] = [v for n, own, v in _series(report) if n == metric and labels.items() <= own.items()]
    return value


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_no_series_comes_twice(name):
    series = [(n, tuple(sorted(labels.items()))) for n, labels, _ in _series(REPORTS[name])]
    assert len(set(series)) == len(series)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("name", sorted(REPORTS))
def test_promtool_finds_nothing_wrong(name):
    command, page = ["promtool", "check", "metrics"], render(REPORTS[name])
    checked = subprocess.run(command, check=False, input=page, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_verdict_and_questions():
    assert _value(REPORT, "verdict", verdict="NOT READY") == 1
    assert _value(REPORT, "verdict", verdict="READY") == 0
    assert _value(REPORT, "exit_code") == 1
    assert _value(REPORT, "question_status", question="W", status="fail") == 1
    assert _value(REPORT, "question_status", question="W", status="pass") == 0
    assert not [labels for n, labels, _ in _series(REPORT) if n == "question_status" and labels["question"] == "M"]
    assert _value(REPORT, "date_seconds") == 1772323200  # date -u -d 2026-03-01 +%s


def test_what_was_audited():
    [labels] = [labels for name, labels, _ in _series(REPORT) if name == "info"]
    assert labels == {
        "version": "0.1.0",
        "engine": "vllm",
        "engine_version": "0.18.0",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
    }


def test_findings_with_their_numbers():
    assert _value(REPORT, "finding", rule="W110", subject="rag p95", status="fail", level="error", waived="false") == 1
    assert _value(REPORT, "finding", rule="W112", status="fail", level="note", waived="true") == 1
    assert _value(REPORT, "measured", rule="W110", name="TTFT p95", unit="s") == 2.4
    assert _value(REPORT, "measured_low", rule="W110") == 2.3125
    assert _value(REPORT, "measured_high", rule="W110") == 2.52
    assert _value(REPORT, "required", rule="W110", unit="s") == 1.5


def test_loads_and_their_failed_requests():
    """Of four requests one failed: it is slower than any, so the median is the second and the p95 infinite."""
    assert _value(REPORT, "requests", load="slo", purpose="slo") == 4
    assert _value(REPORT, "failed_requests", load="slo") == 1
    assert _value(REPORT, "ttft_seconds", load="slo", percentile="p50") == 1.2
    assert _value(REPORT, "ttft_seconds", load="slo", percentile="p95") == math.inf
    assert _value(REPORT, "stream_tokens_per_second", load="slo", percentile="p05") == 0


def test_changes_against_a_baseline():
    slower = Change(metric="ttft", load="slo", status="worse", percentile="p95", change=0.2)
    unknown = Change(metric="e2e", load="slo", status="unclear")
    compared = Comparison(
        name="chat-prod",
        date="2026-03-01",
        baseline=("runs/1",),
        changes=(slower, unknown),
        min_effect=0.1,
        confidence=0.95,
    )
    report = replace(REPORT, evidence=replace(EVIDENCE, compared=compared))
    assert _value(report, "change_ratio", metric="ttft", percentile="p95", status="worse") == 0.2
    assert not [labels for name, labels, _ in _series(report) if labels.get("metric") == "e2e"]


def test_what_was_not_observed_has_no_series():
    names = {name for name, _, _ in _series(BARE)}
    assert names == {"info", "date_seconds", "exit_code", "verdict"}
    names = {name for name, _, _ in _series(replace(REPORT, evidence=replace(EVIDENCE, measurements=())))}
    assert "requests" not in names


def test_labels_are_escaped():
    report = replace(REPORT, name='a"b\\c\n')
    assert 'audit="a\\"b\\\\c"' in render(report)


def test_hostile_text_adds_no_series():
    expected = {line.partition("{")[0] for line in render(REPORT).splitlines()}
    text = render(hostile())
    assert {line.partition("{")[0] for line in text.splitlines()} <= expected
    assert len(text) < 100_000
