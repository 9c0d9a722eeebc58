"""The client tries itself on the null server, over real sockets and in real time."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from auditor.emulator.clock import run_virtual
from auditor.measurement import Floor, Sample
from auditor.probe import nullserver, selfcheck
from auditor.probe.load import ask
from auditor.probe.target import Target

GOOD = Sample(
    load="l", index=0, cls="c", start=0.0, asked_prompt_tokens=1, asked_output_tokens=2, ttft=0.0012, e2e=0.005,
    arrivals=(0.0012, 0.005), output_tokens=2, server_id="1000000",
)  # fmt: skip


def test_the_floor_is_what_the_server_s_own_delay_leaves() -> None:
    # 1.2 ms measured of which the server says 1 ms; a client that was 3 ms late; 6 events in 60 us of CPU time
    late = replace(GOOD, ttft=0.004, server_id="1000000")
    floor = selfcheck.floor_of([GOOD, GOOD, late], 60e-6)
    assert floor == Floor(pytest.approx(0.0002), pytest.approx(0.003), pytest.approx(10e-6))


def test_a_request_that_was_noted_late_is_an_error_too() -> None:
    floor = selfcheck.floor_of([replace(GOOD, server_id="1300000")], 20e-6)  # 1.2 ms measured, 1.3 ms passed
    assert floor is not None
    assert floor.ttft_p99 == pytest.approx(0.0001)


def test_without_a_good_reply_there_is_no_floor() -> None:
    assert selfcheck.floor_of([replace(GOOD, error="cut_off")], 1.0) is None
    assert selfcheck.floor_of([], 1.0) is None


def test_nothing_is_tried_on_a_clock_that_is_not_the_walls() -> None:
    assert run_virtual(selfcheck.self_check()) is None


def test_the_client_has_a_floor_in_real_time() -> None:
    floor = asyncio.run(selfcheck.self_check())
    assert floor is not None
    assert 0.0 <= floor.ttft_p50 <= floor.ttft_p99 < selfcheck._WAIT
    assert floor.cpu_per_event > 0.0


def test_a_null_server_that_does_not_start_costs_the_floor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "_SERVER", "/nowhere/nullserver.py")
    assert asyncio.run(selfcheck.self_check()) is None


def test_ctrl_c_in_the_self_check_is_not_lost() -> None:
    async def interrupted() -> None:
        check = asyncio.create_task(selfcheck.self_check())
        await asyncio.sleep(0.2)
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check

    asyncio.run(interrupted())


@pytest.fixture
def server():
    command = [sys.executable, "-I", "-S", nullserver.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


def test_the_null_server_sends_what_was_asked_for_and_ends_with_its_owner(server) -> None:
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    sample = asyncio.run(ask(Target(url=url, model="m"), "x" * 100_000, 5))
    assert (sample.error, sample.output_tokens, len(sample.arrivals), sample.finish_reason) == (None, 5, 5, "length")
    assert sample.largest_gap >= nullserver.TICK / 2
    assert 0 <= int(sample.server_id) < 1e9
    server.stdin.close()
    assert server.wait(5) == 0
