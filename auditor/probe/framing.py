"""HTTP/1.1 response framing (RFC 9112), fed with whatever reads the socket gives. Pure: no sockets, no clock.

Every split of the same bytes gives the same body, and everything is bounded: a server cannot make the client keep more
than `Limits` says.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BadReply", "Framing", "Limits"]

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?")
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
_NO_BODY = (204, 304)


class BadReply(Exception):
    """The bytes are no acceptable HTTP/1.1 reply; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most bytes kept of one reply: headers (1xx and trailers included), one chunk-size line, body, an error's body."""

    headers: int = 65_536
    size_line: int = 4_096
    body: int = 64 * 1024 * 1024
    error_body: int = 65_536


@dataclass(slots=True)
class Framing:
    """One reply. `feed` returns the body bytes that a read holds; `complete` says that the message ended as framed.

    Transfer-Encoding wins over Content-Length; without either the body ends with the connection (RFC 9112, 6.3).
    Interim 1xx replies are skipped. Bytes after the end are no part of it; `extra` says that there were some. `keeps`
    says that the server will take another request on this connection once the message is complete.
    """

    limits: Limits = field(default_factory=Limits)
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    extra: bool = False
    body_bytes: int = 0
    _minor: int = 1
    _rest: bytes = b""
    _spent: int = 0
    _state: str = "headers"
    _left: int = 0

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`. Raises BadReply where the bytes break the rules or the bounds."""
        if self.complete:
            self.extra = self.extra or bool(data)
            return b""
        if self._state == "size" and not self._rest and (body := _one_chunk(data)):
            self._count(len(body))
            return body
        if self._state == "headers":
            data = self._read_headers(data)
        if self._state in ("headers", "end"):
            self.extra = self._state == "end" and bool(data)
            return b""
        body = self._read_chunked(data) if self._state != "body" else self._read_plain(data)
        self._count(len(body))
        return body

    def eof(self) -> None:
        """The peer closed: the end of a close-delimited body, and too early for any other."""
        if self._state == "body" and self._left < 0:
            self.complete = True

    @property
    def counted(self) -> bool:
        """True if the body's length was announced, so that its end does not show in its bytes."""
        return self._state == "body" and self._left >= 0

    @property
    def between(self) -> bool:
        """True if the next byte begins a chunk."""
        return self._state == "size" and not self._rest

    def pass_over(self, size: int) -> None:
        """Count bytes of whole chunks that somebody else has read. Raises BadReply where the body is too large."""
        self._count(size)

    @property
    def keeps(self) -> bool:
        """A server that counts the requests of a connection (Keep-Alive: max) serves each from a thread of its own:
        connections that wait would hold all of them, so there one connection carries one request.
        """
        said = {word.strip().lower() for word in self.headers.get("connection", "").split(",")}
        open_still = "close" not in said if self._minor else "keep-alive" in said
        counted = "max=" in self.headers.get("keep-alive", "").lower()
        return self.complete and not self.extra and self._left >= 0 and open_still and not counted

    def _count(self, size: int) -> None:
        self.body_bytes += size
        failed = self.status is not None and self.status >= 300
        if failed and self.body_bytes > self.limits.error_body:
            self.complete = self.extra = True
        elif self.body_bytes > self.limits.body:
            raise BadReply(f"the reply is larger than {self.limits.body} bytes")

    # ------------------------------------------------------------------------------------------------------- headers

    def _read_headers(self, data: bytes) -> bytes:
        """Take header blocks until the final one; returns what follows it."""
        data = self._rest + data
        self._rest = b""
        while True:
            _refuse_garbage(data)
            end = _HEADER_END.search(data, 0, self.limits.headers + 4)
            if end is None:
                if len(data) + self._spent > self.limits.headers:
                    raise BadReply(f"the headers are larger than {self.limits.headers} bytes")
                self._rest = data
                return b""
            block, data = data[: end.start()], data[end.end() :]
            self._spent += end.end()
            if self._spent > self.limits.headers:
                raise BadReply(f"the headers are larger than {self.limits.headers} bytes")
            self._minor, status, headers = _parse_block(block)
            if status == 101:
                raise BadReply("the server switched to another protocol (101)")
            if status >= 200:
                self._begin(status, headers)
                return data

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Choose how the body ends."""
        self.status, self.headers = status, headers
        packed = headers.get("content-encoding", "identity").strip().lower()
        if status < 300 and packed not in ("", "identity"):
            raise BadReply(f"the reply is compressed ({packed}) although identity was asked for: a proxy holds it back")
        coding = headers.get("transfer-encoding", "").strip().lower()
        if status in _NO_BODY:
            self._state, self.complete = "end", True
        elif coding == "chunked":
            self._state = "size"
        elif coding not in ("", "identity"):
            raise BadReply(f"the transfer encoding is {coding!r}, identity was asked for")
        elif "content-length" in headers:
            self._state, self._left = "body", _content_length(headers["content-length"])
            self.complete = self._left == 0
        else:
            self._state, self._left = "body", -1

    # ---------------------------------------------------------------------------------------------------------- body

    def _read_plain(self, data: bytes) -> bytes:
        if self._left < 0:
            return data
        body = data[: self._left]
        self._left -= len(body)
        self.complete = self._left == 0
        self.extra = len(body) < len(data)
        return body

    def _read_chunked(self, data: bytes) -> bytes:
        """Chunk by chunk; states are size (a size line), chunk (its bytes), gap (its line end) and trailer."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size, parts = 0, len(data), []
        while at < size and not self.complete:
            if self._state == "chunk":
                piece = data[at : at + self._left]
                parts.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = "gap"
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._keep(data[at:])
                break
            self._read_line(data[at:end].removesuffix(b"\r"))
            at = end + 1
        self.extra = at < size and self.complete
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _keep(self, rest: bytes) -> None:
        """Keep an unfinished line for the next read, within bounds."""
        if self._state == "gap" and rest != b"\r":
            raise BadReply("a chunk is longer than its size line says")
        limit = self.limits.headers if self._state == "trailer" else self.limits.size_line
        if len(rest) > limit:
            raise BadReply(f"a line of the chunked framing is longer than {limit} bytes")
        self._rest = rest

    def _read_line(self, line: bytes) -> None:
        if self._state == "gap":
            if line:
                raise BadReply("a chunk is longer than its size line says")
            self._state = "size"
        elif self._state == "size":
            match = _SIZE.fullmatch(line)
            if match is None:
                raise BadReply(f"broken chunk size {line[:40]!r}")
            self._left = int(match[1], 16)
            self._state = "chunk" if self._left else "trailer"
        else:
            self._spent += len(line) + 2
            if self._spent > self.limits.headers:
                raise BadReply(f"the trailers are larger than {self.limits.headers} bytes")
            self.complete = not line


def _one_chunk(data: bytes) -> bytes:
    """What `data` holds if it is one whole chunk without extensions, as servers write an event; b"" if not."""
    end = data.find(b"\r\n", 1, 18)
    size = len(data) - end - 4
    if end < 0 or size <= 0 or data[:end].lower() != b"%x" % size or not data.endswith(b"\r\n"):
        return b""
    return data[end + 2 : -2]


def _refuse_garbage(data: bytes) -> None:
    """Say at once what answers when it is no HTTP/1.x server, rather than waiting for the end of its headers."""
    if data[:2] in (b"\x15\x03", b"\x16\x03"):
        raise BadReply("the port speaks TLS; use https:// in endpoint.url")
    head = b"HTTP/1."
    if data[: len(head)] != head[: len(data)]:
        raise BadReply(f"not an HTTP/1.1 reply: it starts with {data[:24]!r}")


def _parse_block(block: bytes) -> tuple[int, int, dict[str, str]]:
    """Minor version, status and headers (lower-case names, repeated ones joined by a comma) of one header block."""
    first, *lines = block.replace(b"\r\n", b"\n").split(b"\n")
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadReply(f"broken status line {first[:60]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            raise BadReply(f"broken header line {line[:60]!r}")
        key, text = name.strip().lower().decode("latin-1"), value.strip().decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return int(match[1]), int(match[2]), headers


def _content_length(value: str) -> int:
    """One length, or the same one repeated."""
    lengths = {part.strip() for part in value.split(",")}
    only = lengths.pop()
    if lengths or not (only.isascii() and only.isdigit()) or len(only) > 15:
        raise BadReply(f"broken Content-Length {value[:40]!r}")
    return int(only)
