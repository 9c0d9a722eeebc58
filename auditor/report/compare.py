"""A comparison of runs as a person reads it and as JSON."""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.compared import Change, Comparison
from auditor.report.json import dumps, plain
from auditor.report.lines import wrap
from auditor.report.markdown import escape
from auditor.report.words import clean, quantity
from auditor.units import percent

__all__ = ["RENDERERS", "data", "markdown", "terminal"]

SCHEMA_VERSION = 1
_HEAD = ("metric", "before", "now", "change", "interval", "")
_STATUS = {"worse": "WORSE", "unclear": "open", "same": "same", "better": "better"}


def _row(change: Change) -> tuple[str, ...]:
    was, now = (_value(change, value) for value in (change.old, change.new))
    delta, _, interval = change.words.partition(" (")
    open_but_idle = change.status == "unclear" and not change.deciding
    return change.name, was, now, delta, interval.rstrip(")"), "not shown" if open_but_idle else _STATUS[change.status]


def _value(change: Change, value: float | None) -> str:
    return "failed" if value is None else quantity(value, change.unit)


def terminal(found: Comparison) -> str:
    """Plain text, 80 columns but for names that are longer."""
    rows = [_HEAD, *map(_row, found.changes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [*wrap(clean(found.verdict_line, 900)), ""]
    for row in rows if found.changes else ():
        cells = [clean(row[0], 60).ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  " + "  ".join(cells))
    if found.changes:
        lines.append("")
    for label, text in _told(found):
        lines += wrap(text, f"  {label:<9}", 11)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _told(found: Comparison) -> list[tuple[str, str]]:
    """What is missing, what differs, what was left out, and how it was judged."""
    told = [("missing", found.missing)] if found.missing else []
    told += [("differs" if not i else "", text) for i, text in enumerate(found.differences)]
    told += [("note", text) for text in found.notes]
    if found.noise is not None:
        told.append(("noise", f"the baseline runs differ by up to {percent(found.noise)} among themselves"))
    told.append(("judged", _how(found)))
    return [(label, clean(text, 300)) for label, text in told]


def _how(found: Comparison) -> str:
    paired = any(change.paired for change in found.changes)
    what = "request by request, as all runs sent the same" if paired else "as two samples"
    return (
        f"{what}; slower from {percent(found.min_effect)} on, at most {percent(1 - found.confidence)} of equal runs "
        "are called worse"
    )


def markdown(found: Comparison) -> str:
    """A table for a review."""
    lines = [f"# {escape(found.verdict_line, 900)}", ""]
    if found.changes:
        lines += ["| metric | before | now | change | interval | outcome |", "|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(escape(cell) or " " for cell in _row(change)) + " |" for change in found.changes]
        lines.append("")
    return (
        "\n".join([*lines, *(f"- {f'**{label}**: ' if label else ''}{escape(t)}" for label, t in _told(found))]) + "\n"
    )


def data(found: Comparison) -> dict[str, Any]:
    """Everything, row by row."""
    return {
        "schema_version": SCHEMA_VERSION,
        "status": found.status,
        "verdict_line": found.verdict_line,
        "exit_code": found.exit_code,
        **plain(found),
    }


def _json(found: Comparison) -> str:
    return dumps(data(found))


RENDERERS: Mapping[str, Callable[[Comparison], str]] = {"json": _json, "markdown": markdown, "terminal": terminal}
"""The formats by name."""
