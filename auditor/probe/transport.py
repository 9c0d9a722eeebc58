"""One HTTP/1.1 POST on a connection of a pool: the load path, without an HTTP client library.

The request's bytes are built once, the connection is open before the clock starts (connect and TLS apart), t0 is when
the last byte of the request was handed to the kernel, and each read has the time at which it came (see `receive`).
Events that are like an earlier one are counted at the read; what any other means is worked out after all that came
with it is read.

Nothing here trusts the server: every wait has a deadline, every size a bound, and whatever goes wrong becomes a word of
`Sample.error` with a one-line detail. Only limits of this machine (open files, local ports) are raised.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from auditor.probe.connection import Connection, Unreachable, tls_detail
from auditor.probe.framing import BadReply, Framing, Limits
from auditor.probe.likeness import Counter
from auditor.probe.pool import Pool
from auditor.probe.sse import Body
from auditor.probe.target import Deadlines, Target

__all__ = ["Deadlines", "Exchange", "Target", "exchange"]

_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_LINGER = 0.05
_ERROR_BODY_WAIT = 5.0
_GOES_ON = (b"}\n\n\r\n", b"}\n\n", b"}\r\n\r\n\r\n")  # ends of reads that end a JSON event and no reply
_STALE_AFTER = 1.0
_TRIES = 4  # looks after which no event is hoped to be like an earlier one


@dataclass(slots=True)
class Exchange:
    """One request and its reply, in times of the receiver.

    `connect` and `tls` are durations, 0 on a connection that was kept; `t0` is when the request's last byte was
    written; `body` is what came; `closed` is when the reply's last byte or the end of the connection was seen;
    `complete` says that the HTTP message ended as framed, `done` that [DONE] was seen. `due` is when an open loop meant
    to send it.
    """

    begun: float
    due: float | None = None
    connect: float | None = None
    tls: float | None = None
    t0: float | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = field(default_factory=Body)
    reads: int = 0
    complete: bool = False
    done: bool = False
    closed: float | None = None
    error: str | None = None
    detail: str | None = None

    def fail(self, error: str, detail: str) -> None:
        """Note the first thing that went wrong."""
        if self.error is None:
            self.error, self.detail = error, detail


async def exchange(
    pool: Pool,
    request: bytes,
    record: Exchange,
    *,
    sent: Callable[[], None] | None = None,
    limits: Limits | None = None,
) -> None:
    """Send one request and read its reply to the end; `sent` is called just before the request is written.

    The record is filled whatever the server does. When cancelled, it is marked `cancelled` with all that was read, and
    the cancellation goes on. Raises UsageError for limits of this machine.

    A server may close a connection that waits at the very moment at which it is used: a request that meets this, before
    any byte of a reply, is sent once more on a connection of its own (RFC 9112, 9.3.1).
    """
    now = pool.receiver.now
    try:
        pool.receiver.keep_up()
        connection = await _connected(pool, record)
        if sent is not None:
            sent()
        post = _Post(pool, connection, request, record, limits or Limits())
        if await post.answered():
            connection = await pool.take(fresh=True)
            await _Post(pool, connection, request, record, limits or Limits(), again=False).answered()
    except Unreachable as problem:
        record.connect = problem.connect
        record.fail(problem.word, problem.detail)
        record.closed = now()
    except asyncio.CancelledError:
        record.fail("cancelled", "the run ended before the reply did")
        record.closed = now()
        raise


async def _connected(pool: Pool, record: Exchange) -> Connection:
    """A connection that is open when the request is due."""
    now = pool.receiver.now
    try:
        connection = await pool.take()
        while record.due is not None and (wait := record.due - now()) > 0:
            await asyncio.sleep(wait)
            if not connection.open:
                connection = await pool.take()
    except Unreachable:
        record.begun = max(record.begun, record.due or 0.0)
        await asyncio.sleep(record.begun - now())
        raise
    kept = connection.used > 0
    record.connect = 0.0 if kept else connection.opening.connect
    record.tls = 0.0 if kept else connection.opening.tls
    return connection


class _Post:
    """Sends one request and collects its reply; `over` is set once nothing more will be read."""

    __slots__ = (
        "_again",
        "_answered",
        "_began",
        "_connection",
        "_counter",
        "_deadlines",
        "_ending",
        "_framing",
        "_last",
        "_loop",
        "_now",
        "_pool",
        "_request",
        "_tail",
        "_timer",
        "_tries",
        "over",
        "record",
    )

    def __init__(
        self,
        pool: Pool,
        connection: Connection,
        request: bytes,
        record: Exchange,
        limits: Limits,
        *,
        again: bool = True,
    ) -> None:
        self._loop, self._now = asyncio.get_running_loop(), pool.receiver.now
        self.record = record
        self.over = False
        self._answered: asyncio.Future[bool] = self._loop.create_future()
        self._pool, self._connection, self._deadlines = pool, connection, pool.deadlines
        self._request = request
        self._again = again
        self._framing = Framing(limits)
        self._counter: Counter | None = None
        self._tries = _TRIES
        self._tail = b"\n"  # the body's first line begins a line too; what a text holds later does not
        self._began = self._last = 0.0
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None

    async def answered(self) -> bool:
        """Send and wait; True if the connection was stale and the request is to be sent once more."""
        try:
            self._began = self._last = self._now()
            self.record.t0 = None
            self._connection.send(self, self._request)
            self._await_taking()
            self._request = b""
            return await self._answered
        except asyncio.CancelledError:
            self._gather()
            self.record.fail("cancelled", "the run ended before the reply did")
            self._finish(self._now())
            raise

    def _await_taking(self) -> None:
        if self.record.t0 is None and not self.over:
            self._arm(self._last + self._deadlines.first_token)

    # ------------------------------------------------------------------------------------------- the connection's calls

    def written(self, at: float) -> None:
        """t0 is `at`: the kernel was given the request's last byte."""
        if self.record.t0 is None:
            self._sent(at)

    def received(self, at: float, data: bytes) -> None:
        """The reply may be over, or much has come."""
        self._connection.aside.append((at, data))
        self._gather()

    def ended(self, problem: Exception | None) -> None:
        if self.over:
            return
        now, record, framing = self._now(), self.record, self._framing
        if not record.reads and not self._connection.aside and self._stale(now):
            self._finish(now, stale=True)
            return
        if self._gather():
            return
        framing.eof()
        record.complete = framing.complete
        if isinstance(problem, ssl.SSLError):
            record.fail("tls", tls_detail(problem))
        elif not record.complete and not record.done:
            how = "reset the connection" if isinstance(problem, ConnectionError) else "closed the connection"
            where = "before it answered" if framing.status is None else "in the middle of the reply"
            record.fail("cut_off", f"the server {how} {where}")
        self._finish(now)

    # ----------------------------------------------------------------------------------------------------------- inside

    def _stale(self, now: float) -> bool:
        """True if the server may have closed the connection as one that nobody used."""
        waited = self._connection.used > 1 or self._began - self._connection.idle_since > _STALE_AFTER
        return self._again and waited and now - self._began < _STALE_AFTER

    def _sent(self, when: float) -> None:
        self.record.t0 = self._last = when
        self._arm(self._next_look(when))

    def _gather(self) -> bool:
        """Unwrap what came so far, and end the request if the reply is over; whether it is."""
        if self.over:
            return True
        record, framing = self.record, self._framing
        raw, self._connection.aside = self._connection.aside, []
        headed = framing.status is not None
        if raw and record.t0 is None:  # an answer to a request that is still being written counts from its first byte
            self._sent(self._began)
        try:
            self._settle()
            self._unwrap(raw)
        except BadReply as problem:
            record.fail("tls" if "speaks TLS" in str(problem) else "protocol", str(problem))
            self._finish(self._last)
            return True
        if framing.complete:
            record.complete = True
            self._finish(self._last)
        elif record.done and not self._ending:
            self._ending = True
            self._connection.listen(None, ())
            self._arm(self._now() + _LINGER)
        elif framing.status is not None and framing.status < 300:
            self._listen()
        elif framing.status is not None and not headed:  # a failed status is no stream, and gets no long wait
            self._arm(self._last + _ERROR_BODY_WAIT)
        return self.over

    def _settle(self) -> None:
        """Take over what was counted since the last look."""
        reads, size = self._counter.settle() if self._counter is not None else (0, 0)
        if reads:
            tally = self.record.body.tally
            tally.seen += reads
            self.record.reads += reads
            self._last = tally.at[-1]
            self._framing.pass_over(size)

    def _unwrap(self, raw: Sequence[tuple[float, bytes]]) -> None:
        """Take the body out of the reads."""
        feed, add = self._framing.feed, self.record.body.add
        self.record.reads += len(raw)
        for at, data in raw:
            self._last = at
            if body := feed(data):
                add(at, body)
                if self._tail or b"[DONE]" in body or not body.endswith(b"\n"):
                    self._notice_done(body)

    def _listen(self) -> None:
        """Let events that are like an earlier one be counted as they come; where none are, do not be told of each.

        The end of a body whose length was announced does not show in its bytes: there each read is told.
        """
        framing = self._framing
        counter = self.record.body.counter() if framing.between and not self._tail else None
        self._tries = _TRIES if counter is not None else self._tries - 1
        hush = counter is None and self._tries <= 0 and not framing.counted
        self._counter = counter
        self._connection.listen(counter, _GOES_ON if hush else ())

    def _notice_done(self, body: bytes) -> None:
        """[DONE] may end a reply on a connection that stays open; it may come in pieces."""
        recent = (self._tail or b"\n") + body  # nothing kept: a line begins
        if b"[DONE]" in recent and _DONE.search(recent):
            self.record.done = True
        self._tail = b"" if recent.endswith(b"\n") else recent[-16:]

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        """A deadline came: end the request, or wait on if what was read since has moved it."""
        self._timer = None
        if self.over:
            return
        now = self._now()
        if self._gather() or self._ending:
            self._finish(now)
            return
        self.record.body.look()
        limit, word, detail = self._limit()
        if now < limit:
            self._arm(self._next_look(now))
            return
        if (self._framing.status or 0) < 300:
            self.record.fail(word, detail)
        self._finish(now)

    def _next_look(self, now: float) -> float:
        """When to look at the deadlines again. Until the first token is known, at least once a gap: with the token the
        next deadline is a gap after it.
        """
        limit = self._limit()[0]
        return limit if self.record.body.tally.decided else min(limit, now + self._deadlines.gap)

    def _limit(self) -> tuple[float, str, str]:
        """The next deadline, its word and its detail."""
        waits, t0 = self._deadlines, self.record.t0
        if t0 is None:
            late = f"the request was not taken within {waits.first_token:g} s"
            return self._last + waits.first_token, "timeout", late
        if (self._framing.status or 0) >= 300:
            return self._last + _ERROR_BODY_WAIT, "protocol", "the error's body never ended"
        if not self.record.body.tally.decided:
            ends = (t0 + waits.first_token, "timeout", f"no token within {waits.first_token:g} s")
        else:
            ends = (self._last + waits.gap, "stalled", f"the stream stood still for {waits.gap:g} s")
        return min(ends, (t0 + waits.total, "timeout", f"the reply was not over within {waits.total:g} s"))

    def _finish(self, at: float, *, stale: bool = False) -> None:
        if self.over:
            return
        self.over = True
        record, framing = self.record, self._framing
        record.status, record.headers = framing.status, framing.headers
        record.closed = at if not self._ending or framing.complete else None
        if self._timer is not None:
            self._timer.cancel()
        if self._connection.open and framing.keeps and record.error is None:
            self._pool.give(self._connection)
        else:
            self._connection.close()
        if not self._answered.done():  # cancelled
            self._answered.set_result(stale)
