"""What the events of a streamed reply add up to: which of them stand for generated tokens, usage, errors, the end.

Pure. It reads OpenAI chat and completions streams; the engines differ, so the rules look at the event, not at the
engine's name:

1. Any event with visible output: content, text, reasoning, reasoning_content, reasoning_details, refusal, tool calls,
   and text in a field that this reader does not know: servers invent new ones, and a token that is not read would make
   the first that is read late. Thoughts are fields and parts that are named so.
2. An event whose content or text is an empty string, with no role and no finish_reason: a token that decoded to nothing
   (vLLM sends these, as does SGLang for completions). Where the server counts fewer tokens than there are events, only
   rule 1 holds: the empty ones were padding.
3. An empty event with a finish_reason is a token only if the server's count is one above the other events (vLLM's last
   token may be empty; llama.cpp adds one empty event after the last token); without usage, only with vLLM's
   `stop_reason`.
4. A role alone, `delta: {}`, null content, usage and comments never stand for a token.
5. If no event qualifies but the server counted tokens, the finishing event stands for them: all decoded to nothing.

`usage` is the last one sent at top level; `completion_tokens` includes reasoning tokens (they are a part of it, not
added). llama.cpp's `timings` are the server's own count where usage was not sent. Without any count the events are
counted and the reply says `estimated`. A count that cannot be true (none despite output, or more than was asked for)
is not used.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from auditor.probe.choices import Weight, dicts, weigh
from auditor.probe.likeness import Counter, Likeness, learn

__all__ = ["EVENT_LIMIT", "Event", "Reply", "Tally", "clip", "error_text", "page_title", "whole_reply"]

EVENT_LIMIT = 16 * 1024 * 1024
_DETAIL = 300
_PAGE_HEAD = 8192
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_MOST_TOKENS = 10**9  # of one request: whatever is more is no count
_MOST_TEXT = 200  # characters a token in the mean: no vocabulary's tokens are so long
_MOST_TRIES = 10**6
_LONGEST_WORD = 200  # characters of an id or of a reason to end, which are kept as words
_BROKEN = ("abort", "error")


class Event(NamedTuple):
    """One server-sent event: its name (message by default), its data, and the offset in the body where it ended."""

    name: str
    data: bytes
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one streamed reply holds. Times are those of the reads, None means not observed.

    `arrivals` are the events that stand for tokens; `first_answer` is the first visible output that is not reasoning;
    `first_tokens` is how many tokens the first event carried; `done` says that [DONE] was seen. `error` is None, or
    in_stream, not_streamed, protocol or cut_off with a one-line `detail`.
    """

    arrivals: tuple[float, ...] = ()
    first_answer: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    first_tokens: int = 1
    estimated: bool = False
    finish_reason: str | None = None
    server_id: str | None = None
    done: bool = False
    error: str | None = None
    detail: str | None = None


# -------------------------------------------------------------------------------------------------------------- errors


def _error_of(name: str, message: Mapping[str, Any]) -> str | None:
    """The error that an event or a body carries, as one line, or None."""
    error = message.get("error")
    if error in (None, "", {}, False):
        if message.get("object") != "error" and name != "error":
            return None
        error = message
    return error_text(error)


def error_text(error: Any) -> str:
    """One line from any server's error: `code: message`, or what was sent where it has neither."""
    if isinstance(error, dict):
        text = error.get("message") or error.get("detail") or error.get("type") or json.dumps(error)
        code = error.get("code")
        return clip(f"{code}: {text}" if code not in (None, "") else str(text))
    return clip(str(error))


def page_title(text: str) -> str | None:
    """The title of an HTML page, which stands near its beginning; None where there is none."""
    title = _TITLE.search(text[:_PAGE_HEAD])
    return title[1] if title else None


def clip(text: str, size: int = _DETAIL) -> str:
    """Any text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 3] + "..."


# --------------------------------------------------------------------------------------------------------------- tally


@dataclass(slots=True)
class Tally:
    """Adds up the events of one reply. `asked` is the longest reply that the request allowed, in tokens."""

    asked: int | None = None
    done: bool = False
    error: str | None = None
    detail: str | None = None
    seen: int = 0
    at: list[float] = field(default_factory=list)
    _chars: list[int] = field(default_factory=list)
    _last_empty: tuple[float, bool] | None = None
    finish: str | None = None
    _finish_at: float | None = None
    _first_answer: float | None = None
    _reasoned: bool = False
    _first_usage: int | None = None
    _usage: Mapping[str, Any] | None = None
    _timings: Mapping[str, Any] | None = None
    _id: str | None = None
    like: Likeness | None = None
    _tried: int = 0

    def add(self, event: Event, at: float) -> None:
        """Weigh one event that arrived at `at`."""
        self.seen += 1
        if self.done:
            return
        if len(event.data) > EVENT_LIMIT:
            self._fail("protocol", f"event {self.seen} is larger than {EVENT_LIMIT} bytes")
        elif event.data.strip() == b"[DONE]":
            self.done = True
        elif (message := self._decode(event)) is not None:
            self.add_message(message, at, event.name)
            self._learn(event)

    def add_alike(self, characters: int, at: float) -> None:
        """Weigh one event that is `like` an earlier one."""
        self.seen += 1
        if not self.done:
            self.at.append(at)
            self._chars.append(characters)

    def counter(self) -> Counter | None:
        """What may count events that are `like` an earlier one from now on; `seen` learns of them by `settle`."""
        return None if self.done or self.like is None else self.like.counter(self.at, self._chars)

    @property
    def learning(self) -> bool:
        """Whether the next token may tell what later ones are like; not for long where they never are."""
        return not self.finish and 8 * self._tried < 128 + len(self.at)

    def _learn(self, event: Event) -> None:
        """Later events like this token need not be parsed."""
        if self.at and self.learning and event.name == "message":
            self._tried += 1
            self.like = learn(event.data, _spoken, self._id or "") or self.like

    @property
    def decided(self) -> bool:
        """True once there was a token, an error, the finish or [DONE]: the wait for the first token is over."""
        return self.done or self.error is not None or self.finish is not None or bool(self.at)

    def give_up(self) -> None:
        """Note that an event is larger than any that is read."""
        self.seen += 1
        self._fail("protocol", f"event {self.seen} is larger than {EVENT_LIMIT} bytes")

    def _decode(self, event: Event) -> dict[str, Any] | None:
        try:
            message = json.loads(event.data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            if event.name == "error":
                self._fail("in_stream", clip(event.data.decode("utf-8", "replace")))
            else:
                self._fail("protocol", f"event {self.seen} is not JSON: {event.data[:60]!r}")
            return None
        if not isinstance(message, dict) and event.name == "error":
            self._fail("in_stream", error_text(message))
        return message if isinstance(message, dict) else None

    def add_message(self, message: Mapping[str, Any], at: float, name: str = "message") -> None:
        """Weigh one decoded event."""
        choices = dicts(message.get("choices"))
        if (problem := _error_of(name, message)) is not None:
            self._fail("in_stream", problem)
        for choice in choices:
            if choice.get("error"):
                self._fail("in_stream", error_text(choice["error"]))
        if self._id is None and isinstance(message.get("id"), str | int):
            self._id = str(message["id"])[:_LONGEST_WORD]
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        if isinstance(message.get("timings"), dict):
            self._timings = message["timings"]
        weights = [weigh(choice) for choice in choices]
        if weights:
            self._add_weights(weights, at, usage)

    def _add_weights(self, weights: Sequence[Weight], at: float, usage: Any) -> None:
        answer = reasoning = 0
        empty = stop_reason = False
        finish = None
        for weight in weights:
            answer, reasoning = answer + weight.answer, reasoning + weight.reasoning
            empty, stop_reason = empty or weight.empty, stop_reason or weight.stop_reason
            finish = weight.finish or finish
        if finish:
            self.finish, self._finish_at = finish[:_LONGEST_WORD], at
            if finish in _BROKEN:
                self._fail("in_stream", f"the server ended the reply with finish_reason {finish}")
        self._reasoned = self._reasoned or reasoning > 0
        if answer and self._first_answer is None:
            self._first_answer = at
        if answer or reasoning or (empty and not finish):
            self.at.append(at)
            self._chars.append(answer + reasoning)
            if len(self.at) == 1 and isinstance(usage, dict):
                self._first_usage = _count(usage.get("completion_tokens"))
        elif empty:
            self._last_empty = (at, stop_reason)

    def _fail(self, error: str, detail: str) -> None:
        if self.error is None:
            self.error, self.detail = error, detail

    # -------------------------------------------------------------------------------------------------------- result

    def reply(self, *, complete: bool) -> Reply:
        """The reply, once all events are in; `complete` says that the HTTP message ended as framed."""
        prompt, counted, cached, hidden = self._counts()
        detail = None
        if counted is not None and self.asked and counted > self.asked:
            detail = f"usage says {counted} output tokens, {self.asked} were asked for; events were counted instead"
            counted = None
        if counted == 0 and any(self._chars):
            counted = None
        if counted and (text := sum(self._chars)) > _MOST_TEXT * counted:
            detail = f"{text} characters in {counted} tokens: far more text than these hold; the server's count stands"
        arrivals, chars = self._arrivals(counted)
        estimated = counted is None and bool(arrivals)
        output = len(arrivals) if estimated else counted
        error, problem = self._ending(complete, len(arrivals))
        return Reply(
            arrivals=tuple(arrivals),
            first_answer=self._first_answer,
            prompt_tokens=prompt,
            output_tokens=output,
            cached_tokens=cached,
            first_tokens=self._first_tokens(output, chars, hidden),
            estimated=estimated,
            finish_reason=self.finish,
            server_id=self._id,
            done=self.done,
            error=error,
            detail=problem or detail,
        )

    def _counts(self) -> tuple[int | None, int | None, int | None, int]:
        """Prompt, output, cached and reasoning tokens as the server counted them."""
        if self._usage is None:
            timings = self._timings or {}
            new, cached = _count(timings.get("prompt_n")), _count(timings.get("cache_n"))
            prompt = None if new is None else new + (cached or 0)
            return prompt, _count(timings.get("predicted_n")), cached, 0
        usage = self._usage
        details, parts = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        if cached is None:
            cached = _count(usage.get("prompt_cache_hit_tokens"))
        reasoning = _count(parts.get("reasoning_tokens")) if isinstance(parts, dict) else None
        prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        return prompt, output, cached, 0 if self._reasoned else min(reasoning or 0, output or 0)

    def _arrivals(self, counted: int | None) -> tuple[list[float], list[int]]:
        """Times and characters of the events that stand for tokens (rules 2, 3 and 5 of the module)."""
        at, chars = self.at, self._chars
        if counted is not None and 0 < counted < len(at) and any(chars):
            kept = [(a, c) for a, c in zip(at, chars, strict=True) if c]
            at, chars = [a for a, _ in kept], [c for _, c in kept]
        if self._last_empty is not None:
            moment, stop_reason = self._last_empty
            if counted == len(at) + 1 or (counted is None and stop_reason):
                return [*at, moment], [*chars, 0]
        if not at and counted and self._finish_at is not None:
            return [self._finish_at], [0]
        return at, chars

    def _first_tokens(self, output: int | None, chars: Sequence[int], hidden: int) -> int:
        """Tokens that the first event carried.

        The server's cumulative usage says it exactly. Otherwise: reasoning that was counted but never shown came before
        it; a first event with far more text than the others holds its share of all text; else all hold the same number.
        """
        n = len(chars)
        if self._first_usage and output and self._first_usage <= output:
            return self._first_usage
        if output is None or output <= n or n == 0:
            return 1
        if n == 1:
            return output
        visible = max(output - hidden, n)
        share = visible / n
        if chars[0] > 4 * max(median(chars[1:]), 1):
            share = visible * chars[0] / sum(chars)
        first = min(max(1, round(share)), visible - (n - 1))
        return first + output - visible

    def _ending(self, complete: bool, tokens: int) -> tuple[str | None, str | None]:
        """Whether the reply ended well: a finish_reason or [DONE], in a whole HTTP message, with a token in it."""
        if self.error is not None:
            return self.error, self.detail
        so_far = f"after {tokens} events with tokens"
        if not self.done and not complete:
            return "cut_off", f"the connection closed in the middle of the reply, {so_far}"
        if not self.done and self.finish is None:
            return "cut_off", f"the stream ended without finish_reason or [DONE], {so_far}"
        if not tokens:
            return "protocol", "the reply ended without a single token"
        return None, None


def _spoken(data: bytes) -> int | None:
    """Characters of an event that is one token and nothing else; None for any other."""
    tally = Tally(_tried=_MOST_TRIES)
    tally.add(Event("message", data, 0), 0.0)
    nothing = Tally(_tried=_MOST_TRIES, seen=1, at=[0.0], _chars=tally._chars, _id=tally._id)
    nothing._first_answer, nothing._reasoned = tally._first_answer, tally._reasoned
    return tally._chars[0] if tally == nothing and (tally._first_answer is None) == tally._reasoned else None


def _count(value: Any) -> int | None:
    """A token count as sent, or None where it is missing or no count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else None


def whole_reply(message: Mapping[str, Any]) -> Reply:
    """A JSON body where a stream was asked for: not measurable (its arrival is no TTFT), but its counts are kept."""
    tally = Tally()
    tally.add_message(message, 0.0)
    reply = tally.reply(complete=True)
    failed = tally.error is not None
    return Reply(
        prompt_tokens=reply.prompt_tokens,
        output_tokens=None if reply.estimated else reply.output_tokens,
        cached_tokens=reply.cached_tokens,
        finish_reason=reply.finish_reason,
        server_id=reply.server_id,
        error="in_stream" if failed else "not_streamed",
        detail=tally.detail if failed else "a stream was asked for, one JSON body came back",
    )
