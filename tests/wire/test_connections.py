"""Connections that are kept, closed and broken between and during requests, on the virtual clock."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.pool import Pool
from auditor.probe.prompts import Prompts
from auditor.probe.target import Address, Deadlines, Target, address_of, request_bytes
from auditor.probe.transport import Exchange, exchange
from tests.wire.byteserver import CLOSE, HOLD, RESET, ByteServer, Request, Script, chunked, head, sse, tokens

WAITS = Deadlines(connect=5, first_token=100, gap=20, total=500)
DONE = sse('{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}') + chunked(b"")
GOOD: Script = [(0.0, head()), (0.1, DONE)]


def load(
    script: Script | Callable[[Request, int], Script], count: int, slots: int = 1
) -> tuple[Measurement, ByteServer]:
    """A closed loop on a server that keeps connections."""
    shape = Shape(cls="c", prompt_tokens=8, output_tokens=1)

    async def run() -> tuple[Measurement, ByteServer]:
        async with ByteServer(script, keep=True) as server:
            source = LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0, nonce=""), WAITS)
            return await source.run(Load(id="l", purpose="slo", concurrency=slots, shapes=(shape,) * count)), server

    return run_virtual(run())


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Address]:
    """Where a server of a test's own listens; none of its connections outlives it."""
    writers: list[asyncio.StreamWriter] = []

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    server = await asyncio.start_server(serving, "127.0.0.1", 0)
    async with server:
        yield address_of(Target(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", model="m"))
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)


def errors(measured: Measurement) -> list[str | None]:
    return [sample.error for sample in measured.samples]


def after(first: Script, then: Script = GOOD) -> Callable[[Request, int], Script]:
    """`first` for the first request, `then` for all others."""
    return lambda _request, number: first if number == 0 else then


# ----------------------------------------------------------------------------------------------------------------- kept


def test_each_slot_keeps_its_connection_and_only_its_first_request_connects() -> None:
    got, server = load(tokens(2), 20, slots=4)
    assert errors(got) == [None] * 20
    assert server.accepted == 4


def test_connections_are_open_before_the_clock_starts() -> None:
    async def run() -> tuple[int, int]:
        async with ByteServer(GOOD, keep=True) as server:
            pool = Pool(address_of(Target(url=server.url, model="m")), WAITS)
            await pool.fill(150)
            await asyncio.sleep(0.1)
            opened = server.accepted
            pool.close()
            return opened, len(server.requests)

    assert run_virtual(run()) == (150, 0)


def test_a_server_that_cannot_be_reached_is_asked_once_beforehand() -> None:
    tries = 0

    async def run() -> None:
        nonlocal tries
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        pool = Pool(address_of(Target(url=f"http://127.0.0.1:{port}/v1", model="m")), WAITS)
        await pool.fill(1000)
        tries = len(pool._idle)
        pool.close()

    run_virtual(run())
    assert tries == 0


def test_a_server_that_closes_after_each_reply_without_saying_so_gets_new_connections() -> None:
    got, server = load([*GOOD, CLOSE], 6)
    assert errors(got) == [None] * 6
    assert server.accepted == len(server.requests) == 6


@pytest.mark.parametrize(
    ("framing", "connections"),
    [
        ("content-length: {n}", 1),
        ("content-length: {n}\r\nconnection: keep-alive", 1),
        ("content-length: {n}\r\nconnection: Close", 3),
        ("content-length: {n}\r\nkeep-alive: timeout=5", 1),
        ("content-length: {n}\r\nkeep-alive: timeout=5, max=100", 3),  # a thread for each connection
    ],
)
def test_what_the_server_says_of_its_connections_counts(framing: str, connections: int) -> None:
    body = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    got, server = load([(0.1, head(framing=framing.format(n=len(body))) + body)], 3)
    assert (errors(got), server.accepted) == ([None] * 3, connections)


@pytest.mark.parametrize(("more", "connections"), [("", 3), ("connection: keep-alive\r\n", 1)])
def test_http_1_0_closes_unless_it_says_otherwise(more: str, connections: int) -> None:
    body = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    top = f"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n{more}content-length: {len(body)}\r\n\r\n"
    got, server = load([(0.1, top.encode() + body)], 3)
    assert (errors(got), server.accepted) == ([None] * 3, connections)


# ------------------------------------------------------------------------------------------------- closed while waiting


def test_a_connection_that_was_closed_as_unused_costs_no_request() -> None:
    def script(_request: Request, number: int) -> Script:
        return [CLOSE] if number in (1, 3) else GOOD  # the end crosses the request on its way

    got, server = load(script, 4)
    assert errors(got) == [None] * 4
    assert (len(server.requests), server.accepted) == (6, 3)


def test_a_request_is_sent_again_once_and_never_on_a_fresh_connection() -> None:
    got, server = load(after(GOOD, [CLOSE]), 2)
    assert errors(got) == [None, "cut_off"]
    assert len(server.requests) == 3
    got, server = load([RESET], 2)
    assert errors(got) == ["cut_off"] * 2
    assert len(server.requests) == 2


def test_a_server_that_dies_over_a_request_is_not_taken_for_one_that_closed_an_unused_connection() -> None:
    got, server = load(after(GOOD, [(3.0, b""), CLOSE]), 2)
    assert errors(got) == [None, "cut_off"]
    assert (len(server.requests), got.samples[1].closed) == (2, pytest.approx(3.0))


def test_once_a_byte_of_the_reply_came_nothing_is_sent_again() -> None:
    got, server = load(after(GOOD, [(0.0, b"H"), CLOSE]), 2)
    assert (errors(got), len(server.requests)) == ([None, "cut_off"], 2)


def test_bytes_after_a_reply_are_no_part_of_it_and_end_the_connection() -> None:
    got, server = load([(0.0, head()), (0.1, DONE + b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")], 3)
    assert (errors(got), server.accepted) == ([None] * 3, 3)


@pytest.mark.parametrize("said", [b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n", b"\x00garbage"])
def test_a_connection_on_which_something_came_unasked_is_not_used(said: bytes) -> None:
    async def run() -> tuple[Exchange, int]:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            if connections == 1:
                writer.write(said)
                return
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head() + DONE)

        async with listening(serve) as address:
            pool = Pool(address, WAITS)
            await pool.fill(1)
            await asyncio.sleep(1)
            record = Exchange(begun=pool.receiver.now())
            await exchange(pool, request_bytes(address, {}, b""), record)
            pool.close()
            return record, connections

    record, connections = run_virtual(run())
    assert (record.error, record.status, connections) == (None, 200, 2)


# ---------------------------------------------------------------------------------------------- ends during the request


def test_a_side_that_the_server_closes_after_its_reply_ends_nothing_else() -> None:
    async def run() -> tuple[Exchange, list[int]]:
        sizes: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sizes.append(len(await reader.readuntil(b"\r\n\r\n")))
            writer.write(head() + DONE)
            writer.write_eof()
            sizes.append(len(await reader.read()))

        async with listening(serve) as address:
            pool = Pool(address, WAITS)
            record = Exchange(begun=pool.receiver.now())
            await exchange(pool, request_bytes(address, {}, b""), record)
            await asyncio.sleep(0.1)
            assert not any(connection.open for connection in pool._idle)
            pool.close()
            return record, sizes

    record, sizes = run_virtual(run())
    assert (record.error, record.complete, sizes[1]) == (None, True, 0)


def test_an_answer_before_the_request_is_written_is_read_though_the_server_closes() -> None:
    refusal = head("413 Content Too Large", kind="application/json", framing="content-length: 2") + b"{}"

    async def run() -> Exchange:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(refusal)
            await writer.drain()
            await asyncio.sleep(1)
            writer.transport.abort()

        async with listening(serve) as address:
            pool = Pool(address, WAITS)
            record = Exchange(begun=pool.receiver.now())
            await exchange(pool, request_bytes(address, {}, b"x" * 20_000_000), record)
            pool.close()
            return record

    record = run_virtual(run())
    assert (record.error, record.status) == (None, 413)


def test_a_connection_that_breaks_while_a_large_request_is_written_is_cut_off() -> None:
    got, _ = load([RESET], 1)
    assert errors(got) == ["cut_off"]

    async def run() -> Exchange:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()

        async with listening(serve) as address:
            pool = Pool(address, WAITS)
            record = Exchange(begun=pool.receiver.now())
            await exchange(pool, request_bytes(address, {}, b"x" * 20_000_000), record)
            pool.close()
            return record

    record = run_virtual(run())
    assert (record.error, record.t0) == ("cut_off", None)


# ------------------------------------------------------------------------------------------------------------ open loop


def test_an_open_loop_sends_each_request_at_its_time_whatever_became_of_the_others() -> None:
    shape = Shape(cls="c", prompt_tokens=8, output_tokens=1)
    arrivals = (0.0, 0.5, 0.5, 4.0, 6.0)

    async def run() -> tuple[Measurement, int]:
        async with ByteServer(after([(0.0, head()), HOLD]), keep=True) as server:
            source = LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0, nonce=""), WAITS)
            sent = Load(
                id="l", purpose="slo", concurrency=1, shapes=(shape,) * 4, warmup=(shape,), arrivals=arrivals, rate=2.0
            )
            return await source.run(sent), server.accepted

    got, connections = run_virtual(run())
    assert [sample.start for sample in (*got.warmup, *got.samples)] == pytest.approx([0.0, 0.25, 0.25, 2.0, 3.0])
    assert [sample.late for sample in (*got.warmup, *got.samples)] == pytest.approx([0.0] * 5)
    assert ([sample.error for sample in got.warmup], errors(got)) == (["timeout"], [None] * 4)
    assert connections == 3


def test_an_open_loop_tells_how_late_a_connection_made_it() -> None:
    shape = Shape(cls="c", prompt_tokens=8, output_tokens=1)

    async def run() -> Measurement:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        source = LocalSource(Target(url=f"http://127.0.0.1:{port}/v1", model="m"), Prompts(1, 1.0, 0, nonce=""), WAITS)
        sent = Load(id="l", purpose="slo", concurrency=1, shapes=(shape,) * 3, arrivals=(0.0, 2.0, 5.0), rate=1.0)
        return await source.run(sent)

    got = run_virtual(run())
    assert errors(got) == ["connect"] * 3
    assert [sample.start for sample in got.samples] == pytest.approx([0.0, 2.0, 5.0])
    assert all(sample.late is not None for sample in got.samples)
