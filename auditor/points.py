"""What a service did at one level of load, and the nearest level at which an audit that failed would pass.

Frozen plain data; None means "not known", never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from auditor.theory.bracket import Bracket, bracket
from auditor.theory.knee import Knee
from auditor.theory.statistics import Outcome
from auditor.units import plain

__all__ = ["Capacity", "Level", "Nearest", "Point", "Reading", "Signs"]


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
    seconds of its requests (of all, without one) with their standard error. `broken` are the rules that keep the level
    from passing, `why` says so in words; `voided_by` are the rules on the measurement itself that keep an undecided one
    from being decided.
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
            above = [_outcome(p) for p in self.points if p.level.value > point.level.value]
            more = f"; {_joined(above)}" if above else ""
            return f"at {point.level} every SLO is met and nothing queues (measured, n = {point.requests}{more})"
        tried = [_outcome(p) for p in self.points]
        if not tried:
            return f"no lower load was tried: {self.note}"
        return f"not found: {_joined(tried)}{f'; {self.note}' if self.note else ''}"

    def _or_else(self) -> str:
        if not self.computed:
            return ""
        return f"; or, computed, not measured: {'; '.join(self.computed)}"


_STATUS = {"pass": "passes", "fail": "fails too", "inconclusive": "decides nothing"}


def _outcome(point: Point) -> str:
    """`8 in flight decides nothing (T514)`: which rules on the measurement itself leave it open."""
    return f"{point.level} {_STATUS[point.status]}{f' ({_listed(point.voided_by)})' if point.voided_by else ''}"


def _listed(rules: Sequence[str]) -> str:
    return ", ".join(rules)


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a search for the highest load that meets every SLO found.

    `by` says what was raised; `target` is what the profile declares of that (None: nothing). `points` are in the order
    in which they ran. `limit` names what limits at the first level that does not pass ("client": no claim is made) and
    `why` says it in words. `note` tells why the search ended before its bracket was as narrow as it should be.
    """

    name: str
    date: str
    by: Literal["flight", "rate"]
    target: float | None
    points: tuple[Point, ...]
    knee: Knee | None = None
    limit: str = ""
    why: str = ""
    note: str = ""
    context: tuple[str, ...] = ()
    requests: int = 0
    tokens: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def bracket(self) -> Bracket:
        """Between which levels the capacity lies."""
        return bracket((p.level.value, p.status) for p in self.points)

    @property
    def enough(self) -> bool | None:
        """Whether the target is met (any level, where none is declared); None where that is open."""
        found = self.bracket
        if self.target is not None:
            return found.reaches(self.target)
        return True if found.passed is not None else False if found.settled(step=1.0) else None

    @property
    def exit_code(self) -> int:
        """0 the target is met, 1 it is not, 4 that is open, 130 interrupted."""
        return 130 if self.interrupted else {True: 0, False: 1, None: 4}[self.enough]

    @property
    def verdict_line(self) -> str:
        """One line: what meets the SLOs, what does not, and how that stands to the target."""
        return f"CAPACITY: {self.name}: {self._found()}{self._against()}"

    def words(self, value: float) -> str:
        """A level in words."""
        return str(Level(flight=round(value)) if self.by == "flight" else Level(rate=value))

    def _found(self) -> str:
        found = self.bracket
        known = "no level met every SLO"
        parts = [known if found.passed is None else f"every SLO is met at {self.words(found.passed)}"]
        if found.undecided:
            parts.append(f"open at {_joined([plain(level, 3) for level in found.undecided])}")
        if found.failed is not None:
            broken = next((p.broken for p in self.points if p.level.value == found.failed and p.status == "fail"), ())
            parts.append(f"missed at {self.words(found.failed)}{f' ({_listed(broken)})' if broken else ''}")
        elif found.passed is not None:
            parts.append("missed nowhere that was measured")
        return ", ".join(parts)

    def _against(self) -> str:
        if self.target is None:
            return ""
        outcome = {True: "met", False: "not met", None: "undecided"}[self.enough]
        return f"; the target of {self.words(self.target)} is {outcome}"
