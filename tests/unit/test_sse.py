"""Events out of bytes: the specification's cases, and any split of the reads against a plain reference parser."""

import itertools
from bisect import bisect_left
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.probe.sse import Body, EventStream, events, read_reply, timed_events
from auditor.probe.tally import Event

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def cut(body: bytes, *, last: bool = True) -> list[tuple[str, bytes]]:
    return [(event.name, event.data) for event in events(body, last=last)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: a\n\n", [("message", b"a")]),
        (b"data:a\n\n", [("message", b"a")]),
        (b"data:  a\n\n", [("message", b" a")]),
        (b"data: a\r\n\r\n", [("message", b"a")]),
        (b"data: a\r\r", [("message", b"a")]),
        (b"data: a\r\n\ndata: b\n\r\n", [("message", b"a"), ("message", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", b"a")]),
        (b"data: a\ndata: b\n\n", [("message", b"a\nb")]),
        (b"data\n\n", [("message", b"")]),
        (b": ping\n\n:\n\ndata: a\n\n", [("message", b"a")]),
        (b"event: error\ndata: a\nid: 7\nretry: 3\nfoo: b\n\n", [("error", b"a")]),
        (b"event: x\n\ndata: a\n\n", [("message", b"a")]),
        (b"DATA: a\n\n", []),
        (b"", []),
    ],
)
def test_lines_become_events(body: bytes, expected: list[tuple[str, bytes]]) -> None:
    assert cut(body) == expected


def test_an_event_that_no_blank_line_ends_counts_only_if_the_body_is_over() -> None:
    assert cut(b"data: a\n\ndata: b") == [("message", b"a"), ("message", b"b")]
    assert cut(b"data: a\n\ndata: b", last=False) == [("message", b"a")]
    assert cut(b"data: a\n\ndata: b\n", last=False) == [("message", b"a")]


def test_events_of_one_read_share_its_time_and_a_split_event_has_the_last_ones() -> None:
    reads = [(1.0, b"data: a\n\ndata: b\n\nda"), (2.0, b"ta: c\n"), (3.0, b"\n")]
    assert [(event.data, at) for event, at in timed_events(reads, complete=True)] == [
        (b"a", 1.0), (b"b", 1.0), (b"c", 3.0),
    ]  # fmt: skip


def reference(body: bytes) -> list[tuple[str, bytes, int]]:
    """The specification, one byte at a time: (name, data, offset after the line end that dispatched it)."""
    found: list[tuple[str, bytes, int]] = []
    at = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    line, name, data = b"", "", []
    while at < len(body):
        byte = body[at : at + 1]
        at += 1
        if byte not in (b"\r", b"\n"):
            line += byte
            continue
        if byte == b"\r" and body[at : at + 1] == b"\n":
            at += 1
        if not line:
            if data:
                found.append((name or "message", b"\n".join(data), at))
            name, data = "", []
        elif not line.startswith(b":"):
            key, _colon, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if key == b"data":
                data.append(value)
            if key == b"event":
                name = value.decode("utf-8", "replace")
        line = b""
    return found


_PIECES = st.sampled_from(
    [b"data", b":", b": ", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"event", b"event: error\n", b"\xef\xbb\xbf",
     b"\xf0\x9f\x8e\xb5", b"\xc3", b"data: {}\n\n", b"data: [DONE]\n\n", b":ping\n\n", b"id: 1\n", b"x"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=40), st.data())
def test_any_stream_in_any_split_equals_the_reference(pieces: list[bytes], data: st.DataObject) -> None:
    body = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    bounds = [0, *cuts, len(body)]
    reads = [(float(n), body[a:b]) for n, (a, b) in enumerate(itertools.pairwise(bounds)) if b > a]
    expected = reference(body)
    assert [(event.name, event.data, event.end) for event in events(body, last=False)] == expected
    ends = [bounds[n + 1] for n in range(len(bounds) - 1) if bounds[n + 1] > bounds[n]]
    times = [at for _, at in timed_events(reads, complete=False)]
    assert times == [reads[bisect_left(ends, end)][0] for _, _, end in expected]


_STREAM = st.lists(st.sampled_from([TOKEN, b": ping\n\n", FINISH, b"data: [DONE]\n\n"]), max_size=8)


@settings(max_examples=100, deadline=None)
@given(_STREAM, st.data())
def test_looking_at_any_moment_tells_whether_there_was_a_token_and_changes_nothing(
    stream: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    bounds = [0, *cuts, len(whole)]
    reads = [(float(n), whole[a:b]) for n, (a, b) in enumerate(itertools.pairwise(bounds)) if b > a]
    deciding = [n for n, part in enumerate(stream) if part != b": ping\n\n"]
    first = sum(len(part) for part in stream[: deciding[0] + 1]) if deciding else len(whole) + 1
    body, came = Body(), 0
    for at, piece in reads:
        body.add(at, piece)
        came += len(piece)
        if data.draw(st.booleans()):
            body.look()
            assert body.tally.decided == (came >= first)
    assert body.reply(complete=True) == read_reply(reads, complete=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([TOKEN, TOKEN.replace(b"\n", b"\r\n"), b":\n\n"]), min_size=1, max_size=10), st.data())
def test_the_reply_does_not_depend_on_the_split(stream: list[bytes], data: st.DataObject) -> None:
    body = b"".join([*stream, TOKEN, FINISH])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    bounds = [0, *cuts, len(body)]
    reads = [(0.0, body[a:b]) for a, b in itertools.pairwise(bounds) if b > a]
    assert read_reply(reads, complete=True) == read_reply([(0.0, body)], complete=True)


def test_comments_for_minutes_cost_no_memory() -> None:
    body = Body()
    for _ in range(200_000):
        body.add(0.0, b": ping for minutes\n")
    assert not body.tally.decided
    assert sum(len(data) for _, data in body._reads) <= 64 * 1024 + 20
    assert len(body.head()) <= 1024 * 1024 + 64 * 1024 + 20
    body.add(1.0, TOKEN)
    assert body.reply(complete=False).arrivals == (1.0,)


def test_an_event_without_end_is_given_up() -> None:
    body = Body()
    for _ in range(300):  # 18 MiB in one line
        body.add(0.0, b"data: " + b"x" * 65_000)
    got = body.reply(complete=True)
    assert (got.error, "larger than" in (got.detail or "")) == ("protocol", True)


def test_a_long_line_is_no_problem() -> None:
    text = b"y" * 1_500_000
    body = b'data: {"choices":[{"delta":{"content":"' + text + b'"},"finish_reason":"stop"}]}\n\n'
    reads = [(float(n), body[at : at + 65536]) for n, at in enumerate(range(0, len(body), 65536))]
    got = read_reply(reads, complete=True)
    assert (got.error, got.arrivals) == (None, (reads[-1][0],))


def test_a_body_without_any_line_end_is_no_trap() -> None:
    """A search for line ends that begins anew at each byte would take hours."""
    assert cut(b"[" * 2_000_000) == []
    assert read_reply([(0.0, b"[" * 2_000_000)], complete=True, content_type="text/html").error == "protocol"


@pytest.mark.parametrize("piece", [(b"data: " + b"x" * 58 + b"\n") * 1000, b"data: " + b"x" * 64_994])
def test_an_event_that_never_ends_is_not_looked_at_again_and_again(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, feed = [], EventStream.feed

    def counted(self: EventStream, piece: bytes, *, whole: bool | None = None) -> Iterator[Event]:
        looked.append(len(self._rest) + len(piece))
        return feed(self, piece, whole=whole)

    monkeypatch.setattr(EventStream, "feed", counted)
    body = Body()
    for number in range(300):  # 19.5 MB in all, more than an event may have
        body.add(float(number), piece)
    assert body.reply(complete=True).error == "protocol"
    assert 16_000_000 < sum(looked) < 10 * 19_500_000  # at each piece anew: 150 times
