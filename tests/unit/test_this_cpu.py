"""`accelerator: this-cpu`: who may name it, where it is measured, and that a saved run keeps what was measured."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from auditor import run, store
from auditor.__main__ import main
from auditor.catalog import accelerators
from auditor.errors import ProfileError, UsageError
from auditor.evidence import Evidence
from auditor.instruments.inputs import inputs
from auditor.instruments.load import asked
from auditor.instruments.predict import predict
from auditor.loading import load_profile
from auditor.probe import machine
from auditor.report.predict import render
from auditor.report.renderers import RENDERERS
from auditor.theory.device import Device

CPU = Device(
    key="this-cpu",
    name="this CPU (made up, 2 CPUs)",
    vendor="intel",
    kind="cpu",
    memory_bytes=32 << 30,
    usable_bytes=32 << 30,
    bandwidth=40e9,
    flops={"bf16": 1e12, "fp32": 5e11},
    confidence="C",
    figures={"memory": "A", "bandwidth": "B", "flops": "C"},
    sources=("measured here",),
    caches=((4 << 20, 200e9), (64 << 20, 60e9)),
)
PROFILE = """
version: 1
name: t
endpoint: {url: "http://127.0.0.1:9/v1"}
deployment: {model: meta-llama/Llama-3.2-1B-Instruct, accelerator: this CPU}
traffic: {target_concurrency: 2, classes: [{name: a, prompt_tokens: {p50: 100}, output_tokens: {p50: 100}}]}
slo: {tps: {p05: 1/s}}
"""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The machine is the one above; how often it was measured."""
    times: list[int] = []

    def here() -> Device:
        times.append(1)
        return CPU

    monkeypatch.setattr(machine, "measured", here)
    return times


def saved(tmp_path: Path, text: str = PROFILE) -> tuple[Evidence, Path]:
    (tmp_path / "p.yaml").write_text(text)
    loaded = load_profile(tmp_path / "p.yaml")
    report = asyncio.run(run.audit(loaded, run.Options(offline=True, save=tmp_path / "kept"), lambda _event: None))
    return report.evidence, tmp_path / "kept"


@pytest.mark.parametrize("name", ["this-cpu", "This CPU", "this_cpu"])
def test_the_catalogue_knows_that_it_is_measured(name: str) -> None:
    assert accelerators.is_this_cpu(name)
    with pytest.raises(UsageError, match="the machine that audits, which is measured, not looked up"):
        accelerators.find(name)
    assert not accelerators.is_this_cpu("cpu")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("emulator", True),
        ("http://10.0.0.5:8000/v1", False),
        ("https://api.example.org/v1", False),
    ],
)
def test_only_what_runs_here_is_held_against_this_machine(tmp_path: Path, url: str, allowed: bool) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE.replace("http://127.0.0.1:9/v1", url))
    if allowed:
        assert load_profile(path).profile.deployment.accelerator == "this CPU"
        return
    with pytest.raises(ProfileError, match=r"deployment\.accelerator: is the machine that audits, and the endpoint is"):
        load_profile(path)


def test_an_audit_measures_it_once_and_says_so(tmp_path: Path, measured: list[int]) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE)
    events: list[run.Event] = []
    loaded = load_profile(tmp_path / "p.yaml")
    report = asyncio.run(run.audit(loaded, run.Options(offline=True), events.append))
    assert report.evidence.device == CPU
    assert measured == [1]
    assert any("measure this CPU" in event.text for event in events if event.kind == "stage")


def test_a_saved_run_is_judged_again_without_measuring(tmp_path: Path, measured: list[int]) -> None:
    evidence, folder = saved(tmp_path)
    first = run.conclude(evidence, run.Options())
    again = run.judge(folder, profile=None, options=run.Options())
    assert again.evidence.device == CPU
    assert store.load(folder).device == CPU
    assert {name: render(first) for name, render in RENDERERS.items()} == {
        name: render(again) for name, render in RENDERERS.items()
    }
    other = run.judge(folder, profile=tmp_path / "p.yaml", options=run.Options())
    assert other.evidence.device == CPU
    assert measured == [1]


def test_another_machine_is_not_taken_for_the_one_of_the_run(tmp_path: Path, measured: list[int]) -> None:
    _, folder = saved(tmp_path, PROFILE.replace("this CPU", "h100-sxm"))
    report = run.judge(folder, profile=tmp_path / "p.yaml", options=run.Options())
    assert report.evidence.device is not None
    (tmp_path / "p.yaml").write_text(PROFILE)
    report = run.judge(folder, profile=tmp_path / "p.yaml", options=run.Options())
    assert report.evidence.device is None
    assert "the saved run did not measure this CPU" in (report.evidence.device_error or "")
    assert measured == []


def test_rows_mean_it_only_where_something_measures() -> None:
    row = {"model": "llama-3.2-1b", "accelerator": "this-cpu", "engine": "llama.cpp"}
    found = inputs(row, here=lambda: CPU)
    assert (found.device, found.sources["device"]) == (CPU, "measured here")
    assert "is measured, not looked up" in inputs(row).no_device


def test_this_machine_is_one(tmp_path: Path) -> None:
    row = {"model": "llama-3.2-1b", "accelerator": "this-cpu", "engine": "llama.cpp", "count": 2}
    with pytest.raises(UsageError, match=r"^count: 2, but this-cpu is one machine with all of its cores$"):
        inputs(row, here=lambda: CPU)
    with pytest.raises(UsageError, match=r"^count: 2, but this-cpu"):
        inputs(row | {"tensor_parallel": 2, "engine": "vllm"}, here=lambda: CPU)
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE.replace("accelerator:", "count: 2, accelerator:"))
    with pytest.raises(ProfileError, match=r"deployment\.count: 2, but this-cpu is one machine"):
        load_profile(path)


def test_a_prediction_reads_what_no_cache_holds_from_memory() -> None:
    """Llama-3.2-1B in 16 bit: 1.236e9 x 2 = 2.47 GB less the 67 MB that stay, over 40 GB/s: 60.1 ms."""
    row = {"model": "llama-3.2-1b", "accelerator": "this-cpu", "engine": "llama.cpp", "context_tokens": 1}
    answer = predict(*asked(row, here=lambda: CPU))
    assert answer.decode is not None
    assert answer.decode.least == pytest.approx(60.1e-3, rel=0.01)
    small = predict(*asked(row, here=lambda: replace(CPU, caches=((4 << 30, 200e9),))))
    assert small.decode is not None
    assert small.decode.least == pytest.approx(12.36e-3, rel=0.01)


def test_a_ridge_with_caches_is_told_as_such() -> None:
    """2.40 GB of 2.47 come from memory at 40 GB/s: 41.1 GB/s in all, and 1e12 over that 24.3 FLOP/byte, not 25."""
    row = {"model": "llama-3.2-1b", "accelerator": "this-cpu", "engine": "llama.cpp", "context_tokens": 1}
    text = " ".join(render(predict(*asked(row, here=lambda: CPU))).split())
    assert "ridge, FLOP/byte 24.3" in text
    assert (
        "the ridge is 1 TFLOP/s of bf16 over 40 GB/s of memory, and more where caches hold a part (provisional)" in text
    )
    assert "flops of this CPU (made up, 2 CPUs) are worked out from its instruction set, an upper bound" in text
    assert "in dispute" not in text


def test_the_catalogue_measures_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], measured: list[int]
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "catalog", "accelerators", "this-cpu", "--json"])
    with pytest.raises(SystemExit):
        main()
    shown = json.loads(capsys.readouterr().out)
    assert (shown["key"], shown["bandwidth"], shown["figures"]["flops"]) == ("this-cpu", 40e9, "C")
    assert measured == [1]


def test_lint_does_not_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], measured: list[int]
) -> None:
    (tmp_path / "p.yaml").write_text(PROFILE)
    monkeypatch.setattr(machine, "unmeasured", lambda: CPU)
    monkeypatch.setattr(sys, "argv", ["audit", "lint", str(tmp_path / "p.yaml")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert (stop.value.code or 0, measured) == (0, [])
    assert "warning" not in capsys.readouterr().err
