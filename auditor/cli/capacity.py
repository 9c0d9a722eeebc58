"""`audit capacity PROFILE`: the highest load that meets every SLO."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.deployment import AsJson
from auditor.cli.options import Output, ProfileName, Wait, amount, positive
from auditor.cli.output import put, targets
from auditor.cli.ready import until_ready
from auditor.cli.watched import watched
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.loading import Loaded
    from auditor.points import Capacity
    from auditor.probe.events import Listener

__all__ = ["command"]

Most = Annotated[
    str | None,
    typer.Option("--max", metavar="N|RATE", help="Search no higher: 256, or with --rate 20/s.", show_default=False),
]
ByRate = Annotated[bool, typer.Option("--rate", help="Search requests a second that arrive by chance (open loop).")]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="DIR", help="Keep all loads here, for `judge` and `report`.", show_default=False),
]


def command(
    profile: ProfileName,
    *,
    most: Most = None,
    rate: ByRate = False,
    output: Output = None,
    as_json: AsJson = False,
    save: Save = None,
    wait: Wait = "0s",
) -> None:
    """Find the highest load that meets every SLO.

    Starts at the target, doubles or halves, then bisects to a tenth, all within probe.budget. Each level is
    judged by the rules of `audit run`. Ctrl-C tells what was measured.

    \b
    audit capacity embedded --max 256
    audit capacity prod.yaml --rate -o json=capacity.json

    Exits 0 if the target is met, 1 if it is not, 4 if that stays open, 3 if nothing could be measured.
    """
    from auditor.report.capacity import RENDERERS

    specs = [*(output or ()), *(["json=-"] if as_json else [])]
    wanted = targets(specs, formats=RENDERERS)
    from auditor.capacity import Wanted, capacity
    from auditor.loading import load_profile
    from auditor.units import DURATION

    loaded, patience = load_profile(profile), amount("--wait-ready", wait, DURATION)
    if rate and loaded.profile.traffic.arrivals == "closed":
        raise UsageError("--rate: traffic.arrivals is closed, where nobody comes at a rate; leave one of them out")
    asked = Wanted(by_rate=rate, most=_most(most, loaded, by_rate=rate), save=save)

    async def work(show: "Listener") -> "Capacity":
        await until_ready(loaded, patience, show)
        return await capacity(loaded, asked, show)

    found = watched(work)
    put([(target, RENDERERS[target.format](found)) for target in wanted], found.verdict_line)
    raise typer.Exit(found.exit_code)


def _most(text: str | None, loaded: "Loaded", *, by_rate: bool) -> float | None:
    """The bound in the unit of what is searched."""
    from auditor.units import RATE

    if text is None:
        return None
    if by_rate or loaded.profile.traffic.request_rate is not None:
        return positive("--max", text, RATE)
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
        raise UsageError(f"--max {text[:60]}: needs a whole number of requests in flight, such as 256")
    return float(text)
