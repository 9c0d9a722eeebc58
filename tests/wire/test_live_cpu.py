"""`accelerator: this-cpu` on engines that run on this machine: by hand, after starting them as tests/wire/profiles say.

    AUDIT_VLLM_URL=http://127.0.0.1:8801/v1 pytest -m engine tests/wire/test_live_cpu.py

An engine whose variable is not set is skipped.
"""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.evidence import Report
from auditor.loading import load_profile
from auditor.report.renderers import RENDERERS
from auditor.run import Options, audit, judge
from auditor.theory import physics
from tests.wire.test_live_engines import VARIABLES
from tests.wire.test_recorded_audits import HERE

pytestmark = pytest.mark.engine
SAVED: dict[str, tuple[Report, Path]] = {}
# What a profiler saw: llama.cpp is in dot products of quantised weights nine tenths of the time, a step of vLLM's tiny
# model takes a hundred times as long as its bytes, and its prompts grow with their tokens.
TRUTH = {
    "vllm": {"prefill": "compute", "decode": "overhead"},
    "llamacpp": {"prefill": "compute", "decode": "compute"},
}


@pytest.fixture(params=["vllm", "llamacpp"])
def audited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """One audit of an engine that runs, against this machine's CPU, and where it is saved."""
    name = request.param
    url = os.environ.get(VARIABLES[name])
    if url is None:
        pytest.skip(f"{VARIABLES[name]} is not set")
    if name not in SAVED:
        loaded = load_profile(HERE / f"profiles/{name}.yaml")
        profile, folder = loaded.profile, tmp_path_factory.mktemp(name) / "run"
        endpoint = replace(profile.endpoint, url=url)
        deployment = replace(profile.deployment, accelerator="this-cpu")
        loaded = replace(loaded, profile=replace(profile, endpoint=endpoint, deployment=deployment))
        SAVED[name] = asyncio.run(audit(loaded, Options(save=folder), lambda _event: None)), folder
    return SAVED[name]


def test_nothing_measured_beats_the_limit(audited: tuple[Report, Path]) -> None:
    evidence = audited[0].evidence
    assert evidence.theory is not None
    assert evidence.prefill_points
    points = evidence.prefill_points, evidence.decode_points
    assert physics.beaten(*evidence.theory, *points, 1.0) == ()
    assert {f.status for f in audited[0].findings if f.rule == "T506"} == {"pass"}


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_each_phase_gets_its_class(audited: tuple[Report, Path], phase: str) -> None:
    """Where other programs disturb the ladder it must say so, and name no class."""
    report = audited[0]
    (found,) = (f for f in report.findings if f.rule == "H202" and f.subject == phase)
    if "scatter" in (found.missing or ""):
        assert found.status == "inconclusive"
        pytest.skip(f"other programs run here: {found.missing}")
    assert f"is bound by {TRUTH[report.evidence.engine][phase]} (measured" in found.why


def test_the_saved_run_gives_the_same_report_without_measuring_again(audited: tuple[Report, Path]) -> None:
    report, folder = audited
    again = judge(folder, profile=None, options=Options())
    assert again.evidence.device == report.evidence.device
    assert {name: render(again) for name, render in RENDERERS.items()} == {
        name: render(report) for name, render in RENDERERS.items()
    }
