"""The program as users start it: its own process, a real socket, a real clock, every exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.scenario import HEALTHY, changed

SMALL = {  # a few seconds of load
    "traffic.target_concurrency": 4,
    "traffic.classes.0.prompt_tokens": {"p50": 60, "p95": 80},
    "traffic.classes.0.output_tokens": {"p50": 10, "p95": 12},
    "slo": {"ttft": {"p95": "2500ms"}, "tps": {"p05": "5/s"}, "error_rate": "10%"},
    "probe.budget": {"duration": "60s", "requests": 120, "tokens": "100k"},
}
# Missed by so much that no lag of a client on a busy machine explains it.
TOO_STRICT = {"slo": {"e2e": {"p95": "20ms"}, "error_rate": "10%"}}


def audit(*arguments: object, cwd: Path, timeout: float = 120, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "80", **environ}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env)


def write(folder: Path, changes: dict[str, Any]) -> Path:
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(changed(HEALTHY, changes)))
    return path


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A small audit that ends READY, saved, with every format written."""
    folder = tmp_path_factory.mktemp("ready")
    write(folder, SMALL)
    done = audit(
        *("run", "profile.yaml", "--save", "kept", "-o", "json=live.json", "-o", "markdown=live.md"), cwd=folder
    )
    return folder, done


@pytest.mark.slow
def test_ready_is_0_and_stdout_is_the_report(ready: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = ready
    assert done.returncode == 0, done.stdout + done.stderr
    line = done.stdout.partition("\n")[0]  # a busy machine makes the emulator's streams halt, which K305 tells
    assert line in (
        "READY: scenario: W pass, H pass, K pass, M pass",
        "READY: scenario: W pass, H pass, K warn (K305), M pass",
    )
    assert "slo: " in done.stderr
    report = json.loads((folder / "live.json").read_text())
    assert report["verdict"] == "READY"
    assert (folder / "live.md").read_text().count("| ") > 4


@pytest.mark.slow
def test_a_saved_run_gives_the_same_bytes(ready: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = ready
    again = audit("judge", "kept", "-o", "json=again.json", "-o", "markdown=again.md", cwd=folder)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    rendered = audit("report", "kept", "-o", "json=third.json", "-o", "markdown=third.md", cwd=folder)
    assert rendered.returncode == 0
    for kind in ("json", "md"):
        live = (folder / f"live.{kind}").read_bytes()
        assert live == (folder / f"again.{kind}").read_bytes()
        assert live == (folder / f"third.{kind}").read_bytes()


@pytest.mark.slow
def test_another_profile_judges_the_same_run(ready: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = ready
    stricter = folder / "stricter.yaml"
    stricter.write_text(yaml.safe_dump(changed(HEALTHY, SMALL | TOO_STRICT)))
    done = audit("judge", "kept", "--profile", "stricter.yaml", cwd=folder)
    assert done.returncode == 1, done.stdout
    assert "FAIL W112" in done.stdout


@pytest.mark.slow
def test_other_traffic_than_was_measured_is_refused(ready: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = ready
    (folder / "heavier.yaml").write_text(yaml.safe_dump(changed(HEALTHY, SMALL | {"traffic.target_concurrency": 400})))
    done = audit("judge", "kept", "--profile", "heavier.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "traffic.target_concurrency is not what the saved run measured" in done.stderr


@pytest.mark.slow
def test_not_ready_is_1(tmp_path: Path) -> None:
    long = {"traffic.classes.0.output_tokens": {"p50": 40, "p95": 48}}
    write(tmp_path, SMALL | TOO_STRICT | long)
    done = audit("run", "profile.yaml", "--only", "W", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("NOT READY: scenario")


def test_offline_is_4_and_sends_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"endpoint.url": "http://127.0.0.1:9/v1"})
    done = audit("run", "profile.yaml", "--offline", cwd=tmp_path)
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stdout.startswith("INCONCLUSIVE: scenario")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"slo.tft": {"p95": "1s"}}, "did you mean"),
        ({"slo.ttft": {"p95": 1500}}, "1500ms"),
        ({"monitoring.dashboards": ["nowhere/panels.json"]}, "nowhere/panels.json"),
    ],
)
def test_a_wrong_profile_is_2_with_its_line(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    write(tmp_path, changes)
    done = audit("run", "profile.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert line in done.stderr
    assert "profile.yaml:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unwritable_output_is_2_before_any_load(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    begun = time.monotonic()
    done = audit("run", "profile.yaml", "-o", "json=/proc/nowhere/report.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "/proc/nowhere/report.json" in done.stderr
    assert "slo:" not in done.stderr
    assert time.monotonic() - begun < 20


def test_an_endpoint_that_is_down_is_3_in_one_line(tmp_path: Path) -> None:
    write(tmp_path, {"endpoint.url": "http://127.0.0.1:9/v1"})
    done = audit("run", "profile.yaml", cwd=tmp_path)
    assert done.returncode == 3
    problems = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(problems) == 1, done.stderr
    assert "127.0.0.1:9" in problems[0]


@pytest.mark.slow
def test_an_interrupt_is_130_and_keeps_what_was_measured(tmp_path: Path) -> None:
    write(tmp_path, SMALL | {"traffic.classes.0.output_tokens": {"p50": 400}, "probe.budget.tokens": "1M"})
    command = [sys.executable, "-m", "auditor", "run", "profile.yaml", "--save", "kept"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        samples = tmp_path / "kept" / "samples-01.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (samples.exists() and samples.stat().st_size):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "scenario" in stdout
    assert "interrupted" in stdout
    kept = [json.loads(line) for line in samples.read_text().splitlines()]
    assert any(sample["error"] is None for sample in kept)
    again = audit("judge", "kept", cwd=tmp_path)
    assert again.stdout == stdout
