"""One reply on its way out: turns the engine's tokens into bytes, and misbehaves where the spec says so."""

import json
from dataclasses import dataclass

from auditor.emulator.http import LAST_CHUNK, Exchange, chunk, json_response
from auditor.emulator.record import RequestRecord
from auditor.emulator.scheduler import Job
from auditor.emulator.tokens import REPLY_TEXTS, reply_text
from auditor.emulator.wire import DONE, Usage, Wire, event

__all__ = ["Manner", "Reply"]

TEXTS = len(REPLY_TEXTS)
COALESCE = 117  # SGLang's detokenizer now and then hands two tokens on together; here the 61st of so many waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one reply is sent. `cut` says what happens when half of the tokens are out: drop, stall or error."""

    stream: bool
    buffered: bool = False
    usage: bool = False
    continuous: bool = False
    details: bool = False
    inflate: int = 1
    cut: str | None = None


class Reply:
    """Receives a job's tokens (`emit`) and writes them to its exchange."""

    def __init__(self, exchange: Exchange, wire: Wire, job: Job, manner: Manner, record: RequestRecord) -> None:
        self._exchange = exchange
        self._wire = wire
        self._job = job
        self._manner = manner
        self._record = record
        self._sent = 0
        self._held = ""
        self._headed = False
        self._kept: list[bytes] = []
        self._events: list[bytes] = []
        self._plain = not (manner.continuous or manner.buffered or manner.cut or wire.sglang)
        self._times = record.times.append
        self._counts = record.counts.append

    def open(self) -> None:
        """Send the head of the stream before the first token, as vLLM does."""
        if self._manner.stream and not self._manner.buffered and self._exchange.open:
            self._headed = True
            self._exchange.write(self._exchange.stream_head())

    def emit(self, count: int, at: float, done: bool) -> None:
        """Take `count` tokens; the common case is one precomputed event and one write."""
        first = self._sent
        self._sent = first + count
        self._times(at)
        self._counts(count)
        if self._events and count == 1 and not done and self._exchange.open:
            self._exchange.write(self._events[first % TEXTS])
            return
        if done:
            self._record.finish_reason = self._reason()
            self._record.note(self._job, at)
        if not self._exchange.open:
            return
        if self._manner.stream:
            self._stream(first, count, done)
        elif self._manner.cut and self._sent * 2 >= self._job.target:
            self._misbehave(self._manner.cut)
        elif done:
            usage = self._usage() if self._manner.usage else None
            whole = self._wire.whole(reply_text(0, self._sent), self._reason(), usage)
            self._exchange.respond(json_response(whole))

    def _reason(self) -> str:
        return "length" if self._job.output >= self._job.limit else "stop"

    def _usage(self) -> Usage:
        cached = self._job.cached if self._manner.details else None
        return Usage(self._job.prompt, self._sent * self._manner.inflate, cached)

    def _stream(self, first: int, count: int, done: bool) -> None:
        events: list[bytes] = []
        counts = self._usage() if self._manner.continuous else None
        if first == 0:
            if self._wire.chat:
                before = Usage(self._job.prompt, 0, counts.cached) if counts else None
                events.append(self._wire.role(before))
            if self._plain:
                self._events = [chunk(self._wire.token(text)) for text in REPLY_TEXTS]
        if self._manner.cut and self._sent * 2 >= self._job.target:
            self._write(events)
            self._misbehave(self._manner.cut)
            return
        events += self._token_events(first, count, done, counts)
        if done:
            if self._manner.usage:
                events.append(self._wire.usage(self._usage()))
            events.append(DONE)
        self._write(events, LAST_CHUNK if done else b"")
        if done:
            self._exchange.end()

    def _token_events(self, first: int, count: int, done: bool, counts: Usage | None) -> list[bytes]:
        text = self._held + reply_text(first, count)
        self._held = ""
        finish = self._reason() if done else None
        if not self._wire.sglang:
            return [self._wire.token(text, finish, counts)]
        if not done and self._sent % COALESCE == 61:
            self._held = text
            return []
        if not self._wire.chat:
            return [self._wire.token(text, finish, counts)]
        events = [self._wire.token(text, None, counts)] if text else []
        return [*events, self._wire.closing(finish)] if finish else events

    def _write(self, events: list[bytes], tail: bytes = b"") -> None:
        data = b"".join(map(chunk, events)) + tail
        if self._manner.buffered:
            self._kept.append(data)
            if not tail:
                return
            data, self._kept = b"".join(self._kept), []
        if not self._headed:
            data = self._exchange.stream_head() + data
            self._headed = True
        if data:
            self._exchange.write(data)

    def _misbehave(self, cut: str) -> None:
        if self._record.fault:
            return
        self._record.fault = cut
        exchange = self._exchange
        if cut == "drop":
            exchange.reset()
        elif cut == "error":
            message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            error = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
            if self._manner.stream:
                exchange.write(chunk(event(json.dumps(error))) + chunk(DONE) + LAST_CHUNK)
                exchange.end()
            else:
                exchange.respond(json_response(error, 500))
        else:
            exchange.write = _nothing  # silence, with the connection open


def _nothing(_data: bytes) -> None:
    return None
