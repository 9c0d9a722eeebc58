"""Numbers whose definitions changed between two runs are not compared: their difference says nothing of the service."""

import json
import shutil
from pathlib import Path

import pytest

from auditor.__main__ import main
from auditor.evidence import METRICS_VERSION
from tests.e2e.scenario import Scenario

pytestmark = pytest.mark.slow


@pytest.fixture(name="runs", scope="module")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run, itself once more, and one that says that its numbers mean something else."""
    folder = tmp_path_factory.mktemp("definitions")
    Scenario().run(folder, save=folder / "now")
    for copy in ("again", "other"):
        shutil.copytree(folder / "now", folder / copy)
    evidence = folder / "other" / "evidence.json"
    data = json.loads(evidence.read_text())
    evidence.write_text(json.dumps({**data, "metrics_version": METRICS_VERSION + 1}) + "\n")
    return folder


def _told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *command: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["audit", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


def test_a_run_is_compared_with_one_of_the_same_definitions(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = _told(capsys, monkeypatch, "compare", str(runs / "again"), str(runs / "now"))
    assert (code, text.split(":")[0]) == (0, "SAME")


@pytest.mark.parametrize("order", [("other", "now"), ("now", "other")])
def test_a_run_of_other_definitions_is_not_compared(
    order: tuple[str, str], runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = _told(capsys, monkeypatch, "compare", *(str(runs / name) for name in order))
    assert (code, text.split(":")[0]) == (4, "UNCLEAR")
    assert "metrics_version" in text
    assert "TTFT" not in text


def test_a_baseline_of_other_definitions_is_refused_in_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = _told(capsys, monkeypatch, "judge", str(runs / "now"), "--baseline", str(runs / "other"))
    assert code == 2
    assert "metrics_version" in text
    assert len(text.splitlines()) == 1
