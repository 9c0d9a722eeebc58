"""`audit run PROFILE`: the whole audit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.options import (
    Baseline,
    FailOn,
    MinEffect,
    Offline,
    OnInconclusive,
    Only,
    Output,
    ProfileName,
    Today,
    Wait,
    amount,
    date,
    effect,
    letters,
    positive,
)
from auditor.cli.output import deliver, say, targets
from auditor.cli.presets import PresetName, beyond, preset_of
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

Passive = Annotated[
    bool, typer.Option("--passive", help="Send nothing: judge the SLOs by what Prometheus saw of real traffic.")
]
Window = Annotated[
    str | None, typer.Option("--window", metavar="DURATION", help="How far back --passive looks; 24h if not told.")
]
_WINDOW = "24h"


def command(
    profile: ProfileName,
    *,
    output: Output = None,
    save: Save = None,
    offline: Offline = False,
    only: Only = None,
    preset: PresetName = None,
    on_inconclusive: OnInconclusive = None,
    fail_on: FailOn = None,
    baseline: Baseline = None,
    min_effect: MinEffect = None,
    passive: Passive = False,
    window: Window = None,
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
    audit run prod.yaml --baseline runs/last    fail where it is slower than that run, too
    audit run prod.yaml --passive --window 7d --only W,M
    """
    wanted = targets(output or (), keep=save)
    from auditor.loading import load_profile
    from auditor.run import Options, audit, unsaved
    from auditor.units import DURATION

    if baseline and offline:
        raise UsageError("--baseline: holds what is measured against a saved run, and --offline measures nothing")
    if passive and (offline or baseline):
        raise UsageError(
            "--passive: asks Prometheus instead of the service; it goes neither with --offline nor --baseline"
        )
    if window is not None and not passive:
        raise UsageError("--window: says how far back --passive looks; without --passive a load would be sent")
    options = Options(
        only=letters(only),
        offline=offline,
        save=save,
        on_inconclusive=on_inconclusive,
        fail_on=fail_on,
        today=date(today),
        baseline=tuple(baseline or ()),
        min_effect=effect(min_effect, against=bool(baseline)),
        passive=positive("--window", window or _WINDOW, DURATION) if passive else None,
    )
    loaded, patience = preset_of(load_profile(profile), preset), amount("--wait-ready", wait, DURATION)

    async def work(show: "Listener") -> "Report":
        await until_ready(loaded, 0.0 if offline or passive else patience, show)
        return await audit(loaded, options, show)

    report = watched(work)
    deliver(report, wanted)
    if note := beyond(preset, report):
        say(note)
    if reason := unsaved(report):
        raise UsageError(f"{reason}; the verdict was: {report.verdict_line}")
    raise typer.Exit(report.exit_code)
