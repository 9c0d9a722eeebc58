"""What the ladders measured, and the operating point that they are read for. Data only."""

from dataclasses import dataclass

__all__ = ["NOISY", "Ladders", "Step"]

# Fifteen to twenty-five requests that scatter by 0.2 leave a part that takes half of the time uncertain by about
# 0.2 x 2 / sqrt(15) = 0.1, well within the 1.3 that names a leader.
NOISY = 0.2
"""Relative scatter beyond which a ladder's parts are noise."""


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a decode step while `batch` streams decode at a mean `context`, with their standard error."""

    batch: float
    context: float
    seconds: float
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladders:
    """One instance's measurements, and its target: `batch` streams at `context` tokens, prompts of `prompt` tokens.

    `prompts` are (tokens, seconds to the first token without the network) of prompts that had the engine to themselves,
    one a request; `steps` those of the batch ladder, `queued` the (batch, context) whose streams never decoded all at
    once. `accepted` tokens are what a decode step gives a stream: more than
    one under speculation, None where its yield is unknown.
    """

    prompts: tuple[tuple[float, float], ...] = ()
    steps: tuple[Step, ...] = ()
    batch: float
    context: float
    prompt: float
    accepted: float | None = 1.0
    queued: tuple[tuple[float, float], ...] = ()
