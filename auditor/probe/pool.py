"""The connections of one load: opened before its clock starts, carried from request to request, closed at its end."""

import asyncio
from dataclasses import dataclass, field

from auditor.probe.connection import Connection, Places, Unreachable, open_connection
from auditor.probe.receive import Receiver
from auditor.probe.target import Address, Deadlines

__all__ = ["Pool"]

_AT_ONCE = 64  # connections opened at the same time: a listening queue is 100 or 128 long on many servers


@dataclass(slots=True)
class Pool:
    """Connections to `address`; each is one request's at a time, and no request waits for another's."""

    address: Address
    deadlines: Deadlines = field(default_factory=Deadlines)
    places: Places | None = None
    receiver: Receiver = field(default_factory=Receiver)
    _idle: list[Connection] = field(default_factory=list)

    async def fill(self, count: int) -> None:
        """Open connections until `count` wait, or one cannot be opened: the requests will tell why.

        Raises UsageError for limits of this machine.
        """
        for start in range(len(self._idle), count, _AT_ONCE):
            opening = (self._open() for _ in range(min(_AT_ONCE, count - start)))
            done = await asyncio.gather(*opening, return_exceptions=True)
            self._idle += [one for one in done if isinstance(one, Connection)]
            failed = next((one for one in done if isinstance(one, BaseException)), None)
            if isinstance(failed, Unreachable):
                return
            if failed is not None:
                raise failed

    async def take(self, *, fresh: bool = False) -> Connection:
        """A connection for one request. Raises Unreachable, or UsageError for limits of this machine."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._open()

    def give(self, connection: Connection) -> None:
        """Keep a connection whose reply is over for a further request."""
        connection.rest()
        self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that wait and stop reading."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self.receiver.close()

    async def _open(self) -> Connection:
        return await open_connection(self.address, self.places, self.receiver, self.deadlines.connect)
