"""The emulator's tokenizer: every run of up to eight non-space characters is one token, always the same."""

import re
from collections.abc import Mapping
from typing import Any
from zlib import crc32

__all__ = ["REPLY_TEXTS", "TokenError", "prompt_tokens", "reply_text", "token_ids", "tokens_of"]

_PIECE = re.compile(r"\S{1,8}")

# What replies are made of, cyclically. One token in sixteen decodes to no text, as parts of characters do.
REPLY_TEXTS = (
    "The", " answer", " follows", " from", " what", " was", " said", "", " above", " and", " needs", " no", " more",
    " than", " these", " words",
)  # fmt: skip


class TokenError(ValueError):
    """The prompt is nothing that can be tokenised."""


def tokens_of(text: str) -> list[str]:
    """The tokens of a text."""
    return _PIECE.findall(text)


def token_ids(tokens: list[Any], vocabulary: int) -> list[int]:
    """An id for each token; ids given as ids stay."""
    return [token if isinstance(token, int) else crc32(token.encode()) % vocabulary for token in tokens]


def reply_text(first: int, count: int) -> str:
    """The text of `count` reply tokens from number `first` on."""
    return "".join(REPLY_TEXTS[index % len(REPLY_TEXTS)] for index in range(first, first + count))


def prompt_tokens(body: Mapping[str, Any], template: int) -> list[Any]:
    """The tokens of a completion's prompt or a chat's messages, the latter after `template` tokens of the template."""
    if "messages" in body:
        return ["<|chat|>"] * template + _messages(body["messages"])
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return list(tokens_of(prompt))
    if isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        return prompt
    if isinstance(prompt, list) and all(isinstance(text, str) for text in prompt):
        return [token for text in prompt for token in tokens_of(text)]
    raise TokenError("prompt must be a string, a list of strings or a list of token ids")


def _messages(messages: Any) -> list[Any]:
    if not isinstance(messages, list):
        raise TokenError("messages must be a list")
    tokens: list[Any] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            tokens += tokens_of(content)
        elif isinstance(content, list):
            texts = [part.get("text", "") for part in content if isinstance(part, dict)]
            tokens += [token for text in texts for token in tokens_of(str(text))]
    return tokens
