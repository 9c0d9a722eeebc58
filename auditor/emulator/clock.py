"""Time for the emulator: the wall's, or a virtual one that jumps to the next timer when nothing else is left to do."""

import asyncio
import os
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, TypeVar, TypeVarTuple, Unpack

__all__ = ["Clock", "VirtualTimeLoop", "clock_of", "run_virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
VIRTUAL_START = 1000.0  # loop time at which virtual time starts: not 0, so that "no time yet" cannot hide
VIRTUAL_EPOCH = 1_800_000_000.0  # the Unix time that is then shown
GRAIN = 0.001  # both uvloop and asyncio over epoll wait for whole milliseconds
SETTLE = 3  # polls that must find nothing before time jumps
STUCK_AFTER = 20.0  # real seconds without timers, input or helpers before a virtual run is called stuck


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` tells loop time; `epoch` is the Unix time at loop time 0; `grain` is how coarse the loop's timers are."""

    now: Callable[[], float]
    epoch: float
    grain: float = 0.0

    def unix(self, at: float) -> float:
        """Unix time, seconds."""
        return self.epoch + at

    def date(self) -> str:
        """The HTTP date of now."""
        return formatdate(self.unix(self.now()), usegmt=True)


def clock_of(loop: asyncio.AbstractEventLoop) -> Clock:
    """The clock of a loop: a fixed epoch in virtual time, the wall's otherwise."""
    if isinstance(loop, VirtualTimeLoop):
        return Clock(loop.time, VIRTUAL_EPOCH - VIRTUAL_START)
    # uvloop tells whole milliseconds; what it reads, finer, is the monotonic clock, as in asyncio's own loops.
    return Clock(time.monotonic, time.time() - time.monotonic(), GRAIN)


class _Selector(selectors.DefaultSelector):
    """A selector that never sleeps while timers are pending: it lets the loop's time jump instead."""

    jump: Callable[[float], None]
    helpers: Callable[[], int]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        # What was sent over loopback is readable at once on an idle machine; yield to let the kernel catch up.
        for _ in range(SETTLE):
            os.sched_yield()
            if ready := super().select(0):
                return ready
        while self.helpers():  # a thread works for this loop: its result must not come "later" than a timer
            if ready := super().select(0.001):
                return ready
        if timeout is None:
            ready = super().select(STUCK_AFTER)
            if not ready:
                raise RuntimeError("virtual time is stuck: no timer is set and nothing arrives")
            return ready
        self.jump(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time() stands still while anything can run and jumps to the next timer when nothing can.

    Real loopback sockets work as long as both ends live on this loop. Work in executor threads is waited for in real
    time.
    """

    def __init__(self) -> None:
        self._virtual_now = VIRTUAL_START
        self._helpers = 0
        selector = _Selector()
        selector.jump = self._jump
        selector.helpers = lambda: self._helpers
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_now

    def _jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    def run_in_executor(
        self, executor: Executor | None, func: "Callable[[Unpack[Ts]], T]", *args: "Unpack[Ts]"
    ) -> "asyncio.Future[T]":
        """As in asyncio, but counted: virtual time waits for the thread."""
        self._helpers += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._helper_done)
        return future

    def _helper_done(self, _future: "asyncio.Future[Any]") -> None:
        self._helpers -= 1


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time: deterministic, and as fast as the machine allows."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
