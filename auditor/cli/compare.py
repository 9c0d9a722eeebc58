"""`audit compare A B`: is a run slower than those before it?"""

from pathlib import Path
from typing import Annotated

import typer

from auditor.cli.deployment import AsJson
from auditor.cli.options import MinEffect, OnInconclusive, Output, effect, policy_exit
from auditor.cli.output import put, targets
from auditor.errors import UsageError

__all__ = ["command"]

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="A... B", help="Saved runs: the baseline (one run or several), and last the new one."),
]


def command(
    folders: Folders,
    *,
    min_effect: MinEffect = None,
    on_inconclusive: OnInconclusive = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a saved run is slower than those before it.

    Judges TTFT, time per token, E2E, failures and the percentiles that SLOs are on, at the target load:
    by rank tests, with the size of each change. Several baseline runs tell how much runs differ by chance.

    \b
    audit compare runs/monday runs/today
    audit compare runs/1 runs/2 runs/3 runs/today -o markdown=review.md

    Exits 0 if nothing is slower, 1 if something is, 4 if that stays open.
    """
    from auditor.report.compare import RENDERERS

    specs = [*(output or ()), *(["json=-"] if as_json else [])]
    wanted, least = targets(specs, formats=RENDERERS), effect(min_effect, against=True)
    if len(folders) < 2:
        raise UsageError("audit compare: needs two folders of saved runs, the baseline and the new run")
    from auditor.baseline import read
    from auditor.compare import compare

    *before, now = read(folders)
    found = compare(before, now.evidence, least)
    put([(target, RENDERERS[target.format](found)) for target in wanted], found.verdict_line)
    raise typer.Exit(policy_exit(found.exit_code, on_inconclusive))
