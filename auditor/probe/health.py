"""How the client itself is doing while it measures: late timers, requests in flight, CPU.

A client that is late reports its own delay as the server's. The lag of the event loop is how much later than asked a
timer fires; every read waits at least as long.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from auditor.measurement import ClientHealth

__all__ = ["Health", "undisturbed"]

_EVERY = 0.05


class Health:
    """Watches one load on the clock that `now` reads. `sent` and `ended` count the requests in flight."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.inflight = 0
        self.peak = 0
        self._lags: list[float] = []
        self._now = now
        self._wall_began, self._cpu_began = time.monotonic(), time.process_time()

    def sent(self) -> None:
        """One more request is in flight."""
        self.inflight += 1
        self.peak = max(self.peak, self.inflight)

    def ended(self) -> None:
        """One fewer."""
        self.inflight -= 1

    async def watch(self) -> None:
        """Sample the loop's lag until cancelled."""
        while True:
            due = self._now() + _EVERY
            await asyncio.sleep(_EVERY)
            self._lags.append(max(0.0, self._now() - due))

    def result(self, clock: str, late_reads: float | None = None) -> ClientHealth:
        """What was seen, the reads being timed by `clock`. In virtual time the CPU share means nothing."""
        wall, cpu = time.monotonic() - self._wall_began, time.process_time() - self._cpu_began
        lags = sorted(self._lags)
        return ClientHealth(
            loop_lag_p99=lags[int(0.99 * (len(lags) - 1))] if lags else None,
            loop_lag_max=lags[-1] if lags else None,
            peak_inflight=self.peak,
            cpu_share=cpu / wall if clock != "virtual" and wall > 0 else None,
            clock=clock,
            late_reads=late_reads,
        )


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection in here: one that walks through all that a load holds stops every stream meanwhile."""
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
