"""One load over several processes: real ones, on real sockets, in real time."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from auditor.errors import UsageError
from auditor.loads import Load, Shape
from auditor.measurement import Floor, Measurement, Sample, Snapshot
from auditor.probe import workers as module
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Deadlines, Target
from auditor.probe.workers import Workers, cores
from tests.wire.byteserver import ByteServer
from tests.wire.endpoint import Endpoint

pytestmark = pytest.mark.slow
WAITS = Deadlines(connect=5, first_token=5, gap=5, total=20)
FLOOR = Floor(0.0001, 0.0002, 10e-6)


def load(requests: int, concurrency: int, tokens: int = 3, *, warmup: int = 0) -> Load:
    shapes = tuple(Shape(cls="c", prompt_tokens=16 + i, output_tokens=tokens) for i in range(requests))
    return Load(id="slo", purpose="slo", concurrency=concurrency, shapes=shapes, warmup=shapes[:warmup])


@pytest.fixture(autouse=True)
def _three_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "workers_for", lambda load, cores, floor: 3)


async def measured(
    endpoint: Endpoint, asked: Load, during: Any = None, snapshot: Any = None, **more: Any
) -> Measurement:
    async with ByteServer(endpoint) as server:
        target = Target(url=server.url, model="m")
        source = Workers(LocalSource(target, Prompts(1, 1.0, 0), WAITS, snapshot=snapshot, sample_every=0.05), FLOOR)
        run = asyncio.create_task(source.run(asked, **more))
        if during is not None:
            await during(run, server)
        return await run


def test_three_processes_send_every_request_once() -> None:
    endpoint, seen = Endpoint(lambda number: "fail" if number % 5 == 0 else "ok"), list[Sample]()
    got = asyncio.run(measured(endpoint, load(30, 6, warmup=6), on_sample=seen.append))
    assert len(endpoint.told) == 36
    assert [s.index for s in got.samples] == list(range(30))
    assert [s.asked_prompt_tokens for s in got.samples] == [16 + i for i in range(30)]
    assert sum(not s.good for s in (*got.samples, *got.warmup)) == 7
    assert (len(got.warmup), len(seen), got.stopped) == (6, 30, None)
    assert {s.worker for s in got.samples} == {0, 1, 2}
    assert {s.load for s in got.samples} == {"slo"}
    assert (got.client.workers, got.client.floor) == (3, FLOOR)
    assert got.client.peak_inflight <= 6
    told = {one.id: one.prompt_tokens for one in endpoint.told}
    assert all(told[s.server_id] == s.prompt_tokens for s in got.samples if s.server_id)


def test_no_two_prompts_are_the_same() -> None:
    async def run() -> list[bytes]:
        async with ByteServer(Endpoint()) as server:
            shapes = (Shape(cls="c", prompt_tokens=40, output_tokens=1),) * 12
            asked = Load(id="slo", purpose="slo", concurrency=3, shapes=shapes)
            await Workers(LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0), WAITS)).run(asked)
            return [request.body for request in server.requests]

    assert len(set(asyncio.run(run()))) == 12


def test_the_stop_rule_reaches_every_process() -> None:
    def stop(samples: Sequence[Sample]) -> str | None:
        return "enough" if len(samples) >= 4 else None

    endpoint = Endpoint()
    got = asyncio.run(measured(endpoint, load(3000, 6, tokens=20), stop=stop))
    assert got.stopped == "enough"
    assert 4 <= len(got.samples) < 100
    assert any(s.error == "cancelled" for s in got.samples)


def test_ctrl_c_keeps_what_was_measured() -> None:
    seen = list[Sample]()

    async def interrupt(run: "asyncio.Task[Measurement]", _: ByteServer) -> None:
        while len(seen) < 3:
            await asyncio.sleep(0.05)
        run.cancel()

    got = asyncio.run(measured(Endpoint(), load(3000, 6), interrupt, on_sample=seen.append))
    assert got.stopped == "interrupted"
    assert 3 <= sum(s.good for s in got.samples) < 3000


def test_a_process_that_dies_ends_the_load_and_no_more() -> None:
    killed = []

    def kill(sample: Sample) -> None:
        if not killed:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            killed.append(int(children[-1]))
            os.kill(killed[0], signal.SIGKILL)

    got = asyncio.run(measured(Endpoint(), load(3000, 6), on_sample=kill))
    assert got.stopped == "a process of the load ended unexpectedly"
    assert any(s.good for s in got.samples)
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)


def test_the_server_s_metrics_are_read_once_for_all() -> None:
    phases = []

    async def snapshot(at: float, phase: Any) -> Snapshot:
        phases.append(phase)
        return Snapshot(at=at, phase=phase, values={"running": 0.0})

    got = asyncio.run(measured(Endpoint(), load(90, 6), snapshot=snapshot))
    assert [s.phase for s in got.snapshots] == phases
    assert (phases[0], phases[-1], phases.count("before"), phases.count("after")) == ("before", "after", 1, 1)
    assert "during" in phases


def test_what_a_process_cannot_send_is_told_as_from_one_process() -> None:
    target = Target(url="http://127.0.0.1:9/v1", model="m", headers={"x-key": "two\nlines"})
    with pytest.raises(UsageError, match="x-key: not a valid HTTP header"):
        asyncio.run(Workers(LocalSource(target, Prompts(1, 1.0, 0), WAITS)).run(load(30, 6)))


def test_callers_errors_come_back() -> None:
    def broken(_: Sample) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(measured(Endpoint(), load(30, 6), on_sample=broken))


def test_cores_are_those_that_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))


def test_no_process_outlives_its_owner() -> None:
    """The owner is killed outright in the middle of a load: its processes see the end of their pipe."""
    program = (
        "import asyncio, sys\n"
        "from auditor.probe import workers\n"
        "from auditor.probe.load import LocalSource\n"
        "from auditor.probe.prompts import Prompts\n"
        "from auditor.probe.target import Target\n"
        "from auditor.loads import Load, Shape\n"
        "workers.workers_for = lambda load, cores, floor: 3\n"
        "shapes = (Shape(cls='c', prompt_tokens=16, output_tokens=3),) * 5000\n"
        "load = Load(id='slo', purpose='slo', concurrency=6, shapes=shapes)\n"
        "source = LocalSource(Target(url=sys.argv[1], model='m'), Prompts(1, 1.0, 0))\n"
        "asyncio.run(workers.Workers(source).run(load))\n"
    )

    async def run() -> list[int]:
        async with ByteServer(Endpoint()) as server:
            owner = await asyncio.create_subprocess_exec(sys.executable, "-c", program, server.url)
            while len(server.requests) < 12:
                await asyncio.sleep(0.05)
            children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
            owner.kill()
            await owner.wait()
            return [int(child) for child in children]

    children = asyncio.run(run())
    assert len(children) == 3
    until = time.monotonic() + 20
    while any(_runs(child) for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_runs(child) for child in children)


def _runs(child: int) -> bool:
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
