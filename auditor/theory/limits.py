"""The least time that an SLO leaves to physics: what a given share of requests must exceed whatever the engine does."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.physics import sure_seconds
from auditor.theory.roofline import Limit, prefill_limit
from auditor.theory.settings import Settings
from auditor.theory.shape import Curve, at

__all__ = ["Least", "Mix", "least", "unavoidable"]

Mix = tuple[float, Curve, Curve]
"""Share of the requests, prompt tokens to read, output tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """The least time of a request of `prompt` and `output` tokens: reading the prompt (`prefill`), then a decode `step`
    for each further token, where the reply counts. `sure` of the `seconds` rest on certain figures.
    """

    seconds: float
    sure: float
    prompt: int
    output: int
    prefill: Limit | None
    step: Limit | None


def unavoidable(mix: Iterable[Mix], share: float, *, replies: bool) -> Iterator[tuple[int, int]]:
    """(prompt, output) tokens that more than 1 - `share` of the requests reach, for each class that can break a ceiling
    on `share` alone.

    A class of weight w breaks it if its own longest (1 - share) / w prompts do. Where `replies` count too, prompt and
    output are both at or beyond q for (1 - q)^2 of a class whose lengths are independent or grow together.
    """
    for weight, prompt, output in mix:
        over = (1 - share) / weight if weight > 0 else 1.0
        if over < 1:
            q = 1 - over**0.5 if replies else 1 - over
            yield max(1, at(prompt, q)), at(output, q)


def least(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    mix: Iterable[Mix],
    share: float,
    step: Limit | None = None,
    tokens: float = 1.0,
) -> Least | None:
    """What more than 1 - `share` of the requests exceed, so that a lower ceiling on `share` cannot hold; None where no
    class can break it. With `step` the reply counts too, `tokens` of it a step.
    """
    found = None
    for prompt, output in unavoidable(mix, share, replies=step is not None):
        read, steps = prefill_limit(geometry, settings, device, prompt), max(0, output - 1) / tokens
        seconds, sure = read.seconds, sure_seconds(device, read)
        if step is not None:
            seconds, sure = seconds + steps * step.seconds, sure + steps * sure_seconds(device, step)
        one = Least(seconds=seconds, sure=sure, prompt=prompt, output=output, prefill=read, step=step)
        found = one if found is None or one.seconds > found.seconds else found
    return found
