"""Measurements that no hardware of the declared kind could give. Faster than physics is a finding, never excellence."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import decode_limit, prefill_limit
from auditor.theory.settings import Settings
from auditor.theory.statistics import median

__all__ = ["BEATS", "Beaten", "beaten", "contradicted", "unheld"]

BEATS = 1.05  # faster than the limit by this factor is beyond the doubt of data sheets and clocks


@dataclass(frozen=True, slots=True)
class Beaten:
    """A measured time below its physical limit, both in seconds; `phase` is prefill or decode."""

    phase: str
    what: str
    seconds: float
    limit: float


def beaten(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    prefill: Iterable[tuple[int, float]],
    decode: Iterable[tuple[int, int, float]],
    accepted: float | None,
) -> tuple[Beaten, ...]:
    """What beats the limits among (prompt tokens, seconds to the first token) and (streams, context, seconds a token).

    Prefill by the median of each prompt length, so that one early event proves nothing. `accepted` tokens a step divide
    the decode limit; None (speculation of unknown yield) leaves decode out.
    """
    found: list[Beaten] = []
    by_length: dict[int, list[float]] = defaultdict(list)
    for tokens, seconds in prefill:
        by_length[tokens].append(seconds)
    for tokens, times in sorted(by_length.items()):
        limit = prefill_limit(geometry, settings, device, tokens).seconds
        if median(times) * BEATS < limit:
            found.append(Beaten("prefill", f"a prompt of {tokens} tokens", median(times), limit))
    for streams, context, seconds in decode if accepted is not None else ():
        limit = decode_limit(geometry, settings, device, streams, context).seconds / (accepted or 1.0)
        if seconds * BEATS < limit:
            found.append(Beaten("decode", f"a token for {streams} streams at {context} tokens", seconds, limit))
    return tuple(found)


def contradicted(
    theory: tuple[Geometry, Settings, Device] | None,
    prefill: Iterable[tuple[int, float]],
    decode: Iterable[tuple[int, int, float]],
    accepted: float | None,
) -> tuple[Beaten, ...]:
    """What beats limits that are certain; nothing where inputs lack or the hardware's figures are provisional."""
    if theory is None or theory[2].confidence == "C":
        return ()
    return beaten(*theory, prefill, decode, accepted)


def unheld(
    device: Device | None, prefill: bool, decode: bool, accepted: float | None, lacking: str | None = None
) -> str | None:
    """What cannot be held against the limits, and why: inputs that lack (in words), provisional figures, no ladder.

    None where both phases can.
    """
    if device is None:
        return f"no time was held against physics: {lacking}"
    if device.confidence == "C":
        return "no time was held against physics: the hardware's figures are provisional"
    if missing := [name for name, there in (("prefill", prefill), ("decode", decode)) if not there]:
        return f"no {' or '.join(missing)} ladder was there to hold against physics"
    return "decode was not held against physics: the yield of speculation is unknown" if accepted is None else None
