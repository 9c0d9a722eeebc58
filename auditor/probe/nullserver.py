"""A server that costs next to nothing and tells what it did, for the client to try itself on: run as a program.

    python -I -S nullserver.py        writes its port as a line, serves until its stdin ends

Every POST gets a chat stream of max_tokens tokens, one to all streams every TICK seconds. The reply's id holds how many
nanoseconds lie between the arrival of the request's last byte (as the kernel noted it, where it does) and the sending
of the first token; what a client measures beyond that is its own. Standard library only, and
nothing of this project: it must start within a few hundredths of a second.
"""

import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

__all__ = ["TICK", "main"]

TICK = 0.004
_STAMPS = 35  # SO_TIMESTAMPNS of Linux; the socket module does not name it
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TOKEN = b'data: {"id":"%d","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
_END = (
    b'data: {"id":"%d","choices":[{"index":0,"delta":{},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class _Stream:
    """One connection: what has come of a request, and how many tokens of its reply are still to be sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.text = b""
        self.arrived = self.left = self.total = self.delay = 0

    def read(self) -> bool:
        """Take what has come; False once the peer has closed."""
        data, notes, _, _ = self.sock.recvmsg(65536, 64)
        arrived = next((_nanoseconds(note) for _, kind, note in notes if kind == _STAMPS), time.time_ns())
        self.text += data
        head, found, body = self.text.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            self.text = b""
            self.arrived = arrived
            self.left = self.total = _tokens(body)
        return bool(data)

    def tick(self) -> bool:
        """The next token of a reply that is not over, with the head before the first and the end after the last."""
        if not self.left:
            return True
        head = b""
        if self.left == self.total:
            head, self.delay = _HEAD, max(0, time.time_ns() - self.arrived)
        self.left -= 1
        end = b"" if self.left else _chunk(_END % (self.delay, self.total)) + _chunk(b"")
        self.sock.sendall(head + _chunk(_TOKEN % self.delay) + end)
        return True


def _nanoseconds(note: bytes) -> int:
    """A struct timespec as nanoseconds."""
    seconds, rest = struct.unpack_from("@ll", note)
    return int(seconds) * 10**9 + int(rest)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def _tokens(body: bytes) -> int:
    _, _, rest = body.partition(b'"max_tokens"')
    digits = rest.lstrip(b": ")
    return max(1, int(digits[: len(digits) - len(digits.lstrip(b"0123456789"))] or 1))


def _serve(listener: socket.socket, until: int) -> None:
    """Serve until the file descriptor `until` can be read: its end is ours."""
    poll, streams = select.poll(), dict[int, _Stream]()
    for number in (listener.fileno(), until):
        poll.register(number, select.POLLIN)
    due = time.monotonic() + TICK
    while True:
        for number, _ in poll.poll(max(0.0, 1e3 * (due - time.monotonic()))):
            if number == until:
                return
            if number == listener.fileno():
                stream = _Stream(listener.accept()[0])
                stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                streams[stream.sock.fileno()] = stream
                poll.register(stream.sock.fileno(), select.POLLIN)
            else:
                _step(streams, number, poll, _Stream.read)
        if time.monotonic() >= due:
            due = time.monotonic() + TICK
            for number in list(streams):
                _step(streams, number, poll, _Stream.tick)


def _step(streams: dict[int, _Stream], number: int, poll: select.poll, step: Callable[[_Stream], bool]) -> None:
    """One step of a stream; a peer that is gone is forgotten."""
    try:
        if step(streams[number]):
            return
    except OSError:
        pass
    poll.unregister(number)
    streams.pop(number).sock.close()


def main() -> None:
    """Listen, tell the port, serve."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, _STAMPS, 1)
    except OSError:
        pass
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(listener.getsockname()[1], flush=True)
    _serve(listener, sys.stdin.fileno())
    os._exit(0)


if __name__ == "__main__":
    main()
