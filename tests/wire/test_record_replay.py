"""The recorder and the replayer against a small server, and an audit's load replayed on the virtual clock."""

import asyncio
import io
import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.probe.load import LocalSource, ask
from auditor.probe.prompts import Prompts
from auditor.probe.transport import Target
from tests.wire.byteserver import ByteServer, Request, Script, head, tokens
from tests.wire.record import Recorder, masked
from tests.wire.replay import Replay, load

KEY = "sk-canary-123"


def _page(body: bytes) -> bytes:
    return head(kind="application/json", framing=f"content-length: {len(body)}") + body


def _engine(request: Request, number: int) -> Script:
    """Answers slower and slower, counts its requests, and shows the key as some engines do."""
    if request.head.startswith("GET"):
        return [(0.0, _page(json.dumps({"seen": number, "api_key": KEY}).encode()))]
    return tokens(3, first=0.1 * (number + 1), gap=0.05, prompt=len(request.body))


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n".encode())
    try:
        return await reader.readuntil(b"}")
    finally:
        writer.close()


def _target(port: int) -> Target:
    return Target(url=f"http://127.0.0.1:{port}/v1", model="m", headers={"Authorization": f"Bearer {KEY}"})


async def _recorded(path: Path) -> list[Sample]:
    """Record a GET, two requests, a GET."""
    with lzma.open(path, "wt", encoding="utf-8") as out:
        async with ByteServer(_engine) as engine:
            recorder = Recorder(engine.url.removesuffix("/v1"), out)
            port = await recorder.start()
            await _get(port, "/info")
            seen = [await ask(_target(port), "word " * n, 3) for n in (10, 1000)]
            await _get(port, "/info")
            await asyncio.sleep(1)
            await recorder.stop()
            assert recorder.count == 4
    return seen


def test_a_recording_keeps_bytes_and_times_and_no_secret(tmp_path: Path) -> None:
    seen = run_virtual(_recorded(tmp_path / "r.jsonl.xz"))
    assert [sample.ttft for sample in seen] == pytest.approx([0.2, 0.3])
    text = lzma.decompress((tmp_path / "r.jsonl.xz").read_bytes()).decode()
    assert KEY not in text
    assert '\\"api_key\\": \\"*************\\"' in text
    first, post, *_ = load(tmp_path / "r.jsonl.xz")
    assert (first.line, post.line) == ("GET /info", "POST /v1/chat/completions")
    assert sum(size for _, size in post.reads) == len(post.reply)
    # the head with the role at once, the first token 200 ms later, two more at 50 ms, and the ending with the last
    assert sorted({round(ms) for ms, _ in post.reads}) == [0, 200, 250, 300]


def test_a_replay_answers_by_length_and_by_moment(tmp_path: Path) -> None:
    async def again() -> tuple[list[bytes], list[Sample], list[str]]:
        async with Replay(load(tmp_path / "r.jsonl.xz")) as replay:
            pages = [await _get(replay.port, "/info")]
            samples = [await ask(_target(replay.port), "word " * n, 3) for n in (999, 11)]
            pages.append(await _get(replay.port, "/info"))
            assert b"404 Not Found" in await _get(replay.port, "/other")
            return pages, samples, replay.unknown

    recorded = run_virtual(_recorded(tmp_path / "r.jsonl.xz"))
    pages, samples, unknown = run_virtual(again())
    assert [page.partition(b'"seen": ')[2][:1] for page in pages] == [b"0", b"3"]
    assert [sample.ttft for sample in samples] == pytest.approx([0.3, 0.2])
    assert [sample.prompt_tokens for sample in samples] == [recorded[1].prompt_tokens, recorded[0].prompt_tokens]
    assert unknown == ["GET /other"]


def test_a_question_has_its_own_answer_whatever_was_asked_before(tmp_path: Path) -> None:
    """Requests as long as each other, in another order, one of them twice."""
    asked = [f"POST /tokenize HTTP/1.1\r\n\r\n{{{word} {word}}}" for word in ("the", "and", "for")]
    with lzma.open(tmp_path / "r.jsonl.xz", "wt", encoding="utf-8") as out:
        for number, request in enumerate(asked):
            row = {"at": number, "end": number + 1, "request": request, "reply": f"{number}", "reads": [[0, 1]]}
            out.write(json.dumps(row) + "\n")
    replay = Replay(load(tmp_path / "r.jsonl.xz"))
    found = [replay._find(asked[number].encode()) for number in (2, 0, 2, 1)]
    assert [exchange and exchange.reply for exchange in found] == [b"2", b"0", b"2", b"1"]


def test_a_load_through_the_recorder_is_the_same_when_replayed(tmp_path: Path) -> None:
    shapes = tuple(Shape(cls="c", prompt_tokens=20 * (n + 1), output_tokens=3) for n in range(6))
    plan = Load(id="l", purpose="slo", concurrency=1, shapes=shapes)
    path = tmp_path / "r.jsonl.xz"

    async def live() -> Measurement:
        with lzma.open(path, "wt", encoding="utf-8") as out:
            async with ByteServer(_engine) as engine:
                recorder = Recorder(engine.url.removesuffix("/v1"), out)
                target = _target(await recorder.start())
                got = await LocalSource(target, Prompts(0, 1.0, 0, nonce="")).run(plan)
                await asyncio.sleep(1)
                await recorder.stop()
                return got

    async def again() -> Measurement:
        async with Replay(load(path)) as replay:
            return await LocalSource(_target(replay.port), Prompts(9, 1.0, 0, nonce="")).run(plan)

    first, second = run_virtual(live()), run_virtual(again())
    assert all(sample.good for sample in first.samples)
    for a, b in zip(first.samples, second.samples, strict=True):
        assert b.arrivals == pytest.approx(a.arrivals, abs=1e-5)
        assert (b.prompt_tokens, b.output_tokens) == (a.prompt_tokens, a.output_tokens)


def test_masks_keep_lengths() -> None:
    assert masked(b"a secret and secret2", [b"secret", b"secret2"]) == b"a ****** and *******"


def test_a_recorder_takes_its_secrets_from_headers_only_once_seen() -> None:
    out = io.StringIO()
    recorder = Recorder("http://h", out)
    recorder._write(b"GET / HTTP/1.1\r\nX-Api-Key: abc123\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nabc123", [], 0.0, 1.0)
    assert "abc123" not in out.getvalue()


def test_the_program_writes_a_whole_file_when_it_is_told_to_end(tmp_path: Path) -> None:
    out = tmp_path / "new" / "r.jsonl.xz"
    command = [sys.executable, "-m", "tests.wire.record", "--url", "http://127.0.0.1:9", "--out", str(out)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root) as program:
        assert program.stderr is not None
        assert "recording http://127.0.0.1:9 on http://127.0.0.1:" in program.stderr.readline()
        program.terminate()
        assert program.wait(timeout=20) == 0
        assert program.stderr.read().startswith("0 exchanges in ")
    assert load(out) == ()
