"""One saved audit in every format, by the program: the same bytes each time, each within its published schema."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.__main__ import main
from auditor.report.renderers import RENDERERS
from auditor.report.schema import report_schema
from tests.e2e.scenario import Outcome, Scenario
from tests.published import gitlab_schema, junit_schema, problems, sarif_schema

pytestmark = pytest.mark.slow

SLOW = {"slo.ttft": {"p95": "20ms"}, "waivers": [{"rule": "W110", "reason": "known", "expires": "2099-01-31"}]}
FAILING = {"slo.ttft": {"p95": "20ms"}, "monitoring.dashboards": []}


@pytest.fixture(name="kept", scope="module", params=[{}, SLOW, FAILING], ids=["healthy", "waived", "failing"])
def _kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A saved run, and how it came out."""
    folder = tmp_path_factory.mktemp("formats")
    return folder / "run", Scenario(profile=request.param).run(folder, save=folder / "run")


def _written(folder: Path, monkeypatch: pytest.MonkeyPatch, *command: str) -> tuple[int, Mapping[str, bytes]]:
    """The exit code of a command and what it wrote in every format."""
    outputs = [part for name in RENDERERS for part in ("-o", f"{name}={folder / name}")]
    monkeypatch.setattr("sys.argv", ["audit", *command, *outputs])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), {name: (folder / name).read_bytes() for name in RENDERERS}


def test_a_saved_run_gives_the_same_bytes_in_every_format(
    kept: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, outcome = kept
    ran = {name: render(outcome.report).encode("utf-8", "replace") for name, render in RENDERERS.items()}
    for command in (["judge", str(run)], ["judge", str(run)], ["report", str(run)]):
        code, written = _written(tmp_path, monkeypatch, *command)
        assert code == (outcome.report.exit_code if command[0] == "judge" else 0)
        assert [name for name in RENDERERS if written[name] != ran[name]] == []


def test_every_format_fits_its_schema_and_agrees_with_the_exit_code(
    kept: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, outcome = kept
    code, written = _written(tmp_path, monkeypatch, "judge", str(run))
    text = {name: data.decode() for name, data in written.items()}
    assert problems(json.loads(text["json"]), report_schema()) == []
    assert problems(json.loads(text["sarif"]), sarif_schema()) == []
    assert problems(json.loads(text["gitlab"]), gitlab_schema()) == []
    assert list(junit_schema().iter_errors(text["junit"])) == []
    cases = ElementTree.fromstring(text["junit"])
    assert (int(cases.get("failures", 0)) + int(cases.get("errors", 0)) > 0) == (code != 0)
    [sarif] = json.loads(text["sarif"])["runs"]
    assert any(result["level"] == "error" for result in sarif["results"]) == (code != 0)
    assert ("::error" in text["github"]) == (code != 0)
    [exit_code] = [f.samples[0].value for f in text_string_to_metric_families(text["prometheus"]) if "exit" in f.name]
    assert exit_code == code
    requests = list(csv.DictReader(io.StringIO(text["csv"])))
    sent = sum(len(m.samples) + len(m.warmup) for m in outcome.report.evidence.measurements)
    assert len(requests) == sent > 100


def test_no_two_findings_of_an_audit_have_one_rule_and_subject(kept: tuple[Path, Outcome]) -> None:
    """So that fingerprints never depend on the order of findings that share both."""
    found = Counter((finding.rule, finding.subject) for finding in kept[1].report.findings)
    assert [same for same, number in found.items() if number > 1] == []
