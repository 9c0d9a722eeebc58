"""Units as people write them: `1500ms`, `25/s`, `1%`, `4M`. A unit is required wherever a bare number is ambiguous.

A `Unit` marks a profile field (`Annotated[float, DURATION]`); `loading` reads the mark and calls `parse`. The other way
round, `quantity`, `percent` and `count` write figures into sentences and tables.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "DURATION",
    "GIB",
    "NAMED",
    "RATE",
    "SHARE",
    "TOKENS",
    "Unit",
    "count",
    "in_gib",
    "percent",
    "plain",
    "quantity",
]

GIB = 1 << 30

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


# ------------------------------------------------------------------------------------------------------------- written


def plain(value: float, digits: int = 3) -> str:
    """A number of so many significant digits, whole ones in full with commas."""
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{float(f'{value:.{digits}g}'):.{digits + 4}f}".rstrip("0").rstrip(".")


def _seconds(value: float) -> str:
    if value and abs(value) < 0.9995:
        return f"{plain(value * 1e3)} ms"
    if abs(value) < 300:
        return f"{plain(value, 4)} s"
    return f"{plain(value / 60)} min" if abs(value) < 3 * 3600 else f"{plain(value / 3600)} h"


def _scaled(value: float, base: float, names: tuple[str, ...]) -> str:
    power = 0
    while abs(value) >= base and power < len(names) - 1:
        value, power = value / base, power + 1
    return f"{plain(value, 4)} {names[power]}"


def _binary(value: float) -> str:
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _decimal(suffix: str) -> Callable[[float], str]:
    return lambda value: _scaled(value, 1000, tuple(p + suffix for p in ("", "k", "M", "G", "T", "P")))


NAMED: Mapping[str, Callable[[float], str]] = {
    "s": _seconds,
    "bytes": _binary,
    "share": lambda value: f"{plain(value * 100)} %",
    "tokens/s": lambda value: f"{plain(value)} tok/s",
    "tok/s": lambda value: f"{plain(value)} tok/s",
    "bytes/s": _decimal("B/s"),
    "FLOP/s": _decimal("FLOP/s"),
    "parameters": lambda value: _scaled(value, 1000, ("", "K", "M", "B", "T")),
    "/s": lambda value: f"{plain(value)} /s",
}


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit as people read it: 0.8 s -> "800 ms", a share of 0.05 -> "5 %", bytes -> "12.3 GiB".

    Units known by name: s, bytes, share (0..1), tokens/s, bytes/s, FLOP/s, /s. Any other unit follows its number as
    written. None is "not observed"; an infinite value is "unbounded".
    """
    if value is None or math.isnan(value):
        return "not observed"
    if math.isinf(value):
        return "unbounded" if value > 0 else "none"
    if unit in NAMED:
        return NAMED[unit](value)
    return f"{plain(value, 4)} {unit}".rstrip()


def in_gib(size: float) -> str:
    """Bytes for a column or beside one: always GiB with one decimal, from 10,000 GiB on TiB."""
    return f"{size / GIB:,.1f} GiB" if size < 10_000 * GIB else f"{min(size / GIB / 1024, 999_999):,.0f} TiB"


def percent(share: float) -> str:
    """A share in a sentence, of two digits: 0.0607 -> "6.1 %", 0.294 -> "29 %"."""
    return f"{plain(share * 100, 2)} %"


def count(number: float, noun: str) -> str:
    """A count with its noun: "1 device", "2 devices"; `noun` in the singular, its plural with an s."""
    return f"{plain(number, 4)} {noun}{'' if number == 1 else 's'}"
