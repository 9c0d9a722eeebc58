"""What the ladders measured, and the operating point that they are read for. Data only."""

from dataclasses import dataclass

__all__ = ["NOISY", "SCATTERED", "Ladders", "Step"]

# Half of it is a fifth of what names a leader, 1.3 times the next.
NOISY = 0.2
"""How far a ladder's points lie off any law, relatively, beyond which its parts are noise."""

SCATTERED = 0.5
"""Relative scatter of repeated requests beyond which their middle tells nothing: that of five is uncertain by over half
of it (1.25 / sqrt(5)).
"""


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
