"""HTTP/1.1 framing: any split of the reads gives the same body, and nothing is unbounded."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.probe.framing import BadReply, Framing, Limits


def fed(parts: list[bytes], *, eof: bool = False) -> tuple[bytes, Framing]:
    framing = Framing()
    body = b"".join(framing.feed(part) for part in parts)
    if eof:
        framing.eof()
    return body, framing


_BODIES = st.lists(st.binary(min_size=1, max_size=30) | st.sampled_from([b"\r\n", b"\r\n0\r\n\r\n", b"0"]), max_size=6)


def _message(kind: str, chunks: list[bytes], extension: bytes, trailer: bytes) -> bytes:
    top = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n"
    body = b"".join(chunks)
    if kind == "length":
        return top + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    if kind == "close":
        return top + b"\r\n" + body
    pieces = [f"{len(chunk):X}".encode() + extension + b"\r\n" + chunk + b"\r\n" for chunk in chunks]
    return top + b"Transfer-Encoding: Chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n" + trailer + b"\r\n"


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["length", "close", "chunked"]),
    _BODIES,
    st.sampled_from([b"", b";a=b", b" "]),
    st.sampled_from([b"", b"X-T: 1\r\n"]),
    st.data(),
)
def test_any_split_gives_the_same_body(
    kind: str, chunks: list[bytes], extension: bytes, trailer: bytes, data: st.DataObject
) -> None:
    message = _message(kind, chunks, extension, trailer)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=10)))
    parts = [message[a:b] for a, b in pairwise([0, *cuts, len(message)])]
    body, framing = fed(parts, eof=kind == "close")
    assert body == b"".join(chunks)
    assert (framing.status, framing.headers["x-a"], framing.complete) == (200, "1, 2", True)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]),
)
def test_garbage_never_does_worse_than_bad_reply(garbage: bytes, start: bytes) -> None:
    framing, problems = Framing(Limits(headers=100, size_line=20, body=100, error_body=50)), []
    for byte in start + garbage:
        try:
            framing.feed(bytes([byte]))
        except BadReply as problem:
            problems.append(str(problem))
            break
    assert not any("\n" in problem for problem in problems)


def test_a_message_cut_off_is_not_complete() -> None:
    assert not fed([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc"], eof=True)[1].complete
    assert not fed([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"], eof=True)[1].complete
    assert not fed([b"HTTP/1.1 200 OK\r\ncontent-"], eof=True)[1].complete


def test_bare_line_feeds_are_taken() -> None:
    body, framing = fed([b"HTTP/1.0 200 OK\ncontent-length: 2\n\nab"])
    assert (body, framing.complete) == (b"ab", True)


def test_what_follows_the_message_is_ignored() -> None:
    body, framing = fed([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 500 No\r\n\r\n", b"more"])
    assert (body, framing.status) == (b"ab", 200)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_statuses_without_a_body(status: str) -> None:
    assert fed([f"HTTP/1.1 {status}\r\ncontent-length: 7\r\n\r\n".encode()])[1].complete


def test_an_empty_body_is_complete_with_its_headers() -> None:
    assert fed([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"])[1].complete


def test_the_same_length_twice_is_one_length() -> None:
    assert fed([b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na"])[0] == b"a"


def test_a_compressed_error_keeps_its_status() -> None:
    assert fed([b"HTTP/1.1 503 Busy\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx"])[1].status == 503
