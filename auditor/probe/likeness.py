"""Events that are like one that was read before, but for the text in it: most of a stream. Pure.

A server writes the same JSON around each token, so an event that begins and ends with the same bytes as one that was
read, and has one JSON string of its own between, means the same with another text. It need not be parsed again.
"""

import re
from collections.abc import Callable

__all__ = ["Counter", "Likeness", "learn"]

_PLAIN = rb'[^"\\\x00-\x1f]*'
_STRING = re.compile(_PLAIN + rb'(?:\\["\\/bfnrt]' + _PLAIN + rb")*")
_SPOKEN = re.compile(rb'"(?:content|text|reasoning|reasoning_content)": ?"(' + _STRING.pattern + rb')"')
_ESCAPE = re.compile(rb"\\.")
_LONGEST = 1024  # bytes of a chunk that is compared as a whole
_NEVER = b"\n"  # no chunk begins so


class Likeness:
    """What stands before and after the text in the one line of an event."""

    __slots__ = ("_after", "_before", "_least")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._least = len(before) + len(after)

    def characters(self, data: bytes) -> int:
        """How many characters the event with the line `data` speaks; 0 if it is not alike, or has no text."""
        if not data.startswith(self._before) or not data.endswith(self._after) or len(data) <= self._least:
            return 0
        return _characters(data[len(self._before) : len(data) - len(self._after)])

    def counter(self, at: list[float], said: list[int]) -> "Counter":
        """What counts such events where each comes in a chunk of its own."""
        return Counter(self._before, self._after, at, said)


class Counter:
    """Counts reads as they come that are each one chunk of the HTTP framing, with one event like an earlier one in it.

    `at` and `said` get the time of each and how many characters it speaks; `size` adds up their bytes.
    """

    __slots__ = ("_after", "_at", "_before", "_heads", "_said", "_settled", "size")

    def __init__(self, before: bytes, after: bytes, at: list[float], said: list[int]) -> None:
        self._before, self._after = before, after + b"\n\n\r\n"
        self._at, self._said = at, said
        self._heads: dict[int, tuple[bytes, int, int]] = {}
        self._settled, self.size = len(at), 0

    def take(self, at: float, data: bytes) -> bool:
        """Count a read; False if it is anything else. Little is called in here: every token of a load passes."""
        head, begin, end = self._heads.get(len(data)) or self._head(len(data))
        if not data.startswith(head) or not data.endswith(self._after):
            return False
        text = data[begin:end]
        characters = _SPOKEN_BY.get(text) or _learn_text(text)
        if not characters:
            return False
        self._at.append(at)
        self._said.append(characters)
        self.size += len(data)
        return True

    def settle(self) -> tuple[int, int]:
        """How many reads were counted since this was asked last, and their bytes."""
        reads, size = len(self._at) - self._settled, self.size
        self._settled, self.size = len(self._at), 0
        return reads, size

    def _head(self, size: int) -> tuple[bytes, int, int]:
        """What a whole chunk of so many bytes begins with (its size line, and all of the event before the text), and
        where its text stands.
        """
        head = _NEVER
        for digits in range(1, 4):
            line = b"%x\r\n" % max(0, size - digits - 4)
            if len(line) == digits + 2 and len(line) + len(self._before) + len(self._after) < size <= _LONGEST:
                head = line + self._before
        found = head, len(head), size - len(self._after)
        if size <= _LONGEST:
            self._heads[size] = found
        return found


def _characters(text: bytes) -> int:
    """How many characters the JSON string with this inside says; 0 if it is none."""
    if not _STRING.fullmatch(text):
        return 0
    if b"\\" in text:
        text = _ESCAPE.sub(b"x", text)
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


_SPOKEN_BY: dict[bytes, int] = {}  # words come again and again; none is longer than _LONGEST
_MOST_WORDS = 4096


def _learn_text(text: bytes) -> int:
    """As `_characters`, remembered for as many texts as have room."""
    characters = _characters(text)
    if len(_SPOKEN_BY) < _MOST_WORDS:
        _SPOKEN_BY[text] = characters
    return characters


_PROVEN: dict[tuple[bytes, bytes], bool] = {}  # what events hold beside their text and id, and whether it fits
_MOST_PROVEN = 256


def learn(data: bytes, weigh: Callable[[bytes], int | None], own: str = "") -> Likeness | None:
    """What is like an event with this data; None where that cannot be told from its bytes.

    `weigh` tells how many characters an event speaks, None if it means anything else besides. The text is found by
    trying: with one letter more the event must speak one more. This is tried once for events that differ in nothing but
    `own`, their reply's id.
    """
    found = list(_SPOKEN.finditer(data))
    if len(found) != 1 or b"\n" in data:
        return None
    start, end = found[0].span(1)
    like = Likeness(b"data: " + data[:start], data[end:])
    size = like.characters(b"data: " + data)
    if not size:
        return None
    sides = _masked(data[:start], own), _masked(data[end:], own)
    proven = _PROVEN.get(sides)
    if proven is None:
        proven = weigh(data) == size and weigh(data[:end] + b"x" + data[end:]) == size + 1
        if len(_PROVEN) >= _MOST_PROVEN:
            _PROVEN.clear()
        _PROVEN[sides] = proven
    return like if proven else None


def _masked(side: bytes, own: str) -> bytes:
    """Without the id, which must be none of the words that events are made of; NUL never stands in JSON."""
    return (
        side.replace(own.encode("utf-8", "surrogatepass"), b"\0")
        if len(own) >= 8 and any(c.isdigit() for c in own)
        else side
    )
