"""A raw client for tests: writes a request, reads bytes with their loop times, takes chunks and events apart."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from auditor.emulator.server import Emulator

WORDS = " ".join(f"w{index}" for index in range(100))  # 100 tokens


@dataclass
class Seen:
    """What came back: `events` are (loop time, data) pairs; `ended` False where the connection was cut."""

    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes = b""
    events: list = field(default_factory=list)
    sent: float = 0.0
    head_at: float = 0.0
    ended: bool = False

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def data(self):
        return [json.loads(data) for _, data in self.events if data != "[DONE]"]

    @property
    def token_times(self):
        """Times of events that carry a choice with text, content or an empty token."""
        times = []
        for at, data in self.events:
            choices = json.loads(data).get("choices") if data != "[DONE]" else None
            if choices and ("text" in choices[0] or "role" not in choices[0]["delta"]):
                times.append(at)
        return times

    @property
    def usage(self):
        found = [data["usage"] for data in self.data if data.get("usage")]
        return found[-1] if found else None

    @property
    def gaps(self):
        return [b - a for a, b in pairwise(self.token_times)]


def request(path, body=None, headers=()):
    data = json.dumps(body).encode() if body is not None else b""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "host: x", f"content-length: {len(data)}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + data


async def ask(port, path, body=None, headers=(), patience=3600.0):
    """One request on its own connection; reads until the reply is complete, cut, or `patience` is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen = Seen()
    try:
        writer.write(request(path, body, (*headers, "connection: close")))
        seen.sent = asyncio.get_running_loop().time()
        async with asyncio.timeout(patience):
            await _read(reader, seen)
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
    return seen


async def _read(reader, seen):
    loop = asyncio.get_running_loop()
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    seen.head_at = loop.time()
    seen.status = int(head[0].split()[1])
    seen.headers = dict(line.split(": ", 1) for line in head[1:] if line)
    if "chunked" not in seen.headers.get("transfer-encoding", ""):
        seen.body = await reader.readexactly(int(seen.headers["content-length"]))
        seen.ended = True
        return
    while True:
        size = int((await reader.readuntil(b"\r\n")), 16)
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            seen.ended = True
            return
        seen.body += chunk[:-2]
        if chunk.startswith(b"data: "):
            seen.events.append((loop.time(), chunk[:-2].decode().removeprefix("data: ").strip()))


@asynccontextmanager
async def emulated(spec):
    """A running emulator."""
    emulator = Emulator(spec)
    await emulator.start()
    try:
        yield emulator
    finally:
        await emulator.stop()


def completion(text, tokens, **more):
    """A streamed completion of a forced length."""
    return {"prompt": text, "max_tokens": tokens, "min_tokens": tokens, "stream": True,
            "stream_options": {"include_usage": True}, **more}  # fmt: skip


def chat(text, tokens, **more):
    """A streamed chat of a forced length."""
    body = completion(text, tokens, **more)
    return {"messages": [{"role": "user", "content": body.pop("prompt")}], **body}
