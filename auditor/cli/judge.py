"""`audit judge DIR`: judge a saved run again."""

from pathlib import Path
from typing import Annotated

import typer

from auditor.cli.options import (
    Baseline,
    FailOn,
    MinEffect,
    OnInconclusive,
    Only,
    Output,
    RunFolder,
    Today,
    date,
    effect,
    letters,
)
from auditor.cli.output import deliver, targets

__all__ = ["command"]

OtherProfile = Annotated[
    Path | None,
    typer.Option("--profile", metavar="FILE", help="Judge against this profile instead.", show_default=False),
]


def command(
    folder: RunFolder,
    *,
    profile: OtherProfile = None,
    output: Output = None,
    only: Only = None,
    on_inconclusive: OnInconclusive = None,
    fail_on: FailOn = None,
    baseline: Baseline = None,
    min_effect: MinEffect = None,
    today: Today = None,
) -> None:
    """Judge a saved run again, without the endpoint.

    The same run gives the same report, byte for byte; another profile may give another verdict.

    \b
    audit judge runs/today
    audit judge runs/today --profile stricter.yaml --only W
    """
    wanted = targets(output or (), keep=folder)
    from auditor.run import Options, judge

    options = Options(
        only=letters(only),
        on_inconclusive=on_inconclusive,
        fail_on=fail_on,
        today=date(today),
        baseline=tuple(baseline or ()),
        min_effect=effect(min_effect, against=bool(baseline)),
    )
    report = judge(folder, profile=profile, options=options)
    deliver(report, wanted)
    raise typer.Exit(report.exit_code)
