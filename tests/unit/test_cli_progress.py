"""What is shown on stderr while an audit runs."""

import asyncio
import io
from dataclasses import dataclass

from auditor.cli.progress import Bars, Lines, beat, progress


@dataclass(frozen=True)
class Event:
    kind: str
    text: str = ""
    done: int = 0
    total: int = 0
    load: str | None = None


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_lines_tell_stages_loads_and_a_heartbeat():
    clock, stream = Clock(), io.StringIO()
    show = Lines(stream, clock)
    show(Event("stage", "discovering the endpoint"))
    show(Event("load_start", text="the SLOs", total=200, load="slo"))
    for done, now in ((1, 1.0), (2, 4.0), (3, 6.0), (4, 7.0), (5, 12.0)):
        clock.now = now
        show(Event("request", done=done, total=200, load="slo"))
    show(Event("load_end", text="the endpoint died", done=5, total=5, load="slo"))
    assert stream.getvalue().splitlines() == [
        "[   0 s] discovering the endpoint",
        "[   0 s] slo: 200 requests (the SLOs)",
        "[   6 s] slo: 3 of 200 requests",
        "[  12 s] slo: 5 of 200 requests",
        "[  12 s] slo: 5 requests done, stopped: the endpoint died",
    ]


def test_a_silent_endpoint_still_gets_a_heartbeat():
    clock, stream = Clock(), io.StringIO()
    show = Lines(stream, clock)
    show(Event("load_start", total=3, load="cold"))
    clock.now = 5.5
    show.tick()
    show.tick()
    assert stream.getvalue().splitlines()[1:] == ["[   6 s] cold: 0 of 3 requests"]


def test_server_text_cannot_steer_the_terminal():
    stream = io.StringIO()
    Lines(stream)(Event("note", "\x1b[2J[red]gone\r\nnext"))
    assert stream.getvalue().endswith("[red]gone next\n")
    assert "\x1b" not in stream.getvalue()


def test_a_closed_stderr_does_not_stop_an_audit():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    Lines(Gone())(Event("note", "hello"))


def test_bars_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    show = progress(stream)
    assert isinstance(show, Bars)
    show(Event("stage", "probing [bold]x[/bold]"))
    show(Event("load_start", total=20, load="slo"))
    show(Event("request", done=7, total=20, load="slo"))
    show(Event("load_end", text="the endpoint died", done=7, total=7, load="slo"))
    show.close()
    assert "slo: stopped: the endpoint died" in stream.getvalue()
    assert "[bold]x[/bold]" in stream.getvalue()
    assert "slo" in stream.getvalue()
    assert isinstance(progress(io.StringIO()), Lines)


def test_the_heart_beats_until_cancelled():
    class Loop:
        ticks = 0

        def tick(self):
            self.ticks += 1

    async def scenario():
        show = Loop()
        task = asyncio.create_task(beat(show))
        await asyncio.sleep(1.1)
        task.cancel()
        return show.ticks

    assert asyncio.run(scenario()) == 1
