"""What serving costs: money for tokens, replicas for a rate of requests."""

import math
from dataclasses import dataclass

__all__ = ["Cost", "cost", "replicas"]

_HOUR, _MILLION = 3600.0, 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Money for one request, and for a million prompt and output tokens by the device time that each takes."""

    per_request: float
    per_million_input: float
    per_million_output: float


def cost(price: float, rate: float, prefill: float, prompt: float, output: float) -> Cost:
    """What requests of `prompt` and `output` tokens cost on a replica that costs `price` an hour and serves `rate` of
    them a second, `prefill` (0..1) of its time going to prompts.
    """
    each = price / _HOUR / rate
    return Cost(each, each * prefill / prompt * _MILLION, each * (1 - prefill) / output * _MILLION)


def replicas(wanted: float, one: float) -> int:
    """How many replicas serve `wanted` requests a second where one serves `one`."""
    return math.ceil(wanted / one - 1e-9)
