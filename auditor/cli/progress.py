"""What a person sees on stderr while an audit runs: bars on a terminal, elsewhere a line every few seconds."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from auditor.report.harmless import clean
from auditor.units import count

if TYPE_CHECKING:
    from auditor.probe.events import Event

__all__ = ["Bars", "Lines", "beat", "progress"]

HEARTBEAT = 5.0


class Lines:
    """Plain lines: each stage, each load's start and end, and a heartbeat in between."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._begun = self._last = clock()
        self._state = "working"

    def __call__(self, event: "Event") -> None:
        """Show one event."""
        label, text = clean(event.load or "", 60), clean(event.text, 300)
        if event.kind == "request":
            self._state = f"{label}: {event.done} of {event.total} requests"
            self.tick()
        elif event.kind == "load_start":
            self._state = f"{label}: 0 of {event.total} requests"
            self._print(f"{label}: {count(event.total, 'request')}{f' ({text})' if text else ''}")
        elif event.kind == "load_end":
            self._print(f"{label}: {count(event.done, 'request')} done{f', stopped: {text}' if text else ''}")
        else:
            self._state = text if event.kind == "stage" else self._state
            self._print(text)

    def tick(self) -> None:
        """Say that the audit is alive if nothing was said for a while."""
        if self._clock() - self._last >= HEARTBEAT:
            self._print(self._state)

    def close(self) -> None:
        """Nothing to tidy up."""

    def _print(self, text: str) -> None:
        self._last = self._clock()
        try:
            print(f"[{self._last - self._begun:4.0f} s] {text}", file=self._stream, flush=True)
        except OSError:  # the reader of stderr went away; the audit goes on
            pass


class Bars:
    """Rich progress bars, redrawn at most ten times a second and never from a thread."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=stream), auto_refresh=False, transient=True)
        self._tasks: dict[str, Any] = {}
        self._clock, self._drawn = clock, 0.0
        self._progress.start()

    def __call__(self, event: "Event") -> None:
        """Show one event."""
        if event.kind in ("stage", "note"):
            self._say(event.text)
        else:
            label = clean(event.load or event.text, 40)
            if label not in self._tasks:
                self._tasks[label] = self._progress.add_task(label, total=event.total or None)
            self._progress.update(self._tasks[label], completed=event.done, total=event.total or None)
            if event.kind == "load_end" and event.text:
                self._say(f"{label}: stopped: {event.text}")
        self.tick()

    def _say(self, text: str) -> None:
        self._progress.console.print(clean(text, 300), markup=False, highlight=False)

    def tick(self) -> None:
        """Redraw unless that was done just now."""
        if self._clock() - self._drawn >= 0.1:
            self._drawn = self._clock()
            self._progress.refresh()

    def close(self) -> None:
        """Take the bars off the screen."""
        self._progress.stop()


def progress(stream: TextIO) -> Lines | Bars:
    """Bars where `stream` is a terminal, lines elsewhere."""
    return Bars(stream) if stream.isatty() else Lines(stream)


async def beat(show: Lines | Bars) -> None:
    """Tick once a second until cancelled, so that a silent endpoint does not look like a dead program."""
    while True:
        await asyncio.sleep(1.0)
        show.tick()
