"""The idle ladder by itself: how long prompts take that have the engine to themselves, whatever the model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from auditor.theory.ladders import NOISY, SCATTERED
from auditor.theory.statistics import median

__all__ = ["ALIKE", "Group", "Idle", "by_length", "falls", "idle"]

Group = list[tuple[float, float]]
"""(tokens, seconds to the first token) of prompts of about one length."""

ALIKE = 1.02
"""Times a length, and two tokens, up to which prompts are of that length: texts of one plan differ by as much."""

_SLACK = 2.0
_LEAST_ERROR = 0.01  # of a TTFT: clocks, and timers of engines
_ONCE = 0.05  # scatter of a TTFT that is measured once
_STEEPEST = 2.0  # the power of its length with which a prompt's time grows at most: that of attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """`medians` are (tokens, median seconds, standard error) of each length, the shortest first; `scatter` is the
    relative standard deviation of prompts of one length, `falls` how far lengths lie off any law by which longer
    prompts take longer.
    """

    medians: tuple[tuple[float, float, float], ...]
    scatter: float
    falls: float

    @property
    def fixed(self) -> float:
        """Seconds of the shortest prompt, most of which every prompt takes."""
        return self.medians[0][1]

    @property
    def noise(self) -> float | None:
        """The scatter for which the times cannot be read; None where they can."""
        if self.scatter > SCATTERED:
            return self.scatter
        return self.falls if self.falls > NOISY else None

    @property
    def error(self) -> float:
        """The largest relative standard error of a length's median."""
        return max(error / seconds for _, seconds, error in self.medians)

    def seconds(self, tokens: float) -> float | None:
        """TTFT of a prompt, straight between the ladder's lengths; None beyond them."""
        shortest, longest = self.medians[0][0], self.medians[-1][0]
        if shortest <= ALIKE * tokens + _SLACK and tokens <= ALIKE * longest + _SLACK:
            return self.reckoned(tokens)
        return None

    def reckoned(self, tokens: float) -> float:
        """The same; before the ladder the shortest's, beyond it as its last lengths grow: straight or by a power of the
        length, whichever is longer.
        """
        for (n0, t0, _), (n1, t1, _) in pairwise(self.medians):
            if tokens <= n1:
                return t0 + (t1 - t0) * max(0.0, tokens - n0) / (n1 - n0)
        (n0, t0, _), (n1, t1, _) = self.medians[-2:]
        power = min(_STEEPEST, max(0.0, math.log(t1 / t0) / math.log(n1 / n0)))
        return max(t1 + max(0.0, t1 - t0) * (tokens - n1) / (n1 - n0), t1 * math.pow(tokens / n1, power))


def idle(prompts: Sequence[tuple[float, float]]) -> Idle | None:
    """Read (tokens, seconds to the first token), one a request; None with fewer than two lengths."""
    groups = by_length([(tokens, seconds) for tokens, seconds in prompts if tokens > 0 and seconds > 0])
    if len(groups) < 2:
        return None
    scatter = _scatter(groups)
    medians = tuple(_median(group, scatter) for group in groups)
    return Idle(medians=medians, scatter=scatter, falls=falls([seconds for _, seconds, _ in medians]))


def falls(times: Sequence[float]) -> float:
    """How far times lie off any law by which they never fall: their relative RMS around the nearest that do not (pool
    adjacent violators: Ayer et al., Annals of Mathematical Statistics 26(4), 1955, on logarithms).
    """
    pools: list[list[float]] = []
    for time in times:
        pools.append([math.log(time)])
        while len(pools) > 1 and _mean(pools[-1]) < _mean(pools[-2]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return math.sqrt(math.fsum((x - _mean(pool)) ** 2 for pool in pools for x in pool) / len(times))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def by_length(prompts: Sequence[tuple[float, float]]) -> list[Group]:
    """The prompts of about one length, the shortest first."""
    groups: list[Group] = []
    for point in sorted(prompts):
        if groups and point[0] <= ALIKE * groups[-1][0][0] + _SLACK:
            groups[-1].append(point)
        else:
            groups.append([point])
    return groups


def _scatter(groups: Sequence[Group]) -> float:
    """By the middle of all lengths' deviations.

    Deviations from the median of a few are smaller than those from the truth: by the root of (n - 1) / n.
    """
    by_times = [[t for _, t in group] for group in groups if len(group) > 1]
    offs = [abs(t / median(times) - 1) * math.sqrt(len(times) / (len(times) - 1)) for times in by_times for t in times]
    return max(_LEAST_ERROR, 1.4826 * median(offs)) if offs else _ONCE


def _median(group: Group, scatter: float) -> tuple[float, float, float]:
    seconds, error = median([t for _, t in group]), 1.25 * scatter / math.sqrt(len(group))
    return median([n for n, _ in group]), seconds, seconds * max(_LEAST_ERROR, error)
