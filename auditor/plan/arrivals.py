"""When the requests of an open loop are sent, in mean gaps from its beginning, and the rate that a closed loop reached.

A closed loop sends its next request when one has ended, so it never meets the crowd that independent users make when
they come together by chance. An open loop follows a schedule whatever the service does.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from auditor.loads import Load
from auditor.measurement import Measurement

__all__ = ["ARRIVALS", "Arrivals", "reached", "spans", "with_rate"]

Arrivals = Callable[[int, random.Random], list[float]]
"""When `count` requests are sent, in mean gaps, from 0 to below `count`."""

BURSTY = 0.25  # shape of the gamma distribution of gaps: they vary twice as much as those of independent users
RAMP = 0.5  # of the mean rate, at which a ramp begins; it ends as far above


def spans(kind: Arrivals, warmup: int, count: int, rng: random.Random) -> tuple[float, ...]:
    """`warmup` and then `count` arrivals of a kind, each span of exactly so many mean gaps.

    So the rate is the one asked for whatever the dice say.
    """
    return (*kind(warmup, rng), *(warmup + at for at in kind(count, rng)))


def _constant(count: int, _: random.Random) -> list[float]:
    return [float(i) for i in range(count)]


def _poisson(count: int, rng: random.Random) -> list[float]:
    """Independent users. Stretching keeps them so: given their number, arrivals of a Poisson process are uniform."""
    return _stretched([rng.expovariate(1.0) for _ in range(count)])


def _bursts(count: int, rng: random.Random) -> list[float]:
    """Crowds and pauses: gaps of a gamma distribution."""
    return _stretched([rng.gammavariate(BURSTY, 1 / BURSTY) for _ in range(count)])


def _ramp(count: int, rng: random.Random) -> list[float]:
    """Independent users, more and more of them: the rate at t of n is RAMP + 2 (1 - RAMP) t / n of the mean.

    Until t there are RAMP t + (1 - RAMP) t^2 / n of them, which is solved for t.
    """
    slope = 1 - RAMP
    return [count * (math.sqrt(RAMP**2 + 4 * slope * at / count) - RAMP) / (2 * slope) for at in _poisson(count, rng)]


def _stretched(gaps: Sequence[float]) -> list[float]:
    """Arrivals with these gaps in a span of as many mean gaps."""
    stretch = len(gaps) / total if (total := sum(gaps)) else 1.0
    return [stretch * at for at in accumulate(gaps[:-1], initial=0.0)] if gaps else []


ARRIVALS: Mapping[str, Arrivals] = {"poisson": _poisson, "constant": _constant, "bursts": _bursts, "ramp": _ramp}
"""The kinds of arrivals that a profile names."""


def with_rate(load: Load, measured: Sequence[Measurement]) -> Load | None:
    """The load at the rate that the closed loop before it reached; None where it has no rate and there is none."""
    if not load.arrivals or load.rate is not None:
        return load
    closed = next((m for m in reversed(measured) if m.load.purpose == "slo" and not m.load.arrivals), None)
    rate = reached(closed) if closed is not None else None
    return replace(load, rate=rate) if rate else None


def reached(measurement: Measurement) -> float | None:
    """Good requests a second that a closed loop completed while all its slots were busy; None where it had none.

    From the first measured request to the last one's start; each request counts with the part of its time that lies in
    between, so that neither slots in step nor the ends of the interval tilt the rate.
    """
    judged = measurement.judged
    good = sum(s.good for s in judged)
    if not good:
        return None
    begin, end = (edge(s.start for s in judged) for edge in (min, max))
    if end <= begin:
        return good / measurement.duration if measurement.duration > 0 else None
    done = sum(s.within(begin, end) for s in (*measurement.warmup, *judged) if s.good)
    return done / (end - begin) or None
