"""The program in this process, against a server in a thread: what it prints, writes and exits with."""

import asyncio
import contextlib
import io
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.__main__ import main
from tests.wire.byteserver import ByteServer, head
from tests.wire.pitfalls import Scripted

__all__ = ["Said", "audit", "json_reply", "serving"]


@dataclass(frozen=True)
class Said:
    """How the program ended and all that it said and wrote."""

    code: int
    out: str
    err: str
    written: str = ""

    @property
    def everything(self) -> str:
        return self.out + self.err + self.written


@contextlib.contextmanager
def serving(script: Scripted, *, port: int = 0) -> Iterator[ByteServer]:
    """A server on its own loop, in a thread, while the block runs."""
    loop = asyncio.new_event_loop()
    server = ByteServer(script, port=port)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end(server: ByteServer) -> None:
    await server.stop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def audit(*arguments: object, folder: Path, environ: Mapping[str, str] | None = None) -> Said:
    """Run `audit ARGUMENTS` in `folder`, in this process, without the client's check on a server of its own."""
    out, err = io.StringIO(), io.StringIO()
    before = set(folder.rglob("*"))
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patched.setattr(sys, "argv", ["audit", *map(str, arguments)])
        patched.chdir(folder)
        patched.setattr("auditor.probe.instrument.self_check", _unchecked)
        for name, value in (environ or {}).items():
            patched.setenv(name, value)
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    fresh = [path for path in set(folder.rglob("*")) - before if path.is_file()]
    written = "".join(path.read_text(errors="replace") for path in sorted(fresh))
    return Said(code, out.getvalue(), err.getvalue(), written)


async def _unchecked() -> None:
    return None


def json_reply(body: str, status: str = "200 OK", more: str = "") -> list[tuple[float, bytes]]:
    """A whole reply of JSON."""
    framing = f"content-length: {len(body.encode())}{more}"
    return [(0.0, head(status, kind="application/json", framing=framing) + body.encode())]
