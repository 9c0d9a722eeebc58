"""What one emulated scheduler counts, as the engines do: histograms, counters and gauges behind the metrics page."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from auditor.emulator.scheduler import Job

__all__ = ["Buckets", "Counters", "HistogramCount"]


class HistogramCount:
    """A Prometheus histogram: a value belongs to the first bound that is not below it."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The histogram bounds of one engine, as its metrics page shows them."""

    ttft: tuple[float, ...]
    itl: tuple[float, ...]
    request: tuple[float, ...]
    queue: tuple[float, ...]
    length: tuple[float, ...]


@dataclass(slots=True)
class Counters:
    """One scheduler's counts. Times in seconds."""

    buckets: Buckets
    ttft: HistogramCount = field(init=False)
    itl: HistogramCount = field(init=False)
    tpot: HistogramCount = field(init=False)
    e2e: HistogramCount = field(init=False)
    queue: HistogramCount = field(init=False)
    inference: HistogramCount = field(init=False)
    prefill: HistogramCount = field(init=False)
    decode: HistogramCount = field(init=False)
    prompt_length: HistogramCount = field(init=False)
    computed_length: HistogramCount = field(init=False)
    output_length: HistogramCount = field(init=False)
    limit_length: HistogramCount = field(init=False)
    preempted: HistogramCount = field(init=False)
    step_tokens: HistogramCount = field(init=False)
    choices: HistogramCount = field(init=False)
    prompt_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    output_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    finished: dict[str, int] = field(default_factory=dict)
    ended: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    cached_tokens: int = 0
    queried_tokens: int = 0
    preemptions: int = 0
    refusals: int = 0
    aborted: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    decode_tokens: int = 0
    throughput: float = 0.0
    last_hit_rate: float = 0.0

    def __post_init__(self) -> None:
        bounds = self.buckets
        self.ttft, self.itl, self.tpot = map(HistogramCount, (bounds.ttft, bounds.itl, bounds.itl))
        self.e2e, self.queue = HistogramCount(bounds.request), HistogramCount(bounds.queue)
        self.inference, self.prefill, self.decode = (HistogramCount(bounds.request) for _ in range(3))
        self.prompt_length, self.computed_length = HistogramCount(bounds.length), HistogramCount(bounds.length)
        self.output_length, self.limit_length = HistogramCount(bounds.length), HistogramCount(bounds.length)
        self.preempted = HistogramCount((1, 2, 3, 4, 5, 10, 20))
        self.step_tokens = HistogramCount(tuple(2.0**power for power in (0, *range(3, 15))))
        self.choices = HistogramCount((1, 2, 5, 10, 20))

    def admit(self, job: Job) -> None:
        """A job was taken from the queue for the first time."""
        self.queried_tokens += job.prompt
        self.cached_tokens += job.cached
        self.last_hit_rate = job.cached / job.prompt

    def first(self, job: Job, at: float) -> None:
        """A job gave its first token."""
        self.ttft.observe(at - job.arrival)
        self.prompt_tokens[job.streamed] += job.prompt

    def report(self, job: Job) -> None:
        """A job reported: its preemptions since the last report count now, as in vLLM."""
        self.preemptions += job.unreported
        job.unreported = 0

    def finish(self, job: Job, at: float, reason: str) -> None:
        """A job ended as it should."""
        admitted = job.admitted if job.admitted is not None else at
        first = job.first if job.first is not None else at
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.ended[job.streamed] += 1
        self.e2e.observe(at - job.arrival)
        self.queue.observe(admitted - job.arrival)
        self.inference.observe(at - admitted)
        self.prefill.observe(first - admitted)
        self.decode.observe(at - first)
        self.tpot.observe((at - first) / (job.output - 1) if job.output > 1 else 0.0)
        self.prompt_length.observe(job.prompt)
        self.computed_length.observe(job.prompt - job.cached)
        self.output_length.observe(job.output)
        self.limit_length.observe(job.limit)
        self.preempted.observe(job.preemptions)
        self.choices.observe(1)
