"""What the shell offers, asked as the shell asks."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_reports import GOOD, REPORT

from auditor.catalog import accelerators, models
from auditor.cli import complete
from auditor.cli.presets import Preset, beyond
from auditor.loading import shipped_profiles
from auditor.plan.presets import PRESETS


def asked(line, *, folder):
    """The words offered for the last word of a command line."""
    words = line.split(" ")
    environment = {**os.environ, "_AUDIT_COMPLETE": "complete_bash", "COMP_WORDS": line}
    environment["COMP_CWORD"] = str(len(words) - 1)
    environment["PYTHONPATH"] = str(Path(complete.__file__).parents[2])
    command = [sys.executable, "-c", "from auditor.cli.app import program; program([])"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("audit in", ["init"]),
        ("audit explain k30", ["k301", "k302"]),
        ("audit explain T5", ["T501"]),
        ("audit catalog accelerators h100-s", ["h100-sxm"]),
        ("audit catalog engines v", ["vllm"]),
        ("audit fit --accelerator this", ["this-cpu"]),
        ("audit predict --model meta-llama/Llama-3.1-8", ["meta-llama/Llama-3.1-8B-Instruct"]),
        ("audit predict --model llama-3.1-8", ["llama-3.1-8B-Instruct"]),
        ("audit init --accelerator l40", ["l40s"]),
        ("audit run emb", ["embedded"]),
        ("audit run ", ["embedded", "prod.yaml", "deploy/"]),
        ("audit plan deploy/", ["deploy/b.yml"]),
        ("audit run x --preset ", ["ci", "launch"]),
    ],
)
def test_the_shell_is_offered(line, some, tmp_path):
    (tmp_path / "prod.yaml").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "b.yml").touch()
    found = asked(line, folder=tmp_path)
    assert [word for word in some if word not in found] == []
    assert "notes.txt" not in found


def test_every_name_of_the_catalogue_and_every_shipped_profile_is_offered():
    assert set(accelerators.names()) < set(complete.accelerator_names(""))
    assert complete.model_names("meta-llama/Llama-3.1") == [
        name for name in models.names() if name.startswith("meta-llama/Llama-3.1")
    ]
    assert set(shipped_profiles()) <= set(complete.profile_names(""))


def test_what_goes_wrong_is_never_written_into_the_line(monkeypatch):
    monkeypatch.setattr("auditor.catalog.models.names", lambda: 1 / 0)
    assert complete.model_names("l") == []
    assert complete.profile_names("no/such/folder/") == []


def test_the_presets_of_the_command_line_are_those_there_are():
    assert {preset.value for preset in Preset} == set(PRESETS)


def test_who_is_told_to_raise_a_budget_that_a_preset_holds_down_is_told_so():
    told = replace(REPORT, findings=(replace(GOOD, remedies=("raise probe.budget",)),))
    assert "--preset ci holds probe.budget down" in (beyond(Preset.ci, told) or "")
    assert [beyond(Preset.launch, told), beyond(None, told)] == [None, None]
    assert beyond(Preset.ci, replace(REPORT, findings=(GOOD,))) is None
