"""One emulated engine on the event loop: its scheduler, its law of time, its counts."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random

from auditor.emulator.blocks import Pool
from auditor.emulator.buckets import buckets
from auditor.emulator.clock import Clock
from auditor.emulator.counters import Counters
from auditor.emulator.holdback import SglangScheduler
from auditor.emulator.memory import PoolSize
from auditor.emulator.record import Record, StepRecord
from auditor.emulator.scheduler import Job, Limits, Scheduler, Step, VllmScheduler
from auditor.emulator.spec import Spec
from auditor.emulator.timing import law

__all__ = ["Engine", "jittered", "make_scheduler"]

CACHE_UNIT = 16  # tokens that SGLang's prefix cache is looked up by here; its radix tree goes by pages
LATE = 0.05  # a loop this late has lost the schedule: the next step starts now, not when it should have
STALL_BOUND = 3.0  # step jitter is cut at so many standard deviations


def make_scheduler(spec: Spec, size: PoolSize) -> Scheduler:
    """An empty scheduler of the spec's flavour over a pool of this size."""
    limits = Limits(
        max_num_seqs=spec.max_num_seqs if size.running is None else min(spec.max_num_seqs, size.running),
        max_num_batched_tokens=spec.max_num_batched_tokens,
        accept_length=spec.accept_length,
        prefix_cached=spec.faults.prefix_cached,
        prefix_caching=spec.prefix_caching,
        conservativeness=spec.schedule_conservativeness,
        seed=spec.seed,
    )
    page = size.page
    if spec.flavour == "vllm":
        return VllmScheduler(Pool(size.slots - page, page, page, size.needs), limits)  # one block is never given out
    return SglangScheduler(Pool(size.slots, page, max(page, CACHE_UNIT) // page * page, size.needs), limits)


def jittered(seconds: float, jitter: float, random: Random) -> float:
    """A step's time with its relative scatter, which is never more than half."""
    if not jitter:
        return seconds
    wobble = max(-STALL_BOUND, min(STALL_BOUND, random.gauss()))
    return seconds * max(0.5, 1 + jitter * wobble)


@dataclass(slots=True)
class _Pace:
    """Tokens and seconds since the throughput gauge was set."""

    since: float = 0.0
    tokens: int = 0


class Engine:
    """A scheduler driven by timers: each step ends when its law says, absolutely, so lateness does not add up."""

    def __init__(self, spec: Spec, size: PoolSize, record: Record, clock: Clock, index: int) -> None:
        self.spec = spec
        self.index = index
        self.scheduler = make_scheduler(spec, size)
        self.counters = Counters(buckets(spec))
        self.law = law(spec)
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._now = clock.now
        self._early = clock.grain
        self._handle: asyncio.Handle | None = None
        self._random = Random(f"jitter {spec.seed} {index}")
        self._cold = spec.faults.cold_first_token
        self._pace = _Pace(clock.now())
        self._entering: dict[Job, asyncio.TimerHandle] = {}

    @property
    def queued(self) -> int:
        """Jobs that are not running yet, in the front end or the scheduler's queue."""
        return len(self._entering) + len(self.scheduler.waiting)

    @property
    def unfinished(self) -> int:
        """Jobs waiting and running."""
        return self.queued + len(self.scheduler.running)

    def submit(self, job: Job) -> None:
        """Take a job in: it reaches the scheduler when the front end has tokenised it."""
        delay = self.law.frontend + self.law.frontend_per_token * job.prompt
        self._entering[job] = self._loop.call_later(delay, self._enter, job)

    def abort(self, job: Job) -> None:
        """The client of a job is gone."""
        if not job.done:
            if entering := self._entering.pop(job, None):
                entering.cancel()
            self.scheduler.abort(job)
            self.counters.report(job)
            self.counters.aborted += not job.internal

    def stop(self) -> None:
        """Compute nothing more."""
        for handle in (*self._entering.values(), *([self._handle] if self._handle else [])):
            handle.cancel()
        self._entering.clear()
        self._handle = None

    def _enter(self, job: Job) -> None:
        del self._entering[job]
        self.scheduler.add(job)
        if self._handle is None:  # call_soon, so that requests of one moment share the first step
            self._handle = self._loop.call_soon(self._begin, self._now())

    def _begin(self, start: float) -> None:
        step = self.scheduler.plan()
        if step.empty:
            self._handle = None
            self.counters.throughput = 0.0
            return
        for job in step.admitted:
            if job.admitted is None:
                job.admitted = start
                if not job.internal:
                    self.counters.admit(job)
        if self.spec.flavour == "sglang":
            for job in step.preempted:
                self.counters.report(job)
        due = start + self._seconds(step)
        self._handle = self._loop.call_at(due - self._early, self._end, step, start, due)

    def _seconds(self, step: Step) -> float:
        seconds = self.law.step(step.contexts, [(new, before) for _, new, before in step.chunks])
        seconds = jittered(seconds, self.spec.jitter, self._random)
        if self._cold and step.chunks:
            seconds += self._cold
            self._cold = 0.0
        return seconds

    def _end(self, step: Step, start: float, due: float) -> None:
        """Give out the step's tokens; everything else waits until they are on their way."""
        while (now := self._now()) < due and self._early:
            pass  # the last millisecond, which the loop's timers cannot tell
        scheduler = self.scheduler
        held = (len(scheduler.running), len(scheduler.waiting), scheduler.pool.used)
        given = scheduler.complete(step)
        for job, count in given:
            job.emit(count, now, job.output >= job.target)
        prefill = sum(new for _, new, _ in step.chunks)
        self._record.steps.append(
            StepRecord(self.index, start, due, now - due, len(step.decodes), prefill, *held, len(step.preempted))
        )
        self._handle = self._loop.call_soon(self._next, step, given, now, due)

    def _next(self, step: Step, given: list[tuple[Job, int]], now: float, due: float) -> None:
        self._count(step, given, now)
        self._begin(due if now - due < LATE else now)

    def _count(self, step: Step, given: list[tuple[Job, int]], now: float) -> None:
        counters = self.counters
        gaps: Counter[float] = Counter()
        tokens = 0
        for job, count in given:
            if job.internal:
                continue
            tokens += count
            counters.output_tokens[job.streamed] += count
            if job.first is None:
                job.first = now
                counters.first(job, now)
            else:
                shared = 1 if self.spec.flavour == "vllm" else count  # vLLM counts an emission, SGLang a token
                gaps[(now - job.last) / shared] += shared
            job.last = now
            if job.unreported:
                counters.report(job)
            if job.done and job.target:  # an aborted job has no target left, and was counted as aborted
                counters.finish(job, now, "length" if job.output >= job.limit else "stop")
        for gap, times in gaps.items():
            counters.itl.observe(gap, times)
        counters.step_tokens.observe(sum(new for _, new, _ in step.chunks) + len(step.decodes))
        counters.decode_tokens += tokens
        if drafts := self.spec.draft_tokens:
            counters.drafts += len(step.decodes)
            counters.draft_tokens += drafts * len(step.decodes)
            counters.accepted_tokens += sum(count - 1 for _, count in step.decodes)
        self._pace.tokens += tokens
        if now - self._pace.since >= 1.0:
            counters.throughput = self._pace.tokens / (now - self._pace.since)
            self._pace = _Pace(now, 0)
