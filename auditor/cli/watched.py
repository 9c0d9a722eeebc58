"""Run something that takes minutes: with its progress on stderr, to be ended by Ctrl-C or SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from auditor.probe.events import Listener

__all__ = ["watched"]

T = TypeVar("T")


def watched(work: "Callable[[Listener], Awaitable[T]]") -> T:
    """What `work` returns; it is given what shows its progress, and is cancelled by Ctrl-C and by SIGTERM.

    Raises KeyboardInterrupt if it was cancelled before it had anything to return.
    """
    from auditor.cli.progress import beat, progress

    show = progress(sys.stderr)
    found: list[T] = []  # not returned: asyncio's runner would write out a main coroutine's result, however long it is

    async def run() -> None:
        _terminate_like_ctrl_c()
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
        show.close()
    return found[0]


def _terminate_like_ctrl_c() -> None:
    """A pipeline that is cancelled sends SIGTERM: cancel as Ctrl-C does, so that what was measured is kept."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
