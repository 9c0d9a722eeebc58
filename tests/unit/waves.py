"""Requests that depend on each other in known ways, to try a rule at the limit: which share misses is known exactly.

`python -m tests.unit.waves` prints how often the rule of `auditor.theory.deciding` passes, beside one that counts
dependence among misses alone.
"""

import math
import random
import sys
from collections.abc import Callable
from statistics import NormalDist

from auditor.theory import statistics
from auditor.theory.deciding import MEANS_TAIL, Part, decide_ceiling

Source = Callable[[random.Random, int, float], tuple[list[float], float]]
"""(random, requests, share) -> times in start order and the limit that this share of all requests misses."""

_SCATTER = 0.4  # deviation of the logarithms


def _limit(share: float) -> float:
    return math.exp(_SCATTER * NormalDist().inv_cdf(1 - share))


def blocks(size: int, common: float = 1.0) -> Source:
    """Waves of `size` requests that share a part `common` of their variance; lognormal times."""

    def make(rng: random.Random, n: int, share: float) -> tuple[list[float], float]:
        skip, waves = rng.randrange(size), [rng.gauss(0, 1) for _ in range(n // size + 2)]
        parts = ((waves[(skip + i) // size], rng.gauss(0, 1)) for i in range(n))
        mixed = (math.sqrt(common) * a + math.sqrt(1 - common) * b for a, b in parts)
        return [math.exp(_SCATTER * z) for z in mixed], _limit(share)

    return make


def drifting(memory: float) -> Source:
    """An autoregressive series: each request remembers a part of the last one's fate."""

    def make(rng: random.Random, n: int, share: float) -> tuple[list[float], float]:
        z, found = rng.gauss(0, 1), []
        for _ in range(n):
            found.append(math.exp(_SCATTER * z))
            z = memory * z + math.sqrt(1 - memory**2) * rng.gauss(0, 1)
        return found, _limit(share)

    return make


def queue(load: float) -> Source:
    """Times in an M/M/1 queue, whose stationary law is exponential: P(T > t) = exp(-t (1 - load) / load) with services
    of mean `load` and arrivals of mean gap 1 (Kleinrock, Queueing Systems I, section 3.2).
    """

    def make(rng: random.Random, n: int, share: float) -> tuple[list[float], float]:
        waits = rng.expovariate((1 - load) / load) if rng.random() < load else 0.0  # the stationary wait
        found = []
        for _ in range(n):
            found.append(waits + rng.expovariate(1 / load))
            waits = max(0.0, found[-1] - rng.expovariate(1.0))
        return found, -math.log(share) * load / (1 - load)

    return make


def heavy(size: int) -> Source:
    """Waves that are alike, whose level has a tail that falls with a power: log times are exponential."""

    def make(rng: random.Random, n: int, share: float) -> tuple[list[float], float]:
        skip, waves = rng.randrange(size), [rng.expovariate(1.0) for _ in range(n // size + 2)]
        return [math.exp(_SCATTER * waves[(skip + i) // size]) for i in range(n)], share**-_SCATTER

    return make


def unseen(size: int) -> Source:
    """Waves that are slow as a whole or not at all, while the others bear no trace of them: nothing can tell."""

    def make(rng: random.Random, n: int, share: float) -> tuple[list[float], float]:
        skip, slow = rng.randrange(size), [rng.random() < share for _ in range(n // size + 2)]
        return [(2.0 if slow[(skip + i) // size] else 0.5) * math.exp(0.1 * rng.gauss(0, 1)) for i in range(n)], 1.3

    return make


SOURCES: dict[str, Source] = {
    "independent": blocks(1),
    "waves of 3": blocks(3),
    "waves of 10": blocks(10),
    "waves of 10, four fifths common": blocks(10, 0.8),
    "waves of 10, half common": blocks(10, 0.5),
    "waves of 40": blocks(40),
    "autoregressive, 0.5": drifting(0.5),
    "autoregressive, 0.8": drifting(0.8),
    "autoregressive, 0.95": drifting(0.95),
    "waves of 10 with a heavy tail": heavy(10),
    "a queue at 50 %": queue(0.5),
    "a queue at 80 %": queue(0.8),
    "waves of 10 without a trace": unseen(10),
}


def by_misses_alone(values: list[float], limit: float) -> statistics.Outcome:
    """The exact test of a p95 on counts scaled by the dependence among misses."""
    bad = [x > limit for x in values]
    return statistics.judge(len(bad), sum(bad), 0.95, 0.95, statistics.effective_size(bad))


def by_the_rule(values: list[float], limit: float) -> statistics.Outcome:
    """What `deciding` makes of the same p95."""
    return decide_ceiling([Part(tuple(values))], limit, 0.95, (0.95,)).status


def of_means(values: list[float], limit: float) -> statistics.Outcome:
    """The same of figures that are means of many steps."""
    return decide_ceiling([Part(tuple(values))], limit, 0.95, (0.95,), tail=MEANS_TAIL).status


def rate(
    outcome: str, judge: Callable[[list[float], float], str], source: Source, n: int, share: float, trials: int
) -> float:
    """How often `judge` says `outcome`, over seeded trials."""
    made = (source(random.Random(f"{n} {share} {trial}"), n, share) for trial in range(trials))
    return sum(judge(values, limit) == outcome for values, limit in made) / trials


if __name__ == "__main__":
    n, trials = (int(text) for text in sys.argv[1:3])
    for name, source in SOURCES.items():
        at, good = (n, 0.05, trials), (n, 0.01, trials)
        row = (
            rate("pass", by_misses_alone, source, *at),
            rate("pass", by_the_rule, source, *at),
            rate("pass", of_means, source, *at),
            rate("fail", by_the_rule, source, *at),
            rate("pass", by_the_rule, source, *good),
            rate("pass", of_means, source, *good),
        )
        print(f"| {name} | " + " | ".join(f"{100 * x:.0f}" for x in row) + " |", flush=True)
