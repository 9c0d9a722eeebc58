"""Levels of load over real sockets in virtual time: the nearest that passes, and the search for the highest."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from scenario import HEALTHY, Scenario, changed

from auditor.capacity import Wanted, capacity
from auditor.emulator.clock import run_virtual
from auditor.emulator.server import Emulator
from auditor.emulator.spec import spec_from
from auditor.loading import load_profile
from auditor.points import Capacity
from auditor.report.renderers import RENDERERS
from auditor.run import Options, declare, judge

pytestmark = pytest.mark.slow

SHORT = {
    "traffic.classes.0.prompt_tokens": {"p50": 60, "p95": 90, "max": 120},
    "traffic.classes.0.output_tokens": {"p50": 6, "p95": 8, "max": 10},
    "slo": {"e2e": {"p95": "250ms"}, "error_rate": "10%"},
}


def test_an_audit_that_fails_under_load_says_what_would_pass(tmp_path: Path) -> None:
    changes = {**SHORT, "traffic.target_concurrency": 32, "probe.budget.requests": 900}
    outcome = Scenario(profile=changes).run(tmp_path, save=tmp_path / "run")
    report, nearest = outcome.report, outcome.report.evidence.nearest
    assert report.verdict == "NOT READY"
    assert nearest is not None
    assert nearest.found is not None, nearest.sentence
    assert (nearest.found.level.flight or 0) < 32
    sent = len(outcome.record.requests)
    assert sent <= 900
    again = judge(tmp_path / "run", profile=None, options=Options())
    assert again.evidence.nearest == nearest
    for name, render in RENDERERS.items():
        assert render(again) == render(report), name


async def _searched(path: Path, wanted: Wanted, cancel_at: str | None = None) -> Capacity:
    loaded = load_profile(path)
    facts = declare(loaded, Options(offline=True))
    assert facts.geometry is not None
    assert facts.device is not None
    assert facts.settings is not None
    emulator = Emulator(spec_from(loaded.profile, facts.geometry, facts.device, facts.settings))
    await emulator.start()
    task = asyncio.current_task()

    def listen(event: Any) -> None:
        if cancel_at and event.kind == "request" and event.load == cancel_at and event.done == 10 and task:
            task.cancel()

    try:
        endpoint = replace(loaded.profile.endpoint, url=emulator.url)
        loaded = replace(loaded, profile=replace(loaded.profile, endpoint=endpoint))
        return await capacity(loaded, wanted, listen)
    finally:
        await emulator.stop()


def _profile(tmp_path: Path, changes: dict[str, Any]) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(changed(HEALTHY, {**SHORT, **changes})))
    return path


def test_capacity_is_found_over_sockets_and_its_run_can_be_judged(tmp_path: Path) -> None:
    path = _profile(tmp_path, {"traffic.target_concurrency": 32, "probe.budget.requests": 900})
    found = run_virtual(_searched(path, Wanted(save=tmp_path / "run")))
    assert found.bracket.failed == 32
    assert found.bracket.passed is not None
    assert found.exit_code == 1
    assert found.requests <= 900
    report = judge(tmp_path / "run", profile=None, options=Options(only=("W",)))
    assert report.verdict == "NOT READY"
    assert report.evidence.nearest is not None
    assert report.evidence.nearest.found is not None
    assert report.evidence.nearest.found.level.flight == found.bracket.passed


def test_ctrl_c_tells_what_was_measured(tmp_path: Path) -> None:
    path = _profile(tmp_path, {"traffic.target_concurrency": 4, "probe.budget.requests": 900})
    found = run_virtual(_searched(path, Wanted(), cancel_at="slo@8"))
    assert found.interrupted
    assert found.exit_code == 130
    assert [p.level.flight for p in found.points] == [4, 8]
    assert found.points[0].status == "pass"
