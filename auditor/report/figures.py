"""The measured numbers behind a report, summed up a load at a time. Pure; shared by all formats.

Percentiles are nearest rank over all requests: a failed request counts as infinitely slow, so it is never left out.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditor.loads import Load
from auditor.measurement import Measurement, Sample, Snapshot
from auditor.report.words import quantity
from auditor.theory import judging

__all__ = ["Figures", "figures", "latency", "prompt_and_output", "rank", "rate", "tokens_of"]

_FULL = 0.9  # of the load's concurrency in flight make its window steady


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One load in numbers; seconds and tokens per second. An infinite latency (or a TPS of 0) is a failed request.

    `requests` are the judged ones; the auditor itself cut off `cancelled` more. `rate` is at how many requests a second
    an open loop sends, whose latencies count from when each was meant to be sent; None for a closed loop. `output_rate`
    is the total TPS: output tokens that arrive in the steady window over its length, `steady` seconds; None where there
    is no such window.
    """

    load: str
    purpose: str
    concurrency: int
    rate: float | None
    requests: int
    failed: int
    cancelled: int
    errors: Mapping[str, int]
    ttft: Mapping[str, float]
    tps: Mapping[str, float]
    e2e: Mapping[str, float]
    prompt_tokens: Mapping[str, float]
    output_tokens: Mapping[str, float]
    output_rate: float | None
    steady: float | None
    peak_inflight: int
    duration: float
    stopped: str | None
    server: Mapping[str, Mapping[str, float]]


def rank(values: Sequence[float], quantile: float) -> float | None:
    """The nearest-rank quantile, x_(ceil(q n)) of the ordered values; None without values."""
    return judging.rank(values, quantile) if values else None


def _quantiles(values: Sequence[float], names: Iterable[str]) -> dict[str, float]:
    picked = {name: rank(values, int(name[1:]) / 100 if name != "max" else 1.0) for name in names}
    return {name: value for name, value in picked.items() if value is not None}


def _latencies(samples: Sequence[Sample], name: str) -> list[float]:
    values = [(getattr(s, name), s.late or 0.0) if s.good else (math.inf, 0.0) for s in samples]
    return [value + late for value, late in values if value is not None]


def _rates(samples: Sequence[Sample]) -> list[float]:
    values = [s.tps if s.good else 0.0 for s in samples]
    return [v for v in values if v is not None]


def _counts(samples: Sequence[Sample], name: str) -> list[float]:
    return [v for v in (getattr(s, name) for s in samples) if v is not None]


def _server(snapshots: Sequence[Snapshot]) -> dict[str, dict[str, float]]:
    names = sorted({name for snapshot in snapshots for name in snapshot.values})
    seen = {name: [s.values[name] for s in snapshots if name in s.values] for name in names}
    return {name: {"first": v[0], "last": v[-1], "max": max(v)} for name, v in seen.items()}


def _span(sample: Sample) -> tuple[float, float]:
    return sample.start, sample.start + sample.stay


def _steady_window(measurement: Measurement) -> tuple[float, float] | None:
    """The longest interval with 0.9 of the load in flight, from the first measured request on, warm-up counted in.

    A slot's change from one request to the next (up to a tenth of a median request) does not end it; one shorter than
    half a median request is a chance meeting and none. An open loop is steady from its first measured request to the
    last one's start: how many are in flight is the service's doing.
    """
    if measurement.load.arrivals:
        starts = [s.start for s in measurement.samples]
        return (min(starts), max(starts)) if len(starts) > 1 and max(starts) > min(starts) else None
    typical = rank([b - a for a, b in map(_span, measurement.samples) if b > a], 0.5)
    if typical is None:
        return None
    first = min(s.start for s in measurement.samples)
    spans = [(max(a, first), b) for a, b in map(_span, (*measurement.warmup, *measurement.samples)) if b > first]
    window = judging.longest_at(spans, _FULL * measurement.load.concurrency, dip=0.1 * typical)
    return window if window is not None and window[1] - window[0] >= 0.5 * typical else None


def _tokens_between(sample: Sample, begin: float, end: float) -> float:
    """Output tokens of a request that arrived in (begin, end]: those of its first event, then evenly over the rest."""
    times, later = [sample.start + at for at in sample.arrivals], len(sample.arrivals) - 1
    each = max(0, sample.output_tokens - sample.first_tokens) / later if sample.output_tokens and later > 0 else 1.0
    return sum((each if i else sample.first_tokens) for i, at in enumerate(times) if begin < at <= end)


def figures(measurement: Measurement) -> Figures:
    """Sum up one load."""
    samples, load, window = measurement.judged, measurement.load, _steady_window(measurement)
    steady = window[1] - window[0] if window else None
    tokens = sum(_tokens_between(s, *window) for s in (*measurement.warmup, *measurement.samples)) if window else 0.0
    return Figures(
        load=load.id,
        purpose=load.purpose,
        concurrency=load.concurrency,
        rate=load.rate if load.arrivals else None,
        requests=len(samples),
        failed=sum(1 for s in samples if not s.good),
        cancelled=len(measurement.samples) - len(samples),
        errors=dict(sorted(Counter(s.error for s in samples if s.error).items())),
        ttft=_quantiles(_latencies(samples, "ttft"), ("p50", "p95", "p99", "max")),
        tps=_quantiles(_rates(samples), ("p05", "p50")),
        e2e=_quantiles(_latencies(samples, "e2e"), ("p50", "p95", "p99", "max")),
        prompt_tokens=_quantiles(_counts(samples, "prompt_tokens"), ("p50", "p95", "max")),
        output_tokens=_quantiles(_counts(samples, "output_tokens"), ("p50", "p95", "max")),
        output_rate=tokens / steady if steady else None,
        steady=steady,
        peak_inflight=measurement.client.peak_inflight,
        duration=measurement.duration,
        stopped=measurement.stopped,
        server=_server(measurement.snapshots),
    )


def latency(value: float) -> str:
    """A latency of `Figures` in words: "failed" where the request at that percentile did not end well."""
    return "failed" if math.isinf(value) else quantity(value, "s")


def rate(value: float) -> str:
    """A TPS of `Figures` in words."""
    return quantity(value, "tokens/s") if value else "failed"


def tokens_of(load: Load) -> int:
    """Prompt and output tokens that a load asks for at most, warm-up included."""
    return sum(shape.prompt_tokens + shape.output_tokens for shape in (*load.warmup, *load.shapes))


def prompt_and_output(load: Load) -> tuple[int, int]:
    """Median prompt and output tokens of a load's measured requests, by nearest rank; 0 without requests."""
    prompts = rank([s.prompt_tokens for s in load.shapes], 0.5)
    outputs = rank([s.output_tokens for s in load.shapes], 0.5)
    return int(prompts or 0), int(outputs or 0)
