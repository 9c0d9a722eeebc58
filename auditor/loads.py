"""What to send: requests, the loads they make up, and the plan that orders them. Frozen plain data.

All times are seconds, all rates per second. None means "not known yet", never 0.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Load", "Plan", "PlanNote", "Purpose", "Shape"]

Purpose = Literal["cold", "slo", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One request to send: class, prompt and output tokens. `prefix` numbers the shared prefix it starts with."""

    cls: str
    prompt_tokens: int
    output_tokens: int
    prefix: int | None = None
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One synthetic workload at one operating point: `shapes` measured requests, closed loop at `concurrency`.

    `warmup` shapes are sent first and never judged. `arrivals` make it an open loop: when each request of `warmup` and
    then `shapes` is to be sent, in mean gaps from the load's beginning; divided by `rate` (requests/s) these are
    seconds. A `rate` of None stands for the rate that the closed loop before it reached. `prompt_tokens` and `context`
    describe ladder steps (one prompt length, or batch `concurrency` at one context); None for the traffic mix.
    """

    id: str
    purpose: Purpose
    concurrency: int
    shapes: tuple[Shape, ...]
    warmup: tuple[Shape, ...] = ()
    prompt_tokens: int | None = None
    context: int | None = None
    arrivals: tuple[float, ...] = ()
    rate: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanNote:
    """What the plan cannot do within the budget, known before anything is sent. `rules` are the rules concerned."""

    message: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The loads in the order in which they run, and what they cost at most.

    `reserve` are further loads at the target, part of that cost, that run only where the SLO loads before decide
    nothing.
    """

    loads: tuple[Load, ...]
    requests: int
    tokens: int
    seconds: float
    notes: tuple[PlanNote, ...] = ()
    reserve: tuple[Load, ...] = ()
    seed: int = 0
