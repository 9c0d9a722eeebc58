"""`audit predict` in detail: how fast one replica is at a load, what bounds it, what it costs, what would be faster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditor.instruments.caveats import caveats, refuse_longer
from auditor.instruments.inputs import Inputs
from auditor.instruments.load import Load, Theory, provisional, theory
from auditor.instruments.question import beyond
from auditor.instruments.ranking import held_at_once, ranking, unlisted
from auditor.instruments.target import Target, target_of
from auditor.profile import TrafficClass
from auditor.theory.cost import Cost, cost, replicas, stay
from auditor.theory.dominance import predicted_device_share
from auditor.theory.phases import Phase, critical_tokens, decode_phase, prefill_phase, ridge
from auditor.theory.ranking import Ranked
from auditor.theory.roofline import (
    Limit,
    Prediction,
    decode_limit,
    predict_decode,
    predict_prefill,
    prefill_limit,
    token_limit,
)
from auditor.theory.work import rate
from auditor.units import percent

__all__ = ["Predicted", "Speed", "predict"]

_FASTER = 8  # accelerators shown in the ranking


@dataclass(frozen=True, slots=True)
class Speed:
    """One phase: the expected time, the least that physics allows (both in seconds), and its products, which meet the
    device at `ridge` FLOP/byte.
    """

    expected: Prediction
    limit: Limit
    least: float
    phase: Phase
    ridge: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Everything that `audit predict` says of one replica; a phase is None where the load does not tell its lengths.

    `critical` are the tokens of a step from which linear layers are bound by compute. `requests_per_second` are those
    of the whole replica at this load; `replicas` how many a stated rate needs. `holds` is how many sequences of this
    length the KV cache carries at once, None where that is not known. `target` is the time a token that was asked for.
    `provisional` names uncertain figures.
    """

    inputs: Inputs
    load: Load
    prefill: Speed | None
    decode: Speed | None
    ridge: float
    peak: float
    critical: float
    request_seconds: float | None
    requests_per_second: float | None
    replicas: int | None
    cost: Cost | None
    holds: float | None
    target: Target | None
    ranking: tuple[Ranked, ...]
    provisional: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def streams_per_second(self) -> tuple[float, float] | None:
        """Tokens a second of one sequence and of all while they decode."""
        if self.decode is None:
            return None
        each = 1 / self.decode.expected.seconds
        return each, each * self.load.batch


def predict(
    found: Inputs,
    load: Load,
    prices: Mapping[str, float] | None = None,
    request_rate: float | None = None,
    classes: Iterable[TrafficClass] = (),
    *,
    tpot: float | None = None,
) -> Predicted:
    """Answer a speed question. `prices` are per hour of one accelerator, by key; `request_rate` is per second; `tpot`
    are seconds a token to keep; where the load is the mean of `classes`, those of them that the engine does not take
    whole are told.

    Raises UsageError where an input lacks, or the load is longer than the context limit.
    """
    ready, prices = theory(found), prices or {}
    refuse_longer(found, load)
    prefill, decode = _prefill(ready, load), _decode(ready, load)
    seconds = _request(load, prefill, decode)
    rate_of_one = load.batch / seconds if seconds else None
    device, settings = ready[2], ready[1]
    holds = held_at_once(found, load.held) if load.held is not None else None
    rows = ranking(found, load, prices, _FASTER) if seconds else ()
    absent = unlisted(found, load, prices, rows) if seconds else _incomplete(bool(prices or request_rate))
    return Predicted(
        inputs=found,
        load=load,
        prefill=prefill,
        decode=decode,
        ridge=ridge(device, settings),
        peak=rate(device, settings.compute_dtype),
        critical=critical_tokens(*ready),
        request_seconds=seconds,
        requests_per_second=rate_of_one,
        replicas=replicas(request_rate, rate_of_one) if request_rate and rate_of_one else None,
        cost=_cost(ready, load, prices.get(device.key), rate_of_one),
        holds=holds,
        target=target_of(ready, load, decode.expected, decode.least, tpot) if tpot and decode else None,
        ranking=rows,
        provisional=provisional(device, "bandwidth", "flops"),
        notes=(*found.notes, *_tails(found, classes), *caveats(found, load, holds), *absent),
    )


def _prefill(ready: Theory, load: Load) -> Speed | None:
    if not load.prompt:
        return None
    limit, phase = prefill_limit(*ready, load.prompt), prefill_phase(*ready[:2], load.prompt)
    return Speed(predict_prefill(*ready, load.prompt), limit, limit.seconds, phase, _ridge(ready, phase))


def _decode(ready: Theory, load: Load) -> Speed | None:
    held = load.held
    if held is None:
        return None
    limit = decode_limit(*ready, load.batch, held, load.longest)
    expected = predict_decode(*ready, load.batch, held, load.ratio)
    phase = decode_phase(*ready[:2], load.batch, held)
    return Speed(expected, limit, token_limit(limit, ready[1]), phase, _ridge(ready, phase))


def _ridge(ready: Theory, phase: Phase) -> float:
    return ridge(ready[2].at(phase.total.bytes), ready[1])


def _request(load: Load, prefill: Speed | None, decode: Speed | None) -> float | None:
    if prefill is None or decode is None or not load.output:
        return None
    return stay(prefill.expected, decode.expected, load.output)


def _incomplete(asked: bool) -> tuple[str, ...]:
    """What lengths lack for an answer that was asked for."""
    said = "cost, replicas and other accelerators are those of whole requests: give prompt and output tokens"
    return (said,) if asked else ()


def _tails(found: Inputs, classes: Iterable[TrafficClass]) -> tuple[str, ...]:
    """The requests of a traffic that are beyond the context limit though its mean is not."""
    tail = beyond(classes, found.limit)
    if tail is None:
        return ()
    what, share = ("prompts", tail.prompts) if tail.prompts > 0 else ("requests", tail.requests)
    limit = f"the limit of {found.limit:,} tokens"
    return (f"{percent(share)} of the {what} of class {tail.name} exceed {limit}: the engine refuses or cuts them",)


def _cost(ready: Theory, load: Load, price: float | None, requests: float | None) -> Cost | None:
    """What a replica costs in the time of one request, shared between its prompt and its reply by device time."""
    if price is None or requests is None or not load.prompt or not load.output:
        return None
    share = predicted_device_share(*ready, round(load.batch), load.prompt, load.output)
    if load.batch <= 1:  # nobody else's prompt is read in between: the reply's own steps are known
        decode = predict_decode(*ready, 1, load.held or load.prompt).seconds * load.output
        share = 1 - min(1.0, decode * requests)
    return cost(price * ready[1].devices, requests, share, load.prompt, load.output)
