"""Virtual time: stands still while anything can run, jumps when nothing can, and loopback sockets work in it."""

import asyncio
import time

import httpx
import pytest
from raw_client import chat, completion, emulated

from auditor.emulator.clock import VirtualTimeLoop, clock_of, run_virtual
from auditor.emulator.spec import Spec


def test_sleep_takes_no_real_time_and_is_exact():
    async def main():
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - start

    real = time.monotonic()
    assert run_virtual(main()) == pytest.approx(3600, abs=1e-6)
    assert time.monotonic() - real < 5


def test_timers_fire_in_order_at_their_times():
    async def main():
        loop = asyncio.get_running_loop()
        start, seen = loop.time(), []
        for delay in (5.0, 1.0, 3.0):
            loop.call_later(delay, lambda delay=delay: seen.append((delay, loop.time() - start)))
        await asyncio.sleep(10)
        return seen

    assert run_virtual(main()) == [(delay, pytest.approx(delay)) for delay in (1.0, 3.0, 5.0)]


def test_loopback_data_arrives_before_a_later_timer():
    async def main():
        async def echo(reader, writer):
            writer.write(await reader.readexactly(4))
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(50):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            start = loop.time()
            writer.write(b"ping")
            async with asyncio.timeout(0.001):
                assert await reader.readexactly(4) == b"ping"
            waits.append(loop.time() - start)
            writer.close()
        server.close()
        return waits

    assert run_virtual(main()) == [0.0] * 50


def test_work_in_a_thread_is_waited_for():
    async def main():
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(0.01):
            await asyncio.to_thread(time.sleep, 0.2)
        return loop.time() - start

    assert run_virtual(main()) == 0.0


def test_nothing_left_to_wait_for_is_an_error(monkeypatch):
    monkeypatch.setattr("auditor.emulator.clock.STUCK_AFTER", 0.01)
    with pytest.raises(RuntimeError, match="stuck"):
        run_virtual(asyncio.Event().wait())


def test_the_epoch_is_fixed_in_virtual_time_and_the_walls_otherwise():
    async def unix():
        clock = clock_of(asyncio.get_running_loop())
        return clock.unix(clock.now())

    assert run_virtual(unix()) == 1_800_000_000.0
    assert asyncio.run(unix()) == pytest.approx(time.time(), abs=1)


def test_httpx_over_loopback_sees_exact_times():
    """A client and the emulator on one virtual loop: each token's time is what the record says, to the nanosecond."""

    async def main():
        async with emulated(Spec(jitter=0.0)) as emulator:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            times = []
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                body = {"model": emulator.spec.model, **completion("one two three", 30)}
                async with client.stream("POST", f"{emulator.url}/completions", json=body) as response:
                    async for line in response.aiter_lines():
                        if '"text"' in line:
                            times.append(loop.time())
            return times, emulator.record.requests[0]

    times, record = run_virtual(main())
    assert len(times) == 30
    assert times == pytest.approx(list(record.times), abs=1e-9)


def test_the_same_seed_gives_the_same_run():
    async def main():
        async with emulated(Spec(seed=7)) as emulator, httpx.AsyncClient(trust_env=False, timeout=600) as client:
            url = f"{emulator.url}/chat/completions"
            replies = await asyncio.gather(*(client.post(url, json=chat(f"{n} " * 40, 20 + n)) for n in range(8)))
            return [reply.content for reply in replies], [list(request.times) for request in emulator.record.requests]

    assert run_virtual(main()) == run_virtual(main())
