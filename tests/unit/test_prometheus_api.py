"""The client for Prometheus's API: what it sends, what it reads, and one line for whatever goes wrong."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from auditor.errors import UsageError
from auditor.probe.prometheus import Prometheus, Refused, Result, Unanswered, Unreachable, seconds
from tests.unit.fake_endpoint import Answer, Fake, raw, reply, serving, tls_context
from tests.unit.web_answers import ByPath, prometheus_reply

QUERY = "GET /api/v1/query"
SECRET = "pass-word-1"
KEY = "prom-token-123456"


def asked(
    answers: dict[str, Answer],
    work: Callable[[Prometheus], Awaitable[Any]],
    address: Callable[[Fake], str] = lambda fake: fake.origin,
    **rest: Any,
) -> tuple[Any, Fake]:
    """What `work` gives with a client for a server that gives `answers`, and the server."""

    async def run() -> tuple[Any, Fake]:
        async with serving(ByPath(answers)) as fake, Prometheus(address(fake), **rest) as prometheus:
            return await work(prometheus), fake

    return asyncio.run(run())


def vector(*values: Any) -> bytes:
    result = [{"metric": {"job": str(i)}, "value": [1.5, value]} for i, value in enumerate(values)]
    return prometheus_reply({"resultType": "vector", "result": result})


# ---------------------------------------------------------------------------------------------------------------- reads


def test_values_are_numbers_and_labels_texts() -> None:
    found, _ = asked({QUERY: vector("1.25", "NaN", "+Inf")}, lambda p: p.query("up"))
    assert [result.labels for result in found] == [{"job": "0"}, {"job": "1"}, {"job": "2"}]
    assert found[0].points == ((1.5, 1.25),)
    assert math.isnan(found[1].points[0][1])
    assert [result.last for result in found] == [1.25, None, None]


def test_the_latest_finite_value_is_the_last_one() -> None:
    assert Result({}, ((1.0, 2.0), (2.0, 3.0), (3.0, math.nan))).last == 3.0
    assert Result({}, ()).last is None


def test_a_scalar_and_a_native_histogram_are_series_too() -> None:
    scalar = prometheus_reply({"resultType": "scalar", "result": [7.0, "7"]})
    assert asked({QUERY: scalar}, lambda p: p.now())[0] == 7.0
    histogram = {"metric": {}, "histograms": [[1, {"count": "5", "sum": "9", "buckets": []}]]}
    matrix = prometheus_reply({"resultType": "matrix", "result": [histogram]})
    found, _ = asked({"GET /api/v1/query_range": matrix}, lambda p: p.query_range("h", 0, 10, 1))
    assert found == (Result({}, ((1.0, 5.0),)),)


def test_a_range_never_asks_for_more_points_than_prometheus_gives() -> None:
    matrix = prometheus_reply({"resultType": "matrix", "result": []})
    _, fake = asked({"GET /api/v1/query_range": matrix}, lambda p: p.query_range("a", 0, 86_400, 1))
    assert "start=7.568&end=86400.000&step=7.856" in fake.asked[0].path  # 86,400 s over 10,999 steps


@pytest.mark.parametrize(
    ("start", "end", "step", "sent"),
    [
        (1796007578.7643, 1796093978.7643001, 1440.0000000001, "start=1796007578.764&end=1796093978.764&step=1440.000"),
        (0, 100, 30, "start=10.000&end=100.000&step=30.000"),
        (95, 100, 30, "start=100.000&end=100.000&step=30.000"),
    ],
)
def test_a_range_ends_at_its_end(start: float, end: float, step: float, sent: str) -> None:
    matrix = prometheus_reply({"resultType": "matrix", "result": []})
    _, fake = asked({"GET /api/v1/query_range": matrix}, lambda p: p.query_range("a", start, end, step))
    assert sent in fake.asked[0].path


def test_counts_of_dropped_targets_are_added_up_where_the_server_keeps_only_these() -> None:
    counted = prometheus_reply({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {"a": 3, "b": 4}})
    assert asked({"GET /api/v1/targets": counted}, lambda p: p.dropped())[0] == 7
    listed = prometheus_reply({"activeTargets": [], "droppedTargets": [{}, {}]})
    assert asked({"GET /api/v1/targets": listed}, lambda p: p.dropped())[0] == 2


@pytest.mark.parametrize("data", [None, [], "text", 5, {"result": 7}, {"result": [None, 1, {"value": "x"}]}])
def test_an_answer_of_another_shape_is_read_as_nothing(data: Any) -> None:
    found, _ = asked({QUERY: prometheus_reply(data)}, lambda p: p.query("up"))
    assert [result.points for result in found] in ([], [()])
    assert asked({"GET /api/v1/targets": prometheus_reply(data)}, lambda p: p.targets())[0] == ()
    assert asked({"GET /api/v1/rules": prometheus_reply(data)}, lambda p: p.alerts())[0] == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [("15d", 1_296_000), ("1h30m", 5400), ("500ms", 0.5), ("0s", 0), ("2w", 1_209_600), ("1y", 31_536_000)],
)
def test_durations_are_read_as_prometheus_writes_them(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "15", "d", "15 d", "1.2.3s", "-5m", "10GiB"])
def test_what_is_no_duration_has_no_length(text: str) -> None:
    assert seconds(text) is None


# ---------------------------------------------------------------------------------------------------------------- sends


@pytest.mark.parametrize(
    ("user", "key", "sent"),
    [
        ("", None, None),
        ("", KEY, f"Bearer {KEY}"),
        ("bob:pass-word-1@", None, "Basic Ym9iOnBhc3Mtd29yZC0x"),
        ("bob:pass-word-1@", KEY, f"Bearer {KEY}"),
    ],
)
def test_a_key_wins_over_user_and_password(user: str, key: str | None, sent: str | None) -> None:
    _, fake = asked({QUERY: vector()}, lambda p: p.query("up"), lambda f: f.origin.replace("//", f"//{user}"), key=key)
    assert fake.asked[0].headers.get("authorization") == sent


def test_further_headers_are_sent_and_win() -> None:
    headers = {"X-Scope-OrgID": "team-a", "Authorization": "Custom abcdef-1"}
    _, fake = asked({QUERY: vector()}, lambda p: p.query("up"), key=KEY, headers=headers)
    assert fake.asked[0].headers["x-scope-orgid"] == "team-a"
    assert fake.asked[0].headers["authorization"] == "Custom abcdef-1"
    echo = reply({"status": "error", "errorType": "x", "error": "no Custom abcdef-1"}, 400)
    with pytest.raises(Refused) as caught:
        asked({QUERY: echo}, lambda p: p.query("up"), headers=headers)
    assert "abcdef-1" not in str(caught.value)


@pytest.mark.parametrize("tail", ["", "/", "/graph", "/api/v1", "/alerts/"])
def test_whatever_page_of_it_is_named_the_api_is_found(tail: str) -> None:
    answers: dict[str, Answer] = {"GET /prom/api/v1/query": vector("1")}
    assert len(asked(answers, lambda p: p.query("up"), lambda f: f"{f.origin}/prom{tail}")[0]) == 1


def test_what_the_address_asks_for_is_asked_for_each_time() -> None:
    _, fake = asked({QUERY: vector()}, lambda p: p.query("up"), lambda f: f"{f.origin}/?dedup=true")
    assert fake.asked[0].path == "/api/v1/query?dedup=true&query=up&timeout=24000ms"


# ---------------------------------------------------------------------------------------------------------------- fails


def failure(answer: Answer, **rest: Any) -> tuple[type[Unanswered], str]:
    async def run() -> tuple[type[Unanswered], str]:
        async with serving(ByPath({QUERY: answer})) as fake:
            url = fake.origin.replace("//", f"//bob:{SECRET}@")
            async with Prometheus(url, **rest) as prometheus:
                with pytest.raises(Unanswered) as caught:
                    await prometheus.query("up")
                return type(caught.value), str(caught.value).replace(fake.origin, "URL")

    return asyncio.run(run())


HTML = reply("<html><title>Sign in</title></html>", kind="text/html")
REFUSALS: dict[str, tuple[Answer, type[Unanswered], str]] = {
    "a query that is none": (
        reply({"status": "error", "errorType": "bad_data", "error": "1:4: parse error"}, 400),
        Refused,
        "URL /api/v1/query: bad_data: 1:4: parse error",
    ),
    "too busy": (reply("", 503), Refused, "URL /api/v1/query: HTTP 503"),
    "too many": (reply("slow down", 429), Refused, "URL /api/v1/query: HTTP 429"),
    "a password that is wrong": (
        reply("Unauthorized", 401),
        Unreachable,
        "URL answers /api/v1/query with 401; the key or password is refused: put the right one there",
    ),
    "a login page": (
        HTML,
        Unreachable,
        "URL answers /api/v1/query with a page (Sign in), as no Prometheus does; correct the address",
    ),
    "another server": (
        reply({"detail": "Not Found"}, 404),
        Refused,
        "URL /api/v1/query: HTTP 404",
    ),
    "no JSON": (
        reply("{"),
        Unreachable,
        "URL answers /api/v1/query with no JSON, as no Prometheus does; correct the address",
    ),
    "JSON of something else": (
        reply({"object": "list"}),
        Unreachable,
        "URL /api/v1/query: the answer is not Prometheus's; correct the address",
    ),
    "a redirect": (
        reply("", 302, headers=("location: https://login.example.org/?next=x",)),
        Unreachable,
        "URL is redirected (302) to https://login.example.org/?next=x; write that address, or pass a key",
    ),
    "JSON nested without end": (
        reply("[" * 200_000),
        Unreachable,
        "URL answers /api/v1/query with no JSON, as no Prometheus does; correct the address",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_each_failure_is_one_line(name: str) -> None:
    answer, kind, line = REFUSALS[name]
    assert failure(answer) == (kind, f"monitoring.prometheus: {line}")


def test_where_not_even_the_time_is_told_the_address_is_another_servers() -> None:
    with pytest.raises(Unreachable, match="/api/v1/query: HTTP 404, as from no Prometheus; correct the address"):
        asked({}, lambda p: p.now())
    with pytest.raises(Refused, match=r"/api/v1/query: HTTP 503$"):
        asked({QUERY: reply("starting", 503)}, lambda p: p.now())


def test_a_server_that_wants_a_key_is_told_from_one_that_refuses_it() -> None:
    async def run() -> str:
        async with serving(ByPath({QUERY: reply("", 401)})) as fake, Prometheus(fake.origin) as prometheus:
            with pytest.raises(Unreachable) as caught:
                await prometheus.query("up")
            return str(caught.value)

    assert asyncio.run(run()).endswith("answers /api/v1/query with 401; it wants a key")


def test_no_secret_is_in_a_message_whatever_the_server_says() -> None:
    echo = reply(
        {"status": "error", "errorType": "x", "error": f"no {SECRET} {KEY} Ym9iOnBhc3Mtd29yZC0x\n\x1b[31m"}, 400
    )
    for rest in ({}, {"key": KEY}):
        _, line = failure(echo, **rest)
        assert SECRET not in line
        assert "Ym9iOnBhc3Mtd29yZC0x" not in line
        assert line.isprintable()
    assert KEY not in line


def test_an_answer_without_end_is_not_read_to_the_end() -> None:
    kind, line = failure(reply("x" * (17 << 20)))
    assert kind is Refused
    assert line.endswith("/api/v1/query: the answer is larger than 16 MiB; ask for less")


def test_a_server_that_hangs_is_not_waited_for() -> None:
    kind, line = failure(None, wait=0.2)
    assert kind is Unreachable
    assert line.endswith("/api/v1/query was not answered within 0.2 s; look at its log")


def gone(url: str) -> str:
    async def run() -> str:
        async with Prometheus(url, wait=5.0) as prometheus:
            with pytest.raises(Unreachable) as caught:
                await prometheus.now()
            return str(caught.value)

    return asyncio.run(run())


def test_a_port_where_nothing_listens() -> None:
    assert gone("http://bob:pass-word-1@127.0.0.1:1") == (
        "monitoring.prometheus: http://127.0.0.1:1 has nothing that listens (connection refused); start Prometheus or "
        "correct the address"
    )


def test_what_is_no_http_and_what_is_other_tls() -> None:
    async def plain() -> str:
        async with raw(b"220 smtp ready\r\n") as fake, Prometheus(fake.origin) as prometheus:
            with pytest.raises(Unreachable, match="gives no answer"):
                await prometheus.now()
            return fake.origin

    async def secure() -> None:
        async with serving({}, tls_context()) as fake, Prometheus(fake.origin) as prometheus:
            with pytest.raises(Unreachable, match="has a certificate that is not trusted"):
                await prometheus.now()

    asyncio.run(plain())
    asyncio.run(secure())


@pytest.mark.parametrize("url", ["prom:9090", "ftp://h", "http://", "http://h:99999", "http://bob:pass-word-1@[::1"])
def test_an_address_that_is_none_is_the_users_mistake(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Prometheus(url, where="--prometheus")
    assert str(caught.value).startswith("--prometheus: ")
    assert str(caught.value).endswith("is no http:// or https:// address; write http://HOST:PORT")
    assert SECRET not in str(caught.value)
