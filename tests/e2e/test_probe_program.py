"""`audit probe` as a program of its own, on real sockets: what a pipeline sees of it."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.wire.byteserver import ByteServer
from tests.wire.endpoint import Endpoint

pytestmark = pytest.mark.slow


def program(endpoint: Endpoint, *flags: str, interrupt_after: int = 0) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); SIGINT after so many generations, and again."""

    async def run() -> tuple[int, str, str]:
        async with ByteServer(endpoint) as server:
            command = (sys.executable, "-m", "auditor", "probe", "--url", server.url, "--prompt-tokens", "16:64")
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, *flags, stdout=pipe, stderr=pipe)
            while interrupt_after and len(endpoint.told) < interrupt_after:
                await asyncio.sleep(0.05)
            if interrupt_after:
                process.send_signal(signal.SIGINT)  # twice, as `timeout` and some terminals do
                await asyncio.sleep(0.005)
                process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
            assert process.returncode is not None
            return process.returncode, out.decode(), err.decode()

    return asyncio.run(run())


def test_counts_rows_and_the_exit_code_agree_with_the_server(tmp_path: Path) -> None:
    outcomes = {3: "fail", 5: "drop", 7: "in_stream", 9: "early"}
    endpoint, file = Endpoint(lambda number: outcomes.get(number, "ok")), tmp_path / "rows.jsonl"
    flags = ["--concurrency", "4", "--requests", "20", "--output-tokens", "8", "--json", "--requests-out", str(file)]
    code, out, err = program(endpoint, *flags)
    said: dict[str, Any] = json.loads(out)
    assert code == 1  # 3 of 20 failed, 1 % may
    assert said["requests"] | {"ok": 17, "failed": 3, "short": 1} == said["requests"]
    assert said["errors"] == {"http_5xx": 1, "cut_off": 1, "in_stream": 1}
    assert said["output_tokens"] == sum(told.tokens for told in endpoint.told) == 16 * 8 + 3 * 4
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    told = {one.id: (one.prompt_tokens, one.tokens) for one in endpoint.told}
    assert len(rows) == 20
    for row in rows:
        if row["ok"]:
            assert told[row["server_id"]] == (row["prompt_tokens"], row["output_tokens"])
    assert "20 requests done" in err
    assert "Traceback" not in err


def test_allowed_failures_exit_with_0() -> None:
    endpoint = Endpoint(lambda number: "fail" if number == 3 else "ok")
    code, out, _ = program(endpoint, "--requests", "10", "--output-tokens", "2", "--error-rate", "10%")
    assert code == 0
    assert out.startswith("9 of 10 requests good")


def test_ctrl_c_prints_what_was_measured() -> None:
    flags = ["--concurrency", "2", "--requests", "5000", "--output-tokens", "3", "--json"]
    code, out, err = program(Endpoint(), *flags, interrupt_after=20)
    said = json.loads(out)
    assert code == 130
    assert said["stopped"] == "interrupted"
    assert said["requests"]["ok"] >= 10
    assert said["requests"]["not_sent"] > 4000
    assert "Traceback" not in err


def test_an_open_loop_sends_whatever_comes_back() -> None:
    endpoint = Endpoint(lambda number: "stall" if number % 2 else "ok")
    flags = ["--rate", "100/s", "--arrivals", "constant", "--requests", "40", "--output-tokens", "2", "--stall", "1s"]
    code, out, _ = program(endpoint, *flags, "--json")
    said = json.loads(out)
    assert code == 1
    assert (said["requests"]["ok"], said["errors"]) == (20, {"stalled": 20})
    assert said["late_ms"]["p50"] is not None
    assert said["peak_concurrency"] > 10
