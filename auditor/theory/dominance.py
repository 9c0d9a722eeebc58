"""What dominates: the wait for the first token or the reply. Thresholds and sums, on plain numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import Literal

from auditor.theory.shape import user_time

__all__ = ["LEANS", "MATTERS", "PHASE", "Leaning", "Wait", "leans", "overall", "source"]

LEANS = 0.6  # a phase dominates from this share of the time on; between 0.4 and 0.6 both matter
Leaning = Literal["ttft", "tps", "both"]
PHASE = {"ttft": "the first token", "tps": "the reply", "both": "the first token and the reply alike"}
MATTERS = {"ttft": "TTFT matters", "tps": "TPS matters", "both": "TTFT and TPS matter alike"}


@dataclass(frozen=True, slots=True)
class Wait:
    """What a typical request waits for: seconds to its first token, seconds a token then, tokens of its reply.

    `n` is how many measured requests this rests on; None where it is computed.
    """

    ttft: float
    tpot: float
    output_tokens: float
    n: int | None = None

    @property
    def share(self) -> float:
        """The share of the request's time that is its wait for the first token."""
        return user_time(self.ttft, self.tpot, self.output_tokens)

    @property
    def seconds(self) -> float:
        """The request's whole time."""
        return self.ttft + self.tpot * max(0.0, self.output_tokens - 1)


def leans(share: float) -> Leaning:
    """Which metric matters when this share of the time goes to the first token (or to prefill)."""
    return "ttft" if share >= LEANS else "tps" if share <= 1 - LEANS else "both"


def overall(waits: Iterable[tuple[float, Wait]]) -> float | None:
    """The share of all users' time that goes to first tokens, over (share of requests, wait); None without time."""
    pairs = list(waits)
    total = fsum(share * wait.seconds for share, wait in pairs)
    return fsum(share * wait.ttft for share, wait in pairs) / total if total > 0 else None


def source(waits: Iterable[Wait]) -> Literal["measured", "computed"]:
    """Where these waits come from, taken together."""
    return "computed" if any(wait.n is None for wait in waits) else "measured"
