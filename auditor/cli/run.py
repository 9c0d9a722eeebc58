"""`audit run PROFILE`: the whole audit."""

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.options import Offline, OnInconclusive, Only, Output, ProfileName, Today, date, letters
from auditor.cli.output import deliver, targets
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.cli.progress import Bars, Lines
    from auditor.evidence import Report
    from auditor.loading import Loaded
    from auditor.run import Options

__all__ = ["command"]

Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="DIR", help="Keep the run here, for `judge` and `report`.", show_default=False),
]


def command(
    profile: ProfileName,
    *,
    output: Output = None,
    save: Save = None,
    offline: Offline = False,
    only: Only = None,
    on_inconclusive: OnInconclusive = None,
    today: Today = None,
) -> None:
    """Audit a deployment: discover, probe, judge, report.

    The report goes to stdout, progress to stderr. Ctrl-C judges what was measured so far.

    \b
    audit run embedded                          no GPU, no server: an emulated engine
    audit run prod.yaml --save runs/today       keep the run
    audit run prod.yaml -o json=- > report.json
    """
    wanted = targets(output or ())
    from auditor.loading import load_profile
    from auditor.run import Options, unsaved

    options = Options(
        only=letters(only), offline=offline, save=save, on_inconclusive=on_inconclusive, today=date(today)
    )
    report = _audit(load_profile(profile), options)
    deliver(report, wanted)
    if reason := unsaved(report):
        raise UsageError(f"{reason}; the verdict was: {report.verdict_line}")
    raise typer.Exit(report.exit_code)


def _audit(loaded: "Loaded", options: "Options") -> "Report":
    from auditor.cli.progress import progress

    show = progress(sys.stderr)
    try:
        return asyncio.run(_watched(loaded, options, show))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        show.close()


async def _watched(loaded: "Loaded", options: "Options", show: "Lines | Bars") -> "Report":
    from auditor.cli.progress import beat
    from auditor.run import audit

    _terminate_like_ctrl_c()
    heart = asyncio.create_task(beat(show))
    try:
        return await audit(loaded, options, show)
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart


def _terminate_like_ctrl_c() -> None:
    """A pipeline that is cancelled sends SIGTERM: cancel as Ctrl-C does, so that what was measured is kept."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
