"""One conversation under way: what was said, and what its next turn says. Pure.

The history holds the server's own replies, so that what a server cached of a conversation is found again as it is with
users. Thoughts are no part of it: chat templates leave them out.
"""

import json
from collections.abc import Mapping
from typing import Any

from auditor.loads import Shape
from auditor.measurement import Sample
from auditor.probe.messages import Message
from auditor.probe.prompts import Prompts
from auditor.probe.sse import Body, events

__all__ = ["Heard", "Talk"]

_MOST = 8 * 1024 * 1024  # bytes of a reply that are kept for its text


class Talk:
    """What was said so far, and how many tokens the server counted for it."""

    def __init__(self) -> None:
        self.said: tuple[Message, ...] = ()
        self.held = 0
        self._asked: Message | None = None

    def ask(self, prompts: Prompts, shape: Shape, index: int, load_id: str) -> tuple[Message, ...]:
        """The whole conversation with its next turn."""
        self._asked = prompts.message(shape, index, load_id, self.held)
        return (*self.said, self._asked)

    def heard(self, sample: Sample, text: str) -> None:
        """Keep a turn that went well; of one that failed nothing was said."""
        if self._asked is not None and sample.good:
            self.said = (*self.said, self._asked, Message("assistant", text))
            self.held = sample.tokens


class Heard(Body):
    """The body of a reply whose text is needed."""

    __slots__ = ("_all", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._all: list[bytes] = []
        self._size = 0

    def add(self, at: float, data: bytes) -> None:
        """Take the bytes of a read, and keep them."""
        super().add(at, data)
        if self._size < _MOST:
            self._all.append(data)
            self._size += len(data)

    def counter(self) -> None:
        """None: all bytes are kept."""
        return None

    def text(self) -> str:
        """What the reply says, of its first choice."""
        return "".join(_said(event.data) for event in events(b"".join(self._all)))


def _said(data: bytes) -> str:
    try:
        message = json.loads(data)
        choice = message["choices"][0]
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
    return _content(choice) if isinstance(choice, Mapping) else ""


def _content(choice: Mapping[str, Any]) -> str:
    delta = choice.get("delta")
    content = delta.get("content") if isinstance(delta, Mapping) else choice.get("text")
    return content if isinstance(content, str) else ""
