"""One load on one endpoint, without an audit: what to send, and what came of it as numbers and as rows. Pure.

Percentiles are nearest rank over all requests that were sent; a failed one counts as infinitely slow (the string "inf"
in JSON). Of requests that the user interrupted only the rows remain.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from auditor.loads import Load, Shape
from auditor.measurement import Measurement, Sample
from auditor.plan.arrivals import ARRIVALS, spans
from auditor.theory.judging import rank

__all__ = ["Probed", "Question", "document", "failed_share", "load_of", "row", "spread"]

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_CLASS = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`requests` measured generations of lengths spread evenly over `prompt` and `output` (lowest, highest tokens).

    Without `rate` a closed loop of `concurrency` streams; with it an open loop (requests/s), constant or Poisson, for
    which `concurrency` says how many connections stand ready. `warmup` requests are sent before and not counted.
    """

    concurrency: int
    requests: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    rate: float | None = None
    arrivals: Literal["constant", "poisson"] = "poisson"
    warmup: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What was asked, of whom, and what came of it. `counted` says who counted the prompts' tokens beforehand."""

    question: Question
    url: str
    model: str
    api: str
    counted: str
    measurement: Measurement
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ the load


def spread(low: int, high: int, n: int, rng: Random) -> list[int]:
    """`n` whole numbers spread evenly from `low` to `high`, both included where n > 1, in random order."""
    step = (high - low) / (n - 1) if n > 1 else 0.0
    values = [round(low + i * step) for i in range(n)]
    rng.shuffle(values)
    return values


def load_of(question: Question) -> Load:
    """The load that answers a question; the seed decides lengths and arrivals."""
    rng = Random(question.seed)
    measured = _shapes(question, question.requests, rng)
    warmup = _shapes(question, question.warmup, rng)
    return Load(
        id="probe",
        purpose="slo",
        concurrency=question.concurrency,
        shapes=measured,
        warmup=warmup,
        arrivals=() if question.rate is None else _arrivals(question, rng),
        rate=question.rate,
        why="asked for on the command line",
    )


def _shapes(question: Question, n: int, rng: Random) -> tuple[Shape, ...]:
    lengths = zip(spread(*question.prompt, n, rng), spread(*question.output, n, rng), strict=True)
    return tuple(Shape(cls=_CLASS, prompt_tokens=prompt, output_tokens=output) for prompt, output in lengths)


def _arrivals(question: Question, rng: Random) -> tuple[float, ...]:
    """Intended send times in mean gaps, the first at 0."""
    return spans(ARRIVALS[question.arrivals], question.warmup, question.requests, rng)


# ------------------------------------------------------------------------------------------------------------- figures


def failed_share(measurement: Measurement) -> float | None:
    """The share of the requests that failed; None where none was sent to its end."""
    judged = measurement.judged
    return sum(not s.good for s in judged) / len(judged) if judged else None


def document(probed: Probed) -> dict[str, Any]:
    """The answer as JSON data: times in milliseconds, null for what was not observed, "inf" for what never came."""
    measurement, question = probed.measurement, probed.question
    judged = measurement.judged
    good = [s for s in judged if s.good]
    health = measurement.client
    requests_rate, tokens_rate = _rates(measurement)
    return {
        "schema_version": 1,
        "url": probed.url,
        "model": probed.model,
        "api": probed.api,
        "concurrency": question.concurrency if question.rate is None else None,
        "rate": question.rate,
        "requests": _requests(question, measurement),
        "errors": dict(Counter(s.error for s in judged if s.error is not None).most_common()),
        "error_details": _details(judged),
        "ttft_ms": _quantiles(_latencies(judged, "ttft"), 1e3),
        "first_answer_ms": _quantiles(_first_answers(judged), 1e3),
        "tpot_ms": _quantiles(_latencies([s for s in judged if not s.good or s.tpot is not None], "tpot"), 1e3),
        "e2e_ms": _quantiles(_latencies(judged, "e2e"), 1e3),
        "late_ms": _quantiles([s.late for s in judged if s.late is not None], 1e3),
        "prompt_tokens": _total(s.prompt_tokens for s in judged),
        "output_tokens": _total(s.output_tokens for s in judged),
        "cached_tokens": _total(s.cached_tokens for s in judged),
        "tokens_estimated": sum(s.estimated for s in good),
        "tokens_per_event": _mean([each for s in good if (each := s.tokens_an_event) is not None]),
        "duration_s": round(measurement.duration, 6),
        "requests_per_s": requests_rate,
        "output_tokens_per_s": tokens_rate,
        "peak_concurrency": health.peak_inflight,
        "prompts_counted_by": probed.counted,
        "client": _client(measurement),
        "stopped": measurement.stopped,
        "notes": list(probed.notes),
    }


def _requests(question: Question, measurement: Measurement) -> dict[str, int]:
    """How many requests went how; `short` ones ended well but before the length asked for, by the server's count."""
    judged = measurement.judged
    ok = sum(s.good for s in judged)
    counted = [s for s in judged if s.good and not s.estimated and s.output_tokens is not None]
    short = sum((s.output_tokens or 0) < s.asked_output_tokens for s in counted)
    cancelled = len(measurement.samples) - len(judged)
    sent = len(measurement.samples)
    return {
        "asked": question.requests,
        "ok": ok,
        "failed": len(judged) - ok,
        "cancelled": cancelled,
        "not_sent": question.requests - sent,
        "short": short,
        "warmup": len(measurement.warmup),
    }


def _details(samples: Iterable[Sample]) -> dict[str, str]:
    """What the first failure of each kind said."""
    found: dict[str, str] = {}
    for sample in samples:
        if sample.error is not None and sample.detail is not None:
            found.setdefault(sample.error, sample.detail)
    return found


def _latencies(samples: Iterable[Sample], name: str) -> list[float]:
    """One time of each request; a failed one never got it."""
    values = [getattr(s, name) if s.good else math.inf for s in samples]
    return [value for value in values if value is not None]


def _first_answers(samples: Iterable[Sample]) -> list[float]:
    """Times to the first token of the answer proper; a reply that ended while it still reasoned never got there."""
    return [s.first_answer if s.good and s.first_answer is not None else math.inf for s in samples]


def _quantiles(values: Sequence[float], scale: float) -> dict[str, float | str | None]:
    ordered = sorted(values)
    return {name: _number(scale * rank(ordered, q)) if ordered else None for name, q in _QUANTILES.items()}


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return None if value is None else round(value, 4)
    return "inf"


def _total(values: Iterable[int | None]) -> int | None:
    """The sum of what was counted; None where nothing was."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _rates(measurement: Measurement) -> tuple[float | None, float | None]:
    """Good requests and output tokens a second while every stream was busy, warm-up that was still under way included:
    from the first measured request to the last one's start. A load that is too short for that counts as a whole.

    The beginning and the end of a load, when few streams are open, would make the service look slower than it is.
    """
    judged = measurement.judged
    begin, end = (edge((s.start for s in judged), default=0.0) for edge in (min, max))
    if end - begin < (measurement.stay or 0.0):
        end = max((s.start + s.stay for s in judged), default=begin)
    if end <= begin:
        return None, None
    taken = (*measurement.warmup, *judged)
    done = sum(s.within(begin, end) for s in taken if s.good)
    counted = [_tokens_inside(s, begin, end) for s in taken if s.output_tokens is not None]
    tokens = round(sum(counted) / (end - begin), 4) if any(s.output_tokens is not None for s in judged) else None
    return round(done / (end - begin), 4), tokens


def _tokens_inside(sample: Sample, begin: float, end: float) -> float:
    """The tokens of a reply that came within an interval."""
    sizes = [sample.first_tokens, *[sample.tokens_an_event or 0.0] * (len(sample.arrivals) - 1)]
    return sum(size for at, size in zip(sample.arrivals, sizes, strict=False) if begin <= sample.start + at <= end)


def _client(measurement: Measurement) -> Mapping[str, Any]:
    health = measurement.client
    floor = health.floor
    return {
        "clock": health.clock,
        "workers": health.workers,
        "cpu_share": _number(health.cpu_share),
        "late_reads": _number(health.late_reads),
        "loop_lag_ms": {"p99": _ms(health.loop_lag_p99), "max": _ms(health.loop_lag_max)},
        "floor": None
        if floor is None
        else {
            "ttft_ms": {"p50": _ms(floor.ttft_p50), "p99": _ms(floor.ttft_p99)},
            "cpu_us_per_event": _number(1e6 * floor.cpu_per_event),
        },
    }


def _ms(seconds: float | None) -> float | str | None:
    return None if seconds is None else _number(1e3 * seconds)


# ---------------------------------------------------------------------------------------------------------------- rows


def row(sample: Sample) -> dict[str, Any]:
    """One measured request; times in milliseconds, those of a reply from when the request was sent."""
    return {
        "index": sample.index,
        "server_id": sample.server_id,
        "ok": sample.good,
        "error": sample.error,
        "detail": sample.detail,
        "status": sample.status,
        "start_ms": _ms(sample.start),
        "late_ms": _ms(sample.late),
        "connect_ms": _ms(sample.connect),
        "ttft_ms": _ms(sample.ttft),
        "first_answer_ms": _ms(sample.first_answer),
        "tpot_ms": _ms(sample.tpot),
        "e2e_ms": _ms(sample.e2e),
        "closed_ms": _ms(sample.closed),
        "largest_gap_ms": _ms(sample.largest_gap),
        "asked_prompt_tokens": sample.asked_prompt_tokens,
        "prompt_tokens": sample.prompt_tokens,
        "cached_tokens": sample.cached_tokens,
        "asked_output_tokens": sample.asked_output_tokens,
        "output_tokens": sample.output_tokens,
        "estimated": sample.estimated,
        "events": len(sample.arrivals),
        "finish_reason": sample.finish_reason,
        "worker": sample.worker,
    }
