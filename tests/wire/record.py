"""Record a real engine, by hand: a proxy that stands between the auditor and the engine and writes down what passes.

    python -m tests.wire.record --url http://127.0.0.1:8801 --port 8891 --out tests/wire/recordings/vllm.jsonl.xz &
    audit run profile.yaml          # with endpoint.url: http://127.0.0.1:8891/v1

One line a request: request and reply byte for byte, the arrival time of every read in ms, when it began and ended.
Secrets (the values of Authorization and x-api-key headers, of --secret-env variables) are masked by value, by as many
stars as they have bytes, so lengths and offsets stay true.
"""

import argparse
import asyncio
import json
import lzma
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from auditor.probe.framing import Framing, Limits

_SECRET_HEADER = re.compile(
    rb"(?im)^(?:authorization:[ \t]*(?:bearer|basic)?|(?:x-)?api-key:)[ \t]*([^\r\n]+?)[ \t]*\r?$"
)
_LIMITS = Limits(headers=1_000_000, body=1_000_000_000, error_body=1_000_000_000)


def masked(data: bytes, secrets: Sequence[bytes]) -> bytes:
    """`data` with every secret replaced by stars, byte for byte."""
    for secret in sorted(secrets, key=len, reverse=True):
        data = data.replace(secret, b"*" * len(secret))
    return data


@dataclass
class Recorder:
    """The proxy. `url` is the engine's address without a path; each finished exchange is written to `out`."""

    url: str
    out: TextIO
    secrets: set[bytes] = field(default_factory=set)
    port: int = 0
    count: int = 0
    _began: float = 0.0

    async def start(self, port: int = 0) -> int:
        """Listen on loopback; returns the port."""
        self._began = asyncio.get_running_loop().time()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=2**26, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def stop(self) -> None:
        """Stop listening; exchanges under way are dropped."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read_message(reader)) is not None:
                if not await self._forward(request, writer):
                    break
        except (ConnectionError, OSError, asyncio.IncompleteReadError) as problem:
            print(f"dropped a connection: {problem}", file=sys.stderr)
        finally:
            writer.close()

    async def _forward(self, request: bytes, client: asyncio.StreamWriter) -> bool:
        """Pass one request on and its reply back; False if the connection ends with it."""
        loop, parts = asyncio.get_running_loop(), urlsplit(self.url)
        reader, server = await asyncio.open_connection(parts.hostname, parts.port, limit=2**26)
        server.write(request)
        await server.drain()
        begun, framing = loop.time(), Framing(_LIMITS)
        reply, reads = bytearray(), []
        try:
            while not framing.complete and (data := await reader.read(262_144)):
                reads.append([round(1000 * (loop.time() - begun), 3), len(data)])
                reply += data
                client.write(data)
                framing.feed(data)
                await client.drain()
        finally:
            server.close()
            self._write(request, bytes(reply), reads, begun, loop.time())
        return framing.complete and framing.headers.get("connection", "").lower() != "close"

    def _write(self, request: bytes, reply: bytes, reads: list[list[float]], begun: float, ended: float) -> None:
        self.secrets |= {match[1].strip() for match in _SECRET_HEADER.finditer(request.split(b"\r\n\r\n")[0])}
        line: dict[str, Any] = {"at": round(begun - self._began, 6), "end": round(ended - self._began, 6)}
        line["request"] = masked(request, list(self.secrets)).decode("latin-1")
        line["reply"] = masked(reply, list(self.secrets)).decode("latin-1")
        line["reads"] = reads
        self.out.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.out.flush()
        self.count += 1


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """The bytes of one request (Content-Length or no body), or None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    match = re.search(rb"(?im)^content-length:[ \t]*([0-9]+)", head)
    return head + (await reader.readexactly(int(match[1])) if match else b"")


async def _record(args: argparse.Namespace) -> None:
    secrets = {value.encode() for name in args.secret_env if (value := os.environ.get(name))}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(args.out, "wt", encoding="utf-8", preset=9) as out:
        recorder = Recorder(args.url, out, secrets)
        port = await recorder.start(args.port)
        over = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, over.set)
        print(f"recording {args.url} on http://127.0.0.1:{port}; Ctrl-C or SIGTERM ends it", file=sys.stderr)
        await over.wait()
        await recorder.stop()
        print(f"{recorder.count} exchanges in {args.out}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="the engine, http://host:port")
    parser.add_argument("--out", required=True, type=Path, help="a .jsonl.xz file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--secret-env", action="append", default=[], help="a variable whose value must not be written")
    asyncio.run(_record(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
