"""One row of a batch -> the speed that it asks for, with its band and physical limit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from auditor.errors import UsageError
from auditor.instruments.caveats import longer
from auditor.instruments.load import Load, Theory, asked, provisional, theory
from auditor.instruments.naming import unsure
from auditor.loading.problems import did_you_mean, one_line
from auditor.theory.roofline import (
    Prediction,
    decode_limit,
    predict_decode,
    predict_prefill,
    prefill_limit,
    token_limit,
)

__all__ = ["METRICS", "guess"]


def guess(row: Mapping[str, Any], base: Path | None = None) -> dict[str, Any]:
    """The metric that a row asks for under its own name, `low` and `high` of its 80 % band, `limit` in the same unit,
    `bound` (of a step without others' prompts, of a prompt in an idle engine), `provisional` where figures behind it
    are uncertain, and a `note` where requests are longer than the engine takes or the quantisation leaves the weights'
    width open; without `metric` each that the row's lengths tell.

    Raises UsageError where the row is wrong.
    """
    metric = row.get("metric")
    if metric is not None and (not isinstance(metric, str) or metric not in METRICS):
        hint = did_you_mean(str(metric), METRICS)
        raise UsageError(f"metric: {one_line(str(metric)[:60])} is not known{hint}; known are {', '.join(METRICS)}")
    found, load = asked(row, ("metric",), base)
    ready = theory(found)
    said = [*unsure(found.geometry, found.settings, found.sources), *filter(None, [longer(found, load)])]
    note = {"note": "; ".join(said)} if said else {}
    if metric is not None:
        return METRICS[metric](ready, load, metric) | note
    answers: dict[str, Any] = {}
    for name, needs in (("ttft_ms", load.prompt), ("tpot_ms", load.held)):
        if needs is not None:
            answers[name] = METRICS[name](ready, load, "value")
    if not answers:
        raise UsageError("prompt_tokens: or context_tokens is needed, nothing else tells how long requests are")
    return answers | note


def _prompt(load: Load) -> float:
    if load.prompt is None:
        raise UsageError("prompt_tokens: needed to predict a prompt")
    return load.prompt


def _held(load: Load) -> float:
    if load.held is None:
        raise UsageError("context_tokens: needed to predict a step (or prompt_tokens and output_tokens)")
    return load.held


def _tpot(ready: Theory, load: Load, name: str) -> dict[str, Any]:
    held = _held(load)
    found = predict_decode(*ready, load.batch, held, load.ratio)
    return _times(name, found, _step_limit(ready, load, held)) | _doubt(ready, "bandwidth")


def _ttft(ready: Theory, load: Load, name: str) -> dict[str, Any]:
    tokens = _prompt(load)
    found = predict_prefill(*ready, tokens)
    return _times(name, found, prefill_limit(*ready, tokens).seconds) | _doubt(ready, "bandwidth", "flops")


def _decode_rate(ready: Theory, load: Load, name: str) -> dict[str, Any]:
    """Tokens a second of all sequences while they decode."""
    held = _held(load)
    found = predict_decode(*ready, load.batch, held)
    return _rates(name, found, _step_limit(ready, load, held), load.batch) | _doubt(ready, "bandwidth")


def _prefill_rate(ready: Theory, load: Load, name: str) -> dict[str, Any]:
    """Prompt tokens a second, of `batch` prompts that are read together."""
    tokens, together = _prompt(load), load.batch
    found = predict_prefill(*ready, tokens, together)
    limit = prefill_limit(*ready, tokens, together).seconds
    return _rates(name, found, limit, together * tokens) | _doubt(ready, "bandwidth", "flops")


def _step_limit(ready: Theory, load: Load, held: float) -> float:
    return token_limit(decode_limit(*ready, load.batch, held, load.longest), ready[1])


def _times(name: str, found: Prediction, limit: float) -> dict[str, Any]:
    numbers = {name: found.seconds, "low": found.low, "high": found.high, "limit": limit}
    return {key: 1e3 * seconds for key, seconds in numbers.items()} | {"bound": found.own.bound}


def _rates(name: str, found: Prediction, limit: float, tokens: float) -> dict[str, Any]:
    numbers = {name: found.seconds, "low": found.high, "high": found.low, "limit": limit}
    return {key: tokens / seconds for key, seconds in numbers.items()} | {"bound": found.own.bound}


def _doubt(ready: Theory, *figures: str) -> dict[str, Any]:
    doubted = provisional(ready[2], *figures)
    return {"provisional": list(doubted)} if doubted else {}


METRICS: Mapping[str, Callable[[Theory, Load, str], dict[str, Any]]] = {
    "tpot_ms": _tpot,
    "ttft_ms": _ttft,
    "decode_tok_s": _decode_rate,
    "prefill_tok_s": _prefill_rate,
}
"""What a row may ask for: milliseconds a token and to the first token, tokens a second of decode and prefill."""
