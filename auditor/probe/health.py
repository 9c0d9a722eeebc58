"""How the client itself is doing while it measures: late timers, requests in flight, CPU.

A client that is late reports its own delay as the server's. The lag of the event loop is how much later than asked a
timer fires; every read waits at least as long.
"""

import asyncio
import time

from auditor.measurement import ClientHealth

__all__ = ["Health"]

_EVERY = 0.05


class Health:
    """Watches one load. `sent` and `ended` count the requests in flight."""

    def __init__(self) -> None:
        self.inflight = 0
        self.peak = 0
        self._lags: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._loop_began = self._loop.time()
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
            due = self._loop.time() + _EVERY
            await asyncio.sleep(_EVERY)
            self._lags.append(max(0.0, self._loop.time() - due))

    def result(self) -> ClientHealth:
        """What was seen. On a clock that is not the wall's, the CPU share means nothing and is left out."""
        elapsed = self._loop.time() - self._loop_began
        wall, cpu = time.monotonic() - self._wall_began, time.process_time() - self._cpu_began
        real = abs(elapsed - wall) <= 0.1 + 0.1 * wall
        lags = sorted(self._lags)
        return ClientHealth(
            loop_lag_p99=lags[int(0.99 * (len(lags) - 1))] if lags else None,
            loop_lag_max=lags[-1] if lags else None,
            peak_inflight=self.peak,
            cpu_share=cpu / wall if real and wall > 0 else None,
            clock="loop" if real else "virtual",
        )
