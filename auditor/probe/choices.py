"""What one choice of one event holds: characters of an answer or of thoughts, or nothing that anybody sees. Pure.

Servers write both in many fields, and invent new ones; what stands for a token is `tally`'s business.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Weight", "dicts", "weigh"]

_THOUGHTS = re.compile(r"reason|think|thought")
_NO_OUTPUT = frozenset(("role", "content", "refusal", "tool_calls", "function_call", "name", "id", "type", "index"))
_PARTS = ("text", "thinking", "summary", "transcript", "data")  # where a part of a message holds its text


class Weight(NamedTuple):
    """One choice of one event: visible characters, of the answer or of the reasoning, and what an empty one may be."""

    answer: int
    reasoning: int
    empty: bool
    finish: str | None
    stop_reason: bool


def _text(value: Any, depth: int = 4) -> int:
    """Characters in a string, in a part of a message, or in a list of parts that may hold parts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict) and depth:
        return next((size for key in _PARTS if (size := _text(value.get(key), depth - 1))), 0)
    return sum(_text(part, depth - 1) for part in value) if isinstance(value, list) and depth else 0


def _thinks(part: Any) -> bool:
    """Whether a part of a message holds thoughts."""
    return isinstance(part, dict) and _THOUGHTS.search(str(part.get("type"))) is not None


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of what is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _calls(delta: Mapping[str, Any]) -> int:
    """Characters of tool calls; a call that has only begun (a name or an id) is visible output too."""
    calls = [call.get("function") or call for call in dicts(delta.get("tool_calls"))]
    calls += [delta["function_call"]] if isinstance(delta.get("function_call"), dict) else []
    return sum(max(1, _text(c.get("name")) + _text(c.get("arguments"))) for c in calls if isinstance(c, dict))


def weigh(choice: Mapping[str, Any]) -> Weight:
    """What a choice of a chat or completions event holds, in `delta`, `message` or `text`."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        message = choice.get("message")
        delta = message if isinstance(message, dict) else {}
    content = choice.get("text") if "text" in choice else delta.get("content")
    answer, reasoning = _text(content), 0
    if isinstance(content, list):
        reasoning = _text([part for part in content if _thinks(part)])
        answer -= reasoning
    if len(delta) > 1 or not answer:
        answer += _text(delta.get("refusal")) + _calls(delta)
        others = {key: size for key, value in delta.items() if key not in _NO_OUTPUT and (size := _text(value))}
        reasoning += max((size for key, size in others.items() if _THOUGHTS.search(key)), default=0)
        if not delta.get("role"):
            answer += sum(size for key, size in others.items() if not _THOUGHTS.search(key))
    finish = choice.get("finish_reason")
    empty = content == "" and not answer and not reasoning and not delta.get("role")
    return Weight(answer, reasoning, empty, str(finish) if finish else None, "stop_reason" in choice)
