"""Server-sent events (WHATWG HTML, 9.2): from the bytes of a streamed reply to events with their arrival times.

Pure. CRLF, LF and CR end lines; comments, several data lines and a byte-order mark are as the specification says; what
the events mean is `tally`'s business. The result depends on the bytes alone, never on how the reads split them, nor on
when they were looked at: bytes are kept until something asks what they hold, or until they are many.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from auditor.probe.likeness import Counter
from auditor.probe.tally import EVENT_LIMIT, Event, Reply, Tally, clip, whole_reply

__all__ = ["Body", "EventStream", "events", "read_reply", "timed_events"]

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"
_KEEP = 64 * 1024  # bytes of a body that are kept before they are looked at
_HEAD = 1024 * 1024  # bytes of a body that shows no event, kept to say what it is instead


class EventStream:
    """Cuts a body that comes in pieces into its events. `held` is how many bytes of an unfinished one are kept."""

    __slots__ = ("_at", "_data", "_lines", "_name", "_past", "_rest", "_started")

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._lines = 0
        self._past = 0
        self._at = 0.0
        self._started = False

    @property
    def between(self) -> bool:
        """True if the next byte begins an event."""
        return self._started and not (self._rest or self._name or self._data)

    @property
    def held(self) -> int:
        return len(self._rest) + self._lines

    def feed(self, piece: bytes, *, whole: bool | None = None) -> Iterator[Event]:
        """The events that end in `piece`, with their offsets in the whole body; to be read to the end.

        `whole` tells a body that is over, whole or cut off, from one of which more may come. In a whole one an
        unfinished event counts too: the specification drops an event that no blank line ends, but real servers forget
        that line at the end of a stream.
        """
        body = self._rest + piece if self._rest else piece
        at, size, past, name, data = 0, len(body), self._past, self._name, self._data
        if not self._started:
            if size < len(_BOM) and _BOM.startswith(body) and whole is None:
                self._rest = body
                return
            self._started, at = True, len(_BOM) if body.startswith(_BOM) else 0
        plain = b"\r" not in body
        while at < size:
            if plain and not data and not name and body.startswith(b"data: ", at):  # what nearly all events look like
                end = body.find(b"\n", at)
                if end >= 0 and body.startswith(b"\n", end + 1):
                    yield Event("message", body[at + 6 : end], past + end + 2)
                    at = end + 2
                    continue
            match = _LINE.match(body, at)  # not finditer: it would look for a line's end from each character
            if match is None or (match.end() == size and match[2] == b"\r" and whole is None):
                break  # after a CR an LF may follow that belongs to it
            line, at = match[1], match.end()
            if line:
                name = _field(line, name, data)
                self._lines += len(line) if line.startswith(b"data") else 0
                continue
            if data:
                yield Event(name or "message", b"\n".join(data), past + at)
            name, data, self._lines = "", [], 0
        if whole and at < size:
            name, at = _field(body[at:], name, data), size
        if whole and data:
            yield Event(name or "message", b"\n".join(data), past + size)
        self._rest, self._past, self._name, self._data = body[at:], past + at, name, data

    def timed(
        self, reads: Sequence[tuple[float, bytes]], *, whole: bool | None = None
    ) -> Iterator[tuple[Event, float]]:
        """As `feed`, each event with the time of the read that ended it."""
        end, rest = self._past + len(self._rest), iter(reads)
        for event in self.feed(b"".join([data for _, data in reads]), whole=whole):
            while event.end > end:
                self._at, data = next(rest)
                end += len(data)
            yield event, self._at
        if reads:
            self._at = reads[-1][0]


def _field(line: bytes, name: str, data: list[bytes]) -> str:
    """Add a data line to `data`; returns the event's name so far. Comments and other fields change nothing."""
    key, _, value = line.partition(b":")
    if key == b"data":
        data.append(value.removeprefix(b" "))
    elif key == b"event":
        return value.removeprefix(b" ").decode("utf-8", "replace")
    return name


def events(body: bytes, *, last: bool = True) -> Iterator[Event]:
    """The events of a body; without `last` it was cut off."""
    return EventStream().feed(body, whole=last)


def timed_events(reads: Sequence[tuple[float, bytes]], *, complete: bool) -> Iterator[tuple[Event, float]]:
    """Each event with the time of the read that ended it; of a reply that was cut off, whole events only."""
    return EventStream().timed(reads, whole=complete)


class Body:
    """The body of one reply as it comes: (time, bytes) reads, kept for later and looked at in pieces of bounded size.

    `tally` is what the events looked at so far add up to.
    """

    __slots__ = ("_events", "_head", "_kept", "_reads", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self._events: EventStream | None = EventStream()
        self._reads: list[tuple[float, bytes]] = []
        self._kept = 0
        self._head = b""

    def add(self, at: float, data: bytes) -> None:
        """Take the bytes of a read."""
        self._reads.append((at, data))
        self._kept += len(data)
        if self._kept > _KEEP and self._events is not None and self._kept > self._events.held:
            self.look()

    def counter(self) -> Counter | None:
        """What may count the reads from here on that are each one whole chunk of the HTTP framing, holding one event
        that is like an earlier one; None where an event is unfinished, or none was learned from. Only between chunks.
        """
        self.look()
        return self.tally.counter() if self._events is not None and self._events.between else None

    def look(self, *, whole: bool | None = None) -> None:
        """Weigh all events that have ended by now; `whole` is as in `EventStream.feed`."""
        reads, self._reads, self._kept = self._reads, [], 0
        if not self.tally.seen and len(self._head) < _HEAD:
            self._head += b"".join([data for _, data in reads])[: _HEAD - len(self._head)]
        if self._events is None:
            return
        self._weigh(self._events, reads)
        for event, at in self._events.timed((), whole=whole):
            self.tally.add(event, at)
        if self._events.held > EVENT_LIMIT:
            self.tally.give_up()
            self._events = None

    def _weigh(self, events: EventStream, reads: Sequence[tuple[float, bytes]]) -> None:
        """Weigh what is like an earlier event as it is, and cut all else into events.

        What follows a large unfinished event is cut with as many bytes at once as it has, for each cut reads it anew.
        """
        between, held = events.between, events.held
        others: list[tuple[float, bytes]] = []
        size = 0
        for at, data in reads:
            rest = self._weigh_alike(at, data) if between and not others else data
            if rest:
                others.append((at, rest))
                size += len(rest)
            if others and size >= held:
                self._cut(events, others)
                between, held, others, size = events.between, events.held, [], 0
        if others:
            self._cut(events, others)

    def _weigh_alike(self, at: float, data: bytes) -> bytes:
        """Weigh the events at the start of `data` that are like an earlier one; returns what follows them."""
        tally, like, start = self.tally, self.tally.like, 0
        if like is None:
            return data
        while (end := data.find(b"\n\n", start)) >= 0 and (size := like.characters(data[start:end])):
            tally.add_alike(size, at)
            start = end + 2
        return data[start:]

    def _cut(self, events: EventStream, reads: Sequence[tuple[float, bytes]]) -> None:
        for event, at in events.timed(reads):
            self.tally.add(event, at)

    def head(self) -> bytes:
        """The beginning of a body that showed no event so far."""
        return self._head + b"".join([data for _, data in self._reads])

    def reply(self, *, complete: bool, content_type: str = "", asked: int | None = None) -> Reply:
        """The reply, once everything is in; a body that is no event stream is named for what it is."""
        self.look(whole=complete)
        self.tally.asked = asked
        if self.tally.seen:
            return self.tally.reply(complete=complete)
        return _not_a_stream(self._head, complete, content_type)


def read_reply(
    reads: Iterable[tuple[float, bytes]], *, complete: bool, content_type: str = "", asked: int | None = None
) -> Reply:
    """What a whole reply holds: its (time, body bytes) reads, in one go."""
    body = Body()
    for at, data in reads:
        body.add(at, data)
    return body.reply(complete=complete, content_type=content_type, asked=asked)


def _not_a_stream(body: bytes, complete: bool, content_type: str) -> Reply:
    """A reply without any event: a JSON body (its usage is still the server's count), a page, or nothing."""
    text = body.decode("utf-8", "replace").lstrip("\ufeff").strip()
    try:
        message = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        return whole_reply(message)
    if not complete:
        return Reply(error="cut_off", detail="the connection closed before the first event")
    if not text:
        return Reply(error="protocol", detail="the reply is empty")
    kind = content_type or "something without a content type"
    return Reply(error="protocol", detail=clip(f"answered {kind}, not an event stream: {text[:120]}"))
