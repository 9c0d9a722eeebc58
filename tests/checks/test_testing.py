"""The helpers for authors of checks: a healthy deployment on which everything passes, and one rule run alone."""

import pytest

from auditor import verdict
from auditor.testing import make_evidence, make_measurement, make_sample, run_check
from auditor.validity import family
from checks import bottleneck, kv_capacity, monitoring, workload_shape

CHECKS = (workload_shape.CHECK, bottleneck.CHECK, kv_capacity.CHECK, monitoring.CHECK)


def test_the_healthy_deployment_is_ready():
    evidence = make_evidence()
    findings = [*family.judge(evidence), *(f for check in CHECKS for f in run_check(check, evidence))]
    report = verdict.decide(findings, CHECKS, evidence.profile, evidence, today=evidence.today)
    assert [f for f in report.findings if f.status in ("fail", "inconclusive", "warn")] == []
    assert report.verdict == "READY"


def test_deciding_rules_of_the_healthy_deployment_all_pass():
    found = [f for check in CHECKS for f in run_check(check, make_evidence())]
    assert {f.status for f in found if f.deciding} == {"pass"}


def test_fields_are_replaced_by_name():
    assert make_evidence(device=None).device is None
    with pytest.raises(TypeError):
        make_evidence(no_such_field=1)


def test_a_sample_follows_its_times():
    """40 ms, then 99 gaps of 9.6 ms: 0.9904 s."""
    sample = make_sample()
    assert sample.e2e == pytest.approx(0.9904)
    assert sample.tps == pytest.approx(1 / 0.0096)
    assert make_sample(error="timeout", ttft=None).arrivals == ()


def test_the_healthy_load_keeps_its_concurrency():
    measurement = make_measurement()
    starts = [s.start for s in measurement.samples]
    assert starts[:16] == [0.0] * 16
    assert all(start > 0 for start in starts[16:])
    assert make_measurement(gauges={}, counters={}).snapshots == ()


def test_one_rule_runs_alone():
    assert [f.rule for f in run_check(workload_shape.CHECK, make_evidence(), "W101")] == ["W101"]
    with pytest.raises(ValueError, match="no rule W999 in check W; it has W101, W102"):
        run_check(workload_shape.CHECK, make_evidence(), "W999")
