"""A server that answers with scripted bytes at scripted times: whole, byte by byte, or cut off, as a test wants.

async with ByteServer([(0.1, OK_HEAD), (0.05, b"data: ..."), RESET]) as server:
    ... server.url, server.requests
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["CLOSE", "HOLD", "RESET", "ByteServer", "Request", "chunked", "head", "sse", "tokens"]

RESET = "reset"  # RST instead of a clean end
HOLD = "hold"  # never close
CLOSE = "close"  # a clean end, also where connections are kept
Step = tuple[float, bytes] | str
Script = Sequence[Step]


@dataclass(frozen=True)
class Request:
    """One request as it came: its head lines and its body, and when it was complete (loop time)."""

    head: str
    body: bytes
    at: float

    @property
    def path(self) -> str:
        return self.head.split()[1]

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


@dataclass
class ByteServer:
    """`script` is the same for every request, or a function of the request and its number."""

    script: Script | Callable[[Request, int], Script]
    one_byte: bool = False
    tls: ssl.SSLContext | None = None
    read_request: bool = True
    keep: bool = False  # serve further requests on the same connection
    requests: list[Request] = field(default_factory=list)
    open: int = 0
    peak: int = 0
    accepted: int = 0
    port: int = 0
    _held: list[asyncio.StreamWriter] = field(default_factory=list)

    async def __aenter__(self) -> "ByteServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection, those too that were just being accepted."""
        self._server.close()
        for _ in range(3):
            for writer in self._held:
                writer.transport.abort()
            await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held.append(writer)
        self.accepted += 1
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            while True:
                script = self.script
                if self.read_request:
                    request = await read_request(reader)
                    self.requests.append(request)
                    if callable(script):
                        script = script(request, len(self.requests) - 1)
                assert not callable(script)
                if not await self._play(script, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self.open -= 1

    async def _play(self, script: Script, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection waits for another request."""
        for step in script:
            if step == RESET:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return False
            if step == HOLD:
                return False
            if step == CLOSE:
                break
            delay, data = step
            await asyncio.sleep(delay)
            for at in range(len(data)) if self.one_byte else (0,):
                writer.write(data[at : at + 1] if self.one_byte else data)
                await writer.drain()
                await asyncio.sleep(0)
        else:
            if self.keep:
                return True
        writer.close()
        return False


async def read_request(reader: asyncio.StreamReader) -> Request:
    """One request with a Content-Length or no body."""
    top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").removesuffix("\r\n\r\n")
    lengths = [line for line in top.lower().split("\r\n") if line.startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
    return Request(top, body, asyncio.get_running_loop().time())


def head(
    status: str = "200 OK", *, kind: str = "text/event-stream", framing: str = "transfer-encoding: chunked"
) -> bytes:
    """A response head; an empty `framing` means that the body ends with the connection."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", *([framing] if framing else []), "", ""]
    return "\r\n".join(lines).encode()


def chunked(body: bytes) -> bytes:
    """One chunk; the last chunk of a message is chunked(b"")."""
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def sse(data: str) -> bytes:
    """One event in one chunk."""
    return chunked(f"data: {data}\n\n".encode())


def tokens(count: int, first: float = 0.1, gap: float = 0.02, *, usage: bool = True, prompt: int = 7) -> list[Step]:
    """A good chat stream: head and role at once, `count` tokens, finish, usage, [DONE], the last chunk."""
    role = sse('{"id":"r","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}')
    token = sse('{"id":"r","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}')
    finish = sse('{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}')
    counts = f'{{"prompt_tokens":{prompt},"completion_tokens":{count},"total_tokens":{prompt + count}}}'
    ending = sse(f'{{"id":"r","choices":[],"usage":{counts}}}') if usage else b""
    steps: list[Step] = [(0.0, head() + role), (first, token)]
    steps += [(gap, token)] * (count - 1)
    return [*steps, (0.0, finish + ending + sse("[DONE]") + chunked(b""))]
