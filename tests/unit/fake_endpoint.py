"""Servers for tests, byte by byte: each request gets the bytes that a test wrote down, then the connection closes."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Answer = bytes | None | Callable[["Asked"], "bytes | None"]


@dataclass(frozen=True)
class Asked:
    """One request as it came: method, path, headers by lower-case name, body as JSON (None: it had none)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any = None


@dataclass
class Fake:
    """A server that is running: its origin ("http://127.0.0.1:1234") and the requests that came."""

    origin: str = ""
    asked: list[Asked] = field(default_factory=list)

    @property
    def host(self) -> str:
        """Host and port."""
        return self.origin.partition("://")[2]

    def paths(self, method: str) -> list[str]:
        """The paths of the requests of one method, in order."""
        return [one.path for one in self.asked if one.method == method]


def reply(body: Any, status: int = 200, kind: str = "application/json", headers: Sequence[str] = ()) -> bytes:
    """An HTTP reply with a Content-Length; a dict or list becomes JSON."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        f"content-type: {kind}",
        *headers,
        f"content-length: {len(data)}",
        "connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def stream(events: Sequence[Any]) -> bytes:
    """A chunked event stream, one chunk an event."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    data = [f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n".encode() for one in [*events, "[DONE]"]]
    return head + b"".join(f"{len(d):x}\r\n".encode() + d + b"\r\n" for d in data) + b"0\r\n\r\n"


def generation(
    asked: Asked, *, usage: bool = True, tokens: int | None = None, prompt_tokens: int | None = None
) -> bytes:
    """A streamed reply of as many tokens as were asked for, one event a token, as vLLM sends it.

    One token a word and 10 for the template, unless `prompt_tokens` says otherwise.
    """
    body = asked.body
    count = tokens if tokens is not None else body.get("max_tokens") or body.get("max_completion_tokens")
    chat = asked.path.endswith("/chat/completions")
    text = body["messages"][0]["content"] if chat else body["prompt"]
    events: list[dict[str, Any]] = []
    for number in range(count):
        last = "length" if number == count - 1 else None
        choice = {"delta": {"content": " a"}} if chat else {"text": " a"}
        events.append({"id": "1", "choices": [{"index": 0, **choice, "finish_reason": last}]})
    if usage and body.get("stream_options"):
        prompt = prompt_tokens if prompt_tokens is not None else len(text.split()) + 10
        counts = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
        events.append({"id": "1", "choices": [], "usage": counts})
    return stream(events)


@asynccontextmanager
async def serving(answers: Mapping[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Fake]:
    """Serve `answers` ("GET /v1/models" -> bytes, a function of the request, or None for silence) on loopback.

    What is not listed answers 404 in FastAPI's words.
    """
    fake = Fake()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            if asked is None:
                return
            fake.asked.append(asked)
            answer = answers.get(f"{asked.method} {asked.path}", reply({"detail": "Not Found"}, 404))
            data = answer(asked) if callable(answer) else answer
            if data is None:
                await reader.read()
            else:
                writer.write(data)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()

    async with _listening(handle, tls) as port:
        fake.origin = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield fake


@asynccontextmanager
async def raw(data: bytes) -> AsyncIterator[Fake]:
    """A server that sends these bytes whatever is asked, and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(data)
        writer.close()

    async with _listening(handle, None) as port:
        yield Fake(f"http://127.0.0.1:{port}")


@asynccontextmanager
async def _listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], tls: ssl.SSLContext | None
) -> AsyncIterator[int]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = int(headers.get("content-length", 0))
    body = json.loads(await reader.readexactly(size)) if size else None
    return Asked(method, path, headers, body)


PEM = Path(__file__).with_name("loopback.pem")


def tls_context() -> ssl.SSLContext:
    """TLS with a self-signed certificate for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context
