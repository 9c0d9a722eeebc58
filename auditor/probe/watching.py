"""The server's own metrics around and during a load. A page that fails costs the page, never the load."""

import asyncio
from collections.abc import Awaitable, Callable

from auditor.errors import ToolError
from auditor.measurement import Snapshot

__all__ = ["Pages", "Snap"]

Snap = Callable[[float, str], Awaitable[Snapshot | None]]

_DRAIN_EVERY = 0.2
_REST, _LONGEST_REST = 4.0, 10.0  # times as long as the page took to read, and seconds at the most


class Pages:
    """The snapshots of one load; `snap` reads one (seconds since the load began, phase), None reads nothing."""

    def __init__(self, snap: Snap | None) -> None:
        self.taken: list[Snapshot] = []
        self._snap = snap
        self._loop = asyncio.get_running_loop()
        self._began = self._rested = self._loop.time()

    def begin(self) -> None:
        """The load begins now."""
        self._began = self._rested = self._loop.time()

    async def before(self) -> None:
        """One snapshot before the load."""
        await self._take(0.0, "before")

    async def during(self) -> None:
        """One while it runs, less often where the page is slow: reading it shares the load's loop."""
        begun = self._loop.time()
        if begun >= self._rested:
            await self._take(begun - self._began, "during")
            self._rested = self._loop.time() + min(_REST * (self._loop.time() - begun), _LONGEST_REST)

    async def drained(self, wait: float) -> None:
        """The last snapshot, once the server has nothing running or waiting, or `wait` seconds are over: engines move
        some counters (preemptions) only when a request has reported.
        """
        until = self._loop.time() + wait
        while (snapshot := await self._take(self._loop.time() - self._began, "after")) is not None:
            busy = snapshot.values.get("running", 0.0) + snapshot.values.get("waiting", 0.0)
            if not busy or self._loop.time() >= until:
                return
            self.taken.pop()
            await asyncio.sleep(_DRAIN_EVERY)

    async def _take(self, at: float, phase: str) -> Snapshot | None:
        if self._snap is None:
            return None
        try:
            snapshot = await self._snap(at, phase)
        except ToolError:
            raise
        except Exception:
            return None
        if snapshot is not None:
            self.taken.append(snapshot)
        return snapshot
