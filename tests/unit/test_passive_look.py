"""What a passive audit asks a Prometheus, and over which slices, where servers and their targets differ."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from auditor.probe.passive import LENGTHS, TIMES, Subject, look
from auditor.probe.prometheus import Prometheus
from auditor.watch import Observed
from tests.unit.fake_endpoint import Answer, Asked, Fake, reply, serving
from tests.unit.web_answers import ByPath, prometheus_reply

NOW = 1_000_000.0
POD = {"job": "vllm", "instance": "10.0.0.5:8000"}
NAMES = ["up", "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:request_prompt_tokens_bucket"]


def target(interval: str, **labels: str) -> dict[str, Any]:
    return {"labels": labels, "scrapeUrl": "http://x/metrics", "health": "up", "scrapeInterval": interval}


def said(request: Asked, name: str) -> str:
    return parse_qs(urlsplit(request.path).query).get(name, [""])[0]


def server(targets: Answer, names: list[str] | None = None) -> dict[str, Answer]:
    return {
        "GET /api/v1/query": prometheus_reply({"resultType": "scalar", "result": [NOW, str(NOW)]}),
        "GET /api/v1/query_range": prometheus_reply({"resultType": "matrix", "result": []}),
        "GET /api/v1/targets": targets,
        "GET /api/v1/label/__name__/values": prometheus_reply(NAMES if names is None else names),
        "GET /api/v1/label/model_name/values": prometheus_reply(["m"]),
        "GET /api/v1/series": prometheus_reply([{"__name__": NAMES[1], **POD}]),
    }


def seen(answers: dict[str, Answer], seconds: float, concepts: tuple[str, ...] = TIMES) -> tuple[Observed, Fake]:
    async def work() -> tuple[Observed, Fake]:
        async with serving(ByPath(answers)) as fake, Prometheus(fake.origin) as prometheus:
            return await look(prometheus, Subject(model="m"), seconds, concepts), fake

    return asyncio.run(work())


def actives(*targets: dict[str, Any]) -> bytes:
    return prometheus_reply({"activeTargets": list(targets)})


@pytest.mark.parametrize(
    ("targets", "slices"),
    [
        (actives(target("30s", **POD)), 96),
        (actives(target("5m", **POD)), 72),  # six hours in slices of five minutes: none is shorter than a scrape
        (actives(target("1h", job="certificates", instance="c:9000"), target("30s", **POD)), 96),
        (actives(), 96),
        (reply({"status": "error", "errorType": "not_found", "error": "no targets here"}, 404), 96),  # Thanos, Mimir
    ],
)
def test_slices_are_no_shorter_than_scrapes_of_the_service(targets: bytes, slices: int) -> None:
    found, _ = seen(server(targets), 6 * 3600.0)
    assert (found.engine, found.passive, len(found.slices)) == ("vllm", True, slices)
    assert found.window == pytest.approx(6 * 3600.0)


def test_a_young_service_is_cut_into_slices_of_its_own_time() -> None:
    began = prometheus_reply({"resultType": "matrix", "result": [{"metric": {}, "values": [[NOW - 900, "1"]]}]})
    answers = server(actives(target("5s", **POD)))
    found, _ = seen({**answers, "GET /api/v1/query_range": began}, 86_400.0)
    assert found.window == pytest.approx(990.0, abs=15)  # a thousandth of the day before the first sample
    assert len(found.slices) > 80  # of 11 s, not one of a quarter of an hour


def test_only_the_services_series_are_asked_for() -> None:
    _, fake = seen(server(actives(target("30s", **POD))), 3600.0)
    asked = [said(r, "query") for r in fake.asked if urlsplit(r.path).path.endswith("query_range")]
    assert [text for text in asked if 'model_name="m"' not in text] == []
    (series,) = [said(r, "match[]") for r in fake.asked if urlsplit(r.path).path.endswith("series")]
    assert series == '{__name__="vllm:num_requests_running", model_name="m"}'


def test_whether_targets_answered_is_asked_of_the_services_jobs_alone() -> None:
    """Another target of the same job is none of the service's."""

    def ranges(request: Asked) -> bytes:
        points = [[NOW - 38 * i, "1"] for i in range(94, -1, -1)]
        labels = POD | {"__name__": "vllm:request_prompt_tokens_count"}
        found = [{"metric": labels, "values": points}]
        if "up{" in said(request, "query"):
            found = [{"metric": at, "values": points} for at in (POD, {**POD, "instance": "other:8000"})]
        return prometheus_reply({"resultType": "matrix", "result": found})

    found, fake = seen(server(actives()) | {"GET /api/v1/query_range": ranges}, 3600.0, (*TIMES, *LENGTHS))
    asked = [said(r, "query") for r in fake.asked if "query_range" in r.path]
    assert [text for text in asked if "up" in text] == ['avg_over_time(up{job=~"vllm"}[38000ms])']
    assert (found.values["instances"], found.values["up"]) == (1, 1)


def test_a_prometheus_that_holds_no_engine_is_asked_no_more() -> None:
    found, fake = seen(server(actives(), ["up", "go_threads"]), 3600.0)
    assert (found.histograms, found.engine, found.passive) == ({}, None, True)
    assert not [r for r in fake.asked if "query_range" in r.path]


def test_lengths_alone_ask_for_no_gauges() -> None:
    _, fake = seen(server(actives(target("30s", **POD))), 3600.0, LENGTHS)
    asked = [said(r, "query") for r in fake.asked if "query_range" in r.path]
    assert asked == [
        'count({__name__="vllm:num_requests_running", model_name="m"})',  # since when
        '{__name__=~"vllm:request_prompt_tokens_(bucket|sum|count)", model_name="m"}',
        'min_over_time({__name__="vllm:request_prompt_tokens_count", model_name="m"}[38000ms])',
    ]
