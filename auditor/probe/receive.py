"""Reads of many connections, each with the time at which its bytes reached this machine.

On plain Linux sockets the kernel stamps what arrives (SO_TIMESTAMPNS, socket(7)), so a client that is busy with other
streams is not late with any. The stamp counts on the wall's clock; each batch of reads measures how far that is from
the event loop's, and a time before the last look at the connections or after now, as a clock that was set gives, is
drawn to there. Where there is no stamp the time of the read stands for it, and where the loop's clock is not the real
one (tests in virtual time) the loop's clock alone counts.

One epoll of our own holds the connections, because a loop spends more on each callback than a read costs. While reads
follow each other closely, and only with stamps, it rests for a moment between looks and takes what came in between.
Short reads of which a stream need not know at once are put aside for it: nearly all reads of a load are such.
"""

import asyncio
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

__all__ = ["ASIDE", "SHORT", "Counting", "Receiver", "Stream", "real_time"]

_STAMP = getattr(socket, "SO_TIMESTAMPNS", 35)  # include/uapi/asm-generic/socket.h
_TIMESPEC = struct.Struct("@ll")
_SPACE = 64  # bytes for the stamp and its header
_READ = 65_536  # bytes of a connection that a look takes
_READABLE = getattr(select, "EPOLLIN", 1)
_NEWS = (select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET) if hasattr(select, "epoll") else 0
_BATCH = 1024  # connections of a look
_REST = 0.001  # seconds
_WHILE = 0.002  # seconds of other work between two looks: a token's bytes rarely come twice in it
_BUSY = 4  # reads a rest from which on resting pays
_MANY = 128  # connections from which on a rest is twice as long
_OVERDUE = 0.005  # seconds: of bytes that waited so long, those that came before them did too
_LOOKS = 32  # looks after which this is asked
SHORT = 1024  # bytes of a read that may be put aside
ASIDE = 128  # reads of a stream that are put aside before it is told


class Counting(Protocol):
    """Takes reads whose meaning is known at sight; False for any other."""

    def take(self, at: float, data: bytes) -> bool: ...


class Stream(Protocol):
    """Whoever a connection's bytes are for.

    Reads that `counter` takes are its own, and the stream is not told.
    A short read that ends in one of `quiet` is put into `aside`, as (time, bytes), and the stream is not told; it finds
    it there when it is told of a later read, or looks. `waiting` is the receiver's: reads that it has yet to hand out.
    """

    counter: Counting | None
    quiet: tuple[bytes, ...]
    aside: list[tuple[float, bytes]]
    waiting: int

    def received(self, at: float, data: bytes) -> None:
        """Bytes came at `at`, loop time; none of them: the peer closed its side."""

    def lost(self, problem: OSError) -> None:
        """The connection broke."""


def real_time(loop: asyncio.AbstractEventLoop) -> Callable[[], float] | None:
    """What the loop's clock reads, in full resolution; None if the loop has a time of its own."""
    if type(loop).time is asyncio.BaseEventLoop.time or type(loop).__module__.partition(".")[0] == "uvloop":
        return time.monotonic
    return None


class Receiver:
    """Watches connections and hands their bytes on. `now` is the clock of all times.

    `reads` counts reads of open loads, `unstamped` those of them that the kernel did not time, `overdue` those whose
    last bytes waited over 5 ms. Bytes that wait together bear the stamp of the last of them: the first came sooner.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = real_time(self._loop) or self._loop.time
        self.reads = self.unstamped = self.overdue = 0
        self._stamps = self.now is time.monotonic and hasattr(select, "epoll")
        self._streams: dict[int, tuple[Callable[[int, int], tuple[bytes, list[Any], int, Any]], Stream]] = {}
        self._looked = self._emptied = self._since = self.now()
        self._looks = 0
        self._came: deque[tuple[Stream, float, bytes | OSError]] = deque()
        self._handing_out = False
        self._resting: asyncio.TimerHandle | None = None
        # A machine stamps nothing until some socket asks, and takes a moment to begin: one that stays asks first.
        self._asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if self._stamps else None
        if self._asking is not None:
            self.prepare(self._asking)
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            self._loop.add_reader(self._epoll.fileno(), self._ready)

    @property
    def clock(self) -> str:
        """What timed the reads: "kernel", "loop" or "virtual"."""
        if self.now is not time.monotonic:
            return "virtual"
        return "kernel" if self._stamps and self.unstamped * 100 <= self.reads else "loop"

    @property
    def late_reads(self) -> float | None:
        """The share of reads that came too late for each of their bytes to have its own time; None without stamps."""
        return self.overdue / self.reads if self.clock == "kernel" and self.reads else None

    def prepare(self, sock: socket.socket) -> None:
        """Ask the kernel to time what this socket receives; best before it connects."""
        if self._stamps:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _STAMP, 1)
            except OSError:
                self._stamps = False

    def add(self, sock: socket.socket, stream: Stream) -> None:
        """Hand what `sock` receives to `stream` from now on."""
        fd = sock.fileno()
        self._streams[fd] = sock.recvmsg, stream
        if self._epoll is not None:
            self._epoll.register(fd, _NEWS)
        else:
            self._loop.add_reader(fd, self._read_one, fd)

    def remove(self, sock: socket.socket) -> None:
        """Stop watching `sock`; before it is closed."""
        fd = sock.fileno()
        if self._streams.pop(fd, None) is None:
            return
        if self._epoll is not None:
            self._epoll.unregister(fd)
        else:
            self._loop.remove_reader(fd)

    def keep_up(self) -> None:
        """Read what has come if the last look was a while ago: for whoever does many things in a row."""
        if self.now() - self._looked < _WHILE or self._epoll is None or self._epoll.closed:
            return
        if self._look() and not self._handing_out:
            self._handing_out = True
            self._loop.call_soon(self._hand_out)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._asking is not None:
            self._asking.close()
        self._streams.clear()
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        elif self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
        if self._epoll is not None:
            self._epoll.close()

    # ------------------------------------------------------------------------------------------------------------ reads

    def _ready(self) -> None:
        """Something came: read it, and rest if the last looks came so fast that each found next to nothing."""
        self._look()
        self._hand_out()
        self._looks += 1
        if not self._stamps or self._looks < _LOOKS or self._resting is not None:
            return
        since, self._since, self._looks = self._since, self._looked, 0
        if self._looked - since < _LOOKS * _REST / _BUSY:
            assert self._epoll is not None
            self._loop.remove_reader(self._epoll.fileno())
            self._rest()

    def _rest(self) -> None:
        """Each of many streams gives a token less often: there the rest may be longer and still bring one at a time."""
        pause = _REST if len(self._streams) < _MANY else 2 * _REST
        self._resting = self._loop.call_later(pause, self._rested)

    def _rested(self) -> None:
        self._rest()
        count = self._look()
        self._hand_out()
        if count < _BUSY and self._resting is not None:
            assert self._epoll is not None
            self._resting.cancel()
            self._resting = None
            self._loop.add_reader(self._epoll.fileno(), self._ready)

    def _look(self) -> int:
        """Read every connection that has something once; how many there were."""
        assert self._epoll is not None
        now = self.now()
        ready = self._epoll.poll(0, _BATCH)
        self._read(ready)
        self._looked = now
        if len(ready) < _BATCH:  # else some that had come before this look are still to be read
            self._emptied = now
        self.reads += len(ready)
        return len(ready)

    def _read_one(self, fd: int) -> None:
        self._read([(fd, _READABLE)])
        self._hand_out()

    def _read(self, ready: Iterable[tuple[int, int]]) -> None:
        """Read each of these once. In one loop, without calls of our own: nothing else is done as often."""
        streams, came, now, emptied = self._streams, self._came.append, self.now, self._emptied
        before = time.monotonic_ns()
        offset = time.time_ns() - before  # the wall's clock less the loop's
        for fd, news in ready:
            receive, stream = streams[fd]
            try:
                data, extra, _, _ = receive(_READ, _SPACE)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as problem:
                stream.waiting += 1
                came((stream, now(), problem))
                continue
            at = now()
            if extra:
                seconds, fraction = _TIMESPEC.unpack(extra[0][2])
                stamp = (seconds * 1_000_000_000 + fraction - offset) * 1e-9
                if stamp < at:
                    if at - stamp > _OVERDUE:
                        self.overdue += 1
                    at = stamp if stamp > emptied else emptied
            elif data:
                self.unstamped += 1
            if data and (news != _READABLE or len(data) == _READ):
                self._read_on(fd)
            counter = stream.counter
            if counter is not None and not stream.waiting and counter.take(at, data):
                continue
            if stream.waiting or not data.endswith(stream.quiet) or len(data) > SHORT or len(stream.aside) >= ASIDE:
                stream.waiting += 1
                came((stream, at, data))
            else:
                stream.aside.append((at, data))

    def _read_on(self, fd: int) -> None:
        """There is more to read: the end of the connection, or bytes for which one read was too short. Tell it again,
        because news that came before a read are told once.
        """
        if self._epoll is not None:
            self._epoll.modify(fd, _NEWS)

    def _hand_out(self) -> None:
        """Give what came to those whom it is for; they may take long, and more may come meanwhile."""
        self._handing_out = True
        while self._came:
            stream, at, what = self._came.popleft()
            stream.waiting -= 1
            if isinstance(what, bytes):
                stream.received(at, what)
            else:
                stream.lost(what)
            self.keep_up()
        self._handing_out = False
