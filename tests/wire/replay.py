"""A server that answers as a recording says, with the recorded timing: an audit of a real engine, again, in CI.

A request is answered by a recorded one with the same method and path, whichever connection it comes on. Among the POSTs
it is the one with the same body, else the unused one that asks for as many tokens of as many words, then the earliest;
among the GETs the one that was recorded at the nearest moment of the run, counted in POSTs begun and ended, so that
metrics pages fit the requests around them, and never one from before the last: counters do not run backwards. A
recorded reply is used again only when none is left. Times count from the end of the request; on a virtual clock nothing
waits.
"""

import asyncio
import json
import lzma
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from tests.wire.record import read_message

__all__ = ["Exchange", "Replay", "load"]


_NOT_FOUND = (
    b'HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{"detail":"Not Found"}'
)


@dataclass(frozen=True)
class Exchange:
    """One recorded request and reply; `reads` are (ms after the request, bytes) pairs, `at` and `end` seconds,
    `line` the method and path, `body` what a POST asks, `words` about how many it has, `tokens` the reply's length that
    it asks for.
    """

    at: float
    end: float
    request: bytes
    reply: bytes
    reads: tuple[tuple[float, int], ...]
    line: str
    body: bytes
    words: int
    tokens: int


def line_of(request: bytes) -> str:
    """Method and path of a request."""
    return " ".join(request.split(b"\r\n", 1)[0].decode("latin-1").split()[:2])


def body_of(request: bytes) -> bytes:
    """A request's body."""
    return request.partition(b"\r\n\r\n")[2]


def tokens_of(body: bytes) -> int:
    """The number of output tokens that a request asks for, 0 where it does not say."""
    found = re.search(rb'"max_(?:completion_)?tokens": ?(\d+)', body)
    return int(found[1]) if found else 0


def load(path: Path) -> tuple[Exchange, ...]:
    """A recording, in the order in which its requests began."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return tuple(sorted(map(_exchange, lines), key=lambda exchange: exchange.at))


def _exchange(line: str) -> Exchange:
    raw = json.loads(line)
    reads = tuple((float(ms), int(size)) for ms, size in raw["reads"])
    request = raw["request"].encode("latin-1")
    reply, body = raw["reply"].encode("latin-1"), body_of(request)
    return Exchange(
        raw["at"], raw["end"], request, reply, reads, line_of(request), body, body.count(b" "), tokens_of(body)
    )


@dataclass
class Replay:
    """The server. `unknown` collects requests that the recording does not have; they get a 404."""

    exchanges: tuple[Exchange, ...]
    unknown: list[str] = field(default_factory=list)
    port: int = 0
    _used: set[int] = field(default_factory=set)
    _latest: dict[str, int] = field(default_factory=dict)
    _begun: int = 0
    _ended: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def __post_init__(self) -> None:
        posts = [exchange for exchange in self.exchanges if exchange.line.startswith("POST ")]
        self._begins = sorted(exchange.at for exchange in posts)
        self._ends = sorted(exchange.end for exchange in posts)

    async def __aenter__(self) -> "Replay":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        """The server's address without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while (request := await read_message(reader)) is not None:
                exchange = self._find(request)
                if exchange is None:
                    self.unknown.append(line_of(request))
                    writer.write(_NOT_FOUND)
                elif not await self._play(exchange, writer):
                    break
        except (ConnectionError, OSError):
            pass
        finally:
            writer.close()

    def _find(self, request: bytes) -> Exchange | None:
        line = line_of(request)
        found = [n for n, exchange in enumerate(self.exchanges) if exchange.line == line]
        if not found:
            return None
        if line.startswith("POST "):
            body = body_of(request)
            words, tokens = body.count(b" "), tokens_of(body)

            def unlike(n: int) -> tuple[bool, bool, int, int, int]:
                exchange = self.exchanges[n]
                off = abs(exchange.tokens - tokens), abs(exchange.words - words)
                return exchange.body != body, n in self._used, *off, n

            best = min(found, key=unlike)
        else:
            later = [n for n in found if n >= self._latest.get(line, 0)]
            best = min(later, key=lambda n: (self._distance(self.exchanges[n]), n in self._used, n))
            self._latest[line] = best
        self._used.add(best)
        return self.exchanges[best]

    def _distance(self, exchange: Exchange) -> int:
        """How far the recorded moment of `exchange` is from this one, in POSTs begun and ended."""
        begun, ended = bisect_right(self._begins, exchange.at), bisect_right(self._ends, exchange.at)
        return abs(begun - self._begun) + abs(ended - self._ended)

    async def _play(self, exchange: Exchange, writer: asyncio.StreamWriter) -> bool:
        """Send the reply as it came; False if the connection ended with it."""
        loop = asyncio.get_running_loop()
        start, sent, post = loop.time(), 0, exchange.line.startswith("POST ")
        self._begun += post
        try:
            for ms, size in exchange.reads:
                await asyncio.sleep(max(0.0, start + ms / 1000 - loop.time()))
                writer.write(exchange.reply[sent : sent + size])
                sent += size
                await writer.drain()
        finally:
            self._ended += post
        head = exchange.reply.partition(b"\r\n\r\n")[0].lower()
        framed = b"\r\ncontent-length:" in head or b"\r\ntransfer-encoding:" in head
        return framed and b"\r\nconnection: close" not in head
