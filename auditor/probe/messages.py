"""What is said in a request: the messages of a conversation, as the chat and the completions API take them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Message", "as_chat", "as_text"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `pictures` are addresses, of the `data:` kind where the message holds the picture itself."""

    role: Literal["user", "assistant"]
    text: str
    pictures: tuple[str, ...] = ()


def as_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a chat request; only a message with pictures is in parts, since not every server reads these.

    Pictures come before the text: engines' chat templates put them there.
    """
    return [{"role": message.role, "content": _content(message)} for message in messages]


def as_text(messages: Sequence[Message]) -> str:
    """A conversation as one text, for completions: what was said, line by line. Pictures have no place in it."""
    return "\n".join(message.text for message in messages)


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.pictures:
        return message.text
    seen = [{"type": "image_url", "image_url": {"url": url}} for url in message.pictures]
    return [*seen, {"type": "text", "text": message.text}]
