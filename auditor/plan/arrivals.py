"""When the requests of an open loop are sent, in mean gaps from its beginning, and the rate that a closed loop reached.

A closed loop sends its next request when one has ended, so it never meets the crowd that independent users make when
they come together by chance. An open loop follows a schedule whatever the service does.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from auditor.loads import Load
from auditor.measurement import Measurement, Sample

__all__ = ["poisson", "reached", "with_rate"]


def poisson(warmup: int, count: int, rng: random.Random) -> tuple[float, ...]:
    """Arrivals of independent users: `warmup` and then `count` of them, each span of exactly so many mean gaps.

    Exponential gaps, stretched so that each span ends where the next begins: the rate is then the one asked for
    whatever the dice say, and the arrivals of a span are as independent as before (given their number, those of a
    Poisson process are uniform).
    """
    return (*_span(0.0, warmup, rng), *_span(float(warmup), count, rng))


def _span(begin: float, count: int, rng: random.Random) -> list[float]:
    gaps = [rng.expovariate(1.0) for _ in range(count)]
    stretch = count / sum(gaps) if gaps else 1.0
    return [begin + stretch * at for at in accumulate(gaps[:-1], initial=0.0)] if gaps else []


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
    done = sum(_part(s, begin, end) for s in (*measurement.warmup, *judged) if s.good)
    return done / (end - begin) or None


def _part(sample: Sample, begin: float, end: float) -> float:
    """The part of a request's time that lies within the interval."""
    stay = sample.closed or sample.e2e or 0.0
    inside = min(end, sample.start + stay) - max(begin, sample.start)
    return max(0.0, inside) / stay if stay > 0 else 0.0
