"""What this client measures where there is nothing to measure: a short load on a null server, before the real one.

The null server (`nullserver`) says of each reply how long it took itself; by what the TTFT differs from that the client
is off, and the CPU time of an event is all its own. Both are this machine's, now: whatever is measured later cannot be
known more exactly.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from auditor.errors import AuditError
from auditor.loads import Load, Shape
from auditor.measurement import Floor, Sample
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.receive import real_time
from auditor.probe.target import Deadlines, Target
from auditor.theory.judging import rank

__all__ = ["floor_of", "self_check"]

STREAMS, REQUESTS, TOKENS = 16, 64, 16
_WAIT = 5.0  # seconds: a machine on which this takes longer is no place to measure from
_SERVER = Path(__file__).with_name("nullserver.py")


async def self_check() -> Floor | None:
    """The client's floor; None where it cannot be told: on a clock that is not the wall's, or without child processes.

    Takes about a third of a second.
    """
    if real_time(asyncio.get_running_loop()) is None:
        return None
    try:
        async with asyncio.timeout(_WAIT), _null_server() as url:
            return await _measured(url)
    except (AuditError, OSError, TimeoutError, NotImplementedError):  # what it cannot tell must not end an audit
        return None


async def _measured(url: str) -> Floor | None:
    waits = Deadlines(connect=_WAIT, first_token=_WAIT, gap=_WAIT, total=_WAIT)
    source = LocalSource(Target(url=url, model="null"), Prompts(0, 1.0, 0), waits)
    shape = Shape(cls="null", prompt_tokens=32, output_tokens=TOKENS)
    load = Load(id="self-check", purpose="slo", concurrency=STREAMS, shapes=(shape,) * REQUESTS)
    began = time.process_time()
    measurement = await source.run(load)
    if measurement.stopped is not None:  # a load ends well when it is cancelled; whoever waits for this one must not
        raise asyncio.CancelledError
    return floor_of(measurement.samples, time.process_time() - began)


def floor_of(samples: Sequence[Sample], cpu: float) -> Floor | None:
    """The floor from replies whose id tells the server's own delay in nanoseconds, and the CPU seconds they took.

    A client that notes late when it sent a request is off as well, the other way.
    """
    own = [abs(s.ttft - int(s.server_id) / 1e9) for s in samples if s.good and s.ttft and s.server_id]
    events = sum(len(s.arrivals) for s in samples)
    if not own or not events:
        return None
    return Floor(ttft_p50=rank(own, 0.5), ttft_p99=rank(own, 0.99), cpu_per_event=cpu / events)


@asynccontextmanager
async def _null_server() -> AsyncIterator[str]:
    """The null server's API root; the process ends with the block, and with this process."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-I", "-S", str(_SERVER))
    server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        port = (await server.stdout.readline()).strip()
        if not port.isdigit():
            raise OSError("the null server did not start")
        yield f"http://127.0.0.1:{int(port)}/v1"
    finally:
        server.stdin.close()
        try:
            await asyncio.wait_for(server.wait(), 1.0)
        except TimeoutError:
            server.kill()
            await server.wait()
