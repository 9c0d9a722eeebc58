"""The emulator in a process of its own, and `audit emulate`."""

import asyncio
import io
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from auditor.cli.emulate import command
from auditor.emulator import process
from auditor.emulator.process import serve, start_process
from auditor.emulator.server import Emulator
from auditor.emulator.spec import Faults, Spec
from auditor.errors import NothingMeasured, UsageError

PROFILE = Path(__file__).parents[2] / "profiles" / "embedded.yaml"


def get(url):
    with httpx.Client(trust_env=False, timeout=10) as client:
        return client.get(url)


def gone(url):
    try:
        get(f"{url}/models")
    except httpx.TransportError:
        return True
    return False


def test_it_starts_answers_and_stops():
    async def main():
        url, stop = await start_process(Spec(model="m"))
        try:
            return url, get(f"{url}/models").json()["data"][0]["id"]
        finally:
            stop()

    url, model = asyncio.run(main())
    assert model == "m"
    assert url.startswith("http://127.0.0.1:")
    assert url.endswith("/v1")
    assert gone(url)


def test_it_dies_with_its_parent():
    """A parent that is killed cannot say goodbye; the emulator ends all the same."""
    code = (
        "import asyncio, sys\n"
        "from auditor.emulator.process import start_process\n"
        "from auditor.emulator.spec import Spec\n"
        "async def main():\n"
        "    url, stop = await start_process(Spec())\n"
        "    print(url, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert get(f"{url}/models").status_code == 200
        parent.kill()
    deadline = time.monotonic() + 10
    while not gone(url) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(url)


def test_what_would_not_start_is_told_before_a_process_is_started(monkeypatch):
    monkeypatch.setattr(process.subprocess, "Popen", None)
    with pytest.raises(UsageError, match="does not start"):
        asyncio.run(start_process(Spec(weight_bits=80)))
    with pytest.raises(UsageError, match="max_model_len"):
        asyncio.run(start_process(Spec(faults=Faults(drifted={"pool_tokens": 100}))))


def test_a_process_that_does_not_come_up_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(process.sys, "executable", "/bin/true")
    with pytest.raises(NothingMeasured, match="did not start"):
        asyncio.run(start_process(Spec()))


def test_a_process_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(process, "GOODBYE", 0.1)
    stubborn = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process._stop(stubborn)
    assert stubborn.returncode == -signal.SIGKILL


def test_main_serves_the_spec_on_its_standard_input_until_that_ends():
    environment = {**os.environ, "PYTHONPATH": str(PROFILE.parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "auditor.emulator.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(pickle.dumps(Spec(version="0.25.0")))
        child.stdin.flush()
        url = child.stdout.readline().decode().strip()
        assert get(url.replace("/v1", "/version")).json() == {"version": "0.25.0"}
        child.stdin.close()
        assert child.wait(10) == 0


def test_main_ends_at_once_when_its_input_does(monkeypatch, capsys):
    for name in ("freeze", "set_threshold"):
        monkeypatch.setattr(process.gc, name, lambda *_: None)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as parent:
        parent.write(pickle.dumps(Spec()))
    with io.TextIOWrapper(os.fdopen(read, "rb")) as standard_input, monkeypatch.context() as patch:
        patch.setattr(process.sys, "stdin", standard_input)
        process.main()
    assert gone(capsys.readouterr().out.strip())


def test_serve_stops_when_its_time_is_over(monkeypatch):
    for name in ("freeze", "set_threshold"):
        monkeypatch.setattr(process.gc, name, lambda *_: None)
    said = []

    async def main():
        await serve(Spec(), said.append, lambda: asyncio.sleep(0))

    asyncio.run(main())
    assert gone(said[0])


def test_the_wall_clock_keeps_the_schedule_roughly():
    """On a real loop: 20 tokens in order, none before its step was due."""

    async def main():
        emulator = Emulator(Spec(jitter=0.0))
        await emulator.start()
        try:
            body = {"prompt": "a b", "max_tokens": 20, "ignore_eos": True}
            async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                reply = await client.post(f"{emulator.url}/completions", json=body)
            return reply.json(), emulator.record
        finally:
            await emulator.stop()

    reply, record = asyncio.run(main())
    assert reply["usage"]["completion_tokens"] == 20
    assert list(record.requests[0].times) == sorted(record.requests[0].times)
    assert min(step.lag for step in record.steps) > -0.002
    assert abs(time.time() - reply["created"]) < 30


# --------------------------------------------------------------------------------------------------------- the command


def app():
    program = typer.Typer()
    program.command()(command)
    return program


def test_emulate_prints_the_url_serves_and_ends_cleanly_on_ctrl_c():
    with subprocess.Popen(
        [sys.executable, "-m", "auditor", "emulate", str(PROFILE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        url = child.stdout.readline().strip()
        models = get(f"{url}/models").json()
        child.send_signal(signal.SIGINT)
        try:
            assert child.wait(10) == 0
        finally:
            child.kill()  # where SIGINT is ignored, nothing else would end it
        assert child.stdout.read() == ""
        assert child.stderr.read() == ""
    assert models["data"][0]["id"] == "meta-llama/Llama-3.1-8B-Instruct"


def test_emulate_refuses_what_cannot_be_emulated(tmp_path):
    profile = tmp_path / "p.yaml"
    profile.write_text(
        "version: 1\nname: p\nendpoint: {url: 'http://127.0.0.1:9/v1'}\ntraffic: {target_concurrency: 1}\n"
    )
    result = CliRunner().invoke(app(), [str(profile)])
    assert isinstance(result.exception, UsageError)
    assert "nothing to emulate" in str(result.exception)


def test_emulate_refuses_a_port_that_is_taken():
    async def main():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        result = await asyncio.to_thread(CliRunner().invoke, app(), [str(PROFILE), "--port", str(port)])
        server.close()
        return port, result

    port, result = asyncio.run(main())
    assert isinstance(result.exception, UsageError)
    assert f"--port {port}" in str(result.exception)
