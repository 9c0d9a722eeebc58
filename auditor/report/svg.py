"""The parts of a small SVG: escaped elements, axes with round ticks, a plot's frame, a legend that wraps. Pure.

Colours and type come from the page's style sheet by class, so that one drawing serves light, dark and print. A drawing
is WIDTH units wide: about a phone's width, so that its words stay readable there.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from auditor.report.harmless import clean

__all__ = [
    "WIDTH",
    "Axis",
    "Key",
    "Plot",
    "band",
    "circle",
    "crosses",
    "dots",
    "legend",
    "line",
    "path",
    "rect",
    "text",
    "width_of",
]

WIDTH = 420
_LETTER = 6.3  # units that a letter of 11.5 takes at most in the mean
_ROW = 17


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _tag(name: str, cls: str, content: str | None = None, **attributes: float | str) -> str:
    shown = {"class": cls, **attributes}
    said = "".join(
        f' {key.replace("_", "-")}="{_number(v) if isinstance(v, float | int) else escape(v)}"'
        for key, v in shown.items()
        if v != ""
    )
    return f"<{name}{said}/>" if content is None else f"<{name}{said}>{content}</{name}>"


def text(x: float, y: float, words: object, cls: str = "", anchor: str = "") -> str:
    """Words at a place; `anchor` start (empty), middle or end."""
    return _tag("text", cls, escape(clean(words, 160)), x=x, y=y, text_anchor=anchor)


def width_of(words: str) -> float:
    """The units that words take at most, about: widths are known only where they are drawn."""
    return len(words) * _LETTER


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    """A straight line."""
    return _tag("line", cls, x1=x1, y1=y1, x2=x2, y2=y2)


def rect(x: float, y: float, width: float, height: float, cls: str) -> str:
    """A rectangle; one narrower than nothing is none."""
    return _tag("rect", cls, x=x, y=y, width=max(0.0, width), height=max(0.0, height))


def circle(x: float, y: float, radius: float, cls: str) -> str:
    """A circle."""
    return _tag("circle", cls, cx=x, cy=y, r=radius)


def path(points: Sequence[tuple[float, float]], cls: str, *, closed: bool = False) -> str:
    """A line through points; empty without any."""
    if not points:
        return ""
    way = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return _tag("path", cls, d=f"M{way}{'Z' if closed else ''}")


def band(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], cls: str) -> str:
    """The area between two lines."""
    return path([*upper, *reversed(lower)], cls, closed=True)


def dots(points: Iterable[tuple[float, float]], cls: str) -> str:
    """Many dots as one path of zero-length strokes with round ends; those that fall on one place are drawn once."""
    places = sorted({(round(x), round(y)) for x, y in points})
    return _tag("path", cls, d="".join(f"M{x} {y}h0" for x, y in places)) if places else ""


def crosses(points: Iterable[tuple[float, float]], cls: str, size: int = 3) -> str:
    """Many crosses as one path: told apart from dots without colour."""
    places = sorted({(round(x), round(y)) for x, y in points})
    arm = f"m-{size} -{size}l{2 * size} {2 * size}m0 -{2 * size}l-{2 * size} {2 * size}"
    return _tag("path", cls, d="".join(f"M{x} {y}{arm}" for x, y in places)) if places else ""


# ---------------------------------------------------------------------------------------------------------------- axes


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` on units from `start` to `end`; values beyond are held at the ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], ends: tuple[float, float], *, log: bool = False) -> "Axis":
        """An axis with round ends around these values; from 0 on unless it is logarithmic."""
        seen = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        if log:
            low, high = _step(min(seen), down=True), _step(max(seen))
            return cls(low, high if high > low else 2 * low, *ends, log=True)
        return cls(0.0, max(_ticks(0.0, max(seen) or 1.0)[-1], 1e-12), *ends)

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        held = min(max(value, self.low), self.high)
        part = math.log(held / self.low) / math.log(self.high / self.low) if self.log else self._linear(held)
        return self.start + part * (self.end - self.start)

    def _linear(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0

    def ticks(self, most: int = 6) -> list[float]:
        """Round values, `most` at most: on a logarithmic axis 1, 2, 5 or powers of ten."""
        if not self.log:
            return [t for t in _ticks(self.low, self.high, most - 1) if t <= self.high * (1 + 1e-9)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [step * 10.0**power for power in powers for step in steps]
            found = [t for t in found if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]

    def through(self, count: int = 96) -> list[float]:
        """Values spread over the axis, for a curve."""
        if self.log:
            return [self.low * (self.high / self.low) ** (i / (count - 1)) for i in range(count)]
        return [self.low + (self.high - self.low) * i / (count - 1) for i in range(count)]


def _step(value: float, *, down: bool = False) -> float:
    """The nearest of 1, 2, 5 x a power of ten, from above or below."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [power * s for s in (0.5, 1, 2, 5, 10)]
    return max(s for s in steps if s <= value * (1 + 1e-9)) if down else min(s for s in steps if s >= value * 0.999999)


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values from at or below `low` to at or above `high`."""
    each = _step((high - low) / count) if high > low else 1.0
    first = math.floor(low / each)
    last = math.ceil(high / each - 1e-9)
    return [i * each for i in range(first, max(last, first + 1) + 1)]


# --------------------------------------------------------------------------------------------------------------- frame


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot's axes with their words; `x_word` and `y_word` write a tick, `x_at` are ticks of its own choice."""

    x: Axis
    y: Axis
    x_title: str
    y_title: str
    x_word: Callable[[float], str]
    y_word: Callable[[float], str]
    x_at: Sequence[float] = ()

    def frame(self, *, ticks: int = 6) -> str:
        """Grid lines, ticks and titles; the y title stands above its axis, where it can be read."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        parts = [text(left, top - 8, self.y_title, "title")] if self.y_title else []
        for tick in self.y.ticks(ticks):
            parts += [line(left, self.y(tick), right, self.y(tick), "grid")]
            parts += [text(left - 6, self.y(tick) + 4, self.y_word(tick), "tick", "end")]
        if self.x_title:
            parts += list(self._below(bottom))
        return "".join(parts)

    def _below(self, bottom: float) -> Iterator[str]:
        free = -math.inf
        for tick in self.x_at or self.x.ticks(7):
            at, word = self.x(tick), self.x_word(tick)
            half = width_of(word) / 2
            yield line(at, bottom, at, bottom + 4, "axis")
            middle = min(at, WIDTH - half)
            if middle - half > free:
                yield text(middle, bottom + 16, word, "tick", "middle")
                free = middle + half + 4
        yield line(self.x.start, bottom, self.x.end, bottom, "axis")
        yield text((self.x.start + self.x.end) / 2, bottom + 33, self.x_title, "title", "middle")

    def at(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """Values as places."""
        return [(self.x(x), self.y(y)) for x, y in points]

    def limits(self, found: Iterable[tuple[float, str]]) -> str:
        """Dashed lines across at these values, each with its words at the right end, no two on one place."""
        parts, free = [], math.inf
        for value, words in sorted(found):
            y = self.y(value)
            parts.append(line(self.x.start, y, self.x.end, y, "slo"))
            place = min(free, y - 4 if y - 16 > self.y.end else y + 13)
            parts.append(text(self.x.end - 2, place, words, "halo", "end"))
            free = place - 14
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class Key:
    """What a sign stands for: `sign` is dot, ring, point, cross, line, dash, area or bar."""

    sign: str
    cls: str
    words: str


def legend(keys: Sequence[Key], top: float = 12.0) -> tuple[str, float]:
    """The keys in rows from `top` on, and where the rows end."""
    parts, x, y = [], 0.0, top
    for key in keys:
        wide = 22 + width_of(clean(key.words, 60))
        if x and x + wide > WIDTH:
            x, y = 0.0, y + _ROW
        parts += [_sign(key, x, y), text(x + 20, y + 4, key.words, "key")]
        x += wide + 12
    return "".join(parts), y + _ROW / 2


def _sign(key: Key, x: float, y: float) -> str:
    if key.sign == "dot":
        return dots([(x + 8, y)], key.cls)
    if key.sign in ("ring", "point"):
        return circle(x + 8, y, 3.2, key.cls)
    if key.sign == "cross":
        return crosses([(x + 8, y)], key.cls)
    if key.sign in ("area", "bar"):
        return rect(x + 1, y - 5, 14, 10, key.cls)
    return line(x, y, x + 16, y, key.cls)
