"""A load over as many processes as it needs: one where one core is enough, else each with its part of the slots."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from auditor.loads import Load
from auditor.measurement import Floor, Measurement, Sample
from auditor.probe.frames import Job, frame, next_frame
from auditor.probe.load import BROKEN, INTERRUPTED, LocalSource, OnSample, Stop
from auditor.probe.receive import real_time
from auditor.probe.sharding import Part, merged, placed, split, workers_for
from auditor.probe.watching import Pages

__all__ = ["Workers", "cores"]

_PATIENCE = 10.0  # seconds that a worker gets to report once it was told to stop
_LOST = "a process of the load ended unexpectedly"


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(slots=True)
class Workers:
    """A LoadSource that runs what one process can carry through `local`, and more than that through several.

    `floor` is noted in every measurement. On a clock that is not the wall's everything runs in this process.
    """

    local: LocalSource
    floor: Floor | None = None
    cores: int = field(default_factory=cores)

    async def run(self, load: Load, on_sample: OnSample | None = None, stop: Stop | None = None) -> Measurement:
        """See LoadSource."""
        real = real_time(asyncio.get_running_loop()) is not None
        number = workers_for(load, self.cores, self.floor) if real else 1
        if number == 1:
            measurement = await self.local.run(load, on_sample, stop)
        else:
            measurement = await _Shared(self.local, load, number, on_sample, stop).measure()
        return replace(measurement, client=replace(measurement.client, floor=self.floor))


@dataclass(slots=True)
class _Worker:
    """One process and its part of the load."""

    part: Part
    process: Process
    result: Measurement | None = None

    def tell(self, message: object) -> None:
        """Send a message; a process that is gone is noticed where its answers are read."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(frame(message))
        except (ConnectionError, RuntimeError):
            pass

    async def hear(self) -> Any:
        """The next message; None once the process is gone."""
        assert self.process.stdout is not None
        return await next_frame(self.process.stdout)


class _Shared:
    """One load under way in several processes."""

    def __init__(
        self, source: LocalSource, load: Load, number: int, on_sample: OnSample | None, stop: Stop | None
    ) -> None:
        self.source, self.load, self.number = source, load, number
        self.on_sample, self.stop = on_sample, stop
        self.crew: list[_Worker] = []
        self.samples: list[Sample] = []
        self.pages = Pages(source.snapshot)
        self.stopped: str | None = None
        self.problem: Exception | None = None
        self.pausing: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()

    async def measure(self) -> Measurement:
        """Run the load to its end; a cancellation (Ctrl-C) ends the load, and what was measured is returned."""
        work = self.loop.create_task(self._work())
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                self._halt(INTERRUPTED)
                if self.pausing is not None:
                    self.pausing.cancel()
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
        return work.result()

    async def _work(self) -> Measurement:
        try:
            await self._pause(self.pages.before())
            if self.stopped is None:
                await self._hire()
            self.pages.begin()
            await self._listen_all()
        finally:
            await self._dismiss()
        if self.problem is not None:
            raise self.problem
        await self._pause(self.pages.drained(0.0 if self.stopped == INTERRUPTED else self.source.drain_wait))
        results = [(one.part, one.result) for one in self.crew if one.result is not None]
        return merged(self.load, self.samples, results, self.pages.taken, self.stopped)

    async def _pause(self, wait: Coroutine[Any, Any, None]) -> None:
        """Wait for something that Ctrl-C cuts short."""
        self.pausing = self.loop.create_task(wait)
        await asyncio.wait([self.pausing])
        if not self.pausing.cancelled() and (problem := self.pausing.exception()) is not None:
            raise problem
        self.pausing = None

    # -------------------------------------------------------------------------------------------------------- processes

    async def _hire(self) -> None:
        """Start the processes, give each its part, and begin when all are ready."""
        for part in split(self.load, self.number):
            command = (sys.executable, "-m", "auditor.probe.worker")
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=2**26, start_new_session=True
            )
            self.crew.append(_Worker(part, process))
            self.crew[-1].tell(Job(self.source.target, self.source.prompts, self.source.deadlines, part.load))
        if not all([await one.hear() == "ready" for one in self.crew]):
            self._halt(_LOST)
        for one in self.crew:
            one.tell("go" if self.stopped is None else "stop")

    async def _dismiss(self) -> None:
        """No process outlives the load."""
        for one in self.crew:
            assert one.process.stdin is not None
            one.process.stdin.close()
        for one in self.crew:
            try:
                await asyncio.wait_for(one.process.wait(), 2.0)
            except TimeoutError:
                one.process.kill()
                await one.process.wait()

    def _halt(self, reason: str) -> None:
        """Send nothing more and give up the requests in flight, in every process."""
        if self.stopped is not None:
            return
        self.stopped = reason
        for one in self.crew:
            one.tell("stop")
        self.loop.call_later(_PATIENCE, self._kill)

    def _kill(self) -> None:
        for one in self.crew:
            if one.process.returncode is None and one.result is None:
                one.process.kill()

    # ---------------------------------------------------------------------------------------------------------- answers

    async def _listen_all(self) -> None:
        """Take in what the processes report; the stop rule and the server's metrics beside."""
        watching = self.loop.create_task(self._watch())
        try:
            await asyncio.gather(*(self._listen(number) for number in range(len(self.crew))))
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _listen(self, number: int) -> None:
        one = self.crew[number]
        while one.result is None:
            message = await one.hear()
            if isinstance(message, list):
                for sample in message:
                    self._keep(placed(sample, self.load, one.part.shapes, number))
            elif isinstance(message, Measurement):
                one.result = message
            else:
                self.problem = self.problem or (message if isinstance(message, Exception) else None)
                self._halt(_LOST)
                return

    def _keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        try:
            if self.on_sample is not None:
                self.on_sample(sample)
            self._ask_stop()
        except Exception as problem:  # the caller's own: raised at the end, as by a LocalSource
            self.problem = self.problem or problem
            self._halt(BROKEN)

    def _ask_stop(self) -> None:
        if self.stop is not None and self.stopped is None and (reason := self.stop(self.samples)) is not None:
            self._halt(reason)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.source.sample_every)
            self._ask_stop()
            await self.pages.during()
