"""Pitfalls as rows: what a server sends, what must be seen, how the product and a naive reader see it.

A row names a way in which some benchmark measured wrong, with the public report of it. `ours` and `naive` give what
each saw, by the same names; a row whose naive reader sees the same says why it `stays`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Deadlines, Target
from tests.wire import naive
from tests.wire.byteserver import ByteServer, Request, Script, chunked, head, sse

__all__ = [
    "END", "LAST", "Row", "check", "delta", "differs", "ended", "event", "finish", "measure", "misled",
    "naive_bench", "pieces", "plain", "reply_row", "seen", "usage",
]  # fmt: skip

Scripted = Script | Callable[[Request, int], Script]
Sight = Callable[[], Mapping[str, Any]]

SMALL = 4096  # bytes that are sent one by one; a longer script is sent in pieces of this share of it
TOLERANCE = 0.002  # seconds: a few polls of the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pitfall. `want` is what must be seen; `split` is what the product sees when the bytes come one by one."""

    name: str
    source: str
    want: Mapping[str, Any]
    ours: Sight
    naive: Sight
    split: Sight | None = None
    stays: str = ""


def differs(row: Row, sight: Sight) -> dict[str, Any]:
    """What was seen otherwise than wanted, {} if nothing."""
    saw = sight()
    return {name: saw.get(name) for name, value in row.want.items() if not _same(name, saw.get(name), value)}


def misled(row: Row) -> str:
    """What the naive reader sees otherwise, in the names that it has; "" if nothing. It may crash."""
    try:
        saw = row.naive()
    except Exception as crash:
        return repr(crash)
    wrong = {name: saw[name] for name, value in row.want.items() if name in saw and not _same(name, saw[name], value)}
    return str(wrong) if wrong else ""


def _same(name: str, saw: Any, wanted: Any) -> bool:
    if name == "detail" and wanted is not None:
        return re.search(wanted, saw or "") is not None
    if isinstance(wanted, float) and saw is not None:
        return bool(saw == pytest.approx(wanted, abs=TOLERANCE, rel=0.01))
    return bool(saw == wanted)


def check(row: Row) -> None:
    """The product sees what must be seen, and sees the same in every split."""
    assert differs(row, row.ours) == {}, row.source
    if row.split is not None:
        assert differs(row, row.split) == {}, f"byte by byte: {row.source}"


# --------------------------------------------------------------------------------------------------------------- bytes


def event(data: Mapping[str, Any] | str) -> bytes:
    """One event in one HTTP chunk."""
    return sse(data if isinstance(data, str) else json.dumps(data))


def delta(_finish: str | None = None, /, **fields: Any) -> bytes:
    """A chat event."""
    return event({"id": "r", "choices": [{"index": 0, "delta": fields, "finish_reason": _finish}]})


def finish(reason: str = "stop") -> bytes:
    """The event that ends a chat reply."""
    return delta(reason)


def usage(output: int, prompt: int = 7, **more: Any) -> bytes:
    """The server's own counts, in an event of their own."""
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return event({"id": "r", "choices": [], "usage": counts | more})


LAST = chunked(b"")
END = event("[DONE]") + LAST


def ended(output: int, reason: str = "stop") -> bytes:
    """The end of a good reply of `output` tokens: finish, usage, [DONE]."""
    return finish(reason) + usage(output) + END


def plain(first: float, gap: float, tokens: int, *more: bytes) -> Script:
    """A well-behaved reply: `tokens` events, then `more` and the end."""
    x = delta(content="x")
    ending = b"".join(more) or finish() + usage(tokens)
    return [(first, head() + x), *[(gap, x)] * (tokens - 1), (0.0, ending + END)]


def pieces(script: Script) -> Script:
    """The same bytes at the same times, one by one (a long script in a few thousand pieces)."""
    total = sum(len(step[1]) for step in script if not isinstance(step, str))
    size = max(1, total // SMALL)
    out: list[Any] = []
    for step in script:
        if isinstance(step, str):
            out.append(step)
            continue
        delay, data = step
        parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        out += [(delay if not number else 0.0, part) for number, part in enumerate(parts)]
    return out


# ------------------------------------------------------------------------------------------------------------- product

WAITS = Deadlines(connect=5, first_token=100, gap=20, total=500)


def measure(
    script: Scripted,
    *,
    requests: int = 1,
    concurrency: int = 1,
    warmup: int = 0,
    output: int = 64,
    waits: Deadlines = WAITS,
    load: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
) -> tuple[Measurement, ByteServer]:
    """A load against scripted replies, in virtual time."""
    shape = Shape(cls="chat", prompt_tokens=7, output_tokens=output)
    fields = {"shapes": (shape,) * requests, "warmup": (shape,) * warmup, "concurrency": concurrency}
    made = Load(id="slo", purpose="slo", **{**fields, **(load or {})})  # type: ignore[arg-type]

    async def run() -> tuple[Measurement, ByteServer]:
        async with ByteServer(script) as server:
            where = Target(url=server.url, model="m", **(target or {}))
            source = LocalSource(where, Prompts(1, 1.0, 0, nonce=""), waits)
            return await source.run(made), server

    return run_virtual(run())


def seen(sample: Sample) -> dict[str, Any]:
    """A sample by the names that rows use."""
    return {
        "good": sample.good,
        "error": sample.error,
        "detail": sample.detail,
        "ttft": sample.ttft,
        "first_answer": sample.first_answer,
        "e2e": sample.e2e,
        "tpot": sample.tpot,
        "tokens": sample.output_tokens,
        "prompt": sample.prompt_tokens,
        "cached": sample.cached_tokens,
        "events": len(sample.arrivals),
        "gap": sample.largest_gap,
        "estimated": sample.estimated,
        "buffered": sample.buffered,
        "finish": sample.finish_reason,
        "status": sample.status,
    }


# --------------------------------------------------------------------------------------------------------------- naive


def naive_bench(script: Scripted, **more: Any) -> tuple[list[naive.Answer], int, ByteServer]:
    """What the naive reader keeps of a load in virtual time."""

    async def run() -> tuple[list[naive.Answer], int, ByteServer]:
        async with ByteServer(script) as server:
            return *await naive.bench(server.url, **more), server

    return run_virtual(run())


_USAGE = re.compile(rb"[0-9a-f]+\r\ndata: [^\n]*\"choices\": \[\], \"usage\"[^\n]*\n\n\r\n")


def _unasked(script: Script) -> Script:
    """The script without the counts that `usage` adds: servers send these to those who ask, and it does not."""
    return [step if isinstance(step, str) else (step[0], _USAGE.sub(b"", step[1])) for step in script]


def _naive_reply(script: Script, output: int) -> dict[str, Any]:
    answers, _, _ = naive_bench(_unasked(script), requests=1, concurrency=1, output_tokens=output)
    if not answers:
        return {"good": False}
    (a,) = answers
    saw: dict[str, Any] = {"good": True, "ttft": a.ttft, "e2e": a.e2e, "tokens": a.tokens, "events": a.tokens}
    return saw | {"tpot": a.tpot, "gap": max(a.gaps), "prompt": a.prompt_tokens}


# ---------------------------------------------------------------------------------------------------------------- rows


def reply_row(
    name: str, source: str, script: Script, *, output: int = 64, stays: str = "", split: bool = True, **want: Any
) -> Row:
    """One reply: `want` in the names of `seen`."""

    def ours(sent: Script) -> Sight:
        return lambda: seen(measure(sent, output=output)[0].samples[0])

    return Row(
        name=name,
        source=source,
        want=want,
        ours=ours(script),
        split=ours(pieces(script)) if split else None,
        naive=lambda: _naive_reply(script, output),
        stays=stays,
    )
