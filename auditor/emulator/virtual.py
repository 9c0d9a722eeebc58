"""A source of load in virtual time, without sockets: closed and open loops on the emulated scheduler, by its law.

What the real source does against the emulator's server in minutes takes milliseconds here. It plays the engine alone:
its front end's faults, its metrics page and the client's own delays need the server.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Literal, Protocol

from auditor.emulator.engine import jittered, make_scheduler
from auditor.emulator.memory import pool_size
from auditor.emulator.scheduler import Job, Scheduler, Step
from auditor.emulator.spec import Spec
from auditor.emulator.timing import law as law_of
from auditor.loads import BLOCK_TOKENS, Load, Shape, Turn, due, talks
from auditor.measurement import ClientHealth, Measurement, Sample, Snapshot

__all__ = ["StepLaw", "VirtualSource"]

_SAMPLE_EVERY = 0.5  # seconds between snapshots, as the real source takes them
_ENTERS, _BEGINS = 0, 1  # of one moment: requests reach the scheduler before it plans
_TOO_LONG: dict[str, Any] = {"error": "http_4xx", "status": 400, "detail": "longer than the context"}


class StepLaw(Protocol):
    """How long a step takes, and how long a request needs before it reaches the scheduler; seconds."""

    @property
    def frontend(self) -> float:
        """Of any request."""

    @property
    def frontend_per_token(self) -> float:
        """More for each prompt token."""

    def step(self, contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> float:
        """Of a step: contexts of decoding sequences, (new tokens, tokens before) of prefill chunks."""


class VirtualSource:
    """A LoadSource for one emulated deployment, at one law of time (its own unless one is given).

    Loads run one after another on the same engines. UsageError where the real engine would refuse to start.
    """

    def __init__(self, spec: Spec, law: StepLaw | None = None) -> None:
        size = pool_size(spec)
        self.spec = spec
        self.law: StepLaw = law or law_of(spec)
        self.engines = [
            _Engine(make_scheduler(spec, size), Random(f"jitter {spec.seed} {index}"))
            for index in range(spec.replicas * spec.data_parallel)
        ]
        self.now = 0.0

    async def run(
        self,
        load: Load,
        on_sample: Callable[[Sample], None] | None = None,
        stop: Callable[[Sequence[Sample]], str | None] | None = None,
    ) -> Measurement:
        """Send `load` and measure it; see LoadSource."""
        return self.measure(load, on_sample, stop)

    def measure(
        self,
        load: Load,
        on_sample: Callable[[Sample], None] | None = None,
        stop: Callable[[Sequence[Sample]], str | None] | None = None,
    ) -> Measurement:
        """The same without an event loop."""
        return _Run(self, load, on_sample, stop).measure()


@dataclass(slots=True)
class _Engine:
    scheduler: Scheduler
    random: Random
    busy: bool = False
    preempted: int = 0


@dataclass(slots=True, eq=False)
class _Request:
    """One request under way; times count from the start of its load, `arrivals` from its own. `then` are the turns of
    its conversation that follow.
    """

    warm: bool
    index: int
    shape: Shape
    start: float
    engine: _Engine
    job: Job
    then: tuple[Turn, ...] = ()
    arrivals: list[float] = field(default_factory=list)
    first_tokens: int = 1


class _Run:
    """One load under way: a heap of what happens next."""

    def __init__(
        self,
        source: VirtualSource,
        load: Load,
        on_sample: Callable[[Sample], None] | None,
        stop: Callable[[Sequence[Sample]], str | None] | None,
    ) -> None:
        self.source, self.load, self.on_sample, self.stop = source, load, on_sample, stop
        self.begun = self.now = source.now
        self.todo = deque(talks(load))
        self.events: list[tuple[float, int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.flying: set[_Request] = set()
        self.kept: dict[bool, list[Sample]] = {True: [], False: []}
        self.snapshots: list[Snapshot] = []
        self.stopped: str | None = None
        self.peak = 0

    def measure(self) -> Measurement:
        """Run the load to its end, or until `stop` ends it."""
        self._snap(0.0, "before")
        self._begin_sending()
        while self.events and self.stopped is None:
            moment, _, _, happens = heappop(self.events)
            while moment >= self.begun + _SAMPLE_EVERY * len(self.snapshots):
                self._snap(_SAMPLE_EVERY * len(self.snapshots), "during")
            self.now = moment
            happens()
        self._give_up()
        self.source.now = self.now
        self._snap(self.now - self.begun, "after")
        return Measurement(
            load=self.load,
            samples=tuple(sorted(self.kept[False], key=lambda sample: sample.index)),
            warmup=tuple(sorted(self.kept[True], key=lambda sample: sample.index)),
            duration=self.now - self.begun,
            snapshots=tuple(self.snapshots),
            client=ClientHealth(peak_inflight=self.peak, clock="virtual"),
            stopped=self.stopped,
        )

    def _at(self, moment: float, kind: int, happens: Callable[[], None]) -> None:
        heappush(self.events, (moment, kind, next(self.numbers), happens))

    # ------------------------------------------------------------------------------------------------------ requests

    def _begin_sending(self) -> None:
        """Every slot of a closed loop its first request; all of an open loop at their times."""
        for turns in self.todo if self.load.arrivals else ():
            self._later(turns)
        for _ in range(0 if self.load.arrivals else min(self.load.concurrency, len(self.todo))):
            self._send(())

    def _later(self, turns: tuple[Turn, ...]) -> None:
        """Send a request of an open loop at its time, a later turn not before the reply to the last."""
        at = self.begun + (due(self.load, turns[0]) or 0.0)
        self._at(max(at, self.now), _ENTERS, lambda: self._next(turns))

    def _next(self, turns: tuple[Turn, ...]) -> None:
        """Send the first of these turns; what is refused is over at once."""
        while turns and not self._accepted(self._request(turns)):
            turns = turns[1:]

    def _send(self, turns: tuple[Turn, ...]) -> None:
        """A slot sends its user's next turn, or another's first; it reaches the scheduler once it is tokenised."""
        while turns or self.todo:
            turns = turns or self.todo.popleft()
            if self._accepted(self._request(turns)):
                return
            turns = turns[1:]

    def _request(self, turns: tuple[Turn, ...]) -> _Request:
        warm, index, shape = turns[0].warm, turns[0].index, turns[0].shape
        engine = self.source.engines[index % len(self.source.engines)]
        job = Job(
            name=f"{self.load.id} {index}",
            prompt=shape.prompt_tokens,
            keys=self._keys(engine, shape),
            limit=shape.output_tokens,
            target=shape.output_tokens,
            arrival=self.now,
        )
        return _Request(warm, index, shape, self.now - self.begun, engine, job, turns[1:])

    def _accepted(self, request: _Request) -> bool:
        job, law = request.job, self.source.law
        if job.prompt + job.target > self.source.spec.max_model_len:
            self._keep(request, **_TOO_LONG)
            return False
        job.emit = lambda tokens, at, done: self._emit(request, tokens, at, done)
        self.flying.add(request)
        self.peak = max(self.peak, len(self.flying))
        delay = law.frontend + law.frontend_per_token * job.prompt
        self._at(self.now + delay, _ENTERS, lambda: self._enter(request))
        return True

    def _keys(self, engine: _Engine, shape: Shape) -> list[int]:
        """Cache keys of what a prompt shares: a prefix, a conversation, blocks of a log. What follows is its own and is
        never found again.
        """
        if not self.source.spec.prefix_caching:
            return []
        unit = engine.scheduler.pool.unit
        if shape.talk is not None:
            return [hash((self.load.id, shape.cls, shape.talk, i)) for i in range(shape.prompt_tokens // unit)]
        if shape.blocks:
            whole = len(shape.blocks) * BLOCK_TOKENS // unit
            return [hash((shape.blocks[i * unit // BLOCK_TOKENS], i)) for i in range(whole)]
        if shape.prefix is None:
            return []
        return [hash((shape.cls, shape.prefix, i)) for i in range(shape.prefix_tokens // unit)]

    def _emit(self, request: _Request, tokens: int, at: float, done: bool) -> None:
        if not request.arrivals:
            request.first_tokens = tokens
        request.arrivals.append(at - request.job.arrival)
        if done:
            self.flying.discard(request)
            self._keep(request, status=200, finish_reason="length")
            if self.stopped is None:
                self._go_on(request.then)

    def _go_on(self, then: tuple[Turn, ...]) -> None:
        if not self.load.arrivals:
            self._send(then)
        elif then:
            self._later(then)

    def _keep(self, request: _Request, **rest: Any) -> None:
        """The request's sample, as it ended."""
        arrivals, job, shape = tuple(request.arrivals), request.job, request.shape
        sample = Sample(
            load=f"{self.load.id}/warmup" if request.warm else self.load.id,
            index=request.index,
            cls=shape.cls,
            start=request.start,
            asked_prompt_tokens=shape.prompt_tokens,
            asked_output_tokens=shape.output_tokens,
            connect=0.0,
            ttft=arrivals[0] if arrivals else None,
            e2e=arrivals[-1] if arrivals else None,
            closed=self.now - job.arrival,
            prompt_tokens=shape.prompt_tokens if arrivals else None,
            output_tokens=job.output if arrivals else None,
            cached_tokens=job.cached if arrivals else None,
            first_tokens=request.first_tokens,
            arrivals=arrivals,
            late=0.0 if self.load.arrivals else None,
            **rest,
        )
        self.kept[request.warm].append(sample)
        if request.warm:
            return
        if self.on_sample is not None:
            self.on_sample(sample)
        if self.stop is not None and self.stopped is None:
            self.stopped = self.stop(self.kept[False])

    def _give_up(self) -> None:
        """Abort what is in flight when the load was stopped."""
        for request in sorted(self.flying, key=lambda each: each.index):
            request.engine.scheduler.abort(request.job)
            self._keep(request, error="cancelled")
        for engine in self.source.engines:
            engine.busy = False

    # --------------------------------------------------------------------------------------------------------- steps

    def _enter(self, request: _Request) -> None:
        engine = request.engine
        engine.scheduler.add(request.job)
        if not engine.busy:
            engine.busy = True
            self._at(self.now, _BEGINS, lambda: self._begin(engine))

    def _begin(self, engine: _Engine) -> None:
        step = engine.scheduler.plan()
        engine.busy = not step.empty
        if engine.busy:
            engine.preempted += len(step.preempted)
            seconds = self.source.law.step(step.contexts, [(new, before) for _, new, before in step.chunks])
            seconds = jittered(seconds, self.source.spec.jitter, engine.random)
            self._at(self.now + seconds, _ENTERS, lambda: self._end(engine, step))

    def _end(self, engine: _Engine, step: Step) -> None:
        for job, tokens in engine.scheduler.complete(step):
            job.emit(tokens, self.now, job.output >= job.target)
        self._at(self.now, _BEGINS, lambda: self._begin(engine))

    def _snap(self, at: float, phase: Literal["before", "during", "after"]) -> None:
        schedulers = [engine.scheduler for engine in self.source.engines]
        values = {
            "running": float(sum(len(each.running) for each in schedulers)),
            "waiting": float(sum(len(each.waiting) for each in schedulers)),
            "kv_usage": max(each.pool.used / each.pool.capacity for each in schedulers),
            "preemptions": float(sum(engine.preempted for engine in self.source.engines)),
        }
        self.snapshots.append(Snapshot(at=at, phase=phase, values=values))
