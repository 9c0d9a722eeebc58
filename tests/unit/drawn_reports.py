"""Judged reports of the healthy made deployment and of worse ones, for tests of the pictures and the page."""

import math
from dataclasses import replace
from functools import cache

from auditor import judgement, plugins, verdict
from auditor.evidence import Coverage, CoverageItem, Evidence, Finding, Report
from auditor.measurement import Histogram, Measurement, Snapshot
from auditor.profile import Lengths, Slo, TrafficClass
from auditor.testing import make_evidence, make_measurement, make_profile, make_sample, with_slo
from auditor.watch import Agreement, Observed

__all__ = ["failing", "healthy", "offline", "report_of", "stopped", "unasked"]


def report_of(evidence: Evidence, interrupted: str | None = None) -> Report:
    """The report on evidence, judged by the shipped checks."""
    found, checks = judgement.findings(evidence), plugins.load_checks()
    return verdict.decide(found, checks, evidence.profile, evidence, today=evidence.today, interrupted=interrupted)


@cache
def healthy() -> Report:
    """Every question passes."""
    return report_of(make_evidence())


@cache
def offline() -> Report:
    """Nothing was sent."""
    return report_of(make_evidence(measurements=(), served=None, plan=None, offline=True))


@cache
def unasked() -> Report:
    """Question M is left out."""
    evidence = make_evidence()
    monitoring = replace(evidence.profile.monitoring, required=False)
    return report_of(replace(evidence, profile=replace(evidence.profile, monitoring=monitoring), coverage=None))


@cache
def stopped() -> Report:
    """Ctrl-C after forty requests."""
    samples = make_measurement().samples[:40]
    cut = replace(make_measurement(samples), stopped="interrupted")
    return report_of(make_evidence(measurements=(cut,)), interrupted="interrupted")


@cache
def failing() -> Report:
    """Slow, with failures and preemptions, two classes, an SLO for each, and panels of names that are gone."""
    told = Agreement(
        quantity="mean TTFT", load="slo", server=1.2, client=2.4, unit="s", verdict="differs", note="1.2 s in the queue"
    )
    seen = Histogram(sum=800.0, count=1000.0, buckets=((0.5, 600.0), (1.0, 900.0), (2.5, 940.0), (math.inf, 1000.0)))
    users = Observed(source="the metrics page", window=None, histograms={"prompt_len": seen, "ttft": seen})
    report = report_of(replace(with_slo(_wanting(), _overloaded()), truth=(told,), observed=users))
    return replace(report, findings=tuple(map(_told_apart, report.findings)))


def _told_apart(finding: Finding) -> Finding:
    """The parts of a step as ladders tell them that cannot tell two apart."""
    numbers = [replace(n, name=n.name.replace("overhead", "weights or overhead")) for n in finding.numbers]
    return replace(finding, numbers=tuple(numbers)) if finding.rule == "H202" else finding


def _wanting() -> Evidence:
    long = TrafficClass(
        name="a-class-of-long-prompts",
        share=0.3,
        prompt_tokens=Lengths(p50=3000, p95=8000, max=16000),
        output_tokens=Lengths(p50=150, p95=400, max=800),
    )
    profile = make_profile()
    classes = (replace(profile.traffic.classes[0], share=0.7), long)
    slo = replace(profile.slo, ttft={"p50": 0.5, "p95": 1.5}, classes={long.name: Slo(ttft={"p95": 4.0})})
    rungs = {"ttft": "alerted", "tps": "valid", "memory": "proxy", "waiting": "missing", "preemptions": "parses"}
    items = [CoverageItem(concept=c, rung=rung, dead=("vllm:gone",) * (c == "tps")) for c, rung in rungs.items()]
    traffic = replace(profile.traffic, classes=classes)
    return make_evidence(profile=replace(profile, traffic=traffic, slo=slo), coverage=Coverage(items=tuple(items)))


def _overloaded() -> Measurement:
    samples = [
        make_sample(
            i,
            cls="a-class-of-long-prompts" if i % 3 == 0 else "chat",
            prompt_tokens=4000 + 90 * i if i % 3 == 0 else 300 + 7 * i,
            ttft=0.3 + 0.02 * i,
            tpot=0.03 + 0.0001 * i,
            error="timeout" if i % 20 == 19 else None,
        )
        for i in range(200)
    ]
    usage = [min(1.0, 0.1 * i) for i in range(1, 11)]
    during = [
        Snapshot(at=float(i), phase="during", values={"running": 12.0, "waiting": 3.0 * i, "kv_usage": share})
        for i, share in enumerate(usage, 1)
    ]
    before = Snapshot(at=0.0, phase="before", values={"preemptions": 100.0})
    after = Snapshot(at=12.0, phase="after", values={"preemptions": 117.0})
    return replace(make_measurement(samples), snapshots=(before, *during, after))
