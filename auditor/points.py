"""What a service did at one level of load, and the nearest level at which an audit that failed would pass.

Frozen plain data; None means "not known", never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from auditor.theory.statistics import Outcome
from auditor.units import plain

__all__ = ["Level", "Nearest", "Point", "Reading", "Signs"]


@dataclass(frozen=True, slots=True)
class Level:
    """A level of load: so many requests in flight, or so many a second. One of the two is None."""

    flight: int | None = None
    rate: float | None = None

    @property
    def value(self) -> float:
        """The number, whichever it is."""
        return float(self.flight or 0) if self.rate is None else self.rate

    def __str__(self) -> str:
        return f"{self.flight} in flight" if self.rate is None else f"{plain(self.rate, 3)} requests a second"

    @property
    def mark(self) -> str:
        """What tells the loads of this level from those of others: "@48", "@2.5/s"."""
        return f"@{self.flight}" if self.rate is None else f"@{plain(self.rate, 4)}/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One SLO at one level: `value` with its interval and its `limit`, in `unit`, over `n` requests, `bad` over it.

    A bound or a value that is infinite (failed requests) is None. `missing` good requests would make it pass.
    """

    path: str
    metric: str
    percentile: str
    cls: str | None
    value: float | None
    low: float | None
    high: float | None
    limit: float
    unit: str
    n: int
    bad: int
    status: Outcome
    missing: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the server shows of a level: requests running at most and waiting in the mean, the share of the KV cache in
    use at most, preemptions; and whether a gateway limited the rate.
    """

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    kv_pressed: bool | None = None
    rate_limited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A level that was measured and how the verdict's own rules judge it: `status`.

    `requests` are the judged ones, `failed` of them; `reached` is the closed loop's requests a second, `stay` the mean
    seconds of a request with its standard error. `broken` are the rules that keep the level from passing, `why` says so
    in words; `voided_by` are rules on the measurement itself that keep it from being decided.
    """

    level: Level
    status: Outcome
    requests: int
    failed: int
    readings: tuple[Reading, ...]
    reached: float | None = None
    output_rate: float | None = None
    stay: float | None = None
    stay_error: float | None = None
    broken: tuple[str, ...] = ()
    why: str = ""
    missing: str | None = None
    voided_by: tuple[str, ...] = ()
    signs: Signs = Signs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The search for the nearest level at which a failed audit passes: `note` says why it ended or never began.

    `points` were measured, in the order in which they ran. `computed` are changes that arithmetic says would carry the
    target instead; nobody measured them.
    """

    note: str = ""
    points: tuple[Point, ...] = ()
    computed: tuple[str, ...] = ()

    @property
    def found(self) -> Point | None:
        """The highest level that passed below every one that failed; None where none did."""
        failed = min((p.level.value for p in self.points if p.status == "fail"), default=float("inf"))
        passed = [p for p in self.points if p.status == "pass" and p.level.value < failed]
        return max(passed, key=lambda p: p.level.value, default=None)

    @property
    def sentence(self) -> str:
        """What it came to, in one line that tells measured from computed."""
        return f"{self._measured()}{self._or_else()}."

    def _measured(self) -> str:
        if (point := self.found) is not None:
            above = [f"{p.level} {_STATUS[p.status]}" for p in self.points if p.level.value > point.level.value]
            more = f"; {_joined(above)}" if above else ""
            return f"at {point.level} every SLO is met and nothing queues (measured, n = {point.requests}{more})"
        tried = [f"{p.level} {_STATUS[p.status]}" for p in self.points]
        if not tried:
            return f"no lower load was tried: {self.note}"
        return f"not found: {_joined(tried)}{f'; {self.note}' if self.note else ''}"

    def _or_else(self) -> str:
        if not self.computed:
            return ""
        return f"; or, computed, not measured: {'; '.join(self.computed)}"


_STATUS = {"pass": "passes", "fail": "fails too", "inconclusive": "decides nothing"}


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
