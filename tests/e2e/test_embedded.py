"""The shipped embedded profile, changed in one place: exactly the question concerned must flip."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.scenario import ROOT, Outcome, Scenario, changed

EMBEDDED = changed(
    yaml.safe_load((ROOT / "profiles/embedded.yaml").read_text()),
    {
        "monitoring.dashboards": [str(ROOT / "profiles/monitoring/embedded-panels.json")],
        "monitoring.rules": [str(ROOT / "profiles/monitoring/embedded-alerts.yaml")],
    },
)
POOL = 102_000  # tokens, about what the embedded deployment serves

CHANGES: dict[str, tuple[Scenario, str]] = {
    "half the pool": (Scenario(base=EMBEDDED, served={"pool_tokens": POOL // 2}), "K"),
    "twice the target": (Scenario(base=EMBEDDED, profile={"traffic.target_concurrency": 128}), "K"),
    "a tighter TTFT": (Scenario(base=EMBEDDED, profile={"slo.ttft": {"p95": "60ms"}}), "W"),
    "a higher TPS": (Scenario(base=EMBEDDED, profile={"slo.tps": {"p05": "60/s"}}), "W"),
    "a tighter E2E": (Scenario(base=EMBEDDED, profile={"slo.e2e": {"p95": "4s"}}), "W"),
    "no panels": (Scenario(base=EMBEDDED, profile={"monitoring.dashboards": []}), "M"),
}


def statuses(outcome: Outcome) -> dict[str, str]:
    return outcome.statuses()


@pytest.mark.slow
def test_embedded_is_ready(tmp_path: Path) -> None:
    outcome = Scenario(base=EMBEDDED).run(tmp_path)
    bad: dict[str, Any] = {f.rule: f.why for f in outcome.report.findings if f.status in ("fail", "inconclusive")}
    assert outcome.report.exit_code == 0, bad


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_one_change_flips_one_question(name: str, tmp_path: Path) -> None:
    scenario, question = CHANGES[name]
    outcome = scenario.run(tmp_path)
    expected = {"W": "pass", "H": "pass", "K": "pass", "M": "pass"} | {question: "fail"}
    seen = {f"{f.rule} {f.subject} {f.status}: {f.why}" for f in outcome.report.findings if f.status != "pass"}
    assert outcome.statuses() == expected, seen
    assert outcome.report.exit_code == 1
