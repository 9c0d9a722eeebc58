"""Server-sent events (WHATWG HTML, 9.2): from the bytes of a streamed reply to events with their arrival times.

Pure. CRLF, LF and CR end lines; comments, several data lines and a byte-order mark are as the specification says; what
the events mean is `tally`'s business. The result depends on the bytes alone, never on how the reads split them.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from auditor.probe.tally import Event, Reply, Tally, clip, decides, whole_reply

__all__ = ["FirstToken", "events", "read_reply", "settle", "timed_events"]

_FIRST_LIMIT = 256 * 1024  # bytes of an unfinished first event: more are no token, and each further look costs more

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


def events(body: bytes | bytearray, start: int = 0, *, last: bool = True) -> Iterator[Event]:
    """The events of `body` from offset `start`; with `last` the body is over and an unfinished event counts too.

    The specification drops an event that no blank line ends; real servers forget that line at the end of a stream.
    """
    name, at = "", start
    data: list[bytes] = []
    if start == 0 and body.startswith(_BOM):
        at = len(_BOM)
    while match := _LINE.match(body, at):  # not finditer: it would look for a line's end from each of its characters
        line, at = match[1], match.end()
        if line:
            name = _field(line, name, data)
            continue
        if data:
            yield Event(name or "message", b"\n".join(data), at)
        name, data = "", []
    if last and at < len(body):
        name = _field(bytes(body[at:]), name, data)
    if last and data:
        yield Event(name or "message", b"\n".join(data), len(body))


def _field(line: bytes, name: str, data: list[bytes]) -> str:
    """Add a data line to `data`; returns the event's name so far. Comments and other fields change nothing."""
    key, _, value = line.partition(b":")
    if key == b"data":
        data.append(value.removeprefix(b" "))
    elif key == b"event":
        return value.removeprefix(b" ").decode("utf-8", "replace")
    return name


def timed_events(reads: Sequence[tuple[float, bytes]], *, complete: bool) -> Iterator[tuple[Event, float]]:
    """Each event with the time of the read that ended it; of a reply that was cut off, whole events only."""
    ends = list(accumulate(len(data) for _, data in reads))
    for event in events(b"".join(data for _, data in reads), last=complete):
        yield event, reads[bisect_left(ends, event.end)][0]


def read_reply(
    reads: Sequence[tuple[float, bytes]], *, complete: bool, content_type: str = "", asked: int | None = None
) -> Reply:
    """What a whole reply holds: its (time, body bytes) reads, in one go."""
    tally = Tally(asked=asked)
    for event, at in timed_events(reads, complete=complete):
        tally.add(event, at)
    return settle(tally, reads, complete=complete, content_type=content_type)


def settle(tally: Tally, reads: Sequence[tuple[float, bytes]], *, complete: bool, content_type: str) -> Reply:
    """The reply of a tally that has seen all events; a body that is no event stream is named for what it is."""
    if tally.seen:
        return tally.reply(complete=complete)
    return _not_a_stream(b"".join(data for _, data in reads), complete, content_type)


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


class FirstToken:
    """Watches a body as it arrives for the first event that decides (a token, an error, the end), and nothing else."""

    __slots__ = ("_rest", "seen")

    def __init__(self) -> None:
        self._rest = bytearray()
        self.seen = False

    def feed(self, data: bytes) -> bool:
        """Take a read; True from the first deciding event on."""
        if self.seen:
            return True
        self._rest += data
        if b"\n" in data or b"\r" in data:
            end = 0
            for event in events(self._rest, last=False):
                end = event.end
                self.seen = self.seen or decides(event)
            del self._rest[: max(end, _past_comments(self._rest))]
        self.seen = self.seen or len(self._rest) > _FIRST_LIMIT
        return self.seen


def _past_comments(body: bytearray) -> int:
    """Where the comments and blank lines at the start of `body` end: a server may send them for minutes."""
    at = 0
    while (match := _LINE.match(body, at)) and (not match[1] or match[1].startswith(b":")):
        at = match.end()
    return at
