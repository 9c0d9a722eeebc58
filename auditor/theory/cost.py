"""What serving costs: time for a request, money for tokens, replicas for a rate of requests."""

import math
from dataclasses import dataclass

from auditor.theory.roofline import Prediction

__all__ = ["Cost", "cost", "replicas", "stay"]

_HOUR, _MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Money for one request, and for a million prompt and output tokens by the device time that each takes."""

    per_request: float
    per_million_input: float
    per_million_output: float


def stay(first: Prediction, step: Prediction, output: float) -> float:
    """Seconds from a request to the last of its `output` tokens, by the time of its prompt alone and of a step under
    load.

    It waits for the prompts that others bring before its first token as in any step: each of the sequences in flight
    brings one in the time that a request stays.
    """
    return first.seconds + step.prompts_s + max(0.0, output - 1) * step.seconds


def cost(price: float, rate: float, prefill: float, prompt: float, output: float) -> Cost:
    """What requests of `prompt` and `output` tokens cost on a replica that costs `price` an hour and serves `rate` of
    them a second, `prefill` (0..1) of its time going to prompts.
    """
    each = price / _HOUR / rate
    return Cost(each, each * prefill / prompt * _MILLION, each * (1 - prefill) / output * _MILLION)


def replicas(wanted: float, one: float) -> int:
    """How many replicas serve `wanted` requests a second where one serves `one`."""
    return math.ceil(wanted / one - 1e-9)
