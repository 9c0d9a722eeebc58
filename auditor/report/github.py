"""The report as GitHub Actions' workflow commands: annotations beside the profile's lines, the verdict first.

After docs.github.com, "Workflow commands for GitHub Actions": `%`, line ends and, in properties, `:` and `,` are
escaped, so that no text of others ends a command or begins one. GitHub shows ten errors, warnings and notices a step:
the worst come first. The step's summary is the markdown report.
"""

from auditor.evidence import Report
from auditor.report import words
from auditor.report.issues import Issue, passing, path, worth_telling

__all__ = ["render"]

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report) -> str:
    """One command a line."""
    verdict = [words.clean(report.verdict_line), *([words.clean(report.interrupted)] if report.interrupted else [])]
    counted = words.counts(report.findings)
    first = _command(
        "notice" if passing(report) else "error", {"title": "serving-audit"}, "\n".join([*verdict, counted])
    )
    return "\n".join([first, *map(_annotation, worth_telling(report))]) + "\n"


def _annotation(issue: Issue) -> str:
    place: dict[str, str] = {}
    if issue.place is not None:
        line, column = max(1, issue.place.line), max(1, issue.place.column)
        place = {"file": path(issue.place), "line": str(line), "col": str(column)}
    more = [f"more: audit explain {issue.page}"] if issue.page else []
    return _command(_COMMANDS[issue.level], {**place, "title": issue.name}, "\n".join([issue.text, *more]))


def _command(name: str, properties: dict[str, str], text: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {given}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
