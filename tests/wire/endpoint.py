"""A whole endpoint of scripted bytes: models, /tokenize (a token a word) and generations of which some go wrong.

Every generation is counted as the server saw it (`told`), so that a client's counts can be held against it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.wire.byteserver import HOLD, RESET, Request, Script, Step, chunked, head, sse

__all__ = ["Endpoint", "Told"]

FIRST, GAP = 0.1, 0.02


@dataclass(frozen=True)
class Told:
    """One generation: its id, the words of its prompt, the tokens that were sent, how it ended."""

    id: str
    prompt_tokens: int
    tokens: int
    outcome: str


@dataclass
class Endpoint:
    """`wrong` says by a generation's number (from 1) what goes wrong with it: fail, stall, drop, in_stream, early."""

    wrong: Callable[[int], str] = lambda number: "ok"
    tokenizes: bool = True
    template: int = 0
    role_chunk: bool = False
    separate_finish: bool = False
    early_headers: bool = False
    usage: bool = True
    reasoning: int = 0
    a_chunk: int = 1
    told: list[Told] = field(default_factory=list)

    def __call__(self, request: Request, _: int) -> Script:
        """The script of one request, for ByteServer."""
        if request.path == "/v1/models":
            return _json({"data": [{"id": "m", "owned_by": "test"}]})
        body = json.loads(request.body)
        if request.path == "/tokenize":
            return _json({"count": self._words(body)} if self.tokenizes else {"error": "no"})
        if request.path not in ("/v1/chat/completions", "/v1/completions"):
            return _json({"error": "no such path"}, "404 Not Found")
        return self._generation(body)

    def _words(self, body: dict[str, Any]) -> int:
        text = body["messages"][0]["content"] if "messages" in body else body.get("prompt", "")
        return len(text.split()) + self.template

    def _generation(self, body: dict[str, Any]) -> Script:
        number = len(self.told) + 1
        outcome, wanted = self.wrong(number), int(body["max_tokens"])
        sent = 0 if outcome == "fail" else wanted if outcome == "ok" else wanted // 2
        self.told.append(Told(f"gen-{number}", self._words(body), sent, outcome))
        if outcome == "fail":
            return _json({"error": {"message": "asked to fail"}}, "500 Internal Server Error")
        return [*self._tokens(number, sent), *self._ending(number, sent, outcome)]

    def _tokens(self, number: int, sent: int) -> list[Step]:
        """The head and the chunks with tokens, the first of them FIRST seconds after the request."""
        opening = b""
        if self.early_headers or self.role_chunk:
            opening = head()
        if self.role_chunk:
            opening += self._chunk(number, {"role": "assistant", "content": ""})
        steps: list[Step] = [(0.0, opening)] if opening else []
        for at in range(0, sent, self.a_chunk):
            part = min(self.a_chunk, sent - at)
            key = "reasoning_content" if at < self.reasoning else "content"
            data = self._chunk(number, {key: "x" * part})
            steps.append((GAP * self.a_chunk if at else FIRST, data if opening or at else head() + data))
        return steps

    def _ending(self, number: int, sent: int, outcome: str) -> list[Step]:
        if outcome == "stall":
            return [HOLD]
        if outcome == "drop":
            return [(GAP, b""), RESET]
        if outcome == "in_stream":
            return [(0.0, sse('{"error": {"message": "asked to fail", "code": 500}}') + sse("[DONE]") + chunked(b""))]
        reason = "stop" if outcome == "early" else "length"
        counts = {"prompt_tokens": self.told[number - 1].prompt_tokens, "completion_tokens": sent}
        usage = sse(json.dumps({"id": f"gen-{number}", "choices": [], "usage": counts})) if self.usage else b""
        finish = self._chunk(number, {}, reason)
        if self.separate_finish:
            return [(GAP, finish), (0.0, usage + sse("[DONE]") + chunked(b""))]
        return [(0.0, finish + usage + sse("[DONE]") + chunked(b""))]

    def _chunk(self, number: int, delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return sse(json.dumps({"id": f"gen-{number}", "choices": [choice]}))


def _json(data: Any, status: str = "200 OK") -> Sequence[Step]:
    body = json.dumps(data).encode()
    return [(0.0, head(status, kind="application/json", framing=f"content-length: {len(body)}") + body)]
