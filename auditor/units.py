"""Units as people write them: `1500ms`, `25/s`, `1%`, `4M`. A unit is required wherever a bare number is ambiguous.

A `Unit` marks a profile field (`Annotated[float, DURATION]`); `loading` reads the mark and calls `parse`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["DURATION", "RATE", "SHARE", "TOKENS", "Unit"]

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PER = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_THOUSANDS = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000, "Ki": 1024, "Mi": 1024**2}


@dataclass(frozen=True, slots=True)
class Unit:
    """A kind of quantity: its name, how to write it, and its parser (raises ValueError with a one-line reason)."""

    name: str
    example: str
    parse: Callable[[object], float]


def _duration(value: object) -> float:
    match = re.fullmatch(_NUMBER + r"\s*(us|ms|s|min|m|h|d)", value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError("needs a duration with its unit, such as 1500ms, 2s or 10m")
    return float(match[1]) * _SECONDS[match[2]]


def _rate(value: object) -> float:
    match = re.fullmatch(_NUMBER + r"\s*/\s*(s|sec|min|m|h)", value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError("needs a rate with its unit, such as 25/s or 90/min")
    return float(match[1]) / _PER[match[2]]


def _share(value: object) -> float:
    if isinstance(value, str) and (match := re.fullmatch(_NUMBER + r"\s*%", value.strip())):
        number = float(match[1]) / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError("needs a share such as 1% or 0.01")
    if not 0 <= number <= 1:
        raise ValueError("needs a share between 0 and 1 (or 0% and 100%)")
    return number


def _tokens(value: object) -> float:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(_NUMBER + r"\s*(Ki|Mi|k|K|M|G)?", value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError("needs a whole number of tokens, such as 4096, 32k or 4M")
    number = float(match[1]) * _THOUSANDS[match[2] or ""]
    if number != int(number):
        raise ValueError("needs a whole number of tokens")
    return int(number)


DURATION = Unit("duration", "1500ms", _duration)
RATE = Unit("rate", "25/s", _rate)
SHARE = Unit("share", "1%", _share)
TOKENS = Unit("tokens", "32k", _tokens)
