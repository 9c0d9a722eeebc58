"""The closed loop against scripted bytes, on the virtual clock."""

import asyncio
import json
import resource
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.errors import ToolError, UsageError
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample, Snapshot
from auditor.probe.load import LocalSource, allow_files
from auditor.probe.prompts import Prompts
from auditor.probe.sample import check_invariants
from auditor.probe.target import Deadlines, Target
from tests.wire.byteserver import HOLD, RESET, ByteServer, Request, Script, head, sse, tokens

SHAPE = Shape(cls="chat", prompt_tokens=32, output_tokens=4)
WAITS = Deadlines(connect=5, first_token=100, gap=20, total=500)
BAD_GATEWAY = [(0.0, head("502 Bad Gateway", kind="text/html", framing="content-length: 4") + b"oops")]


def _load(count: int, concurrency: int, warmup: int = 0) -> Load:
    return Load(id="l1", purpose="slo", concurrency=concurrency, shapes=(SHAPE,) * count, warmup=(SHAPE,) * warmup)


def _source(server: ByteServer, **more: Any) -> LocalSource:
    return LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0, nonce=""), WAITS, **more)


def measure(
    script: Script | Callable[[Request, int], Script],
    load: Load,
    *,
    then: Callable[[LocalSource, ByteServer], Coroutine[Any, Any, Measurement]] | None = None,
) -> tuple[Measurement, ByteServer]:
    async def run() -> tuple[Measurement, ByteServer]:
        async with ByteServer(script) as server:
            source = _source(server)
            return await (then(source, server) if then else source.run(load)), server

    return run_virtual(run())


def test_a_closed_loop_keeps_exactly_the_asked_number_in_flight() -> None:
    got, server = measure(tokens(4, first=0.2, gap=0.1), _load(20, 5))
    assert (len(got.samples), got.stopped, server.peak, got.client.peak_inflight) == (20, None, 5, 5)
    assert [sample.index for sample in got.samples] == list(range(20))
    assert all(sample.good and sample.ttft == pytest.approx(0.2) for sample in got.samples)
    # 20 requests of 0.5 s in 5 slots: four rounds, back to back
    assert got.duration == pytest.approx(2.0, abs=0.05)
    assert sorted({round(sample.start, 1) for sample in got.samples}) == [0.0, 0.5, 1.0, 1.5]


def test_more_slots_than_requests_is_no_problem() -> None:
    got, server = measure(tokens(1), _load(3, 50))
    assert (len(got.samples), server.peak) == (3, 3)


def test_slots_pass_from_warm_up_to_measurement_without_draining() -> None:
    slow = tokens(1, first=5.0)
    quick = tokens(1, first=1.0)
    got, _ = measure(lambda _request, number: slow if number == 0 else quick, _load(8, 2, warmup=2))
    assert (len(got.warmup), len(got.samples)) == (2, 8)
    # one slot is still in its slow warm-up while the other measures already
    assert got.samples[0].start == pytest.approx(1.0, abs=0.05)
    assert got.warmup[0].ttft == pytest.approx(5.0)


def test_every_prompt_is_its_own_warm_up_included() -> None:
    _, server = measure(tokens(1), _load(20, 4, warmup=4))
    prompts = {json.loads(request.body)["messages"][0]["content"] for request in server.requests}
    assert len(prompts) == 24


def test_failures_stay_in_the_base_and_are_told_as_they_happen() -> None:
    seen: list[Sample] = []

    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        return await source.run(_load(10, 2), on_sample=seen.append)

    def script(_request: Request, number: int) -> Script:
        return BAD_GATEWAY if number % 2 else tokens(2)

    got, _ = measure(script, _load(10, 2), then=then)
    assert len(got.samples) == len(seen) == 10
    assert sum(sample.error == "http_5xx" for sample in got.samples) == 5


def test_the_stop_rule_is_asked_after_each_request_and_cuts_the_rest() -> None:
    def stop(samples: Sequence[Sample]) -> str | None:
        return "enough" if len(samples) >= 3 else None

    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        return await source.run(_load(50, 2), stop=stop)

    got, server = measure(tokens(2, first=1.0), _load(50, 2), then=then)
    assert got.stopped == "enough"
    assert [sample.error for sample in got.samples].count(None) >= 3
    assert len(got.samples) == len(server.requests) <= 5
    cut = [sample for sample in got.samples if sample.error == "cancelled"]
    assert all(sample.closed is not None for sample in cut)


def test_the_stop_rule_is_asked_while_everything_stands_still() -> None:
    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        loop = asyncio.get_running_loop()
        end = loop.time() + 3
        return await source.run(_load(4, 4), stop=lambda _samples: "time is up" if loop.time() > end else None)

    got, _ = measure([(0.0, head()), HOLD], _load(4, 4), then=then)
    assert (got.stopped, [sample.error for sample in got.samples]) == ("time is up", ["cancelled"] * 4)
    assert [round(sample.closed or 0, 1) for sample in got.samples] == [3.5] * 4


def test_an_interruption_keeps_everything_and_leaves_the_task_usable() -> None:
    seen: list[Sample] = []

    async def run() -> tuple[Measurement, bool]:
        async with ByteServer(tokens(3, first=1.0, gap=1.0)) as server:
            source = _source(server)
            task = asyncio.create_task(source.run(_load(50, 3), on_sample=seen.append))
            await asyncio.sleep(4.5)
            task.cancel()
            got = await task
            return got, task.cancelled()

    got, cancelled = run_virtual(run())
    assert (got.stopped, cancelled) == ("interrupted", False)
    errors = [sample.error for sample in got.samples]
    assert (errors.count(None), errors.count("cancelled")) == (3, 3)
    partial = [sample for sample in got.samples if sample.error]
    assert all(sample.ttft == pytest.approx(1.0) and len(sample.arrivals) == 1 for sample in partial)
    assert len(seen) == 6


def test_an_interruption_during_a_snapshot_still_returns() -> None:
    async def slow(_at: float, _phase: str) -> Snapshot | None:
        await asyncio.sleep(60)
        return None

    async def run() -> Measurement:
        async with ByteServer(tokens(1)) as server:
            task = asyncio.create_task(_source(server, snapshot=slow).run(_load(5, 1)))
            await asyncio.sleep(1)
            task.cancel()
            return await task

    got = run_virtual(run())
    assert (got.stopped, got.samples) == ("interrupted", ())


def test_a_dead_endpoint_does_not_make_the_loop_spin() -> None:
    async def run() -> tuple[Measurement, float]:
        loop = asyncio.get_running_loop()
        async with ByteServer(tokens(1)) as server:
            source = _source(server)
        began = loop.time()

        def stop(samples: Sequence[Sample]) -> str | None:
            tail = samples[-12:]
            return "the endpoint is gone" if len(tail) == 12 and not any(s.good for s in tail) else None

        return await source.run(_load(1000, 4), stop=stop), loop.time() - began

    got, took = run_virtual(run())
    assert got.stopped == "the endpoint is gone"
    assert [sample.error for sample in got.samples if sample.error != "cancelled"] == ["connect"] * 12
    # three refusals a slot: pauses of 0.1 and 0.2 s between them
    assert took == pytest.approx(0.3, abs=0.02)


def test_an_endpoint_that_dies_halfway_loses_nothing() -> None:
    async def then(source: LocalSource, server: ByteServer) -> Measurement:
        async def die() -> None:
            await asyncio.sleep(2.6)
            await server.stop()

        task = asyncio.create_task(die())
        got = await source.run(_load(12, 2))
        await task
        return got

    got, _ = measure(tokens(2, first=0.5, gap=0.5), _load(12, 2), then=then)
    errors = [sample.error for sample in got.samples]
    assert (errors.count(None), errors.count("cut_off"), errors.count("connect")) == (4, 2, 6)


def test_snapshots_before_during_and_after_the_drain() -> None:
    asked: list[tuple[float, str]] = []
    running = iter([0.0, 2.0, 2.0, 2.0, 1.0, 0.0])

    async def snapshot(at: float, phase: str) -> Snapshot | None:
        asked.append((round(at, 1), phase))
        return Snapshot(at=at, phase=phase, values={"running": next(running)})  # type: ignore[arg-type]

    async def run() -> Measurement:
        async with ByteServer(tokens(2, first=0.5, gap=0.7)) as server:
            return await _source(server, snapshot=snapshot).run(_load(2, 2))

    got = run_virtual(run())
    assert asked == [(0.0, "before"), (0.5, "during"), (1.0, "during"), (1.2, "after"), (1.4, "after"), (1.6, "after")]
    assert [(shot.phase, shot.values["running"]) for shot in got.snapshots] == [
        ("before", 0.0), ("during", 2.0), ("during", 2.0), ("after", 0.0),
    ]  # fmt: skip


def test_a_server_that_never_drains_costs_the_drain_wait_only() -> None:
    async def snapshot(at: float, phase: str) -> Snapshot | None:
        return Snapshot(at=at, phase=phase, values={"running": 1.0})  # type: ignore[arg-type]

    async def run() -> Measurement:
        async with ByteServer(tokens(1)) as server:
            return await _source(server, snapshot=snapshot, drain_wait=2.0).run(_load(1, 1))

    got = run_virtual(run())
    assert [shot.phase for shot in got.snapshots] == ["before", "after"]
    assert 2.0 <= got.snapshots[-1].at - got.duration <= 2.3


def test_a_metrics_page_that_fails_costs_no_request() -> None:
    async def snapshot(_at: float, _phase: str) -> Snapshot | None:
        raise OSError("no page")

    async def run() -> Measurement:
        async with ByteServer(tokens(2, first=1.0)) as server:
            return await _source(server, snapshot=snapshot).run(_load(4, 2))

    got = run_virtual(run())
    assert (len(got.samples), got.snapshots) == (4, ())


def test_loads_count_from_the_first_of_their_source() -> None:
    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        first = await source.run(_load(2, 1))
        assert first.started == 0.0
        return await source.run(_load(2, 1))

    got, _ = measure(tokens(1, first=2.0), _load(1, 1), then=then)
    assert got.started == pytest.approx(4.0, abs=0.1)
    assert got.samples[0].start == pytest.approx(0.0, abs=0.01)


def test_a_problem_in_the_callers_own_code_ends_the_load_at_once() -> None:
    def full_disk(_sample: Sample) -> None:
        raise OSError("no space left")

    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        with pytest.raises(OSError, match="no space"):
            await source.run(_load(50, 4), on_sample=full_disk)
        return Measurement(load=_load(0, 1), samples=())

    _, server = measure(tokens(1), _load(50, 4), then=then)
    assert len(server.requests) <= 8


def test_many_streams_at_once_are_all_in_flight() -> None:
    got, server = measure(tokens(3, first=2.0, gap=0.1), _load(150, 150))
    assert (server.peak, got.client.peak_inflight, sum(s.good for s in got.samples)) == (150, 150, 150)


def test_the_client_watches_itself_on_the_wall_clock() -> None:
    async def run() -> Measurement:
        async with ByteServer(tokens(2, first=0.15)) as server:
            return await _source(server).run(_load(2, 2))

    runs = [asyncio.run(run()) for _ in range(3)]  # the first stamps of a busy machine may come late
    assert ("kernel" if sys.platform == "linux" else "loop") in [got.client.clock for got in runs]
    for got in runs:
        assert got.client.cpu_share is not None
        assert 0 < got.client.cpu_share < 2
        assert got.client.loop_lag_max is not None
        assert got.client.loop_lag_p99 is not None
        assert 0 <= got.client.loop_lag_p99 <= got.client.loop_lag_max


def test_virtual_time_says_nothing_about_cpu() -> None:
    got, _ = measure(tokens(2, first=30.0), _load(2, 1))
    assert (got.client.clock, got.client.cpu_share) == ("virtual", None)


def test_the_limit_of_open_files_is_raised_or_named() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_files(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 328
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(UsageError, match="ulimit"):
                allow_files(hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_open_files_is_never_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.probe.load.allow_files", lambda _concurrency: None)

    async def then(source: LocalSource, _server: ByteServer) -> Measurement:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
        try:
            return await source.run(_load(100, 100))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with pytest.raises(UsageError, match="too few open files"):
        measure([(0.0, head()), HOLD], _load(1, 1), then=then)


def test_what_cannot_be_measured_is_this_programs_mistake() -> None:
    good = Sample(load="l", index=1, cls="c", start=0, asked_prompt_tokens=1, asked_output_tokens=1, ttft=0.1, e2e=0.2)
    load = _load(1, 4)
    check_invariants(good, load, 4)
    for broken, inflight in (
        ({"ttft": 0.0}, 1), ({"ttft": 0.3}, 1), ({"ttft": -1.0}, 1), ({"ttft": None}, 1), ({}, 5),
    ):  # fmt: skip
        values = {name: getattr(good, name) for name in ("load", "index", "cls", "start", "ttft", "e2e")} | broken
        with pytest.raises(ToolError):
            check_invariants(Sample(asked_prompt_tokens=1, asked_output_tokens=1, **values), load, inflight)


def test_reset_streams_and_errors_inside_streams_are_counted_as_failures() -> None:
    token = sse('{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}')
    scripts: list[Script] = [
        [(0.0, head()), (0.1, token), (0.1, b""), RESET],
        [(0.0, head()), (0.1, token + sse('{"error":"boom"}'))],
        tokens(4),
    ]
    got, _ = measure(lambda _request, number: scripts[number % 3], _load(9, 1))
    assert [sample.error for sample in got.samples] == ["cut_off", "in_stream", None] * 3


def test_a_page_that_is_slow_to_read_is_read_less_often() -> None:
    async def snapshot(at: float, phase: str) -> Snapshot | None:
        await asyncio.sleep(1.0 if phase == "during" else 0.0)
        return Snapshot(at=at, phase=phase, values={"running": 0.0})  # type: ignore[arg-type]

    async def run() -> Measurement:
        async with ByteServer(tokens(4, first=10.0, gap=1.0)) as server:
            return await _source(server, snapshot=snapshot).run(_load(1, 1))

    got = run_virtual(run())
    during = [shot.at for shot in got.snapshots if shot.phase == "during"]
    assert during == pytest.approx([0.5, 5.5, 10.5], abs=0.1)  # 1 s of reading, 4 s of rest
