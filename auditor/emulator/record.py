"""What the emulator really did: the truth that tests compare the auditor's numbers with."""

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from auditor.emulator.scheduler import Job

__all__ = ["Record", "RequestRecord", "StepRecord"]

KEPT_REQUESTS = 65_536
KEPT_STEPS = 262_144


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One generation request. Times in seconds of the loop's clock; `arrival` is when its last byte had been read.

    `times` are the emission times of tokens (one entry an emission) and `counts` how many tokens each brought.
    """

    index: int
    name: str
    path: str
    arrival: float
    status: int = 200
    replica: int = 0
    foreign: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    admitted: float | None = None
    finished: float | None = None
    finish_reason: str | None = None
    fault: str | None = None
    times: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("H"))

    @property
    def first(self) -> float | None:
        """When the first token was emitted."""
        return self.times[0] if self.times else None

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival to the first token."""
        return self.times[0] - self.arrival if self.times else None

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first emission."""
        rest = sum(self.counts) - self.counts[0] if self.counts else 0
        return (self.times[-1] - self.times[0]) / rest if rest else None

    @property
    def largest_gap(self) -> float | None:
        """The longest wait between two emissions."""
        return max((b - a for a, b in zip(self.times, self.times[1:], strict=False)), default=None)

    def note(self, job: Job, at: float) -> None:
        """Copy what the engine knows of the request when it ends at `at`."""
        self.finished = at
        self.admitted = job.admitted
        self.output_tokens = job.output
        self.cached_tokens, self.preemptions = job.cached, job.preemptions

    def data(self, times: bool) -> dict[str, Any]:
        """As JSON data, with every emission if asked for."""
        names = ("index", "name", "path", "arrival", "status", "replica", "foreign", "prompt_tokens", "output_tokens",
                 "cached_tokens", "preemptions", "admitted", "finished", "finish_reason", "fault", "first", "ttft",
                 "tpot", "largest_gap")  # fmt: skip
        data: dict[str, Any] = {name: getattr(self, name) for name in names}
        if times:
            data["times"], data["counts"] = list(self.times), list(self.counts)
        return data


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step: when it began and was due, how late its tokens left (`lag`), what it computed, what was held then."""

    replica: int
    start: float
    due: float
    lag: float
    decodes: int
    prefill_tokens: int
    running: int
    waiting: int
    kv_used: int
    preempted: int

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Record:
    """Everything, newest last; bounded."""

    requests: deque[RequestRecord] = field(default_factory=lambda: deque(maxlen=KEPT_REQUESTS))
    steps: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    refused: int = 0
    kv_capacity: int = 0

    @property
    def own(self) -> list[RequestRecord]:
        """The requests that came in over HTTP."""
        return [request for request in self.requests if not request.foreign]

    @property
    def preemptions(self) -> int:
        """Preemptions or retractions so far."""
        return sum(request.preemptions for request in self.requests)

    def data(self, *, times: bool = False, steps: bool = False) -> dict[str, Any]:
        """As JSON data; single emissions and steps only if asked for."""
        lags = sorted(step.lag for step in self.steps)
        data: dict[str, Any] = {
            "kv_capacity": self.kv_capacity,
            "refused": self.refused,
            "preemptions": self.preemptions,
            "step_count": len(self.steps),
            "lag_p99": lags[int(0.99 * (len(lags) - 1))] if lags else None,
            "largest_batch": max((step.decodes for step in self.steps), default=0),
            "requests": [request.data(times) for request in self.requests],
        }
        if steps:
            data["steps"] = [step.data() for step in self.steps]
        return data
