"""Connections of the load: opened before a request needs one, kept while the server keeps them, TLS by memory buffers.

Plain or TLS, a connection is a socket whose reads come from a `Receiver`, so both are timed alike. Limits of this
machine (open files, local ports) are raised as UsageError; whatever else fails is the server's answer.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from auditor.errors import UsageError
from auditor.probe.receive import ASIDE, SHORT, Counting, Receiver
from auditor.probe.target import Address

__all__ = ["Connection", "Places", "Reader", "Unreachable", "open_connection", "resolve"]

Places = Sequence[tuple[int, tuple[Any, ...]]]


class Unreachable(Exception):
    """No connection: the word for `Sample.error` (connect or tls), a one-line detail, and how long connecting took."""

    def __init__(self, word: str, detail: str, connect: float | None = None) -> None:
        super().__init__(detail)
        self.word, self.detail, self.connect = word, detail, connect


class Reader(Protocol):
    """Whoever waits for a reply on a connection. Times are those of the receiver."""

    def received(self, at: float, data: bytes) -> None:
        """Bytes of the reply came."""

    def ended(self, problem: Exception | None) -> None:
        """The server closed the connection, or it broke."""

    def written(self, at: float) -> None:
        """The kernel was given the last byte of the request at `at`."""


# ------------------------------------------------------------------------------------------------------------- opening


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


async def open_connection(address: Address, places: Places | None, receiver: Receiver, deadline: float) -> "Connection":
    """A connection that is ready for a request. Raises Unreachable, or UsageError for limits of this machine."""
    began, took = receiver.now(), None
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(deadline):
            sock = await _open_socket(places or await resolve(address.host, address.port), receiver)
            took = receiver.now() - began
            tls = None if address.tls is None else await _handshake(sock, address.tls, address.host)
            return Connection(sock, tls, receiver, Opening(took, receiver.now() - began - took))
    except TimeoutError:
        phase = "connection" if took is None else "TLS handshake"
        problem = Unreachable("connect" if took is None else "tls", f"no {phase} within {deadline:g} s", took)
    except (OSError, ssl.SSLError) as error:
        if took is None:
            problem = Unreachable("connect", f"{address.host}:{address.port}: {_reason(error)}")
        else:
            problem = Unreachable("tls", tls_detail(error), took)
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    if sock is not None:
        sock.close()
    raise problem


async def _open_socket(places: Places, receiver: Receiver) -> socket.socket:
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
            receiver.prepare(sock)
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


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    return os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__


# ----------------------------------------------------------------------------------------------------------------- TLS


class _Tls:
    """One side of a TLS session over memory buffers."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_hostname=host)

    def handshake(self) -> bool:
        """One step; True when it is over. Raises SSLError."""
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def outgoing(self) -> bytes:
        """Bytes that are to be sent."""
        return self._out.read()

    def incoming(self, data: bytes) -> None:
        """Bytes that came; none: the peer closed its side."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    def seal(self, data: bytes) -> bytes:
        """What to send so that the peer reads `data`."""
        self._session.write(data)
        return self._out.read()

    def plain(self) -> tuple[bytes, bool]:
        """What the peer said so far, and whether it said that this was all. Raises SSLError."""
        parts: list[bytes] = []
        try:
            while data := self._session.read(65_536):
                parts.append(data)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        return b"".join(parts), True


async def _handshake(sock: socket.socket, context: ssl.SSLContext, host: str) -> _Tls:
    loop, tls = asyncio.get_running_loop(), _Tls(context, host)
    try:
        while not tls.handshake():
            if said := tls.outgoing():
                await loop.sock_sendall(sock, said)
            tls.incoming(await loop.sock_recv(sock, 65_536))
    finally:
        if said := tls.outgoing():  # the end of the handshake, or the alert that says why there is none
            await loop.sock_sendall(sock, said)
    return tls


def tls_detail(error: BaseException) -> str:
    """Why TLS failed, and what to do about it."""
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = "name its authority in endpoint.ca_file; endpoint.verify_tls: false accepts it"
        return f"the certificate is not trusted ({error.verify_message}); {remedy}"
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text or "HTTP_REQUEST" in text:
        return "the port does not speak TLS; use http:// in endpoint.url"
    return f"TLS failed: {text}"


# ---------------------------------------------------------------------------------------------------------- connection


@dataclass(frozen=True, slots=True)
class Opening:
    """Seconds that connecting took, TCP and TLS."""

    connect: float
    tls: float


class Connection:
    """An open connection. `used` counts the requests it has carried, `idle_since` is when the last of them ended.

    Nobody may send anything on a connection that waits: whatever comes then (the server's end of it, a reply that
    nobody asked for) closes it. Reads of which the reader need not be told at once (`listen`) may wait in `aside` (see
    `receive.Stream`) until it takes them.
    """

    __slots__ = (
        "_counter",
        "_ends",
        "_loop",
        "_receiver",
        "_sock",
        "_tls",
        "_unsent",
        "_writing",
        "aside",
        "counter",
        "idle_since",
        "open",
        "opening",
        "quiet",
        "reader",
        "used",
        "waiting",
    )

    def __init__(self, sock: socket.socket, tls: _Tls | None, receiver: Receiver, opening: Opening) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock, self._tls, self._receiver = sock, tls, receiver
        self._unsent, self._writing = memoryview(b""), False
        self.opening = opening
        self.open, self.used, self.idle_since = True, 0, receiver.now()
        self.reader: Reader | None = None
        self._counter: Counting | None = None
        self._ends: tuple[bytes, ...] = ()
        self.counter: Counting | None = None
        self.quiet: tuple[bytes, ...] = ()
        self.aside: list[tuple[float, bytes]] = []
        self.waiting = 0
        receiver.add(sock, self)

    def send(self, reader: Reader, request: bytes) -> None:
        """Send a request whose reply is for `reader`; `written` may be called before this returns."""
        self.reader, self.used = reader, self.used + 1
        self._unsent = memoryview(request if self._tls is None else self._tls.seal(request))
        self._write()

    def listen(self, counter: Counting | None, ends: tuple[bytes, ...]) -> None:
        """Reads that `counter` takes, and those that end in one of `ends`, the reader need not be told of at once. TLS
        hides them from the receiver.
        """
        self._counter, self._ends = counter, ends
        self.counter, self.quiet = (counter, ends) if self._tls is None else (None, ())

    def rest(self) -> None:
        """The reply is over: wait for the next request."""
        self.reader, self.idle_since = None, self._receiver.now()
        self.listen(None, ())

    def close(self) -> None:
        """Close at once; nothing more is read or written."""
        if not self.open:
            return
        self.open, self.reader = False, None
        self._stop_writing()
        self._receiver.remove(self._sock)
        self._sock.close()

    # --------------------------------------------------------------------------------------------- the receiver's calls

    def received(self, at: float, data: bytes) -> None:
        if not self.open:
            return
        over = not data
        if self._tls is not None:
            try:
                data, over = self._opened(data)
            except ssl.SSLError as problem:
                self._end(problem)
                return
        if data:
            if self.reader is None:
                self.close()
            elif self._tls is not None and self._counter is not None and self._counter.take(at, data):
                pass
            elif self._tls is not None and self._may_wait(data):
                self.aside.append((at, data))
            else:
                self.reader.received(at, data)
        if over and self.open:
            self._end(None)

    def lost(self, problem: OSError) -> None:
        if self.open:
            self._end(problem)

    # ----------------------------------------------------------------------------------------------------------- inside

    def _opened(self, data: bytes) -> tuple[bytes, bool]:
        assert self._tls is not None
        self._tls.incoming(data)
        plain, over = self._tls.plain()
        if answer := self._tls.outgoing():  # a key update, say
            self._unsent = memoryview(bytes(self._unsent) + answer)
            self._write()
        return plain, over

    def _may_wait(self, data: bytes) -> bool:
        """What the receiver asks of a plain read, asked of what TLS held."""
        return data.endswith(self._ends) and len(data) <= SHORT and len(self.aside) < ASIDE

    def _end(self, problem: Exception | None) -> None:
        reader = self.reader
        self.close()
        if reader is not None:
            reader.ended(problem)

    def _write(self) -> None:
        """Hand the kernel what it takes, and the rest when it takes more.

        The reader is told when it was given the last bytes, not when that call came back: on one machine the server may
        get the core in between, and answer.
        """
        at = self._receiver.now()
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
                at = self._receiver.now() if self._unsent else at
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._sock.fileno(), self._write)
            return
        except OSError:  # the server closed: reading tells how, after what it may have answered before
            self._stop_writing()
            return
        self._stop_writing()
        if self.reader is not None:
            self.reader.written(at)

    def _stop_writing(self) -> None:
        self._unsent = memoryview(b"")
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())
