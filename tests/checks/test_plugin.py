"""A third party's check, as tests/plugin ships it: loaded by path, judged, explained, and in a verdict of its own."""

import importlib.util
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from auditor import verdict
from auditor.evidence import Check, Evidence
from auditor.profile import Deployment
from auditor.testing import make_evidence, make_measurement, make_sample, run_check, with_slo

PLUGIN = Path(__file__).parents[1] / "plugin"


@pytest.fixture(name="check")
def _check() -> Check:
    """The check that the plugin's own entry point names, without installing it."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["auditor.checks"]["price"].partition(":")
    spec = importlib.util.spec_from_file_location(module, PLUGIN / module / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    found: Check = getattr(loaded, name)
    return found


def priced(per_hour: float | None) -> Evidence:
    """60 replies of 100 tokens in 60 s: 100 tokens a second; at 3.60 an hour a million cost 10."""
    load = make_measurement([make_sample(i) for i in range(60)], duration=60.0)
    evidence = with_slo(make_evidence(), load)
    return replace(evidence, profile=replace(evidence.profile, deployment=Deployment(price_per_hour=per_hour)))


@pytest.mark.parametrize(
    ("per_hour", "status", "said"), [(3.59, "READY", "X pass"), (3.61, "NOT READY", "X"), (None, "INCONCLUSIVE", "X")]
)
def test_its_question_counts_in_the_verdict(check, per_hour, status, said):
    evidence = priced(per_hour)
    report = verdict.decide(run_check(check, evidence), [check], evidence.profile, evidence, today="2026-01-01")
    assert report.verdict == status
    assert said in report.verdict_line


def test_its_rule_has_a_page(check):
    assert check.api == 1
    folder = PLUGIN / check.pages
    assert [page.stem for page in folder.iterdir()] == [rule.id for rule in check.rules]
