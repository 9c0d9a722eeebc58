"""One process of several that share a load: run as `python -m auditor.probe.worker`, spoken to in frames over pipes.

in    Job, "go", "stop"      the end of stdin means stop: a worker never outlives its owner
out   "ready", lists of samples as they end, then the Measurement without them, or the exception that ended it
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from auditor.measurement import Measurement, Sample
from auditor.probe.frames import Job, frame, next_frame
from auditor.probe.load import LocalSource

__all__ = ["main", "work"]

_FLUSH = 0.1


async def work(reader: asyncio.StreamReader, send: Callable[[object], None]) -> None:
    """Do one job."""
    job = await next_frame(reader)
    if not isinstance(job, Job):
        return
    send("ready")
    if await next_frame(reader) != "go":
        send(Measurement(load=job.load, samples=()))
        return
    ended: list[Sample] = []
    source = LocalSource(job.target, job.prompts, job.deadlines)
    running = asyncio.create_task(source.run(job.load, on_sample=ended.append))
    stopping = asyncio.create_task(_stop(reader, running))
    while not running.done():
        await asyncio.wait([running], timeout=_FLUSH)
        if ended:
            send(ended[:])
            ended.clear()
    stopping.cancel()
    try:
        send(replace(running.result(), samples=()))
    except Exception as problem:
        send(problem)


async def _stop(reader: asyncio.StreamReader, running: "asyncio.Task[Measurement]") -> None:
    """End the load when the owner says so; without an owner there is nobody to report to."""
    if await next_frame(reader) is None:
        os._exit(1)
    running.cancel()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not break the frames
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, out)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    transport.set_write_buffer_limits(0)  # so that `drain` waits until all is written
    await work(reader, lambda message: writer.write(frame(message)))
    with suppress(OSError):  # the owner is gone
        await writer.drain()


def main() -> None:
    """Run one job."""
    asyncio.run(_main())


if __name__ == "__main__":
    main()
