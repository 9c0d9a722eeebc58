"""A reply means the same however the network cuts it: random replies in random reads, against a plain parser.

The plain parser sees the whole reply at once, byte by byte, and knows for each byte of the body in which read it came.
"""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditor.emulator.clock import run_virtual
from auditor.probe.framing import Limits
from auditor.probe.sample import decode
from auditor.probe.tally import Reply
from auditor.probe.target import Deadlines
from auditor.probe.transport import Exchange, _Post

# ------------------------------------------------------------------------------------------------------ random replies

_TEXT = st.one_of(
    st.sampled_from(["x", " the", "\n\n", "data: [DONE]", '"}', "\\", "0\r\n\r\n", "}\n\n\r\n", "\U0001d11e", "é"]),
    st.text(max_size=6),
)
_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def _event(draw: st.DrawFn) -> str:
    """JSON of one event."""
    kind = draw(st.sampled_from(["token", "token", "token", "token", "role", "empty", "usage", "other"]))
    text = draw(_TEXT) if kind == "token" else ""
    delta: dict[str, Any] = {"content": text}
    message: dict[str, Any] = {"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    if kind == "role":
        delta["role"] = "assistant"
    elif kind == "usage":
        message = {"id": "r1", "choices": [], "usage": {"prompt_tokens": draw(st.integers(1, 99))}}
    elif kind == "other":
        message = {"id": "r1", "object": "ping", "content": "not an answer"}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(message, ensure_ascii=draw(st.booleans()), separators=separators)


@st.composite
def _body(draw: st.DrawFn) -> bytes:
    end = draw(_ENDS)
    parts: list[str] = [draw(st.sampled_from(["", "\ufeff", end]))]
    first = '{"id":"r1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}'
    for dumped in [first, *draw(st.lists(_event(), max_size=12))]:
        parts += draw(st.sampled_from([[], [], [f": ping{end}{end}"], [f"event: message{end}"], [f"id: 7{end}"]]))
        parts.append(f"data:{draw(st.sampled_from(['', ' ']))}{dumped}{end}{end}")
    stop = '{"id":"r1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    count = draw(st.sampled_from([None, 3]))
    parts.append(f"data: {stop}{end}{end}")
    if count is not None:
        parts.append(f'data: {{"choices":[],"usage":{{"prompt_tokens":7,"completion_tokens":{count}}}}}{end}{end}')
    parts.append(draw(st.sampled_from([f"data: [DONE]{end}{end}", f"data: [DONE]{end}", ""])))
    return "".join(parts).encode()


@dataclass(frozen=True)
class Wire:
    """A reply's bytes; where each byte of its body stands in them; whether the server closes at its end; where its
    chunks end.
    """

    raw: bytes
    places: list[int] = field(repr=False)
    closes: bool
    ends: list[int] = field(default_factory=list, repr=False)


@st.composite
def wires(draw: st.DrawFn) -> Wire:
    body = draw(_body())
    how = draw(st.sampled_from(["chunked", "chunked", "length", "close"]))
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    if draw(st.booleans()):
        head = "HTTP/1.1 100 Continue\r\n\r\n" + head
    if how != "chunked":
        head += f"content-length: {len(body)}\r\n" if how == "length" else ""
        raw = (head + "\r\n").encode()
        return Wire(raw + body, [len(raw) + at for at in range(len(body))], how == "close")
    raw, places = (head + "transfer-encoding: chunked\r\n\r\n").encode(), []
    chunks, ends = _cut(draw, body), [len(raw)]
    if draw(st.booleans()):  # as servers do: one event, one chunk
        chunks = [part + b"\n\n" for part in body.split(b"\n\n")]
        chunks[-1] = chunks[-1][:-2]
    for chunk in filter(None, chunks):
        raw += draw(st.sampled_from([f"{len(chunk):x}\r\n", f"{len(chunk):04X};a=b\r\n"])).encode()
        places += range(len(raw), len(raw) + len(chunk))
        raw += chunk + b"\r\n"
        ends.append(len(raw))
    return Wire(raw + b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n", places, False, ends)


def _cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces: a few, or byte by byte."""
    if draw(st.integers(0, 9)) == 0:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in itertools.pairwise([0, *cuts, len(data)]) if b > a]


# -------------------------------------------------------------------------------------------------------- plain parser


def plain(wire: Wire, ends: list[int]) -> tuple[list[float], dict[str, Any]]:
    """When each event that stands for a token came (the number of its read), and what the reply says besides."""
    body = bytes(wire.raw[place] for place in wire.places)
    arrivals: list[tuple[float, int]] = []
    said: dict[str, Any] = {"done": False, "finish": None, "usage": None}
    for data, end in _events(body):
        came = next(number for number, stop in enumerate(ends) if wire.places[end - 1] < stop)
        if said["done"]:
            continue
        if data == "[DONE]":
            said["done"] = True
            continue
        message = json.loads(data)
        said["usage"] = message.get("usage", said["usage"])
        for choice in message.get("choices", []):
            said["finish"] = choice["finish_reason"] or said["finish"]
            content, role = choice["delta"].get("content"), choice["delta"].get("role")
            if content or (content == "" and not role):
                arrivals.append((float(came), len(content)))
    counted = (said["usage"] or {}).get("completion_tokens")
    if counted is not None and counted < len(arrivals) and any(size for _, size in arrivals):
        arrivals = [(at, size) for at, size in arrivals if size]
    return [at for at, _ in arrivals], said


def _events(body: bytes) -> list[tuple[str, int]]:
    """Server-sent events as the specification reads, one byte at a time; an unfinished last one counts."""
    found: list[tuple[str, int]] = []
    at = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    line, data = b"", []

    def field_of(line: bytes) -> None:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" ").decode())

    while at < len(body):
        byte, at = body[at : at + 1], at + 1
        if byte not in b"\r\n":
            line += byte
            continue
        if byte == b"\r" and body[at : at + 1] == b"\n":
            at += 1
        if line:
            field_of(line)
        elif data:
            found.append(("\n".join(data), at))
            data.clear()
        line = b""
    field_of(line)
    return [*found, ("\n".join(data), len(body))] if data else found


# ------------------------------------------------------------------------------------------------------------ the test


def _read(reads: list[bytes], closes: bool, looks: list[bool]) -> tuple[Exchange, Reply]:
    """What the product makes of these reads, the n-th at time n + 1; before some, a deadline makes it look."""

    async def run() -> tuple[Exchange, Reply]:
        pool: Any = SimpleNamespace(
            receiver=SimpleNamespace(now=lambda: 0.0), deadlines=Deadlines(), give=lambda _one: None
        )
        connection: Any = SimpleNamespace(open=True, used=1, idle_since=0.0, close=lambda: None, aside=[])
        connection.send = lambda reader, _request: reader.written(0.0)
        connection.counter, connection.quiet = None, ()
        connection.listen = lambda counter, ends: vars(connection).update(counter=counter, quiet=ends)
        record = Exchange(begun=0.0)
        post = _Post(pool, connection, b"", record, Limits())
        waiting = asyncio.ensure_future(post.answered())
        await asyncio.sleep(0)
        for number, data in enumerate(reads):
            if looks[number % len(looks)] and not post.over and not record.done:
                post._check()
            if connection.counter is not None and connection.counter.take(float(number), data):
                continue
            if data.endswith(connection.quiet):
                connection.aside.append((float(number), data))
            else:
                post.received(float(number), data)
        if closes:
            post.ended(None)
        if not post.over:
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return record, decode(record, None)

    return run_virtual(run())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wires(), st.lists(st.booleans(), min_size=1, max_size=4), st.data())
def test_every_split_of_a_reply_gives_the_same_sample(wire: Wire, looks: list[bool], data: st.DataObject) -> None:
    reads = _cut(data.draw, wire.raw)
    if wire.ends and data.draw(st.booleans()):  # as most reads are: a chunk each
        reads = [wire.raw[a:b] for a, b in itertools.pairwise([0, *wire.ends, len(wire.raw)])]
    ends = list(itertools.accumulate(map(len, reads)))
    arrivals, said = plain(wire, ends)
    record, reply = _read(reads, wire.closes, looks)
    assert (record.error, record.status, record.complete) == (None, 200, True)
    assert list(reply.arrivals) == arrivals
    assert (reply.finish_reason, reply.server_id, reply.done) == (said["finish"], "r1", said["done"])
    usage = said["usage"] or {}
    assert reply.prompt_tokens == usage.get("prompt_tokens")
    whole_record, whole = _read([wire.raw], wire.closes, [False])
    assert (whole_record.error, whole_record.complete) == (None, True)
    assert len(whole.arrivals) == len(reply.arrivals)
    assert (whole.output_tokens, whole.first_tokens, whole.error) == (
        reply.output_tokens,
        reply.first_tokens,
        reply.error,
    )
