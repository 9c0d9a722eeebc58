"""Continuous batching, one step at a time: pure state, no clock, no network.

    plan() -> Step (what the next step computes) -> complete(step) -> the tokens it gave

vLLM admits by the blocks of the prompt alone, mixes prefill chunks with decodes and, when blocks run out, preempts the
youngest request and recomputes it. SGLang admits by its estimate of all future tokens, runs prefills alone, and
retracts the request with the shortest reply when the estimate was wrong.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from auditor.emulator.blocks import Pool, Sequence

__all__ = ["Job", "Limits", "Scheduler", "Step", "VllmScheduler"]


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request inside the engine. Lengths in tokens, times in seconds of the loop's clock.

    `keys` are the cache keys of the prompt's whole units; `limit` is what the client allows, `target` how long the
    reply really gets; `computed` counts tokens whose KV is held; `emit(count, at, done)` receives the tokens.
    """

    name: str
    prompt: int
    keys: list[int] = field(default_factory=list)
    limit: int
    target: int
    ignore_eos: bool = False
    internal: bool = False
    streamed: bool = True
    arrival: float = 0.0
    emit: Callable[[int, float, bool], None] = lambda _count, _at, _done: None
    sequence: Sequence = field(default_factory=Sequence)
    output: int = 0
    computed: int = 0
    cached: int = 0
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0
    preemptions: int = 0
    unreported: int = 0

    @property
    def length(self) -> int:
        """Tokens so far, prompt and reply."""
        return self.prompt + self.output

    @property
    def done(self) -> bool:
        """True once the reply has its target length."""
        return self.output >= self.target


@dataclass(slots=True)
class Step:
    """What one step computes: prefill chunks (job, new tokens, tokens before), decodes (job, tokens it will give)."""

    chunks: list[tuple[Job, int, int]] = field(default_factory=list)
    decodes: list[tuple[Job, int]] = field(default_factory=list)
    admitted: list[Job] = field(default_factory=list)
    preempted: list[Job] = field(default_factory=list)

    @property
    def contexts(self) -> list[int]:
        """The context of each decoding sequence."""
        return [job.length for job, _ in self.decodes]

    @property
    def empty(self) -> bool:
        """True if there is nothing to compute."""
        return not self.chunks and not self.decodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a step: requests running, tokens computed, and the tokens that a decode gives under speculation."""

    max_num_seqs: int
    max_num_batched_tokens: int
    accept_length: float = 1.0
    prefix_cached: bool = False
    prefix_caching: bool = True
    conservativeness: float = 1.0
    seed: int = 0


class Scheduler(Protocol):
    """Either flavour."""

    pool: Pool
    waiting: deque[Job]
    running: list[Job]

    def add(self, job: Job) -> None:
        """Queue a job."""

    def abort(self, job: Job) -> None:
        """Forget a job whose client has gone."""

    def plan(self) -> Step:
        """Decide what the next step computes, and take the slots for it."""

    def complete(self, step: Step) -> list[tuple[Job, int]]:
        """Account for a step that was computed; the jobs that got tokens, and how many."""


class Batching:
    """What both flavours share."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self.pool = pool
        self.limits = limits
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._random = Random(f"accept {limits.seed}")

    def add(self, job: Job) -> None:
        """Queue a job at the end."""
        self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Forget a job wherever it is; tokens of a step in progress are dropped."""
        if job in self.running:
            self.running.remove(job)
            self.pool.release(job.sequence)
        elif job in self.waiting:
            self.waiting.remove(job)
        job.target = 0

    def _cached(self, job: Job) -> int:
        """Prompt tokens that need no computing: cached units, never the whole prompt."""
        unit = self.pool.unit
        most = (job.length - 1) // unit
        if self.limits.prefix_cached:
            return most * unit
        return min(self.pool.hits(job.keys), most) * unit if self.limits.prefix_caching else 0

    def _enter(self, job: Job, cached: int, tokens: int) -> bool:
        """Take the slots with which a waiting job starts; False, and nothing taken, where there is no room."""
        if not self.limits.prefix_cached and cached:
            self.pool.share(job.sequence, job.keys[: cached // self.pool.unit])
        if not self.pool.grow(job.sequence, cached + tokens):
            self.pool.release(job.sequence)
            return False
        if job.admitted is None:
            job.cached = cached
        job.computed = cached
        return True

    def _evict(self, job: Job) -> None:
        """Take everything from a running job and queue it first."""
        self.pool.release(job.sequence)
        job.computed = 0
        job.preemptions += 1
        job.unreported += 1
        self.waiting.appendleft(job)

    def _accept(self, job: Job) -> int:
        """Tokens that a decode step gives this job."""
        mean = self.limits.accept_length
        whole = int(mean)
        count = whole + (self._random.random() < mean - whole) if mean > 1 else 1
        return max(1, min(count, job.target - job.output))

    def complete(self, step: Step) -> list[tuple[Job, int]]:
        """Account for a computed step. A prefill that reaches the end gives one token."""
        given: list[tuple[Job, int]] = []
        for job, new, _ in step.chunks:
            if not job.target:
                continue
            job.computed += new
            self._publish(job)
            if job.computed == job.length:
                given.append((job, 1))
        given.extend((job, count) for job, count in step.decodes if job.target)
        for job, count in given:
            job.output += count
            job.computed = job.length - 1  # the last token's KV is computed with the next step
        self._retire(job for job, _ in given)
        return given

    def _publish(self, job: Job) -> None:
        if self.limits.prefix_caching and not self.limits.prefix_cached:
            whole = min(job.computed // self.pool.unit, len(job.keys))
            self.pool.publish(job.sequence, job.keys[len(job.sequence.keys) : whole])

    def _retire(self, jobs: Iterable[Job]) -> bool:
        done = [job for job in jobs if job.done]
        for job in done:
            self.running.remove(job)
            self.pool.release(job.sequence)
        return bool(done)


class VllmScheduler(Batching):
    """vLLM's V1 scheduler: first come first served, one token budget for decodes and prefill chunks alike."""

    def plan(self) -> Step:
        """Running jobs first, preempting from the end of the queue; then waiting ones if nobody was preempted."""
        step = Step()
        budget = self.limits.max_num_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            job = self.running[index]
            missing = job.length - job.computed
            count = self._accept(job) if missing == 1 else 1
            tokens = min(missing, budget)
            if not self._make_room(job, job.computed + tokens + count - 1, step):
                break
            budget -= tokens
            self._schedule(step, job, tokens, count)
            index += 1
        if not step.preempted:
            self._admit(step, budget)
        return step

    @staticmethod
    def _schedule(step: Step, job: Job, tokens: int, count: int) -> None:
        if job.length - job.computed == 1 and job.output:
            step.decodes.append((job, count))
        else:
            step.chunks.append((job, tokens, job.computed))

    def _make_room(self, job: Job, tokens: int, step: Step) -> bool:
        while not self.pool.grow(job.sequence, tokens):
            victim = self.running.pop()
            self._evict(victim)
            step.preempted.append(victim)
            if victim is job:
                return False
        return True

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            job = self.waiting[0]
            cached = self._cached(job)
            tokens = min(job.length - cached, budget)
            if not self._enter(job, cached, tokens):
                break
            self.waiting.popleft()
            self.running.append(job)
            step.admitted.append(job)
            budget -= tokens
            step.chunks.append((job, tokens, cached))
