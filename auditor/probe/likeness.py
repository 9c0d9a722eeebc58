"""Events that are like one that was read before, but for the text in it: most of a stream. Pure.

A server writes the same JSON around each token, so an event that begins and ends with the same bytes as one that was
read, and has one JSON string of its own between, means the same with another text. It need not be parsed again.
"""

import re
from collections.abc import Callable

__all__ = ["Likeness", "learn"]

_PLAIN = rb'[^"\\\x00-\x1f]*'
_STRING = re.compile(_PLAIN + rb'(?:\\["\\/bfnrt]' + _PLAIN + rb")*")
_SPOKEN = re.compile(rb'"(?:content|text|reasoning|reasoning_content)": ?"(' + _STRING.pattern + rb')"')
_ESCAPE = re.compile(rb"\\.")


class Likeness:
    """What stands before and after the text in the one line of an event."""

    __slots__ = ("_after", "_before", "_least")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._least = len(before) + len(after)

    def characters(self, data: bytes) -> int:
        """How many characters the event with the line `data` speaks; 0 if it is not alike, or has no text."""
        if not data.startswith(self._before) or not data.endswith(self._after):
            return 0
        text = data[len(self._before) : len(data) - len(self._after)]
        if len(data) <= self._least or not _STRING.fullmatch(text):
            return 0
        if b"\\" in text:
            text = _ESCAPE.sub(b"x", text)
        return len(text) if text.isascii() else len(text.decode("utf-8", "replace"))


def learn(data: bytes, weigh: Callable[[bytes], int | None]) -> Likeness | None:
    """What is like an event with this data; None where that cannot be told from its bytes.

    `weigh` tells how many characters an event speaks, None if it means anything else besides. The text is found by
    trying: with one letter more the event must speak one more.
    """
    found = list(_SPOKEN.finditer(data))
    if len(found) != 1 or b"\n" in data:
        return None
    start, end = found[0].span(1)
    like = Likeness(b"data: " + data[:start], data[end:])
    size = like.characters(b"data: " + data)
    longer = data[:end] + b"x" + data[end:]
    return like if size and weigh(data) == size and weigh(longer) == size + 1 else None
