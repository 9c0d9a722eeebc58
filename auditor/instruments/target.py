"""A time a token that is to be kept: whether a deployment can be expected to, and with how many sequences at once."""

from dataclasses import dataclass
from typing import Literal

from auditor.instruments.load import Load, Theory
from auditor.theory.judging import largest
from auditor.theory.roofline import Prediction, predict_decode

__all__ = ["Answer", "Target", "target_of"]

Answer = Literal["ruled_out", "missed", "open", "met"]
_MOST = 65_536  # sequences: more than any replica decodes at once


@dataclass(frozen=True, slots=True)
class Target:
    """`seconds` a token, held against a step's limit (ruled_out) and 80 % band (missed, open, met); `most` are the
    sequences at once whose token is expected in that time.
    """

    seconds: float
    answer: Answer
    most: int


def target_of(ready: Theory, load: Load, step: Prediction, least: float, seconds: float) -> Target:
    """How a time a token compares with the expected `step` at a load, which physics keeps from less than `least`."""
    held = load.held or 1.0
    most = largest(lambda n: n < 1 or predict_decode(*ready, n, held, load.ratio).seconds <= seconds, _MOST)
    return Target(seconds, _answer(step, least, seconds), most)


def _answer(step: Prediction, least: float, seconds: float) -> Answer:
    if seconds < least:
        return "ruled_out"
    if seconds < step.low:
        return "missed"
    return "open" if seconds < step.high else "met"
