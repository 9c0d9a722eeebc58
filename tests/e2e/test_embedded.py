"""The shipped embedded profile, changed in one place: exactly the question concerned must flip."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.scenario import ROOT, Outcome, Scenario, changed, running

PROFILES = ROOT / "profiles"
MONITORING = {
    "monitoring.dashboards": [str(PROFILES / "monitoring/embedded-panels.json")],
    "monitoring.rules": [str(PROFILES / "monitoring/embedded-alerts.yaml")],
}


def shipped(name: str) -> dict[str, Any]:
    """A shipped profile whose panels and alerts are found from anywhere."""
    return changed(yaml.safe_load((PROFILES / f"{name}.yaml").read_text()), MONITORING)


EMBEDDED = shipped("embedded")
POOL = 102_000  # tokens, about what the embedded deployment serves

CHANGES: dict[str, tuple[Scenario, str]] = {
    "half the pool": (Scenario(base=EMBEDDED, served={"pool_tokens": POOL // 2}), "K"),
    "twice the target": (Scenario(base=EMBEDDED, profile={"traffic.target_concurrency": 128}), "K"),
    "a tighter TTFT": (Scenario(base=EMBEDDED, profile={"slo.ttft": {"p95": "60ms"}}), "W"),
    "a higher TPS": (Scenario(base=EMBEDDED, profile={"slo.tps": {"p05": "60/s"}}), "W"),
    "a tighter E2E": (Scenario(base=EMBEDDED, profile={"slo.e2e": {"p95": "4s"}}), "W"),
    "no panels": (Scenario(base=EMBEDDED, profile={"monitoring.dashboards": []}), "M"),
}


HEALTHY = ["embedded", "embedded-decode-heavy"]


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Outcome]]]:
    scenarios = {f"test_one_change_flips_one_question[{name}]": scenario for name, (scenario, _) in CHANGES.items()}
    healthy = {f"test_a_healthy_deployment_is_ready[{name}]": Scenario(base=shipped(name)) for name in HEALTHY}
    with running(healthy | scenarios, request) as outcomes:
        yield outcomes


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_deployment_is_ready(
    name: str, ran: Mapping[str, Future[Outcome]], request: pytest.FixtureRequest
) -> None:
    outcome = ran[request.node.name].result()
    bad: dict[str, Any] = {f.rule: f.why for f in outcome.report.findings if f.status in ("fail", "inconclusive")}
    assert outcome.report.exit_code == 0, bad


@pytest.mark.slow
def test_an_error_rate_that_the_budget_cannot_prove_leaves_only_its_question_open(tmp_path: Path) -> None:
    """0 of 320 failed requests prove less than 1 %, not 0.1 %."""
    outcome = Scenario(base=EMBEDDED, profile={"slo.error_rate": "0.1%"}).run(tmp_path)
    assert outcome.statuses() == {"W": "inconclusive", "H": "pass", "K": "pass", "M": "pass"}
    assert outcome.report.exit_code == 4
    [finding] = outcome.of("W113")
    assert "more good requests" in (finding.missing or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_one_change_flips_one_question(
    name: str, ran: Mapping[str, Future[Outcome]], request: pytest.FixtureRequest
) -> None:
    outcome, question = ran[request.node.name].result(), CHANGES[name][1]
    expected = {"W": "pass", "H": "pass", "K": "pass", "M": "pass"} | {question: "fail"}
    seen = {f"{f.rule} {f.subject} {f.status}: {f.why}" for f in outcome.report.findings if f.status != "pass"}
    assert outcome.statuses() == expected, seen
    assert outcome.report.exit_code == 1


@pytest.mark.slow
def test_the_overloaded_deployment_thrashes_and_misses_its_ttft_and_says_what_to_change(tmp_path: Path) -> None:
    outcome = Scenario(base=shipped("embedded-overloaded")).run(tmp_path)
    assert outcome.statuses() == {"W": "fail", "H": "pass", "K": "fail", "M": "pass"}
    failed = {f.rule: f for f in outcome.report.findings if f.status == "fail"}
    assert {"W110", "K302", "K304"} <= set(failed)
    assert any("--kv-cache-dtype fp8" in remedy for remedy in failed["K302"].remedies)
    assert any("--max-num-seqs" in remedy for remedy in failed["K304"].remedies)
    assert failed["W110"].remedies
    preempted = sum(request.preemptions for request in outcome.record.requests)
    [counted] = [f.measured for f in outcome.of("K304")]
    assert counted is not None
    assert counted.value is not None
    assert 0 < counted.value <= preempted
