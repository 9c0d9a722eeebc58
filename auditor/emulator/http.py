"""HTTP/1.1 over asyncio.Protocol: one request at a time per connection, keep-alive, chunked streams."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from auditor.emulator.clock import Clock

__all__ = ["Connection", "Exchange", "HttpRequest", "Response", "chunk", "json_response"]

MAX_HEAD = 65_536
MAX_BODY = 64 * 2**20
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request. Header names in lower case; `path` without the query."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A whole reply. `chunked` sends the body as one chunk instead of with its length."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    chunked: bool = False


def json_response(data: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A JSON reply, written without spaces as the engines do."""
    body = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    return Response(status, body, "application/json", headers)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Exchange:
    """One request's way back to its client. `gone` is called once if the client leaves before the end."""

    __slots__ = ("_connection", "arrival", "gone", "open", "write")

    def __init__(self, connection: "Connection", arrival: float) -> None:
        self._connection = connection
        self.arrival = arrival
        self.open = True
        self.gone: Callable[[], None] | None = None
        self.write: Callable[[bytes], None] = connection.transport.write

    def head(self, status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
        """Status line and headers, ending with the empty line."""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"date: {self._connection.clock.date()}"]
        lines += [f"{name}: {value}" for name, value in (*self._connection.extra, *headers)]
        if self._connection.closing:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def respond(self, response: Response) -> None:
        """Send a whole reply and end the exchange."""
        headers = list(response.headers)
        if not response.chunked:
            headers.insert(0, ("content-length", str(len(response.body))))
        if response.content_type:
            headers.append(("content-type", response.content_type))
        headers.append(("vary", "Origin"))
        body = response.body
        if response.chunked:
            headers.append(("transfer-encoding", "chunked"))
            body = chunk(body) + LAST_CHUNK
        self.write(self.head(response.status, tuple(headers)) + body)
        self.end()

    def stream_head(self) -> bytes:
        """The head of an event stream."""
        return self.head(
            200,
            (
                ("content-type", "text/event-stream; charset=utf-8"),
                ("vary", "Origin"),
                ("transfer-encoding", "chunked"),
            ),
        )

    def end(self) -> None:
        """The reply is complete: the connection takes its next request, or closes."""
        self.open = False
        self.gone = None
        self._connection.finished()

    def reset(self) -> None:
        """Cut the connection without a goodbye; `gone` is called as if the client had left."""
        self._connection.transport.abort()


class Connection(asyncio.Protocol):
    """One client connection: parses requests and hands each to `handle` with its Exchange."""

    def __init__(
        self,
        handle: Callable[[HttpRequest, Exchange], None],
        clock: Clock,
        extra: tuple[tuple[str, str], ...],
        connections: "set[Connection]",
    ) -> None:
        self._handle = handle
        self._connections = connections
        self._buffer = bytearray()
        self._head: tuple[str, str, str, dict[str, str]] | None = None
        self._exchange: Exchange | None = None
        self._loop = asyncio.get_running_loop()
        self.clock = clock
        self.extra = extra
        self.closing = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """The client left: whoever works for it is told."""
        self._connections.discard(self)
        exchange, self._exchange = self._exchange, None
        if exchange and exchange.open:
            exchange.open = False
            if exchange.gone:
                exchange.gone()

    def data_received(self, data: bytes) -> None:
        """Collect bytes; start the next request if none is being answered."""
        self._buffer += data
        if self._exchange is None:
            self._next()
        elif len(self._buffer) > MAX_BODY:
            self.transport.abort()

    def finished(self) -> None:
        """The current exchange has ended."""
        self._exchange = None
        if self.closing:
            self.transport.close()
        elif self._buffer:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        try:
            request = self._parse()
        except ValueError as error:
            self.closing = True
            self._exchange = Exchange(self, self.clock.now())
            self._exchange.respond(Response(400, str(error).encode(), "text/plain; charset=utf-8"))
            return
        if request is not None and not self.transport.is_closing():
            self.closing = request.headers.get("connection", "").lower() == "close"
            self._exchange = Exchange(self, self.clock.now())
            self._handle(request, self._exchange)

    def _parse(self) -> HttpRequest | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise ValueError("Request header is too long.")
                return None
            self._head = _parse_head(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
            if self._head[3].get("expect", "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, path, query, headers = self._head
        body = self._chunked_body() if "chunked" in headers.get("transfer-encoding", "") else self._sized_body(headers)
        if body is None:
            return None
        self._head = None
        return HttpRequest(method, path, query, headers, body)

    def _sized_body(self, headers: Mapping[str, str]) -> bytes | None:
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            raise ValueError("Invalid content length.")
        size = int(length)
        if len(self._buffer) < size:
            return None
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    def _chunked_body(self) -> bytes | None:
        parts, at = [], 0
        while True:
            line = self._buffer.find(b"\r\n", at)
            if line < 0:
                return None
            size = int(bytes(self._buffer[at:line]).split(b";")[0], 16)
            start = line + 2
            if size > MAX_BODY or start > MAX_BODY:
                raise ValueError("Body is too long.")
            if len(self._buffer) < start + size + 2:
                return None
            parts.append(bytes(self._buffer[start : start + size]))
            at = start + size + 2
            if size == 0:
                del self._buffer[:at]
                return b"".join(parts)


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError("Invalid HTTP request received.")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("Invalid HTTP request received.")
        headers[name.strip().lower()] = value.strip()
    if parts[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    path, _, query = parts[1].partition("?")
    return parts[0], path, query, headers
