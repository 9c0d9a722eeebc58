"""Run something that takes minutes: with its progress on stderr, to be ended by Ctrl-C or SIGTERM."""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from auditor.probe.events import Listener

__all__ = ["watched"]

T = TypeVar("T")

_SAME = 1.0  # seconds in which a further signal is the same one: `timeout` sends it to a program and to its group
_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # a pipeline that is cancelled sends SIGTERM


def watched(work: "Callable[[Listener], Awaitable[T]]") -> T:
    """What `work` returns; it is given what shows its progress, and is cancelled by Ctrl-C and by SIGTERM, so that what
    was measured is kept. The same again a second later ends the program at once.

    Raises KeyboardInterrupt if it was cancelled before it had anything to return.
    """
    from auditor.cli.progress import beat, progress

    show = progress(sys.stderr)
    found: list[T] = []  # not returned: asyncio's runner would write out a main coroutine's result, however long it is
    before = [signal.getsignal(number) for number in _SIGNALS]
    signals: list[float] = []

    async def run() -> None:
        _cancel_on(signals)
        heart = asyncio.create_task(beat(show))
        try:
            found.append(await work(show))
        finally:
            heart.cancel()
            with suppress(asyncio.CancelledError):
                await heart

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        if not signals:  # else the same signal may come again while the answer is written
            for number, handler in zip(_SIGNALS, before, strict=True):
                signal.signal(number, handler)
        show.close()
    return found[0]


def _cancel_on(signals: list[float]) -> None:
    """Cancel this task at the first signal; `signals` gets the time at which it came."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def handle(*_: object) -> None:
        if not signals:
            loop.call_soon_threadsafe(task.cancel)
            signals.append(time.monotonic())
        elif time.monotonic() - signals[0] > _SAME:
            raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, handle)
