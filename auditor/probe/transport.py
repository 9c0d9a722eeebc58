"""One HTTP/1.1 POST on an asyncio.Protocol: the load path, without an HTTP client library.

The request's bytes are built once, the connection is opened before the clock starts (connect and TLS apart), t0 is when
the last byte of the request was handed to the kernel, and each read is stored with the event loop's time; the meaning
of the bytes is worked out after the reply ended (`sse`, `tally`). One connection carries one request: no pool can queue
requests inside the client, and no idle connection can be closed under one.

Nothing here trusts the server: every wait has a deadline, every size a bound, and whatever goes wrong becomes a word of
`Sample.error` with a one-line detail. Only limits of this machine (open files, local ports) are raised.
"""

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor.errors import UsageError
from auditor.probe.framing import BadReply, Framing, Limits
from auditor.probe.sse import FirstToken
from auditor.probe.target import Address, Deadlines, Target, address_of, request_body, request_bytes

__all__ = [
    "Address",
    "Deadlines",
    "Exchange",
    "Places",
    "Target",
    "address_of",
    "exchange",
    "request_body",
    "request_bytes",
    "resolve",
]

Places = Sequence[tuple[int, tuple[Any, ...]]]

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")
_LINGER = 0.05
_ERROR_BODY_WAIT = 5.0


@dataclass(slots=True)
class Exchange:
    """One request and its reply, in times of the event loop.

    `connect` and `tls` are durations; `t0` is when the request's last byte was written; `reads` are body bytes with the
    time of the read that brought them; `closed` is when the reply's last byte or the end of the connection was seen;
    `complete` says that the HTTP message ended as framed, `done` that [DONE] was seen.
    """

    begun: float
    connect: float | None = None
    tls: float | None = None
    t0: float | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    done: bool = False
    closed: float | None = None
    error: str | None = None
    detail: str | None = None

    def fail(self, error: str, detail: str) -> None:
        """Note the first thing that went wrong."""
        if self.error is None:
            self.error, self.detail = error, detail


# ---------------------------------------------------------------------------------------------------------- connection


async def resolve(host: str, port: int) -> Places:
    """(family, socket address) pairs of a host. Loopback names and literal addresses need no resolver (RFC 6761)."""
    if host == "localhost" or host.endswith(".localhost"):
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port, 0, 0))]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(info[0], info[4]) for info in infos]


async def _open_socket(places: Places) -> socket.socket:
    """A connected non-blocking socket to the first place that answers; raises the last OSError."""
    loop = asyncio.get_running_loop()
    problem: OSError = OSError("the host has no address")
    for family, place in places:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            _raise_if_ours(error)
            problem = error
            continue
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, place)
        except OSError as error:
            sock.close()
            _raise_if_ours(error)
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def _raise_if_ours(error: OSError) -> None:
    """Running out of file descriptors or ports is this machine's limit, never the server's fault."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise UsageError("this machine allows too few open files for the load; raise it, for example: ulimit -n 65536")
    if error.errno == errno.EADDRNOTAVAIL:
        raise UsageError("this machine has no free local ports left; lower the concurrency or widen the port range")


async def exchange(
    address: Address,
    request: bytes,
    deadlines: Deadlines,
    *,
    record: Exchange | None = None,
    places: Places | None = None,
    sent: Callable[[], None] | None = None,
    limits: Limits | None = None,
) -> Exchange:
    """Send one request and read its reply to the end; `sent` is called just before the request is written.

    Returns the record whatever the server does. When cancelled, the record (pass your own to keep it) is marked
    `cancelled` with all that was read, and the cancellation goes on. Raises UsageError for limits of this machine.
    """
    loop = asyncio.get_running_loop()
    record = record or Exchange(begun=loop.time())
    post = _Post(record, request, deadlines, limits or Limits())
    try:
        if await _connect(address, deadlines, record, places, post):
            if sent is not None:
                sent()
            post.send()
            await post.over
    except asyncio.CancelledError:
        post.interrupt()
        raise
    return record


async def _connect(
    address: Address, deadlines: Deadlines, record: Exchange, places: Places | None, post: "_Post"
) -> bool:
    """Open the connection for `post`; False if that failed, with the reason in the record."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadlines.connect):
            sock = await _open_socket(places or await resolve(address.host, address.port))
            opened = loop.time()
            record.connect = opened - record.begun
            await loop.create_connection(
                lambda: post,
                sock=sock,
                ssl=address.tls,
                server_hostname=address.host if address.tls else None,
                ssl_handshake_timeout=deadlines.connect if address.tls else None,
            )
            record.tls = loop.time() - opened if address.tls else None
            return True
    except TimeoutError:
        phase = "TLS handshake" if record.connect is not None else "connection"
        record.fail("tls" if record.connect is not None else "connect", f"no {phase} within {deadlines.connect:g} s")
    except (OSError, ssl.SSLError) as error:
        if record.connect is not None:
            record.fail("tls", tls_detail(error))
        else:
            record.fail("connect", f"{address.host}:{address.port}: {_reason(error)}")
    record.closed = loop.time()
    return False


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    return os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__


class _Post(asyncio.Protocol):
    """Sends one request and collects its reply; `over` is set once nothing more will be read."""

    def __init__(self, record: Exchange, request: bytes, deadlines: Deadlines, limits: Limits) -> None:
        self.loop = asyncio.get_running_loop()
        self.record = record
        self.over: asyncio.Future[None] = self.loop.create_future()
        self._request = request
        self._deadlines = deadlines
        self._framing = Framing(limits)
        self._first = FirstToken()
        self._tail = b""
        self._last = 0.0
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    # ------------------------------------------------------------------------------------------ asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self) -> None:
        """Write the request; t0 is now, or when the kernel has taken the last byte of a large one."""
        assert self._transport is not None
        if self._transport.is_closing():
            self._lost(None)
            return
        self._last = self.loop.time()
        self._transport.set_write_buffer_limits(high=0)
        self._transport.write(self._request)
        self._request = b""
        if not self._transport.get_write_buffer_size():
            self._sent(self.loop.time())
        else:
            self._arm(self._last + self._deadlines.first_token)

    def resume_writing(self) -> None:
        self._sent(self.loop.time())

    def data_received(self, data: bytes) -> None:
        now = self.loop.time()
        self._sent(self._last)  # an answer to a request that is still being written counts from its first byte
        self._last = now
        if self.over.done():
            return
        try:
            body = self._framing.feed(data)
        except BadReply as problem:
            self.record.fail("tls" if "speaks TLS" in str(problem) else "protocol", str(problem))
            self._finish()
            return
        if body:
            self.record.reads.append((now, body))
            self._look(body)
        if self._framing.complete:
            self.record.complete = True
            self._finish()
        elif self.record.done and not self._ending:
            self._ending = True
            self._arm(now + _LINGER)

    def eof_received(self) -> bool:
        self._lost(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)

    # ----------------------------------------------------------------------------------------------------------- inside

    def _sent(self, when: float) -> None:
        if self.record.t0 is None:
            self.record.t0 = self._last = when
            self._arm(self._last + min(self._deadlines.first_token, self._deadlines.total))

    def _look(self, body: bytes) -> None:
        """Notice, cheaply, the first token and [DONE]; a failed status is not a stream and gets no long wait."""
        if not self._first.seen:
            if (self._framing.status or 0) >= 300:
                self._first.seen = True
            if self._first.feed(body):  # from here on the next deadline may be nearer than the one that is set
                self._arm(self._limit()[0])
        recent = self._tail + body
        if b"[DONE]" in recent and _DONE.search(recent):
            self.record.done = True
        self._tail = recent[-16:]

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._check)

    def _check(self) -> None:
        """A deadline came: end the request, or wait on if a read has moved the deadline since."""
        self._timer = None
        if self.over.done():
            return
        if self._ending:
            self._finish()
            return
        limit, word, detail = self._limit()
        if self.loop.time() < limit:
            self._arm(limit)
            return
        if (self._framing.status or 0) < 300:
            self.record.fail(word, detail)
        self._finish()

    def _limit(self) -> tuple[float, str, str]:
        """The next deadline, its word and its detail."""
        waits, t0 = self._deadlines, self.record.t0
        if t0 is None:
            return (
                self._last + waits.first_token,
                "timeout",
                f"the request was not taken within {waits.first_token:g} s",
            )
        if (self._framing.status or 0) >= 300:
            return self._last + _ERROR_BODY_WAIT, "protocol", "the error's body never ended"
        if not self._first.seen:
            ends = (t0 + waits.first_token, "timeout", f"no token within {waits.first_token:g} s")
        else:
            ends = (self._last + waits.gap, "stalled", f"the stream stood still for {waits.gap:g} s")
        total = (t0 + waits.total, "timeout", f"the reply was not over within {waits.total:g} s")
        return min(ends, total)

    def _lost(self, exc: Exception | None) -> None:
        if self.over.done():
            return
        self._framing.eof()
        self.record.complete = self._framing.complete
        if isinstance(exc, ssl.SSLError):
            self.record.fail("tls", tls_detail(exc))
        elif not self.record.complete and not self.record.done:
            self.record.fail("cut_off", self._cut(exc))
        self._finish()

    def _cut(self, exc: Exception | None) -> str:
        how = "reset the connection" if isinstance(exc, ConnectionError) else "closed the connection"
        if self._framing.status is None:
            return f"the server {how} before it answered"
        return f"the server {how} in the middle of the reply"

    def _finish(self) -> None:
        record = self.record
        record.status, record.headers = self._framing.status, self._framing.headers
        record.closed = self.loop.time() if not self._ending or self._framing.complete else None
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self.over.done():
            self.over.set_result(None)

    def interrupt(self) -> None:
        """End the request now, because the user or the stop rule said so."""
        self.record.fail("cancelled", "the run ended before the reply did")
        self._finish()


def tls_detail(error: BaseException) -> str:
    """Why TLS failed, and what to do about it."""
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message}); verify_tls: false accepts it"
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text or "HTTP_REQUEST" in text:
        return "the port does not speak TLS; use http:// in endpoint.url"
    return f"TLS failed: {text}"
