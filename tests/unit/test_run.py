"""The pipeline's own promises: a rule that breaks costs its own verdict, not the audit."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from auditor import plugins, run, store
from auditor.errors import NothingMeasured, ToolError
from auditor.evidence import Check, Evidence, Finding, Rule
from auditor.loading import load_profile
from auditor.testing import make_evidence, make_measurement, make_sample, with_slo
from auditor.validity import family


def _fine(_evidence: Evidence) -> list[Finding]:
    return [Finding(rule="X101", status="pass", title="Fine", why="", deciding=True)]


def _breaks(_evidence: Evidence) -> Iterator[Finding]:
    yield Finding(rule="X102", status="pass", title="Half", why="", deciding=True)
    raise ZeroDivisionError("float division by zero")


def _refuses(_evidence: Evidence) -> list[Finding]:
    raise ToolError("a latency below zero")


def _checks(*rules: Rule) -> tuple[Check, ...]:
    return (Check(question="X", title="Made up", rules=rules, pages="."),)


def test_a_rule_that_breaks_is_inconclusive_and_the_others_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = _checks(Rule("X101", "Fine", _fine), Rule("X102", "Half", _breaks))
    monkeypatch.setattr(plugins, "load_checks", lambda: checks)
    report = run.conclude(make_evidence(), run.Options(only=("X",)))
    assert (report.verdict, report.exit_code) == ("INCONCLUSIVE", 4)
    found = {finding.rule: finding for finding in report.findings if finding.rule.startswith("X")}
    assert found["X101"].status == "pass"
    assert found["X102"].status == "inconclusive"
    assert "ZeroDivisionError: float division by zero" in found["X102"].why


def test_a_broken_validity_rule_leaves_every_pass_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Check(question="T", title="Validity", rules=(Rule("T599", "Breaks", _breaks),))
    monkeypatch.setattr(family, "FAMILY", broken)
    monkeypatch.setattr(plugins, "load_checks", lambda: _checks(Rule("X101", "Fine", _fine)))
    report = run.conclude(make_evidence(), run.Options(only=("X",)))
    assert report.verdict == "INCONCLUSIVE"
    [passed] = [finding for finding in report.findings if finding.rule == "X101"]
    assert (passed.status, passed.voided_by) == ("inconclusive", ("T599",))


def test_only_an_endpoint_that_was_never_reached_measures_nothing() -> None:
    def sent(error: str) -> Evidence:
        samples = [make_sample(i, error=error, status=None, ttft=None, e2e=None, arrivals=()) for i in range(3)]
        return replace(with_slo(make_evidence(), make_measurement(samples)), measurements=(make_measurement(samples),))

    with pytest.raises(NothingMeasured, match="none of 3 requests was answered"):
        run._refuse_silence(sent("connect"))
    run._refuse_silence(sent("stalled"))  # it took the requests and hung: a failure of the service, to be judged


def test_a_secret_of_the_profile_judged_with_reaches_no_report(tmp_path: Path) -> None:
    profile = "version: 1\nname: p\nendpoint: {url: 'http://127.0.0.1:9/v1'}\n"
    (tmp_path / "then.yaml").write_text(profile)
    secret = "sk-a-secret-of-the-other-profile"
    (tmp_path / "now.yaml").write_text(profile.replace("v1'}", f"v1', headers: {{x-api-key: {secret}}}}}"))
    then = load_profile(tmp_path / "then.yaml")
    asyncio.run(run.audit(then, run.Options(offline=True, save=tmp_path / "kept"), lambda _event: None))
    report = run.judge(tmp_path / "kept", profile=tmp_path / "now.yaml", options=run.Options())
    assert report.evidence.profile.endpoint.headers.keys() == {"x-api-key"}
    assert secret not in json.dumps(store.plain(report))


def test_a_broken_invariant_of_the_program_ends_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "load_checks", lambda: _checks(Rule("X101", "Refuses", _refuses)))
    with pytest.raises(ToolError, match="a latency below zero"):
        run.conclude(make_evidence(), run.Options(only=("X",)))


def test_a_model_or_accelerator_that_nobody_knows_is_told_before_any_load(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        """
version: 1
name: t
endpoint: {url: "http://127.0.0.1:9/v1"}
deployment: {model: meta-llama/Llama-3.1-8B-Instruct, accelerator: rtx4099}
traffic: {target_concurrency: 4, classes: [{name: a, prompt_tokens: {p50: 10}, output_tokens: {p50: 10}}]}
"""
    )
    events: list[run.Event] = []
    asyncio.run(run.audit(load_profile(path), run.Options(offline=True), events.append))
    [text] = [event.text for event in events if "warning" in event.text]
    assert text.startswith("warning: deployment.accelerator: unknown accelerator 'rtx4099', did you mean rtx-4090")


PRICED = """
version: 1
name: t
endpoint: {url: "http://127.0.0.1:9/v1"}
deployment:
  model: meta-llama/Llama-3.1-8B-Instruct
  accelerator: h100-sxm
  count: 2
  tensor_parallel: 2
  price_per_hour: 5.00
  prices: {H200: 3.80, l4: 0.80}
traffic: {target_concurrency: 4, classes: [{name: a, prompt_tokens: {p50: 1000}, output_tokens: {p50: 100}}]}
"""


def test_accelerators_are_ranked_for_the_target_and_saved(tmp_path: Path) -> None:
    """Two devices at 5.00 an hour are 2.50 each; of the others only those with a price have a cost."""
    (tmp_path / "p.yaml").write_text(PRICED)
    loaded = load_profile(tmp_path / "p.yaml")
    options = run.Options(offline=True, save=tmp_path / "kept")
    report = asyncio.run(run.audit(loaded, options, lambda _event: None))
    rows = {row.key: row for row in report.evidence.ranking}
    assert list(rows.values()) == sorted(rows.values(), key=lambda row: row.request)
    assert [key for key, row in rows.items() if row.mine] == ["h100-sxm"]
    assert {key for key, row in rows.items() if row.cost is not None} == {"h100-sxm", "h200-sxm", "l4"}
    own = rows["h100-sxm"]
    assert own.cost == pytest.approx(2 * 2.50 / 3600 * own.request / 4)
    assert store.load(tmp_path / "kept").ranking == report.evidence.ranking
    assert run.judge(tmp_path / "kept", profile=None, options=run.Options()).evidence.ranking == report.evidence.ranking
