"""What to send: requests, the loads they make up, and the plan that orders them. Frozen plain data.

All times are seconds, all rates per second. None means "not known yet", never 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

__all__ = ["BLOCK_TOKENS", "Load", "Logged", "Plan", "PlanNote", "Purpose", "Shape", "Turn", "due", "talks"]

Purpose = Literal["cold", "unshared", "slo", "prefill", "decode", "nearest"]

BLOCK_TOKENS = 512
"""Prompt tokens that each of a shape's `blocks` stands for, as in traces with a hash for each block (Mooncake)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One request to send: class, prompt and output tokens. `prefix` numbers the shared prefix it starts with.

    `talk` numbers the conversation of which it is turn `turn`, from 0: its prompt repeats what was said before.
    `blocks` numbers the blocks of BLOCK_TOKENS that it starts with, each the same text wherever its number comes up.
    `prefix_tokens` are those that requests before may have left in a cache, by declaration. `images` are (width,
    height) in pixels; their tokens are part of the prompt's.
    """

    cls: str
    prompt_tokens: int
    output_tokens: int
    prefix: int | None = None
    prefix_tokens: int = 0
    talk: int | None = None
    turn: int = 0
    blocks: tuple[int, ...] = ()
    images: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One synthetic workload at one operating point: `shapes` measured requests, closed loop at `concurrency`.

    `warmup` shapes are sent first and never judged. `arrivals` make it an open loop: when each request of `warmup` and
    then `shapes` is to be sent, in mean gaps from the load's beginning; divided by `rate` (requests/s) these are
    seconds. A `rate` of None stands for the rate that the closed loop before it reached. `prompt_tokens` and `context`
    describe ladder steps (one prompt length, or batch `concurrency` at one context); None for the traffic mix. With
    `ramp` a closed loop begins with one slot, and each good request lets one more begin.
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
    ramp: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """One request of a traffic log: when it came (seconds, from anywhere; None: not told), prompt and output tokens,
    and the numbers of the blocks of BLOCK_TOKENS that its prompt starts with.
    """

    at: float | None
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a load: of its warm-up or measured, its number there, and what it asks."""

    warm: bool
    index: int
    shape: Shape


def talks(load: Load) -> Iterator[tuple[Turn, ...]]:
    """The requests of a load in order, warm-up first; turns that follow each other in one conversation are together."""
    everything = [Turn(True, i, shape) for i, shape in enumerate(load.warmup)]
    everything += [Turn(False, i, shape) for i, shape in enumerate(load.shapes)]
    for (_, _, talk), group in groupby(everything, key=lambda turn: (turn.warm, turn.shape.cls, turn.shape.talk)):
        turns = tuple(group)
        yield from ((turn,) for turn in turns) if talk is None else (turns,)


def due(load: Load, turn: Turn) -> float | None:
    """Seconds from its load's beginning at which an open loop sends a request; None in a closed one.

    Raises ValueError where the load has arrivals and no rate.
    """
    if not load.arrivals:
        return None
    if load.rate is None:
        raise ValueError(f"load {load.id} has arrivals and no rate")
    return load.arrivals[turn.index + (0 if turn.warm else len(load.warmup))] / load.rate


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
