"""Rows of several requests: the product's samples and findings beside the naive reader's table and gate."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from auditor import slo
from auditor.evidence import Evidence, Report
from auditor.measurement import Measurement
from auditor.profile import Slo
from auditor.testing import make_evidence, make_profile, run_check
from auditor.validity import family
from auditor.verdict import decide
from checks.workload_shape import CHECK
from tests.wire import naive
from tests.wire.byteserver import ByteServer
from tests.wire.pitfalls import Row, Scripted, measure, naive_bench

__all__ = ["LIMIT", "audited", "bench_row", "evidence_of", "gate", "report_of", "statuses"]

LIMIT = 0.2  # seconds of TTFT at p95 that rows allow unless they say otherwise
Extra = Callable[[Measurement, ByteServer], Mapping[str, Any]]


def evidence_of(measurement: Measurement, limits: Slo) -> Evidence:
    """Evidence of one load at its own target, judged on `limits`."""
    profile = make_profile(slo=limits)
    traffic = replace(profile.traffic, target_concurrency=measurement.load.concurrency)
    profile = replace(profile, traffic=traffic)
    return make_evidence(profile=profile, measurements=(measurement,))


def report_of(evidence: Evidence) -> Report:
    """The audit of the first question."""
    findings = [*family.judge(evidence), *run_check(CHECK, evidence)]
    return decide(findings, (CHECK,), evidence.profile, evidence, today=evidence.today, only=("W",))


def statuses(evidence: Evidence, *, per_subject: bool = False) -> dict[str, str]:
    """Each rule's worst status once validity has voided what it could have faked."""
    worst: dict[str, str] = {}
    for found in report_of(evidence).findings:  # worst first
        worst.setdefault(f"{found.rule} {found.subject}" if per_subject else found.rule, found.status)
    return worst


def audited(measurement: Measurement, limit: float = LIMIT, floor: float | None = None) -> dict[str, Any]:
    """What an audit says of a load: findings by rule, TTFT over all requests, the gate's word."""
    evidence = evidence_of(measurement, Slo(ttft={"p95": limit}, tps={"p05": floor} if floor else None))
    (objective,) = evidence.profile.objectives("ttft")
    read = sorted(seconds for _, seconds in slo.readings(evidence, objective))
    found = statuses(evidence)
    return found | {
        "verdict": found["W110"],
        "sent": len(measurement.judged),
        "failed": sum(not s.good for s in measurement.judged),
        "attained": sum(x <= limit for x in read) / len(read) if read else None,
        "p50": read[math.ceil(0.5 * len(read)) - 1] if read else None,
        "p95": read[math.ceil(0.95 * len(read)) - 1] if read else None,
    }


def gate(answers: list[naive.Answer], limit: float = LIMIT, floor: float | None = None) -> dict[str, Any]:
    """What the naive reader says of the same."""
    table = naive.summary(answers)
    speed = {"W111": "pass" if 1 / max(a.tpot for a in answers) >= floor else "fail"} if floor else {}
    return speed | {
        "verdict": naive.dependable(answers, limit),
        "sent": table["requests"],
        "failed": 0,
        "attained": sum(a.ttft <= limit for a in answers) / len(answers),
        "p50": table["ttft_p50"],
        "p95": table["ttft_p95"],
    }


def bench_row(
    name: str,
    source: str,
    script: Scripted,
    *,
    requests: int,
    concurrency: int,
    warmup: int = 0,
    limit: float = LIMIT,
    output: int = 4,
    also: Extra | None = None,
    stays: str = "",
    floor: float | None = None,
    load: Mapping[str, Any] | None = None,
    **want: Any,
) -> Row:
    """A load against scripted replies: `want` in the names of `audited`, and of `also`."""

    def ours() -> Mapping[str, Any]:
        got, server = measure(
            script, requests=requests, concurrency=concurrency, warmup=warmup, output=output, load=load
        )
        told = audited(got, limit, floor)
        return told | {"peak": server.peak} | dict(also(got, server) if also else {})

    def theirs() -> Mapping[str, Any]:
        answers, _, server = naive_bench(script, requests=requests, concurrency=concurrency, output_tokens=output)
        return gate(answers, limit, floor) | {"peak": server.peak}

    return Row(name=name, source=source, want=want, ours=ours, naive=theirs, stays=stays)
