"""A real Prometheus scrapes the emulator while it is audited: what returns data, what is dead, what can fire."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from auditor import run
from auditor.emulator.process import start_process
from auditor.emulator.spec import spec_from
from auditor.evidence import CoverageItem, Evidence, Report
from auditor.loading import load_profile
from auditor.report.json import render
from auditor.report.schema import report_schema
from auditor.watch import Answer, Watch
from tests.e2e.scenario import HEALTHY, ROOT, changed
from tests.prometheus import free_port, needs_prometheus, prometheus
from tests.published import problems

pytestmark = [pytest.mark.slow, needs_prometheus]

DEAD = "vllm:gpu_cache_usage_perc"  # what vLLM 0.18.0 shows no more (removed in 0.12)
SHORT = "sum(rate(vllm:generation_tokens_total[500ms]))"  # holds at most one scrape of those that come once a second
WRONG_LABEL = 'vllm:num_requests_running{model_name="nobody"}'
PANELS = {"KV before": DEAD, "Too short": SHORT, "Nobody": WRONG_LABEL, "By the rule": "job:tokens:rate1m"}
RULES = """
groups:
  - name: extra
    rules:
      - {record: "job:tokens:rate1m", expr: "sum by (job) (rate(vllm:generation_tokens_total[1m]))"}
      - {alert: Silent, expr: "vllm:gpu_cache_usage_perc > 0.9"}
      - {alert: Fires, expr: "vllm:kv_cache_usage_perc >= 0"}
"""
NOT_LOADED = "groups: [{name: n, rules: [{alert: OnlyInTheFile, expr: 'vllm:num_requests_waiting > 5'}]}]"
FEW = {"requests": 120, "tokens": "1M", "duration": "10m"}


@dataclass(frozen=True, slots=True)
class Ran:
    """The audit, where it was saved, and the profile that it ran."""

    report: Report
    saved: Path
    profile: Path

    @property
    def evidence(self) -> Evidence:
        return self.report.evidence

    @property
    def watch(self) -> Watch:
        assert self.evidence.watch is not None
        return self.evidence.watch

    def answer(self, query: str) -> Answer:
        (found,) = (answer for answer in self.watch.answers if answer.query == query)
        return found

    def item(self, concept: str) -> CoverageItem:
        assert self.evidence.coverage is not None
        return next(item for item in self.evidence.coverage.items if item.concept == concept)


def _profile(folder: Path, url: str, prometheus_url: str) -> Path:
    panels = [{"type": "timeseries", "title": title, "targets": [{"expr": text}]} for title, text in PANELS.items()]
    (folder / "more.json").write_text(json.dumps({"title": "more", "panels": panels}))
    (folder / "not-loaded.yaml").write_text(NOT_LOADED)
    data: dict[str, Any] = changed(
        HEALTHY,
        {
            "endpoint.url": url,
            "probe.budget": FEW,
            "monitoring.prometheus": prometheus_url,
            "monitoring.dashboards": [*HEALTHY["monitoring"]["dashboards"], "more.json"],
            "monitoring.rules": [*HEALTHY["monitoring"]["rules"], "not-loaded.yaml"],
        },
    )
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("live")
    (folder / "extra.yaml").write_text(RULES)
    rules = [ROOT / "profiles/monitoring/embedded-alerts.yaml", folder / "extra.yaml"]
    (folder / "draft.yaml").write_text(yaml.safe_dump(changed(HEALTHY, {})))
    declared = run.declare(load_profile(folder / "draft.yaml"), run.Options(offline=True))
    assert declared.geometry is not None
    assert declared.device is not None
    assert declared.settings is not None
    spec = spec_from(declared.profile, declared.geometry, declared.device, declared.settings)
    url, stop = asyncio.run(start_process(spec))
    dropped = {
        "job_name": "dropped",
        "static_configs": [{"targets": ["127.0.0.1:1"]}],
        "relabel_configs": [{"action": "drop", "source_labels": ["__address__"], "regex": ".*"}],
    }
    targets = {"engine": [url.split("/")[2], f"127.0.0.1:{free_port()}"]}
    flags = ["--storage.tsdb.retention.time=3d", "--query.lookback-delta=2m"]
    try:
        with prometheus(folder / "prom", targets, rules=rules, flags=flags, jobs=[dropped]) as address:
            path = _profile(folder, url, address)
            options = run.Options(save=folder / "saved")
            yield Ran(asyncio.run(run.audit(load_profile(path), options, lambda _: None)), folder / "saved", path)
    finally:
        stop()


def test_every_rung_up_to_alerted_is_reached(ran: Ran) -> None:
    assert {concept: ran.item(concept).rung for concept in ("ttft", "tps", "memory", "waiting")} == dict.fromkeys(
        ("ttft", "tps", "memory", "waiting"), "alerted"
    )
    assert ran.item("queue_time").rung == "returns_data"
    assert ran.item("ttft").alerts == ("TimeToFirstTokenHigh",)


def test_a_dead_series_returns_nothing_and_its_name_is_absent(ran: Ran) -> None:
    answer = ran.answer(DEAD)
    assert (answer.series, answer.absent) == (0, (DEAD,))
    assert DEAD in ran.item("memory").dead


def test_a_window_shorter_than_two_scrapes_returns_nothing_although_its_series_is_there(ran: Ran) -> None:
    answer = ran.answer(SHORT)
    assert (answer.series, answer.absent) == (0, ())


def test_a_label_that_matches_nothing_is_no_dead_series(ran: Ran) -> None:
    answer = ran.answer(WRONG_LABEL)
    assert (answer.series, answer.absent) == (0, ())
    assert ran.watch.labels["model_name"] == ("meta-llama/Llama-3.1-8B-Instruct",)


def test_what_a_recording_rule_keeps_is_drawn(ran: Ran) -> None:
    assert ran.answer("job:tokens:rate1m").series == 1
    assert [document.kind for document in ran.watch.documents] == ["rules"]


def test_a_dead_target_is_told_beside_the_one_that_serves(ran: Ran) -> None:
    second, engine = sorted(ran.watch.targets, key=lambda target: target.health)
    assert (engine.job, engine.health, engine.serves, engine.interval) == ("engine", "up", True, 1.0)
    assert (second.job, second.health, second.serves) == ("engine", "down", True)
    assert "connection refused" in (second.error or "")
    assert (ran.watch.active, ran.watch.dropped) == (2, 1)


def test_what_the_server_keeps_and_how_it_looks_back_are_told(ran: Ran) -> None:
    assert (ran.watch.retention, ran.watch.lookback) == (3 * 86_400, 120)
    assert ran.watch.problems == ()


def test_an_alert_is_asked_for_what_it_watches(ran: Ran) -> None:
    states = {rule.name: rule.state for rule in ran.watch.rules or ()}
    assert states["Fires"] == "firing"
    assert states["KvCacheNearlyFull"] == "inactive"
    assert ran.answer("max by (model_name, engine) (vllm:kv_cache_usage_perc) > 0.95").series == 1
    assert ran.answer("vllm:gpu_cache_usage_perc > 0.9").absent == (DEAD,)
    assert "OnlyInTheFile" not in states


def test_what_a_panel_shows_agrees_with_what_the_client_counted(ran: Ran) -> None:
    """The counter over all series, of everything that was sent since the emulator started."""
    sent = sum(s.output_tokens or 0 for m in ran.evidence.measurements for s in (*m.samples, *m.warmup))
    rate = ran.answer('sum(rate(vllm:generation_tokens_total{model_name=~".*"}[5m]))').last
    assert rate is not None
    assert 0 < rate * 300 <= 1.2 * sent


def test_a_saved_run_is_judged_again_to_the_last_byte(ran: Ran) -> None:
    from auditor.report.renderers import RENDERERS

    again = run.judge(ran.saved, profile=None, options=run.Options())
    other = run.judge(ran.saved, profile=ran.profile, options=run.Options())
    for name in ("json", "terminal"):
        assert RENDERERS[name](again) == RENDERERS[name](ran.report) == RENDERERS[name](other)


def test_the_report_with_all_that_was_asked_fits_its_schema(ran: Ran) -> None:
    assert problems(json.loads(render(ran.report)), report_schema()) == []


def test_the_rules_see_what_is_wrong_with_it(ran: Ran) -> None:
    """Short windows, a dead target, an alert on a dead series and one that is not loaded, panels without an answer."""
    found = [(f.rule, f.why) for f in ran.report.findings if f.status in ("warn", "fail")]
    for rule, said in (
        ("M422", "more.json: Too short takes a rate over 500 ms"),
        ("M423", "1 of 2 targets of the service are down"),
        ("M424", "alert Silent can never fire"),
        ("M424", "OnlyInTheFile is not loaded"),
        ("M425", "more.json: Nobody returns nothing, although its series are there"),
    ):
        assert any(name == rule and said in why for name, why in found), (rule, said, found)


def test_the_rules_on_queries_find_nothing_else(ran: Ran) -> None:
    told = {f.rule: f.status for f in ran.report.findings if "M410" <= f.rule <= "M428"}
    seen = {"M422", "M423", "M424", "M425"}
    assert {rule: status for rule, status in told.items() if rule not in seen and status != "pass"} == {}
    assert len(told) == 19
    always = [f.why for f in ran.report.findings if (f.rule, f.subject) == ("M424", "always")]
    assert always == ["alert Fires compares vllm:kv_cache_usage_perc with 0, and 1 is its most: it always fires."]
