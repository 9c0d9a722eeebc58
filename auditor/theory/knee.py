"""The knee of a batch ladder: the largest batch up to which a larger one still yields more tokens a second in all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Knee", "knee"]

_GAIN = 0.03  # more tokens a second, which a larger batch must yield to be worth its slower streams


@dataclass(frozen=True, slots=True)
class Knee:
    """`batch` yields `rate` tokens a second in all; `reached` says that a larger one was measured and yields no more.

    Where it was not reached, `batch` is the largest of the ladder.
    """

    batch: float
    rate: float
    reached: bool


def knee(steps: Sequence[tuple[float, float, float]]) -> Knee | None:
    """The knee of (batch, seconds a step, their standard error) at one context; None with fewer than two batches.

    A gain counts beyond 3 % and beyond two standard errors, so that scatter makes no knee.
    """
    ordered = sorted(step for step in steps if step[1] > 0)
    if len(ordered) < 2:
        return None
    batch, seconds, error = ordered[0]
    reached = False
    for more, slower, apart in ordered[1:]:
        gain = more / slower * seconds / batch - 1
        if gain >= max(_GAIN, 2 * math.hypot(error / seconds, apart / slower)):
            batch, seconds, error, reached = more, slower, apart, False
        else:
            reached = True
    return Knee(batch, batch / seconds, reached)
