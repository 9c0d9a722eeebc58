"""Runs loads: a closed loop of a fixed number of requests, from one process on one event loop.

Each of `concurrency` slots sends its next request as soon as its last one ended; warm-up requests are the first in the
queue, so the slots pass from warm-up to measurement without draining (a fresh wave of prompts at once would put its own
queue into the TTFT). Failed requests are samples like any other. What was measured survives whatever ends the load.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from auditor.errors import ToolError, UsageError
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample, Snapshot
from auditor.probe.health import Health
from auditor.probe.prompts import Prompts
from auditor.probe.sample import check_invariants, decode, sample_of
from auditor.probe.transport import (
    Address,
    Deadlines,
    Exchange,
    Places,
    Target,
    address_of,
    exchange,
    request_body,
    request_bytes,
    resolve,
)

__all__ = ["INTERRUPTED", "LoadSource", "LocalSource", "OnSample", "Snap", "Stop", "ask"]

INTERRUPTED = "interrupted"

OnSample = Callable[[Sample], None]
Stop = Callable[[Sequence[Sample]], str | None]
Snap = Callable[[float, str], Awaitable[Snapshot | None]]

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.0)
_PAUSE_AFTER = ("connect", "tls", "http_429", "http_4xx", "http_5xx", "in_stream", "protocol", "cut_off")
_DRAIN_EVERY = 0.2
_REST, _LONGEST_REST = 4.0, 10.0  # times as long as the page took to read, and seconds at the most
_SHORT = 16  # reads: a reply this short may be a refusal and is decoded before its slot goes on


class LoadSource(Protocol):
    """Whatever can run a load: this process, several, or machines. Samples carry durations, so no clock is shared."""

    async def run(self, load: Load, on_sample: OnSample | None = None, stop: Stop | None = None) -> Measurement:
        """Send `load` and measure it.

        `on_sample` is called as each measured request ends; `stop` is asked after each, and every now and then while
        requests are under way: a reason ends the load, and the requests in flight are recorded as cancelled, with
        `closed` telling how long they had run. When cancelled, `run` returns what was measured, `stopped` being
        "interrupted".
        """
        ...


@dataclass(slots=True)
class LocalSource:
    """A closed loop in this process. `snapshot` reads the server's metrics (seconds since the load began, phase);
    `drain_wait` is how long the last snapshot waits for the server to have nothing running.
    """

    target: Target
    prompts: Prompts
    deadlines: Deadlines = field(default_factory=Deadlines)
    snapshot: Snap | None = None
    sample_every: float = 0.5
    drain_wait: float = 3.0
    _epoch: float | None = None

    async def run(self, load: Load, on_sample: OnSample | None = None, stop: Stop | None = None) -> Measurement:
        """See LoadSource. Raises UsageError for limits of this machine, ToolError for measurements that cannot be."""
        loop = asyncio.get_running_loop()
        self._epoch = loop.time() if self._epoch is None else self._epoch
        address = address_of(self.target)
        allow_files(load.concurrency)
        run = _Run(self, load, address, await _places(address), on_sample=on_sample, stop=stop)
        return await run.measure(loop.time() - self._epoch)


async def _places(address: Address) -> Places | None:
    """The host resolved once for the whole load; None for an unknown host, which each request then reports."""
    try:
        return await resolve(address.host, address.port)
    except OSError:
        return None


async def ask(
    target: Target, prompt: str, output_tokens: int, deadlines: Deadlines | None = None, *, load: str = "ask"
) -> Sample:
    """One request outside any load, as a Sample: for preflight and calibration (asked_prompt_tokens is 0)."""
    address = address_of(target)
    request = request_bytes(address, target.headers, request_body(target, prompt, output_tokens))
    record = await exchange(address, request, deadlines or Deadlines())
    reply = await decode(record, output_tokens)
    shape = Shape(cls=load, prompt_tokens=0, output_tokens=output_tokens)
    return sample_of(record, reply, load=load, index=0, shape=shape, began=record.begun)


def allow_files(concurrency: int) -> None:
    """Raise this process's limit of open files if the load needs it; UsageError where the system forbids that."""
    try:
        import resource
    except ImportError:  # not on this platform, where sockets are not counted as files
        return
    needed = concurrency + 128
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(f"concurrency {concurrency} needs {needed} open files, this machine allows {hard}: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Run:
    """One load under way."""

    def __init__(
        self,
        source: LocalSource,
        load: Load,
        address: Address,
        places: Places | None,
        *,
        on_sample: OnSample | None,
        stop: Stop | None,
    ) -> None:
        self.source, self.load, self.address, self.places = source, load, address, places
        self.on_sample, self.stop = on_sample, stop
        self.loop = asyncio.get_running_loop()
        self.todo: deque[tuple[bool, int, Shape]] = deque()
        self.todo.extend((True, index, shape) for index, shape in enumerate(load.warmup))
        self.todo.extend((False, index, shape) for index, shape in enumerate(load.shapes))
        self.samples: list[Sample] = []
        self.warmup: list[Sample] = []
        self.snapshots: list[Snapshot] = []
        self.stopped: str | None = None
        self.slots: list[asyncio.Task[None]] = []
        self.decoding: set[asyncio.Task[str | None]] = set()
        self.one_at_a_time = asyncio.Lock()
        self.problem: Exception | None = None
        self.health = Health()
        self.began = self.loop.time()

    async def measure(self, started: float) -> Measurement:
        """Snapshot, load, drain, snapshot."""
        with self._interruptible():
            await self._snap("before")
        self.health = Health()
        self.began = self.loop.time()
        async with self._watched():
            await self._send_all()
        duration = self.loop.time() - self.began
        health = self.health.result()
        with self._interruptible():
            await self._drain()
        return Measurement(
            load=self.load,
            samples=tuple(sorted(self.samples, key=lambda sample: sample.index)),
            warmup=tuple(sorted(self.warmup, key=lambda sample: sample.index)),
            started=started,
            duration=duration,
            snapshots=tuple(self.snapshots),
            client=health,
            stopped=self.stopped,
        )

    # ------------------------------------------------------------------------------------------------------- requests

    async def _send_all(self) -> None:
        """Run the slots to the end; an interruption or a broken invariant ends them early, keeping their samples."""
        count = 0 if self.stopped else min(self.load.concurrency, len(self.todo))
        self.slots = [self.loop.create_task(self._slot()) for _ in range(count)]
        while waiting := {task for task in (*self.slots, *self.decoding) if not task.done()}:
            with self._interruptible():
                await asyncio.wait(waiting)
        if self.problem is not None:
            raise self.problem

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A cancellation (Ctrl-C) in here ends the load, not the program: what was measured is still returned."""
        try:
            yield
        except asyncio.CancelledError:
            self._halt(INTERRUPTED)
            if (task := asyncio.current_task()) is not None:
                task.uncancel()

    def _halt(self, reason: str) -> None:
        """Send nothing more and give up the requests in flight."""
        if self.stopped is None:
            self.stopped = reason
            for slot in self.slots:
                if slot is not asyncio.current_task():
                    slot.cancel()

    async def _slot(self) -> None:
        """One user: request after request. Refusals in a row make it pause, so that a dead endpoint is not hammered."""
        refused = 0
        try:
            while self.todo and self.stopped is None:
                warm, index, shape = self.todo.popleft()
                record, inflight = await self._send(warm, index, shape)
                decoding = self.loop.create_task(self._decode(record, inflight, warm, index, shape))
                self.decoding.add(decoding)
                decoding.add_done_callback(self.decoding.discard)
                error = await asyncio.shield(decoding) if len(record.reads) <= _SHORT else None
                refused = refused + 1 if error in _PAUSE_AFTER else 0
                if refused and self.todo and self.stopped is None:
                    await asyncio.sleep(_PAUSES[min(refused, len(_PAUSES)) - 1])
        except Exception as problem:
            self._broke(problem)

    async def _send(self, warm: bool, index: int, shape: Shape) -> tuple[Exchange, int]:
        """Send one request and read its reply, or what there is of it when the load is halted; and how many requests
        were in flight with it.
        """
        target, name = self.source.target, f"{self.load.id}/warmup" if warm else self.load.id
        prompt = self.source.prompts.make(shape, index, name)
        body = request_body(target, prompt, shape.output_tokens)
        request = request_bytes(self.address, target.headers, body)
        record = Exchange(begun=self.loop.time())
        inflight = 0

        def sent() -> None:
            nonlocal inflight
            self.health.sent()
            inflight = self.health.inflight

        try:
            await exchange(self.address, request, self.source.deadlines, record=record, places=self.places, sent=sent)
        except asyncio.CancelledError:
            if self.stopped is None:
                raise
        finally:
            if inflight:
                self.health.ended()
        return record, inflight

    async def _decode(self, record: Exchange, inflight: int, warm: bool, index: int, shape: Shape) -> str | None:
        """Work out the sample while its slot goes on, one reply at a time so that the others are read on time."""
        try:
            async with self.one_at_a_time:
                reply = await decode(record, shape.output_tokens)
            sample = sample_of(record, reply, load=self.load.id, index=index, shape=shape, began=self.began)
            check_invariants(sample, self.load, inflight)
            self._keep(warm, sample)
        except Exception as problem:
            self._broke(problem)
            return None
        return sample.error

    def _broke(self, problem: Exception) -> None:
        """A limit of this machine, a broken invariant or a caller's own error ends the load; raised at its end."""
        self.problem = self.problem or problem
        self._halt("the probe broke")

    def _keep(self, warm: bool, sample: Sample) -> None:
        if warm:
            self.warmup.append(sample)
            return
        self.samples.append(sample)
        if self.on_sample is not None:
            self.on_sample(sample)
        self._ask_stop()

    def _ask_stop(self) -> None:
        if self.stop is not None and self.stopped is None and (reason := self.stop(self.samples)) is not None:
            self._halt(reason)

    # ------------------------------------------------------------------------------------------------------- watching

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """The loop's lag, the server's metrics and the stop rule, beside the load."""
        tasks = [self.loop.create_task(self.health.watch()), self.loop.create_task(self._during())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def _during(self) -> None:
        """The stop rule at every tick; the server's page less often where it is slow: reading it shares this loop."""
        resting = 0.0
        while True:
            await asyncio.sleep(self.source.sample_every)
            self._ask_stop()
            begun = self.loop.time()
            if begun >= resting:
                await self._snap("during")
                resting = self.loop.time() + min(_REST * (self.loop.time() - begun), _LONGEST_REST)

    async def _snap(self, phase: str) -> Snapshot | None:
        """One snapshot, kept. A metrics page that fails costs the page, never the load."""
        if self.source.snapshot is None:
            return None
        at = 0.0 if phase == "before" else self.loop.time() - self.began
        try:
            snapshot = await self.source.snapshot(at, phase)
        except ToolError:
            raise
        except Exception:
            return None
        if snapshot is not None:
            self.snapshots.append(snapshot)
        return snapshot

    async def _drain(self) -> None:
        """The last snapshot, once the server has nothing running or waiting, or `drain_wait` is over: engines move
        some counters (preemptions) only when a request has reported.
        """
        until = self.loop.time() + (0.0 if self.stopped == INTERRUPTED else self.source.drain_wait)
        while (snapshot := await self._snap("after")) is not None:
            busy = snapshot.values.get("running", 0.0) + snapshot.values.get("waiting", 0.0)
            if not busy or self.loop.time() >= until:
                return
            self.snapshots.pop()
            await asyncio.sleep(_DRAIN_EVERY)
