"""What streams of tokens that run side by side show: the step they share, and how long so many are open. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Steps", "balance", "clump", "common_steps", "time_at"]

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


def balance(spans: Sequence[tuple[float, float]], begin: float, end: float) -> tuple[float, float, float, int] | None:
    """Both sides of Little's law from `begin` to `end`: mean number of open spans, and the rate at which spans end, the
    mean length of these, and how many. None where none ends there.
    """
    ended = [b - a for a, b in spans if begin < b <= end]
    inside = math.fsum(min(b, end) - max(a, begin) for a, b in spans if b > begin and a < end)
    if not ended or end <= begin or inside <= 0:
        return None
    window = end - begin
    return inside / window, len(ended) / window, _mean(ended), len(ended)
