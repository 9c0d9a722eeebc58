"""Servers with habits of their own: how they keep connections, shake hands, queue, freeze and hold events back."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.wire.byteserver import HOLD, ByteServer, Request, Script, head, read_request
from tests.wire.pitfalls import delta, ended, plain

__all__ = ["PEM", "QUICK", "Keeping", "Serial", "SlowShake", "certified", "clumps", "only"]

PEM = Path(__file__).parents[1] / "unit" / "loopback.pem"
QUICK = plain(0.1, 0.01, 4)
X = delta(content="x")


@dataclass
class Keeping(ByteServer):
    """Keeps a connection for `replies` requests; closes it `idle` seconds after a reply, or upon the next request."""

    replies: int = 1000
    idle: float | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held.append(writer)
        self.accepted += 1
        try:
            for _ in range(self.replies):
                self.requests.append(await asyncio.wait_for(read_request(reader), self.idle))
                assert not callable(self.script)
                await self._play([*self.script, HOLD], writer)
            await reader.read(1)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


@dataclass
class SlowShake(ByteServer):
    """TLS behind a relay that takes 200 ms to pass on what a connection says first."""

    tls: ssl.SSLContext | None = field(default_factory=certified)

    async def __aenter__(self) -> "SlowShake":
        await ByteServer.__aenter__(self)
        self._inner = self.port
        self._relay = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = self._relay.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self._relay.close()
        await ByteServer.stop(self)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        await asyncio.sleep(0.2)
        behind, out = await asyncio.open_connection("127.0.0.1", self._inner)
        out.write(first)
        await asyncio.gather(_pump(reader, out), _pump(behind, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()
    except ConnectionError:
        return


class Serial:
    """One request after the other, `seconds` each; then its further three tokens over `reply` seconds, if any.

    None is served while it is frozen, (from, until) after the first request.
    """

    def __init__(self, seconds: float, reply: float = 0.0, frozen: tuple[float, float] = (0.0, 0.0)) -> None:
        self.seconds, self.reply, self.frozen, self.free, self.began = seconds, reply, frozen, 0.0, 0.0

    def __call__(self, request: Request, number: int) -> Script:
        if not number:
            self.began = self.free = request.at
        start = max(request.at, self.free)
        begin, until = (self.began + at for at in self.frozen)
        start = until if begin <= start < until else start
        self.free = start + self.seconds
        return plain(self.free - request.at, self.reply / 3, 4 if self.reply else 1)


def only(path: str) -> Callable[[Request, int], Script]:
    """Serves one path and nothing else."""
    missing: Script = [(0.0, head("404 Not Found", framing="content-length: 0"))]
    return lambda request, _number: QUICK if request.path == path else missing


def clumps(size: int, events: int, gap: float) -> Script:
    """Events that a proxy passes on whenever it holds `size` of them."""
    first: Script = [(gap * size, head(framing="server: nginx/1.27\r\ntransfer-encoding: chunked") + X * size)]
    rest = [(gap * size, X * size)] * (events // size - 1)
    return [*first, *rest, (0.0, ended(events))]
