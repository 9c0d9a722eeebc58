"""What streams of tokens that run side by side show: the step they share, and how long so many are open. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Balance", "Steps", "balance", "clump", "common_steps", "time_at"]

_TRIMMED = 0.05  # of the gaps, at either end: a stall of one step says nothing of the others
_MIDDLE = 0.25  # likewise, where no gap is short: what makes some steps long is not the engine's
_EVEN = 0.5  # of the mean, which the median gap reaches unless tokens come in bursts; of the median for short ones

_TOGETHER = 0.001  # seconds: events so close left together; a decoder's steps take longer
_SILENCE = 0.010  # seconds: what a buffer needs at least to fill
_SILENT = 0.2  # of the gaps at the most, or events come in the steps of a decoder that drafts


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds per decode step with their standard error, over `count` steps."""

    seconds: float
    error: float
    count: int


def common_steps(streams: Sequence[tuple[Sequence[float], float]]) -> Steps | None:
    """The steps of streams (absolute arrival times, tokens per event) while all of them decode, in seconds per token.

    From the last stream's first event to the first stream's last; None where they never overlap. Prompts that are still
    being read slow down the streams that decode already: that time is left out. Streams share their steps, so the error
    is that of one stream's. Gaps at the ends are trimmed: to the middle half where none is short, which shows that
    events come one by one, so that a neighbour who slows a fifth of the steps does not count; in bursts all count.
    """
    if not streams:
        return None
    begin, end = max(arrivals[0] for arrivals, _ in streams), min(arrivals[-1] for arrivals, _ in streams)
    gaps: list[float] = []
    most = 0
    for arrivals, per_event in streams:
        inside = [t for t in arrivals if begin <= t <= end]
        if len(inside) > 2:
            gaps += [(b - a) / per_event for a, b in pairwise(inside)]
            most = max(most, len(inside) - 1)
    if not gaps or sum(gaps) <= 0:
        return None
    ordered, size = sorted(gaps), len(gaps)
    if ordered[size // 2] < _EVEN * _mean(gaps):
        outer, inner = 0.0, 0.0
    else:
        outer = _TRIMMED
        inner = _MIDDLE if ordered[size // 10] >= _EVEN * ordered[size // 2] else _TRIMMED
    mean, kept = _mean(_cut(ordered, inner)), _cut(ordered, outer)
    spread = math.sqrt(_mean([(gap - mean) ** 2 for gap in kept]))
    return Steps(mean, spread / math.sqrt(most), most)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _cut(ordered: Sequence[float], share: float) -> Sequence[float]:
    """Without a share of the values at either end."""
    cut = int(share * len(ordered))
    return ordered[cut : len(ordered) - cut]


def time_at(spans: Sequence[tuple[float, float]], level: float) -> float:
    """Seconds during which at least `level` of the spans are open."""
    events = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    total, open_now = 0.0, 0
    for (time, change), (later, _) in pairwise(events):
        open_now += change
        if open_now >= level:
            total += later - time
    return total


def clump(arrivals: Sequence[float]) -> float | None:
    """Events that arrived together after each silence, where something held them back; None where nothing did.

    A buffer that is passed on when it is full lets a decoder's steps of milliseconds arrive at once.
    """
    gaps = [b - a for a, b in pairwise(arrivals)]
    silences = sorted(gap for gap in gaps if gap >= _TOGETHER)
    if not silences or len(silences) > _SILENT * len(gaps) or silences[len(silences) // 2] < _SILENCE:
        return None
    return len(arrivals) / (len(silences) + 1)


@dataclass(frozen=True, slots=True)
class Balance:
    """Both sides of Little's law: the mean number of open spans, and the rate at which spans begin times how long these
    stay open. `error` is one standard error of their difference in a steady state, `edge` what the difference may be if
    one end is none (all began together, or none goes on), both as shares; `count` how many began.
    """

    level: float
    expected: float
    error: float
    edge: float
    count: int

    @property
    def off(self) -> float:
        """Their difference as a share of the level."""
        return self.expected / self.level - 1


def balance(spans: Sequence[tuple[float, float]], begin: float, end: float) -> Balance | None:
    """Little's law over the spans open from `begin` to `end` (Little, Operations Research 9, 1961); None without two.

    In a steady state both sides differ by what is still open at the end less what was at the beginning: as many spans
    as are open in the mean, each with a residual life R, E[R] = E[S^2] / (2 E[S]) and E[R^2] = E[S^3] / (3 E[S]) (Cox,
    Renewal Theory, 1962).
    """
    stays = [b - a for a, b in spans if begin <= a < end]
    inside = math.fsum(min(b, end) - max(a, begin) for a, b in spans if b > begin and a < end)
    if len(stays) < 2 or inside <= 0 or sum(stays) <= 0:
        return None
    window, mean = end - begin, _mean(stays)
    level = inside / window
    once, twice = (_mean([stay ** (k + 1) for stay in stays]) / ((k + 1) * mean) for k in (1, 2))
    error = math.sqrt(2 * level * twice) / inside
    return Balance(level, len(stays) / window * mean, error, once / window, len(stays))
