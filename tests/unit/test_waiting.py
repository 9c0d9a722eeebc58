"""A server that is still starting is waited for, and no longer than asked."""

import asyncio
import socket

import pytest
from fake_endpoint import reply, serving

from auditor.emulator.clock import run_virtual
from auditor.errors import PreflightFailed
from auditor.probe.events import Event
from auditor.probe.waiting import until_there
from auditor.profile import Endpoint, Profile
from tests.wire.byteserver import ByteServer, head

MODELS = [(0.0, head(kind="application/json", framing="content-length: 2") + b"{}")]


def profile(url: str) -> Profile:
    return Profile(version=1, name="t", endpoint=Endpoint(url=url))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_a_server_that_listens_later_is_waited_for() -> None:
    told: list[Event] = []

    async def run() -> float:
        port, loop = free_port(), asyncio.get_running_loop()
        server, began = ByteServer(MODELS, port=port), loop.time()
        loop.call_later(7.5, lambda: loop.create_task(server.__aenter__()))
        await until_there(profile(f"http://127.0.0.1:{port}/v1"), None, 60.0, told.append)
        await server.stop()
        return loop.time() - began

    assert 7.5 <= run_virtual(run()) <= 9.0
    assert [event.kind for event in told] == ["stage"]
    assert "waiting up to 60 s" in told[0].text
    assert "connection refused" in told[0].text


@pytest.mark.parametrize("status", [503, 502, 429])
def test_a_gateway_before_a_server_that_loads(status: int) -> None:
    answers = iter([reply({"error": "loading"}, status)] * 2)

    async def run() -> list[str]:
        async with serving({"GET /v1/models": lambda _: next(answers, reply({"data": []}))}) as fake:
            await until_there(profile(fake.origin + "/v1"), None, 30.0, lambda event: None)
            return fake.paths("GET")

    assert asyncio.run(run()) == ["/v1/models"] * 3


def test_no_longer_than_asked() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until_there(profile(f"http://127.0.0.1:{free_port()}/v1"), None, 5.0, lambda event: None)
        return loop.time() - began

    assert run_virtual(run()) == pytest.approx(5.0, abs=1.0)


@pytest.mark.parametrize("status", [200, 401, 404])
def test_a_server_that_answers_is_not_waited_for(status: int) -> None:
    async def run() -> int:
        async with serving({"GET /v1/models": reply({}, status)}) as fake:
            await until_there(profile(fake.origin + "/v1"), None, 60.0, lambda event: None)
            return len(fake.asked)

    assert asyncio.run(run()) == 1


def test_nothing_is_asked_where_nobody_waits() -> None:
    async def run() -> int:
        async with serving({"GET /v1/models": reply({}, 503)}) as fake:
            await until_there(profile(fake.origin + "/v1"), None, 0.0, lambda event: None)
            return len(fake.asked)

    assert asyncio.run(run()) == 0


def test_an_address_that_is_none_is_told_at_once() -> None:
    with pytest.raises(PreflightFailed, match="ftp"):
        asyncio.run(until_there(profile("ftp://h/v1"), None, 60.0, lambda event: None))
