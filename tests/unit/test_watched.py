"""What a Prometheus is asked around a load, and what becomes of answers that are missing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from auditor.emulator.clock import run_virtual
from auditor.monitored import asked
from auditor.probe.prometheus import Prometheus
from auditor.probe.watched import Service, answered, looked
from auditor.watch import Answer, Query, Watch
from tests.unit.fake_endpoint import Answer as Reply
from tests.unit.fake_endpoint import Asked, Fake, reply, serving
from tests.unit.web_answers import ByPath, prometheus_reply

TARGET = {
    "labels": {"job": "vllm", "instance": "10.0.0.5:8000"},
    "scrapePool": "vllm",
    "scrapeUrl": "http://10.0.0.5:8000/metrics",
    "health": "up",
    "lastError": "",
    "scrapeInterval": "15s",
}
OTHER = {**TARGET, "labels": {"job": "node", "instance": "n:9100"}, "scrapeUrl": "http://n:9100/metrics"}
DOWN = {**OTHER, "labels": {"job": "gpu", "instance": "g:9400"}, "scrapeUrl": "http://g:9400/metrics", "health": "down"}
RUNNING = "vllm:num_requests_running"
ONE = {"resultType": "matrix", "result": [{"metric": {}, "values": [[999, "0.5"]]}]}
NONE: dict[str, Any] = {"resultType": "matrix", "result": []}


def said(request: Asked, name: str) -> str:
    """A parameter of a request."""
    return parse_qs(urlsplit(request.path).query).get(name, [""])[0]


def server(*targets: dict[str, Any], ranges: Callable[[Asked], bytes], **rest: Reply) -> dict[str, Reply]:
    def query(request: Asked) -> bytes:
        if said(request, "query") == "time()":
            return prometheus_reply({"resultType": "scalar", "result": [1000, "1000"]})
        there = "there" in said(request, "query")
        return prometheus_reply({"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}] * there})

    return {
        "GET /api/v1/query": query,
        "GET /api/v1/query_range": ranges,
        "GET /api/v1/targets": prometheus_reply({"activeTargets": list(targets), "droppedTargets": []}),
        "GET /api/v1/rules": prometheus_reply({"groups": []}),
        "GET /api/v1/label/__name__/values": prometheus_reply(
            ["up", RUNNING, "vllm:time_to_first_token_seconds_bucket"]
        ),
        "GET /api/v1/series": prometheus_reply([{"__name__": RUNNING, "job": "vllm", "instance": "10.0.0.5:8000"}]),
        "GET /api/v1/status/flags": prometheus_reply({"query.lookback-delta": "5m"}),
        "GET /api/v1/status/runtimeinfo": prometheus_reply({"storageRetention": "7d or 10GiB"}),
        "GET /api/v1/status/buildinfo": prometheus_reply({"version": "3.1.0"}),
        **rest,
    }


def watched(
    answers: dict[str, Reply], queries: Sequence[Query] = (), window: float = 600, model: str | None = None
) -> tuple[Watch, Fake]:
    async def run() -> tuple[Watch, Fake]:
        async with serving(ByPath(answers)) as fake, Prometheus(fake.origin) as prometheus:
            service = Service(engine="vllm", model=model)
            before = await looked(prometheus, service)
            return await answered(prometheus, before, queries, service, window=window), fake

    return run_virtual(run())


def query(text: str, **rest: Any) -> Query:
    return Query(text=text, where="board: panel", concepts=("ttft",), **rest)


def test_targets_that_serve_come_first_and_healthy_others_are_only_counted() -> None:
    watch, _ = watched(server(OTHER, DOWN, TARGET, ranges=lambda _: prometheus_reply(NONE)))
    assert [(target.job, target.serves, target.health) for target in watch.targets] == [
        ("vllm", True, "up"),
        ("gpu", False, "down"),
    ]
    assert watch.active == 3
    assert (watch.version, watch.retention, watch.lookback) == ("3.1.0", 7 * 86_400, 300)


def test_of_several_models_those_series_count_that_are_the_services() -> None:
    def labels(instance: str, model: str) -> dict[str, str]:
        return {"__name__": RUNNING, "job": "vllm", "instance": instance, "model_name": model}

    both = [labels("10.0.0.5:8000", "mine"), labels("10.0.0.6:8000", "theirs")]
    second = {**TARGET, "labels": both[1], "scrapeUrl": "http://10.0.0.6:8000/metrics"}
    answers = server(TARGET, second, ranges=lambda _: prometheus_reply(NONE))
    answers |= {"GET /api/v1/series": prometheus_reply(both)}
    watch, fake = watched(answers, model="mine")
    assert [target.url for target in watch.targets if target.serves] == ["http://10.0.0.5:8000/metrics"]
    assert watch.labels["model_name"] == ("mine",)
    selected = next(one for one in fake.asked if one.path.startswith("/api/v1/series"))
    assert said(selected, "match[]") == f'{{__name__="{RUNNING}"}}'
    watch, _ = watched(answers, model="a name that no series tells")
    assert [target.serves for target in watch.targets] == [True, True]


def test_labels_of_the_service_narrow_what_is_its_own() -> None:
    service = Service(engine="vllm", labels={"job": 'the "first"', "cluster": "ä"})
    assert service.selector("a:b") == r'{__name__="a:b",job="the \"first\"",cluster="ä"}'


def test_a_replica_that_is_down_is_known_by_a_job_that_holds_nothing_else() -> None:
    dead = {
        **TARGET,
        "labels": {"job": "vllm", "instance": "10.0.0.6:8000"},
        "scrapeUrl": "http://10.0.0.6:8000/metrics",
    }
    dead |= {"health": "down", "lastError": "no route to host"}
    another = {**OTHER, "labels": {"job": "vllm", "instance": "n:9100"}}
    watch, _ = watched(server(TARGET, dead, ranges=lambda _: prometheus_reply(NONE)))
    assert [(target.health, target.serves) for target in watch.targets] == [("up", True), ("down", True)]
    watch, _ = watched(server(TARGET, dead, another, ranges=lambda _: prometheus_reply(NONE)))
    assert [(target.health, target.serves) for target in watch.targets] == [("up", True), ("down", False)]


def test_a_target_serves_too_where_it_has_the_address_of_the_engines_page() -> None:
    local = {**TARGET, "labels": {"job": "x", "instance": "y"}, "scrapeUrl": "http://localhost:8000/metrics"}

    async def run() -> Watch:
        answers = server(local, ranges=lambda _: prometheus_reply(NONE))
        async with serving(ByPath(answers)) as fake, Prometheus(fake.origin) as prometheus:
            return await looked(prometheus, Service(pages=("http://127.0.0.1:8000/metrics",)))

    assert [target.serves for target in asyncio.run(run()).targets] == [True]


def test_each_query_is_asked_once_over_the_window() -> None:
    watch, fake = watched(server(ranges=lambda _: prometheus_reply(ONE)), [query("a"), query("b"), query("a")])
    asked = [one for one in fake.asked if one.path.startswith("/api/v1/query_range")]
    assert sorted(said(one, "query") for one in asked) == ["a", "b"]
    assert {(said(one, "start"), said(one, "end"), said(one, "step")) for one in asked} == {
        ("400.000", "1000.000", "10.000")
    }
    assert set(watch.answers) == {Answer(query="a", series=1, last=0.5), Answer(query="b", series=1, last=0.5)}


def test_values_that_are_no_numbers_are_no_data() -> None:
    empty = {"resultType": "matrix", "result": [{"metric": {}, "values": [[999, "NaN"], [1000, "+Inf"]]}]}
    watch, _ = watched(server(ranges=lambda _: prometheus_reply(empty)), [query("a_there / b")])
    assert watch.answers == (Answer(query="a_there / b", series=0, absent=("b",)),)


def test_traffic_between_two_wide_steps_is_found_before_a_panel_is_called_empty() -> None:
    def ranges(request: Asked) -> bytes:
        close = said(request, "step") == "60.000"
        return prometheus_reply(ONE if close else {"resultType": "matrix", "result": []})

    watch, _ = watched(server(ranges=ranges), [query("a_there")], window=86_400)
    assert watch.answers == (Answer(query="a_there", series=1, last=0.5),)


def test_a_query_that_is_refused_costs_its_own_answer_only() -> None:
    def ranges(request: Asked) -> bytes:
        bad = said(request, "query") == "bad"
        error = {"status": "error", "errorType": "execution", "error": "many-to-many matching not allowed"}
        return reply(error, 422) if bad else prometheus_reply(ONE)

    watch, _ = watched(server(ranges=ranges), [query("good"), query("bad")])
    found = {answer.query: answer for answer in watch.answers}
    assert found["good"].series == 1
    assert found["bad"] == Answer(query="bad", error="execution: many-to-many matching not allowed")


def test_a_load_shorter_than_four_scrapes_is_asked_of_once_more() -> None:
    """20 s of load at a scrape every 15 s hold one or two; the rate is there after the next."""
    times: list[str] = []

    def ranges(request: Asked) -> bytes:
        times.append(said(request, "end"))
        return prometheus_reply(ONE if len(times) > 1 else NONE)

    watch, _ = watched(server(TARGET, ranges=ranges), [query("rate(a[1m])")], window=20)
    assert times == ["1000.000", "1016.000"]
    assert watch.answers[0].series == 1
    times.clear()
    watch, _ = watched(server(TARGET, ranges=ranges), [query("rate(a[1m])")], window=60)
    assert times == ["1000.000"]
    assert watch.answers[0].series == 0


def test_of_two_compared_series_the_missing_one_decides() -> None:
    def ranges(request: Asked) -> bytes:
        return prometheus_reply(ONE if said(request, "query") == "a_there{}" else NONE)

    watch, _ = watched(server(ranges=ranges), [query("a_there > b", alert="x")])
    assert watch.answers == (Answer(query="a_there > b", series=0, absent=("b",)),)


def test_more_queries_than_anyone_draws_are_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.probe.watched._MOST_QUERIES", 20)
    watch, _ = watched(server(ranges=lambda _: prometheus_reply(ONE)), [query(f"a{i}") for i in range(23)])
    assert len(watch.answers) == 20
    assert watch.problems == ("3 of 23 queries were not asked: too many",)


def test_what_a_server_does_not_offer_is_told_and_costs_nothing_else() -> None:
    thanos = {f"GET /api/v1/{path}": reply("404 page not found", 404) for path in ("status/flags", "targets")}
    watch, fake = watched(server(ranges=lambda _: prometheus_reply(ONE)) | thanos, [query("a")])
    assert watch.answers[0].series == 1
    assert (watch.active, watch.lookback, watch.dropped) == (None, None, None)
    where = f"monitoring.prometheus: {fake.origin} /api/v1/"
    assert set(watch.problems) == {f"{where}{path}: HTTP 404" for path in ("status/flags", "targets")}


JUNK: tuple[Any, ...] = (
    None,
    5,
    "x",
    [],
    [5, None, {}],
    {"groups": 5},
    {"groups": [{"rules": 5}, {"rules": [5, {"type": "recording"}, {"type": "alerting", "name": 5, "lastError": {}}]}]},
    {"activeTargets": 5, "droppedTargets": 5, "droppedTargetCounts": {"a": "x", "b": True}},
    {"activeTargets": [5, {"labels": 5, "scrapeInterval": 7, "scrapeUrl": "http://[::1"}]},
    {"resultType": "matrix", "result": [{"metric": {"a": 5}, "values": [5, [1], ["x", "y"], [1, {}], [1, "1e999"]]}]},
    {"storageRetention": 5, "query.lookback-delta": [], "version": {}},
)


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_whatever_a_server_answers_nothing_breaks(junk: Any) -> None:
    answers = server(TARGET, ranges=lambda _: prometheus_reply(junk))
    paths = [path for path in answers if path not in ("GET /api/v1/query", "GET /api/v1/query_range")]
    watch, _ = watched(answers | {path: prometheus_reply(junk) for path in paths}, [query("a")])
    assert [(answer.series, answer.error) for answer in watch.answers] == [(0, None)]
    assert not [target for target in watch.targets if target.serves]


def test_a_server_that_is_gone_after_the_load_leaves_what_was_known_before() -> None:
    async def run() -> Watch:
        async with Prometheus("http://127.0.0.1:1") as prometheus:
            before = Watch(url=prometheus.url, version="3.1.0", rules=())
            return await answered(prometheus, before, [query("a")], Service(), window=60)

    watch = asyncio.run(run())
    assert (watch.version, watch.answers) == ("3.1.0", ())
    assert "has nothing that listens" in watch.problems[0]


def test_what_was_sent_along_is_not_told_back() -> None:
    async def run() -> Watch:
        told = {
            **TARGET,
            "labels": {"job": "vllm", "instance": "s3cret-password"},
            "lastError": "Bearer s3cret-password",
        }
        answers = server(told, ranges=lambda _: prometheus_reply(ONE))
        answers |= {"GET /api/v1/series": prometheus_reply([{"__name__": RUNNING, **told["labels"]}])}
        async with serving(ByPath(answers)) as fake:
            url = fake.origin.replace("://", "://user:s3cret-password@")
            async with Prometheus(url) as prometheus:
                return await asked(prometheus, (), engine="vllm", version=None, pages=(), window=60)

    watch = run_virtual(run())
    assert watch.targets
    assert "s3cret" not in repr(watch)
