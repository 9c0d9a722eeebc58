"""`audit run PROFILE`: the whole audit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.options import Offline, OnInconclusive, Only, Output, ProfileName, Today, Wait, amount, date, letters
from auditor.cli.output import deliver, targets
from auditor.cli.presets import PresetName, preset_of
from auditor.cli.ready import until_ready
from auditor.cli.watched import watched
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.evidence import Report
    from auditor.probe.events import Listener

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
    preset: PresetName = None,
    on_inconclusive: OnInconclusive = None,
    today: Today = None,
    wait: Wait = "0s",
) -> None:
    """Audit a deployment: discover, probe, judge, report.

    The report goes to stdout, progress to stderr. Ctrl-C judges what was measured so far.

    \b
    audit run embedded                          no GPU, no server: an emulated engine
    audit run prod.yaml --save runs/today       keep the run
    audit run prod.yaml -o json=- > report.json
    audit run prod.yaml --preset ci --wait-ready 5m
    """
    wanted = targets(output or ())
    from auditor.loading import load_profile
    from auditor.run import Options, audit, unsaved
    from auditor.units import DURATION

    options = Options(
        only=letters(only), offline=offline, save=save, on_inconclusive=on_inconclusive, today=date(today)
    )
    loaded, patience = preset_of(load_profile(profile), preset), amount("--wait-ready", wait, DURATION)

    async def work(show: "Listener") -> "Report":
        await until_ready(loaded, 0.0 if offline else patience, show)
        return await audit(loaded, options, show)

    report = watched(work)
    deliver(report, wanted)
    if reason := unsaved(report):
        raise UsageError(f"{reason}; the verdict was: {report.verdict_line}")
    raise typer.Exit(report.exit_code)
