"""What a server's gauge of waiting requests shows over a load: a queue that stands, or lasts, or was there a moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from auditor.units import plain

__all__ = ["Queue", "seen"]

_STANDING = 0.05  # of the target, in the mean
_FEWEST = 3  # readings that a steady part needs

Readings = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue over the steady part of a load, which `readings` count: its mean, and the share of readings that show it.

    `most` is the longest queue of the whole load and `early` whether that came before the steady part; `lasts` is how
    many seconds of the whole load a queue was there on end; `busy` what ran while one was, in the steady part.
    """

    mean: float
    often: float
    readings: int
    most: float
    early: bool
    lasts: float
    busy: tuple[float, ...]

    def stands(self, target: int) -> bool:
        """Whether one request or more, and 5 % of the target, wait in the mean, and some in a quarter of the time."""
        return self.mean >= max(1.0, _STANDING * target) and self.often >= 0.25

    def words(self, target: int, *, bounded: bool) -> str:
        """The mean, and the longest queue where that is another; `bounded` where no more than the target come."""
        when = "at the start" if self.early else "at most" if self.stands(target) else "for a moment"
        most = f", {self.most:.0f} {when}" if self.most > self.mean + 1 else ""
        mean = plain(round(self.mean, 1), 2)
        waiting = f"{mean} of {target} requests wait" if bounded else f"{mean} requests wait"
        return f"{waiting} in the mean{most}"


def seen(waiting: Readings, running: Readings, begin: float, end: float) -> Queue:
    """The queue by readings (seconds, requests), steady from `begin` to `end`. Raises ValueError on no readings."""
    if not waiting:
        raise ValueError("a queue needs at least one reading")
    steady = [(t, n) for t, n in waiting if begin <= t <= end]
    steady = steady if len(steady) >= _FEWEST else list(waiting)
    runs, queued = dict(running), [n for _, n in steady]
    most, at = max((n, t) for t, n in waiting)  # the last of equal ones
    return Queue(
        mean=sum(queued) / len(queued),
        often=sum(n > 0 for n in queued) / len(queued),
        readings=len(queued),
        most=most,
        early=at < begin,
        lasts=_longest(waiting),
        busy=tuple(runs[t] for t, n in steady if n > 0 and t in runs),
    )


def _longest(waiting: Readings) -> float:
    """Seconds of the longest stretch in which every reading shows a queue, up to the reading that shows none."""
    longest, since = 0.0, None
    for (time, number), (later, _) in pairwise(waiting):
        since = (time if since is None else since) if number > 0 else None
        longest = max(longest, later - since) if since is not None else longest
    return longest
