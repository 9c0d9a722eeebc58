"""`audit report DIR`: render a saved run."""

from auditor.cli.options import Only, Output, RunFolder, Today, date, letters
from auditor.cli.output import deliver, targets

__all__ = ["command"]


def command(folder: RunFolder, *, output: Output = None, only: Only = None, today: Today = None) -> None:
    """Render a saved run in other formats.

    Exits 0 whatever the verdict: `audit judge` is the gate.

    \b
    audit report runs/today -o markdown=review.md -o json=report.json
    """
    wanted = targets(output or (), always_print=False, keep=folder)
    from auditor.run import Options, judge

    deliver(judge(folder, profile=None, options=Options(only=letters(only), today=date(today))), wanted)
