"""Runs loads: a fixed number of requests from one process on one event loop, closed or open.

In a closed loop each of `concurrency` slots sends its next request as soon as its last one ended; warm-up requests are
the first in the queue, so the slots pass from warm-up to measurement without draining (a fresh wave of prompts at once
would put its own queue into the TTFT). In an open loop each request has its time and waits for no other. The turns of
a conversation wait for each other in both: a user reads a reply before the next turn. Failed requests are samples like
any other. What was measured survives whatever ends the load.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from auditor.errors import ToolError
from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.probe.connection import Places, resolve
from auditor.probe.files import allow_files
from auditor.probe.health import Health, undisturbed
from auditor.probe.messages import Message
from auditor.probe.pool import Pool
from auditor.probe.prompts import Prompts
from auditor.probe.sample import check_invariants, decode, sample_of
from auditor.probe.talk import Heard, Talk
from auditor.probe.target import Address, Deadlines, Target, address_of, request_body, request_bytes
from auditor.probe.transport import Exchange, exchange
from auditor.probe.users import Item, User, queue
from auditor.probe.watching import Pages, Snap

__all__ = ["BROKEN", "INTERRUPTED", "LoadSource", "LocalSource", "OnSample", "Stop", "ask"]

INTERRUPTED = "interrupted"
BROKEN = "the probe broke"

OnSample = Callable[[Sample], None]
Stop = Callable[[Sequence[Sample]], str | None]

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.0)
_PAUSE_AFTER = ("connect", "tls", "http_429", "http_4xx", "http_5xx", "in_stream", "protocol", "cut_off")
_SHORT = 16  # reads: a reply this short may be a refusal and is decoded before its slot goes on
_AHEAD = 1.0  # seconds before its time at which an open loop gets a request and its connection ready


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
    """Loads sent from this process. `snapshot` reads the server's metrics (seconds since the load began, phase);
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
        if load.arrivals and load.rate is None:
            raise ToolError(f"load {load.id}: arrivals without a rate")
        allow_files(len(load.arrivals) or load.concurrency)
        pool = Pool(address, self.deadlines, await _places(address))
        try:
            run = _Run(self, load, pool, on_sample=on_sample, stop=stop)
            return await run.measure(loop.time() - self._epoch)
        finally:
            pool.close()


async def _places(address: Address) -> Places | None:
    """The host resolved once for the whole load; None for an unknown host, which each request then reports."""
    try:
        return await resolve(address.host, address.port)
    except OSError:
        return None


async def ask(
    target: Target,
    said: str | Sequence[Message],
    output_tokens: int,
    deadlines: Deadlines | None = None,
    *,
    load: str = "ask",
) -> Sample:
    """One request outside any load, as a Sample: for preflight and calibration (asked_prompt_tokens is 0)."""
    address = address_of(target)
    request = request_bytes(address, target.headers, request_body(target, said, output_tokens))
    pool = Pool(address, deadlines or Deadlines())
    record = Exchange(begun=pool.receiver.now())
    try:
        await exchange(pool, request, record)
    finally:
        pool.close()
    reply = decode(record, output_tokens)
    shape = Shape(cls=load, prompt_tokens=0, output_tokens=output_tokens)
    return sample_of(record, reply, load=load, index=0, shape=shape, began=record.begun)


class _Run:
    """One load under way. Times are those of its pool's receiver."""

    def __init__(
        self, source: LocalSource, load: Load, pool: Pool, *, on_sample: OnSample | None, stop: Stop | None
    ) -> None:
        self.source, self.load, self.pool = source, load, pool
        self.on_sample, self.stop = on_sample, stop
        self.loop, self.now = asyncio.get_running_loop(), pool.receiver.now
        self.todo = deque(queue(load))
        self.samples: list[Sample] = []
        self.warmup: list[Sample] = []
        self.pages = Pages(source.snapshot)
        self.stopped: str | None = None
        self.slots: list[asyncio.Task[None]] = []
        self.undecoded: deque[tuple[Item, Exchange, int]] = deque()
        self.problem: Exception | None = None
        self.health = Health(self.now)
        self.began = self.now()

    async def measure(self, started: float) -> Measurement:
        """Snapshot, load, drain, snapshot."""
        with self._interruptible():
            await self.pages.before()
            await self.pool.fill(min(self.load.concurrency, len(self.todo)))
        first = [] if self.load.arrivals else list(self.todo)[: self._beginners]
        users = [User(items) for items in first]
        for user in users:
            user.request = self._request(user.items[0], user.talk)
        with undisturbed():
            self.health = Health(self.now)
            self.began = self.now()
            self.pages.begin()
            async with self._watched():
                await self._send_all(users)
        duration = self.now() - self.began
        health = self.health.result(self.pool.receiver.clock, self.pool.receiver.late_reads)
        with self._interruptible():
            await self.pages.drained(0.0 if self.stopped == INTERRUPTED else self.source.drain_wait)
        return Measurement(
            load=self.load,
            samples=tuple(sorted(self.samples, key=lambda sample: sample.index)),
            warmup=tuple(sorted(self.warmup, key=lambda sample: sample.index)),
            started=started,
            duration=duration,
            snapshots=tuple(self.pages.taken),
            client=health,
            stopped=self.stopped,
        )

    # ------------------------------------------------------------------------------------------------------- requests

    @property
    def _beginners(self) -> int:
        """Slots that begin at once."""
        return 1 if self.load.ramp else self.load.concurrency

    async def _send_all(self, users: Sequence[User]) -> None:
        """Run the load to its end; an interruption or a broken invariant ends it early, keeping its samples.

        `users` are those with whom the slots of a closed loop begin.
        """
        for _ in users:
            self.todo.popleft()
        if self.stopped is None:
            slots = [self._timed()] if self.load.arrivals else [self._slot(user) for user in users]
            self.slots = [self.loop.create_task(slot) for slot in slots]
        while waiting := {task for task in self.slots if not task.done()}:
            with self._interruptible():
                await asyncio.wait(waiting)
        while self.undecoded:
            self._decode_one()
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

    async def _slot(self, user: User | None) -> None:
        """User after user. Refusals in a row make it pause, so that a dead endpoint is not hammered."""
        refused = 0
        try:
            while user is not None or (self.todo and self.stopped is None):
                async for error in self._said(user or User(self.todo.popleft())):
                    refused = refused + 1 if error in _PAUSE_AFTER else 0
                    if refused and self.todo and self.stopped is None:
                        await asyncio.sleep(_PAUSES[min(refused, len(_PAUSES)) - 1])
                user = None
        except Exception as problem:
            self._broke(problem)

    async def _timed(self) -> None:
        """An open loop: each user at their time, whatever became of those before."""
        while self.todo and self.stopped is None:
            items = self.todo.popleft()
            await asyncio.sleep(self.began + (items[0].due or 0.0) - _AHEAD - self.now())
            self.slots.append(self.loop.create_task(self._alone(User(items))))

    async def _alone(self, user: User) -> None:
        try:
            async for _ in self._said(user):
                pass
        except Exception as problem:
            self._broke(problem)

    async def _said(self, user: User) -> AsyncIterator[str | None]:
        """A user's requests one after the other; what went wrong with each, where that is known at once."""
        for number, item in enumerate(user.items):
            if self.stopped is not None:
                return
            request, user.request = user.request or self._request(item, user.talk), b""
            yield await self._send(item, request, user.talk if number + 1 < len(user.items) else None)

    def _request(self, item: Item, talk: Talk) -> bytes:
        self.pool.receiver.keep_up()
        target, name = self.source.target, f"{self.load.id}/warmup" if item.warm else self.load.id
        said = talk.ask(self.source.prompts, item.shape, item.index, name)
        body = request_body(target, said, item.shape.output_tokens)
        return request_bytes(self.pool.address, target.headers, body)

    async def _send(self, item: Item, request: bytes, talk: Talk | None = None) -> str | None:
        """Send one request and read its reply, or what there is of it when the load is halted; what went wrong, if the
        reply was so short that it was decoded at once, or `talk` goes on with it.
        """
        record = Exchange(begun=self.now(), due=self._intended(item))
        inflight = 0
        if talk is not None:
            record.body = Heard()

        def sent() -> None:
            nonlocal inflight
            self.health.sent()
            inflight = self.health.inflight

        try:
            await exchange(self.pool, request, record, sent=sent)
        except asyncio.CancelledError:
            if self.stopped is None:
                raise
        finally:
            if inflight:
                self.health.ended()
        if record.reads <= _SHORT or talk is not None:
            sample = self._decode(item, record, inflight)
            if talk is not None and sample is not None and isinstance(record.body, Heard):
                talk.heard(sample, record.body.text())
            return sample.error if sample is not None else None
        self.undecoded.append((item, record, inflight))
        if len(self.undecoded) == 1:
            self.loop.call_soon(self._decode_one)
        return None

    def _intended(self, item: Item) -> float | None:
        """When an open loop means to send a request: at its time, a later turn not before the reply to the last."""
        if item.due is None:
            return None
        return max(self.began + item.due, self.now()) if item.shape.turn else self.began + item.due

    def _decode_one(self) -> None:
        """Work out a sample while its slot goes on, one between two looks at what came for the others."""
        if self.undecoded:
            self._decode(*self.undecoded.popleft())
        if self.undecoded:
            self.loop.call_soon(self._decode_one)

    def _decode(self, item: Item, record: Exchange, inflight: int) -> Sample | None:
        self.pool.receiver.keep_up()
        try:
            reply = decode(record, item.shape.output_tokens)
            sample = sample_of(record, reply, load=self.load.id, index=item.index, shape=item.shape, began=self.began)
            check_invariants(sample, self.load, inflight)
            self._keep(item.warm, sample)
        except Exception as problem:
            self._broke(problem)
            return None
        return sample

    def _broke(self, problem: Exception) -> None:
        """A limit of this machine, a broken invariant or a caller's own error ends the load; raised at its end."""
        self.problem = self.problem or problem
        self._halt(BROKEN)

    def _keep(self, warm: bool, sample: Sample) -> None:
        if self.load.ramp and sample.good and len(self.slots) < self.load.concurrency:
            self.slots.append(self.loop.create_task(self._slot(None)))
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
        """The stop rule and the server's page, tick by tick."""
        while True:
            await asyncio.sleep(self.source.sample_every)
            self._ask_stop()
            await self.pages.during()
