"""What dominates: the wait for the first token or the reply, in users' time and in the device's. On plain numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.theory.shape import user_time

__all__ = [
    "AT_ODDS",
    "LEANS",
    "MATTERS",
    "PHASE",
    "Leaning",
    "Wait",
    "leans",
    "overall",
    "predicted_device_share",
    "predicted_wait",
    "source",
]

LEANS = 0.6  # a phase dominates from this share of the time on; between 0.4 and 0.6 both matter
Leaning = Literal["ttft", "tps", "both"]
PHASE = {"ttft": "the first token", "tps": "the reply", "both": "the first token and the reply alike"}
MATTERS = {"ttft": "TTFT matters", "tps": "TPS matters", "both": "TTFT and TPS matter alike"}


AT_ODDS = {  # what the device works on when users wait for the other phase
    "ttft": (
        "prompts",
        "cheaper prompts make replies faster",
        (
            "keep shared prompt text first and the prefix cache on ({prefix_caching})",
            "bound the prompt tokens of a step ({max_num_batched_tokens}), or serve prefill and decode apart",
        ),
    ),
    "tps": (
        "replies",
        "shorter or fewer replies at once make first tokens come sooner",
        ("cap max_tokens to what is read", "admit fewer replies at once ({max_num_seqs}) and add replicas"),
    ),
}


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


def predicted_wait(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry, settings: Settings, device: Device, batch: int, prompt: float, output: float
) -> Wait:
    """The wait by the step law: steps in which the prompts of new requests are interleaved, and a prompt that waits for
    those of one step too (`cost.stay`).
    """
    interleaved = prompt / max(1.0, output)
    step = predict_decode(geometry, settings, device, batch, round(prompt + output / 2), interleaved)
    first = predict_prefill(geometry, settings, device, round(prompt))
    return Wait(first.seconds + step.prompts_s, step.seconds, output)


def predicted_device_share(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry, settings: Settings, device: Device, batch: int, prompt: float, output: float
) -> float:
    """The share of the device's time that goes to prompts, by the step law: what interleaved ones add to a step."""
    context = prompt + output / 2
    alone = predict_decode(geometry, settings, device, batch, context).seconds
    return 1 - alone / predict_decode(geometry, settings, device, batch, context, prompt / max(1.0, output)).seconds
