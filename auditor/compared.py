"""What a comparison of two runs found: one change a row, and what it comes to. Frozen plain data.

All times are seconds, all shares 0..1. None means "not known", never 0.
"""

from dataclasses import dataclass
from typing import Literal

from auditor.units import percent, plain, quantity

__all__ = ["Change", "Comparison", "Outcome"]

Outcome = Literal["worse", "unclear", "same", "better"]
Metric = Literal["ttft", "tpot", "e2e", "first_answer", "failed"]

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "first_answer": "first answer", "failed": "failures"}
_EXIT: dict[Outcome, int] = {"worse": 1, "unclear": 4, "same": 0, "better": 0}
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one metric of one load moved. `change` is relative (0.2: a fifth longer), of failures a difference of shares.

    `low`..`high` bound it; None is unbounded. `old` and `new` are the medians, or the percentile named. `counts` is how
    much longer is worse here: by `min_effect`, or more where baseline runs differ by more among themselves.
    `chance` is how likely so much longer is if nothing changed, among all rows (Holm); `paired` says that both runs
    sent the same requests; `worth` how many independent ones they are worth. `deciding` rows leave the comparison open
    where they are unclear, the others only tell that something is worse. `missing` more requests would tell.
    """

    metric: Metric
    load: str
    status: Outcome
    cls: str | None = None
    percentile: str = ""
    deciding: bool = False
    old: float | None = None
    new: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    counts: float = 0.0
    n_old: int = 0
    n_new: int = 0
    worth: float | None = None
    paired: bool = False
    chance: float | None = None
    missing: int | None = None
    doubts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`TTFT p95 [rag] (slo)`."""
        head = f"{_NAMES[self.metric]} {self.percentile}".rstrip()
        return f"{head}{f' [{self.cls}]' if self.cls else ''} ({self.load})"

    @property
    def unit(self) -> str:
        """That of `old` and `new`."""
        return "share" if self.metric == "failed" else "s"

    @property
    def words(self) -> str:
        """`+22 % (18 to 26 %)`; failures in percentage points."""
        return f"{signed(self.change)}{self._interval()}"

    def _interval(self) -> str:
        if self.low is None and self.high is None:
            return ""
        return f" ({signed(self.low)} to {signed(self.high)})"

    @property
    def sentence(self) -> str:
        """The row in words, with both values."""
        was, now = (quantity(value, self.unit) for value in (self.old, self.new))
        return f"{self.name} {self.words}: {was} before, {now} now"


def signed(change: float | None) -> str:
    """A change with its sign, in per cent: 0.2 is "+20 %"."""
    if change is None:
        return "unbounded"
    sign = "+" if change > 0 else "-" if change < 0 else ""
    return f"{sign}{percent(abs(change))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run held against the runs before it.

    `baseline` names them with their dates. `min_effect` is the least change that counts; `confidence` that nothing is
    called worse by chance. `differences` are settings and versions that differ; `notes` say what could not be compared
    and why; `noise` how far the baseline runs differ among themselves (None: there is one).
    """

    name: str
    date: str
    baseline: tuple[str, ...]
    changes: tuple[Change, ...]
    min_effect: float
    confidence: float
    noise: float | None = None
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Outcome:
        """Worse if anything is, else unclear if anything that decides is, else better if anything is."""
        statuses = {change.status for change in self.changes}
        if "worse" in statuses:
            return "worse"
        deciding = [change.status for change in self.changes if change.deciding]
        if not deciding or "unclear" in deciding:
            return "unclear"
        return "better" if "better" in deciding else "same"

    @property
    def exit_code(self) -> int:
        """0 not worse, 1 worse, 4 that is open."""
        return _EXIT[self.status]

    @property
    def telling(self) -> tuple[Change, ...]:
        """The rows that made the status, the largest change first."""
        rows = [c for c in self.changes if c.status == self.status and (c.deciding or c.status == "worse")]
        return tuple(sorted(rows, key=lambda c: -abs(c.change or 0.0)))

    @property
    def against(self) -> str:
        """`runs/base of 2026-11-29`, or how many runs."""
        first = self.baseline[0] if self.baseline else "no run"
        return first if len(self.baseline) < 2 else f"{first} and {len(self.baseline) - 1} more"

    @property
    def why(self) -> str:
        """What it comes to, in one sentence."""
        told = "; ".join(change.sentence for change in self.telling[:_MOST_NAMED])
        more = f" and {len(self.telling) - _MOST_NAMED} more" if len(self.telling) > _MOST_NAMED else ""
        if not self.changes:
            return f"Nothing could be compared with {self.against}: {'; '.join(self.notes) or 'no requests'}."
        if self.status == "same":
            return f"Nothing is slower by what counts than in {self.against}: {told}{more}."
        heads = {"worse": "Slower than", "unclear": "Whether it is slower stays open against", "better": "Faster than"}
        return f"{heads[self.status]} {self.against}: {told}{more}."

    @property
    def missing(self) -> str | None:
        """What would settle an open comparison."""
        if self.status != "unclear":
            return None
        doubts = tuple(dict.fromkeys(doubt for change in self.telling for doubt in change.doubts))
        if doubts:
            return "; ".join(doubts)
        wanted = [change.missing for change in self.telling]
        known = [more for more in wanted if more is not None]
        if wanted and len(known) == len(wanted):
            return f"about {plain(max(known))} more requests in each run"
        if not self.changes:
            return "; ".join(self.notes) or "requests of both runs at one operating point"
        within = any(self.min_effect < (change.change or 0) < change.counts for change in self.telling)
        if within and self.noise is not None:
            return f"baseline runs that differ by less than {percent(self.noise)} among themselves"
        return "more requests, or more baseline runs: the difference is close to what counts"

    @property
    def verdict_line(self) -> str:
        """One line: what it comes to."""
        return f"{self.status.upper()}: {self.name}: {self.why}"
