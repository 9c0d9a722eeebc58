"""Presets: what they spend beside what a profile allows."""

import json
import sys
from dataclasses import replace

import pytest

from auditor.__main__ import main
from auditor.loading import load_profile
from auditor.plan.presets import with_preset
from auditor.profile import Budget


@pytest.fixture
def profile():
    loaded = load_profile("embedded").profile
    return replace(loaded, probe=replace(loaded.probe, confidence=0.95, budget=Budget(duration=900.0, requests=300)))


def test_a_pipeline_spends_no_more_than_the_profile_allows(profile):
    found = with_preset(profile, "ci").probe
    assert found.budget == Budget(duration=300.0, requests=300, tokens=2_000_000)
    assert found.confidence == 0.95


def test_a_launch_spends_no_less_and_is_surer(profile):
    found = with_preset(profile, "launch").probe
    assert found.budget == Budget(duration=3600.0, requests=20_000, tokens=100_000_000)
    assert found.confidence == 0.99


def test_nothing_else_changes(profile):
    surer = replace(profile, probe=replace(profile.probe, confidence=0.999, seed=7, allow_load=True))
    found = with_preset(surer, "launch")
    assert found.probe.confidence == 0.999
    assert replace(found, probe=surer.probe) == surer
    assert (found.probe.seed, found.probe.allow_load) == (7, True)


def test_an_audit_keeps_the_budget_that_it_was_given(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["audit", "run", "embedded", "--offline", "--preset", "ci", "-o", "json=-"])
    with pytest.raises(SystemExit):
        main()
    probe = json.loads(capsys.readouterr().out)["evidence"]["profile"]["probe"]
    assert probe["budget"] == {"duration": 85.0, "requests": 600, "tokens": 2_000_000}
