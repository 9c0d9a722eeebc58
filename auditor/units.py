"""Units as people write them: `1500ms`, `25/s`, `1%`, `4M`. A unit is required wherever a bare number is ambiguous.

A `Unit` marks a profile field (`Annotated[float, DURATION]`); `loading` reads the mark and calls `parse`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["DURATION", "RATE", "SHARE", "TOKENS", "Unit"]

_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_DURATION = re.compile(_NUMBER + r"\s*(us|ms|s|min|m|h|d)")
_RATE = re.compile(_NUMBER + r"\s*/\s*(s|sec|min|m|h)")
_PERCENT = re.compile(_NUMBER + r"\s*%")
_COUNT = re.compile(_NUMBER + r"\s*(Ki|Mi|k|K|M|G)?")

_MICROSECOND, _MILLISECOND = Fraction(1, 10**6), Fraction(1, 1000)
_SECONDS: dict[str, Fraction | int] = {
    "us": _MICROSECOND,
    "ms": _MILLISECOND,
    "s": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86400,
}
_PER = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_THOUSANDS = {"": 1, "k": 1000, "K": 1000, "M": 10**6, "G": 10**9, "Ki": 1024, "Mi": 1024**2}


@dataclass(frozen=True, slots=True)
class Unit:
    """A kind of quantity: its name, how to write it, and its parser (raises ValueError with a one-line reason).

    `pattern` is the regular expression of its textual form, `numbers` whether a bare number will do too.
    """

    name: str
    example: str
    parse: Callable[[object], float]
    pattern: str
    numbers: bool = False


def _number(value: object) -> str | None:
    """A bare number as it would be written, or None for anything else; true and false are no numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    text = value.strip() if isinstance(value, str) else ""
    return text if re.fullmatch(_NUMBER, text) else None


def _match(pattern: re.Pattern[str], value: object) -> re.Match[str] | None:
    return pattern.fullmatch(value.strip()) if isinstance(value, str) else None


def _duration(value: object) -> float:
    """Seconds of a duration such as 1500ms, 2s, 10m (minutes), 1h, 1d."""
    if match := _match(_DURATION, value):
        return float(Fraction(match[1]) * _SECONDS[match[2]])
    if number := _number(value):
        raise ValueError(f"needs its unit: write {number}s for seconds or {number}ms for milliseconds")
    raise ValueError("needs a duration with its unit, such as 1500ms, 2s or 10m")


def _rate(value: object) -> float:
    """Events per second of a rate such as 25/s, 90/min or 5/h."""
    if match := _match(_RATE, value):
        return float(Fraction(match[1]) / _PER[match[2]])
    if number := _number(value):
        raise ValueError(f"needs its unit: write {number}/s if it is per second")
    raise ValueError("needs a rate with its unit, such as 25/s or 90/min")


def _share(value: object) -> float:
    """A share of one; a bare number is one already."""
    if match := _match(_PERCENT, value):
        share = float(Fraction(match[1]) / 100)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        raise ValueError("needs a share such as 1% or 0.01")
    if 1 < share <= 100 and (number := _number(value)):
        raise ValueError(f"needs a share between 0 and 1; write {number}% if it is per cent")
    if not 0 <= share <= 1:
        raise ValueError("needs a share between 0 and 1 (0% and 100%)")
    return share


def _tokens(value: object) -> float:
    """A whole number of tokens; k, M and G are thousands, Ki and Mi powers of 1024."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
        return value
    if match := _match(_COUNT, value):
        tokens = Fraction(match[1]) * _THOUSANDS[match[2] or ""]
        if tokens.denominator == 1:
            return int(tokens)
    raise ValueError("needs a whole number of tokens, such as 4096, 32k or 4M")


DURATION = Unit("duration", "1500ms", _duration, rf"^{_DURATION.pattern}$")
RATE = Unit("rate", "25/s", _rate, rf"^{_RATE.pattern}$")
SHARE = Unit("share", "1%", _share, rf"^{_PERCENT.pattern}$", numbers=True)
TOKENS = Unit("tokens", "32k", _tokens, rf"^{_COUNT.pattern}$", numbers=True)
