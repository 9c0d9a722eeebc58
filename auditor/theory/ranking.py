"""One accelerator's row in a ranking for a model and a load: expected times, and what a request costs on it."""

from dataclasses import dataclass

from auditor.theory.cost import stay
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings

__all__ = ["Ranked", "ranked"]

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A device with the expected seconds of a whole request, to its first token and a token; `cost` of one request
    where a price is known; `mine` marks the device that was asked about. `holds` says whether the KV cache carries the
    load (None: not known), `confidence` how sure the device's figures are (A, B, C).
    """

    key: str
    name: str
    confidence: str
    request: float
    ttft: float
    tpot: float
    holds: bool | None
    cost: float | None
    mine: bool


def ranked(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    batch: float,
    lengths: tuple[float, float, float],
    price: float | None,
    *,
    holds: bool | None,
    mine: bool,
) -> Ranked:
    """The row of `device` for `batch` requests at once, of `lengths` (prompt, output, held while decoding) in tokens;
    `price` of one device an hour.
    """
    prompt, output, held = lengths
    first = predict_prefill(geometry, settings, device, prompt)
    step = predict_decode(geometry, settings, device, batch, held, prompt / output)
    request = stay(first, step, output)
    return Ranked(
        key=device.key,
        name=device.name,
        confidence=device.confidence,
        request=request,
        ttft=first.seconds,
        tpot=step.seconds,
        holds=holds,
        cost=None if price is None else price * settings.devices / _HOUR * request / batch,
        mine=mine,
    )
