"""One audit of one emulated deployment, whole, in virtual time: client and server share a loop and real sockets."""

import copy
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from auditor.emulator.clock import run_virtual
from auditor.emulator.record import Record
from auditor.emulator.server import Emulator
from auditor.emulator.spec import Faults, Spec, spec_from
from auditor.evidence import Finding, Report
from auditor.loading import load_profile
from auditor.run import Options, audit, declare
from tests.spread import workers

ROOT = Path(__file__).parents[2]

HEALTHY: dict[str, Any] = {
    "version": 1,
    "name": "scenario",
    "endpoint": {"url": "emulator", "engine": "vllm"},
    "deployment": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "accelerator": "rtx-4090",
        "quantization": "fp8",
        "engine_version": "0.18.0",
        "max_model_len": 4096,
        "max_num_seqs": 64,
        "gpu_memory_utilization": 0.92,
    },
    "traffic": {
        "target_concurrency": 8,
        "optimize_for": "tps",
        "classes": [
            {
                "name": "chat",
                "prompt_tokens": {"p50": 150, "p95": 300, "max": 400},
                "output_tokens": {"p50": 40, "p95": 60, "max": 80},
            }
        ],
    },
    "slo": {"ttft": {"p95": "1500ms"}, "tps": {"p05": "20/s"}, "e2e": {"p95": "20s"}, "error_rate": "10%"},
    "probe": {"budget": {"duration": "10m", "requests": 220, "tokens": "1M"}},
    "monitoring": {
        "dashboards": [str(ROOT / "profiles/monitoring/embedded-panels.json")],
        "rules": [str(ROOT / "profiles/monitoring/embedded-alerts.yaml")],
    },
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an audit said, and what the emulator really did."""

    report: Report
    record: Record

    def status(self, question: str) -> str:
        return next(q.status for q in self.report.questions if q.question == question)

    def statuses(self) -> dict[str, str]:
        return {q.question: q.status for q in self.report.questions if q.asked}

    def of(self, rule: str) -> list[Finding]:
        return [finding for finding in self.report.findings if finding.rule == rule]

    def rules(self, *statuses: str) -> set[str]:
        return {finding.rule for finding in self.report.findings if finding.status in statuses}


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with dotted keys replaced; None removes a key."""
    data: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *parents, last = path.split(".")
        node: Any = data
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
        if value is None:
            node.pop(last, None)
        elif isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Changes to the healthy profile, what the emulator does wrong, and what it serves otherwise than declared."""

    profile: Mapping[str, Any] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    served: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=lambda: HEALTHY)

    def run(self, folder: Path, **options: Any) -> Outcome:
        path = folder / "profile.yaml"
        path.write_text(yaml.safe_dump(changed(self.base, self.profile)))
        return run_virtual(_audited(path, lambda spec: replace(spec, faults=self.faults, **self.served), options))


@contextmanager
def running(
    scenarios: Mapping[str, Scenario], request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Future[Outcome]]]:
    """The scenarios of those tests that were chosen, by the tests' names, on all cores at once."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    with workers() as pool:
        yield {name: pool.submit(_outcome, scenario) for name, scenario in scenarios.items() if name in chosen}


def _outcome(scenario: Scenario) -> Outcome:
    with TemporaryDirectory() as folder:
        return scenario.run(Path(folder))


async def _audited(path: Path, twist: Callable[[Spec], Spec], options: Mapping[str, Any]) -> Outcome:
    loaded = load_profile(path)
    facts = declare(loaded, Options(offline=True))
    assert facts.geometry is not None, facts.geometry_error
    assert facts.device is not None, facts.device_error
    assert facts.settings is not None
    emulator = Emulator(twist(spec_from(loaded.profile, facts.geometry, facts.device, facts.settings)))
    await emulator.start()
    try:
        endpoint = replace(loaded.profile.endpoint, url=emulator.url)
        loaded = replace(loaded, profile=replace(loaded.profile, endpoint=endpoint))
        report = await audit(loaded, Options(**options), lambda _event: None)
    finally:
        await emulator.stop()
    return Outcome(report, emulator.record)
