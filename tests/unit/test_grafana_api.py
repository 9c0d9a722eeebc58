"""Grafana's dashboards, alert rules and datasource, by replies of the shape that its documentation gives."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from auditor import monitored
from auditor.evidence import Evidence
from auditor.loading import Loaded
from auditor.loading.profile import parse_profile
from auditor.monitoring.coverage import coverage
from auditor.probe.api import Refused, Unanswered, Unreachable
from auditor.probe.grafana import ALERTS, Grafana
from auditor.testing import make_evidence
from tests.unit.fake_endpoint import Answer, Fake, reply, serving
from tests.unit.web_answers import ByPath, prometheus_reply

TOKEN = "glsa_0123456789abcdef"

# GET /api/search, GET /api/dashboards/uid/:uid, GET /api/datasources, GET /api/v1/provisioning/alert-rules:
# https://grafana.com/docs/grafana/latest/developers/http_api/
FOUND = [
    {
        "id": 1,
        "uid": "vllm-1",
        "title": "vLLM",
        "uri": "db/vllm",
        "url": "/d/vllm-1/vllm",
        "type": "dash-db",
        "tags": [],
    },
    {
        "id": 2,
        "uid": "nodes",
        "title": "Nodes",
        "uri": "db/nodes",
        "url": "/d/nodes/nodes",
        "type": "dash-db",
        "tags": [],
    },
    {"id": 3, "uid": "gone", "title": "Gone", "uri": "db/gone", "url": "/d/gone/gone", "type": "dash-db", "tags": []},
]


def dashboard(title: str, *queries: str, source: str = "P1809F7CD0C75ACF3") -> dict[str, Any]:
    panels = [
        {
            "type": "timeseries",
            "title": query,
            "datasource": {"type": "prometheus", "uid": source},
            "targets": [{"refId": "A", "expr": query}],
        }
        for query in queries
    ]
    meta = {"type": "db", "canSave": True, "slug": "x", "url": "/d/x", "version": 3, "folderTitle": "General"}
    return {"meta": meta, "dashboard": {"id": 1, "uid": "x", "title": title, "schemaVersion": 39, "panels": panels}}


SOURCES = [
    {"id": 1, "uid": "L0k1", "orgId": 1, "name": "Loki", "type": "loki", "isDefault": False},
    {"id": 2, "uid": "PRO2", "orgId": 1, "name": "Other", "type": "prometheus", "isDefault": False},
    {"id": 3, "uid": "PRO1", "orgId": 1, "name": "Prometheus", "type": "prometheus", "isDefault": True},
]
RULES = [
    {
        "id": 1,
        "uid": "a1",
        "orgID": 1,
        "folderUID": "f",
        "ruleGroup": "llm",
        "title": "TTFT too high",
        "condition": "C",
        "data": [
            {
                "refId": "A",
                "datasourceUid": "P1809F7CD0C75ACF3",
                "model": {
                    "expr": "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
                    "refId": "A",
                },
            },
            {"refId": "C", "datasourceUid": "__expr__", "model": {"type": "threshold", "expression": "A", "expr": "x"}},
        ],
        "for": "5m",
        "isPaused": False,
    },
    {"title": "Paused", "isPaused": True, "data": [{"datasourceUid": "P", "model": {"expr": "up"}}]},
]
SERVER: dict[str, Answer] = {
    "GET /api/search": reply(FOUND),
    "GET /api/dashboards/uid/vllm-1": reply(dashboard("vLLM", "max(vllm:kv_cache_usage_perc)", "up")),
    "GET /api/dashboards/uid/nodes": reply(dashboard("Nodes", "node_load1")),
    "GET /api/dashboards/uid/gone": reply({"message": "Dashboard not found"}, 404),
    "GET /api/datasources": reply(SOURCES),
    "GET /api/v1/provisioning/alert-rules": reply(RULES),
}


def asked(
    work: Callable[[Grafana], Awaitable[Any]], answers: dict[str, Answer] | None = None, tail: str = "", **rest: Any
) -> tuple[Any, Fake]:
    async def run() -> tuple[Any, Fake]:
        async with serving(ByPath(SERVER | (answers or {}))) as fake, Grafana(fake.origin + tail, **rest) as grafana:
            return await work(grafana), fake

    return asyncio.run(run())


def test_only_dashboards_that_show_the_service_are_kept() -> None:
    (documents, problems), fake = asked(lambda g: g.dashboards(), key=TOKEN)
    (found,) = documents
    assert (found.name, found.kind) == ("grafana: vLLM", "dashboard")
    assert json.loads(found.text)["title"] == "vLLM"
    assert problems == (f"monitoring.grafana: {fake.origin} /api/dashboards/uid/gone: Dashboard not found",)
    assert {one.headers["authorization"] for one in fake.asked} == {f"Bearer {TOKEN}"}


def test_library_panels_are_fetched_once_and_kept_with_the_dashboards_that_use_them() -> None:
    """GET /api/library-elements/:uid; an export for sharing carries the same models along as __elements."""
    stub = {"type": "timeseries", "title": "KV", "libraryPanel": {"uid": "lib-1", "name": "KV"}}
    lost = {"title": "Lost", "libraryPanel": {"uid": "lib-2", "name": "Lost"}}
    board = dashboard("vLLM")
    board["dashboard"]["panels"] = [stub, {"type": "row", "panels": [stub, lost]}]
    two = [FOUND[0], {**FOUND[0], "uid": "vllm-2", "title": "second"}]
    model = {"type": "timeseries", "title": "KV", "targets": [{"expr": "max(vllm:kv_cache_usage_perc)"}]}
    answers = {
        "GET /api/search": reply(two),
        "GET /api/dashboards/uid/vllm-1": reply(board),
        "GET /api/dashboards/uid/vllm-2": reply(board),
        "GET /api/library-elements/lib-1": reply({"result": {"uid": "lib-1", "name": "KV", "kind": 1, "model": model}}),
        "GET /api/library-elements/lib-2": reply({"message": "library element could not be found"}, 404),
    }
    (documents, _), fake = asked(lambda g: g.dashboards(), answers)
    assert len(documents) == 2
    assert fake.paths("GET").count("/api/library-elements/lib-1") == 1
    found = coverage(documents, "vllm", "0.18.0")
    assert next(item for item in found.items if item.concept == "memory").names == ("vllm:kv_cache_usage_perc",)
    assert ["Lost" in line for line in found.unreadable] == [True, True]


def test_dashboards_of_one_name_are_told_apart() -> None:
    entry = dict(FOUND[0])
    two = [entry, {**entry, "uid": "vllm-2"}]
    other = reply(dashboard("vLLM", "sum(vllm:num_requests_running)"))
    answers = {"GET /api/search": reply(two), "GET /api/dashboards/uid/vllm-2": other}
    (documents, _), _ = asked(lambda g: g.dashboards(), answers)
    assert [document.name for document in documents] == ["grafana: vLLM", "grafana: vLLM (2)"]


def test_all_pages_of_the_search_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.probe.grafana._PAGE", 20)
    monkeypatch.setattr("auditor.probe.grafana._MOST_DASHBOARDS", 20)
    full = [{"uid": "nodes", "title": "t", "type": "dash-db"}] * 20

    def page(request: Any) -> bytes:
        return reply(full if "page=1" in request.path else FOUND[:1])

    (documents, problems), fake = asked(lambda g: g.dashboards(), {"GET /api/search": page})
    assert sum("/api/search" in one.path for one in fake.asked) == 2
    assert problems[0] == "1 of 21 dashboards were not read: too many"
    assert documents == ()


def test_alert_rules_are_their_queries_without_thresholds_and_those_paused_are_none() -> None:
    (documents, states), _ = asked(lambda g: g.alerts())
    (document,) = documents
    assert (document.name, document.kind) == (ALERTS, "rules")
    (rule,) = json.loads(document.text)["groups"][0]["rules"]
    assert rule["alert"] == "TTFT too high"
    assert "time_to_first_token" in rule["expr"]
    (state,) = states
    assert (state.name, state.state, state.source) == ("TTFT too high", "unknown", "grafana")


@pytest.mark.parametrize("tail", ["", "/", "/dashboards"])
def test_the_prometheus_behind_it_is_the_one_that_the_panels_draw_from(tail: str) -> None:
    proxied = "GET /api/datasources/proxy/uid/P1809F7CD0C75ACF3/api/v1/query"
    scalar = prometheus_reply({"resultType": "scalar", "result": [5, "5"]})

    async def work(grafana: Grafana) -> float:
        documents, _ = await grafana.dashboards()
        async with await grafana.prometheus(documents) as prometheus:
            return await prometheus.now()

    now, fake = asked(work, {proxied: scalar}, tail, key=TOKEN)
    assert now == 5
    assert fake.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_where_panels_name_none_the_default_datasource_is_asked() -> None:
    async def work(grafana: Grafana) -> str:
        async with await grafana.prometheus(()) as prometheus:
            return prometheus.url

    assert asked(work)[0].endswith("/api/datasources/proxy/uid/PRO1")
    refused = {"GET /api/datasources": reply({"message": "You'll need additional permissions"}, 403)}
    with pytest.raises(Refused, match=r"no datasource of type prometheus is found; name monitoring\.prometheus"):
        asked(work, refused)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (reply({"message": "Invalid API key"}, 401), Unreachable, "with 401; it wants a key"),
        (reply("<html><title>Grafana</title>", kind="text/html"), Unreachable, "with a page .Grafana., as no Grafana"),
        (reply({"message": "Internal"}, 500), Refused, "/api/search: Internal"),
        (reply({"message": "Access denied"}, 403), Refused, "/api/search: Access denied"),
        (reply("denied", 403), Unreachable, "with 403; it wants a key"),
    ],
)
def test_what_it_refuses_is_one_line(answer: Answer, kind: type[Unanswered], said: str) -> None:
    with pytest.raises(kind, match=f"monitoring.grafana: .*{said}"):
        asked(lambda g: g.dashboards(), {"GET /api/search": answer})


@pytest.mark.parametrize("junk", [{}, [], "text", [None, 5, {"uid": 7}], {"dashboard": []}])
def test_answers_of_another_shape_are_nothing(junk: Any) -> None:
    answers = {
        "GET /api/dashboards/uid/vllm-1": reply(junk),
        "GET /api/dashboards/uid/7": reply(junk),
        "GET /api/v1/provisioning/alert-rules": reply(junk),
    }
    if not isinstance(junk, str):
        assert asked(lambda g: g.alerts(), answers)[0] == ((), ())
        assert asked(lambda g: g.dashboards(), answers)[0][0] == ()


# ------------------------------------------------------------------------------------------------------- in the audit


def evidence_for(url: str, tmp_path: Any) -> tuple[Evidence, Loaded]:
    text = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:9/v1', engine: vllm}\n"
    text += f"monitoring: {{grafana: '{url}'}}\n"
    loaded = parse_profile(text, tmp_path / "p.yaml", {})
    return replace(make_evidence(), profile=loaded.profile, settings=None, served=None, coverage=None), loaded


def test_an_audit_reads_dashboards_and_alerts_and_asks_the_prometheus_behind(tmp_path: Any) -> None:
    base = "GET /api/datasources/proxy/uid/P1809F7CD0C75ACF3/api/v1/"
    answers: dict[str, Answer] = {
        base + "query": prometheus_reply({"resultType": "scalar", "result": [1000, "1000"]}),
        base + "targets": prometheus_reply({"activeTargets": [], "droppedTargets": []}),
        base + "rules": prometheus_reply({"groups": []}),
        base + "query_range": prometheus_reply(
            {"resultType": "matrix", "result": [{"metric": {}, "values": [[999, "0.4"], [1000, "0.5"]]}]}
        ),
    }

    async def run() -> Evidence:
        async with serving(ByPath(SERVER | answers)) as fake:
            evidence, loaded = evidence_for(fake.origin, tmp_path)
            evidence = await monitored.before(evidence, loaded, lambda _: None)
            return await monitored.after(evidence, loaded, lambda _: None, asyncio.get_running_loop().time() - 60)

    evidence = asyncio.run(run())
    assert evidence.watch is not None
    assert evidence.coverage is not None
    rungs = {item.concept: item.rung for item in evidence.coverage.items}
    assert rungs["memory"] == "returns_data"
    watched = next(item for item in evidence.coverage.items if item.concept == "ttft")
    assert watched.alerts == ("TTFT too high",)
    assert "not loaded" not in watched.note
    assert {answer.series for answer in evidence.watch.answers} == {1}
    assert [rule.source for rule in evidence.watch.rules or ()] == ["grafana"]
    # what a datasource proxy does not pass on is told, and costs nothing else
    assert any("status/flags: HTTP 404" in line for line in evidence.watch.problems)


def test_a_grafana_that_is_down_is_a_line_and_stops_nothing(tmp_path: Any) -> None:
    evidence, loaded = evidence_for("http://bob:pass-word-1@127.0.0.1:1", tmp_path)
    notes: list[str] = []
    found = asyncio.run(monitored.before(evidence, loaded, lambda event: notes.append(event.text or "")))
    assert found.watch is not None
    assert found.watch.url == "http://127.0.0.1:1"
    assert any("has nothing that listens" in line for line in found.watch.problems)
    assert "pass-word-1" not in " ".join(notes)
