"""The least time that an SLO leaves to physics: what a given share of requests must exceed whatever the engine does."""

from collections.abc import Iterable

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import prefill_limit
from auditor.theory.settings import Settings
from auditor.theory.shape import Curve, at

__all__ = ["least_seconds"]


def least_seconds(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    classes: Iterable[tuple[float, Curve, Curve]],
    share: float,
    step: float | None = None,
) -> float:
    """Seconds that more than 1 - `share` of the requests exceed, so that a lower ceiling on `share` cannot hold.

    `classes` are (share of requests, prompt tokens to read, output tokens). A class of weight w breaks the ceiling if
    its own longest (1 - share) / w prompts do. With `step` (seconds a token) the reply counts too: prompt and output
    are both at or beyond q for (1 - q)^2 of a class whose lengths are independent or grow together.
    """
    least = 0.0
    for weight, prompt, output in classes:
        over = (1 - share) / weight if weight > 0 else 1.0
        if over >= 1:
            continue
        q = 1 - over if step is None else 1 - over**0.5
        seconds = prefill_limit(geometry, settings, device, max(1, at(prompt, q))).seconds
        least = max(least, seconds + max(0, at(output, q) - 1) * (step or 0.0))
    return least
