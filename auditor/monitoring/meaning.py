"""What a use of a series shows: the concept it covers, and whether outright or only as a proxy.

Decided by the metric catalogue and by what the expression does, never by names of panels.
"""

from dataclasses import dataclass

from auditor.catalog import metrics as catalogue
from auditor.catalog.metrics import Metric
from auditor.monitoring.promql import Use
from auditor.panels import asked

__all__ = ["Shown", "metric_of", "shown"]

_PROXIES = {"ttft": ("prefill_time", "prefill_seconds"), "memory": ("batch_tokens",)}
_PROXY_TARGETS = {concept: target for target, listed in _PROXIES.items() for concept in listed}
_SECONDS = {"decode_seconds", "decode_time", "inference_time"}
_TOKENS = {"generation_tokens", "output_len"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A series in a query and what it shows: `concept` (ttft, tps, memory, or the catalogue's own), directly or not."""

    use: Use
    metric: Metric
    concept: str
    direct: bool


def metric_of(use: Use) -> Metric | None:
    """The catalogue's metric behind a use, by name and, where one name carries several concepts, by label."""
    candidates = catalogue.lookup(use.name)
    fitting = [m for m in candidates if all(use.labels.get(k, v) == v for k, v in m.labels.items())]
    return fitting[0] if fitting else None


def shown(use: Use) -> Shown | None:
    """What the use shows, or None: an unknown series, one that is merely counted, or a sum that means nothing."""
    metric = metric_of(use)
    if metric is None or use.presence or use.denominator:
        return None
    concept = _concept(use, metric)
    if concept is None:
        return None
    if concept in _PROXY_TARGETS:
        return Shown(use, metric, _PROXY_TARGETS[concept], False)
    return Shown(use, metric, asked(concept) or concept, True)


def _concept(use: Use, metric: Metric) -> str | None:
    if _per_token(use, metric):
        return "tpot"
    if metric.type in ("histogram", "summary"):
        return _histogram(use, metric)
    if metric.concept == "generation_tokens":  # a total says nothing about speed, nor does tokens per request
        return metric.concept if use.rated and not use.ratio and not use.volume else None
    if metric.concept == "batch_tokens":  # of what a batch may hold it says how full the engine is, alone nothing
        return metric.concept if "batch_capacity" in _below(use) else None
    if metric.concept in _SECONDS or (use.rated and metric.type == "gauge" and asked(metric.concept)):
        return None
    return metric.concept


def _per_token(use: Use, metric: Metric) -> bool:
    """Seconds of decoding over tokens, or the inverse: time per output token by hand."""
    below = _below(use)
    summed = metric.type == "counter" or use.part == "sum"
    return summed and bool(
        (metric.concept in _SECONDS and below & _TOKENS) or (metric.concept in _TOKENS and below & _SECONDS)
    )


def _below(use: Use) -> set[str]:
    """The concepts that the use is divided by."""
    return {m.concept for base in use.over for m in catalogue.lookup(base)}


def _histogram(use: Use, metric: Metric) -> str | None:
    """A distribution, its quantile or its mean show the concept; a rate of its sum shows tokens per second."""
    if use.part == "count" and not use.mean:
        return "requests" if use.rated and not use.ratio else None
    if use.part == "sum" and not use.mean:
        totals = {"output_len": "generation_tokens", "prompt_len": "prompt_tokens"}
        return totals.get(metric.concept) if use.rated and not use.ratio and not use.volume else None
    return metric.concept
