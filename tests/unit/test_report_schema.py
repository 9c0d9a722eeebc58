"""`audit schema report`: what `-o json` writes fits it, and nothing else does."""

import copy
import json

import pytest
from machine_formats import REPORTS
from made_reports import REPORT, TTFT

from auditor.__main__ import main
from auditor.fingerprints import fingerprints
from auditor.report.json import render
from auditor.report.schema import report_schema
from tests.published import problems

DATA = json.loads(render(REPORT))


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_report_fits(name):
    assert problems(json.loads(render(REPORTS[name])), report_schema()) == []


def _changed(path, value):
    """The report with the value at a path of keys changed, or left out."""
    data = copy.deepcopy(DATA)
    *parents, last = path
    place = data
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["verdict"], "MAYBE"),
        (["findings"], None),
        (["extra"], 1),
        (["exit_code"], "1"),
        (["findings", 0, "fingerprint"], None),
        (["findings", 0, "severity"], "grave"),
        (["evidence", "metrics_version"], None),
        (["evidence", "measurements", 0, "ttft"], {"p95": "slow"}),
        (["evidence", "measurements", 0, "samples"], []),
        (["evidence", "plan", "loads", 0, "requests"], "many"),
    ],
)
def test_what_is_changed_does_not_fit(path, value):
    assert problems(_changed(path, value), report_schema())


def test_a_finding_has_its_fingerprint():
    [mark] = [f["fingerprint"] for f in DATA["findings"] if f["rule"] == "W110"]
    assert mark == fingerprints("chat-prod", [TTFT])[0]


def test_infinite_numbers_are_words():
    assert DATA["evidence"]["measurements"][0]["ttft"]["p95"] == "inf"


def test_the_command_prints_it(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["audit", "schema", "report"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert json.loads(capsys.readouterr().out) == report_schema()
