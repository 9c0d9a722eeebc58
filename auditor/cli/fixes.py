"""What `audit coverage` says of queries that mislead, and prints of panels and alerts that are missing."""

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from auditor.cli.output import say
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.monitoring.standing import Place
    from auditor.watch import Coverage

__all__ = ["flaws", "lines", "printed"]

_MOST = 10  # lines on misleading queries in the table; JSON has them all


def printed(found: "Coverage", place: "Place", scraped: Collection[str], *, as_json: bool) -> str:
    """The dashboard as JSON and, after a line `---`, the rules as YAML; with `as_json` one object that holds both.

    What no panel can show goes to stderr. Raises UsageError where neither engine nor page tells which series there are.
    """
    from auditor.catalog import metrics as catalogue
    from auditor.monitoring.fix import missing

    if not catalogue.is_known(place.engine) and not found.offered:
        raise UsageError("--fix: say which series there are, by --engine NAME or --metrics URL|FILE")
    lacks = missing(found, place, scraped)
    for line in lacks.impossible:
        say(line)
    if lacks.dashboard is None and lacks.rules is None:
        say("nothing that a panel or an alert could show is missing")
    if as_json:
        return json.dumps({"schema_version": 1, "dashboard": lacks.dashboard, "rules": lacks.rules}, indent=2) + "\n"
    parts = [json.dumps(lacks.dashboard, indent=2) + "\n"] if lacks.dashboard is not None else []
    return "---\n".join([*parts, *([_yaml(lacks.rules)] if lacks.rules is not None else [])])


def _yaml(rules: Any) -> str:
    import yaml

    return yaml.safe_dump(rules, sort_keys=False, width=1_000_000, allow_unicode=True)


def flaws(found: "Coverage") -> list[dict[str, Any]]:
    """The queries that mislead, as data."""
    from dataclasses import asdict

    return [{key: value for key, value in asdict(flaw).items() if value not in (None, ())} for flaw in found.flaws]


def lines(found: "Coverage") -> list[str]:
    """The queries that mislead, a line each with what to write instead; the first few where there are many."""
    from auditor.report.words import clean

    told = list(
        dict.fromkeys(
            f"{flaw.where}: {flaw.note}{f'; write {flaw.instead}' if flaw.instead else ''}" for flaw in found.flaws
        )
    )
    rest = len(told) - _MOST
    return [*map(clean, told[:_MOST]), *([f"and {rest} more (--json shows all)"] if rest > 0 else [])]
