"""Measurements that no hardware of the declared kind could give. Faster than physics is a finding, never excellence."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import Limit, decode_limit, prefill_limit
from auditor.theory.settings import Settings
from auditor.theory.statistics import median
from auditor.units import count

__all__ = ["BEATS", "Beaten", "beaten", "contradicted", "sure_seconds", "unheld"]

BEATS = 1.05  # faster than the limit by this factor is beyond the doubt of data sheets and clocks


@dataclass(frozen=True, slots=True)
class Beaten:
    """A measured time below the least that it was held against, both in seconds; `phase` is prefill or decode.

    `sure` says that this least is physics on certain figures alone. Where it is not, figures are provisional, or the
    least is only what such hardware usually needs (`reach.surprising`).
    """

    phase: str
    what: str
    seconds: float
    limit: float
    sure: bool


def sure_seconds(device: Device, limit: Limit) -> float:
    """What of a limit rests on figures of the device that are certain; 0 where none is."""
    multiplied = limit.compute_s if device.certainty("flops") != "C" else 0.0
    moved = limit.weights_s + limit.kv_s if device.certainty("bandwidth") != "C" else 0.0
    return max(multiplied, moved)


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
        limit = prefill_limit(geometry, settings, device, tokens)
        found += _beaten(device, "prefill", f"a prompt of {tokens} tokens", median(times), limit)
    for streams, context, seconds in decode if accepted is not None else ():
        limit = decode_limit(geometry, settings, device, streams, context)
        what = f"a token for {count(streams, 'stream')} at {context} tokens"
        found += _beaten(device, "decode", what, seconds, limit, accepted or 1.0)
    return tuple(found)


def _beaten(  # noqa: PLR0917
    device: Device, phase: str, what: str, seconds: float, limit: Limit, tokens: float = 1.0
) -> list[Beaten]:
    """What one time beats: certain figures where it can, else those that are provisional."""
    sure = sure_seconds(device, limit) / tokens
    if seconds * BEATS < sure:
        return [Beaten(phase, what, seconds, sure, sure=True)]
    least = limit.seconds / tokens
    return [Beaten(phase, what, seconds, least, sure=False)] if seconds * BEATS < least else []


def contradicted(
    theory: tuple[Geometry, Settings, Device] | None,
    prefill: Iterable[tuple[int, float]],
    decode: Iterable[tuple[int, int, float]],
    accepted: float | None,
) -> tuple[Beaten, ...]:
    """What beats limits that are certain; nothing where inputs lack or the hardware's figures are provisional."""
    return () if theory is None else tuple(b for b in beaten(*theory, prefill, decode, accepted) if b.sure)


def unheld(
    device: Device | None, prefill: bool, decode: bool, accepted: float | None, lacking: str | None = None
) -> str | None:
    """What cannot be held against the limits, and why: inputs that lack (in words), provisional figures, no ladder.

    None where both phases can.
    """
    if device is None:
        return f"no time was held against physics: {lacking}"
    doubted = [name for figure, name in _FIGURES.items() if device.certainty(figure) == "C"]
    if len(doubted) == len(_FIGURES):
        return "no time was held against physics: the hardware's figures are provisional"
    if missing := [name for name, there in (("prefill", prefill), ("decode", decode)) if not there]:
        return f"no {' or '.join(missing)} ladder was there to hold against physics"
    if accepted is None:
        return "decode was not held against physics: the yield of speculation is unknown"
    return f"times were not held against the {doubted[0]}, which is provisional" if doubted else None


_FIGURES = {"flops": "hardware's peak FLOP/s", "bandwidth": "hardware's bandwidth"}
