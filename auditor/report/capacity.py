"""The search for the highest load that meets every SLO, as a person reads it and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from auditor.points import Capacity, Point, Reading
from auditor.report.json import dumps, plain
from auditor.report.lines import wrap
from auditor.report.markdown import escape
from auditor.report.words import clean, quantity
from auditor.units import count
from auditor.units import plain as figure

__all__ = ["RENDERERS", "data", "markdown", "terminal"]

SCHEMA_VERSION = 1
_COLUMNS = 3  # SLOs that the table shows; the JSON has all
_BAR = 16  # characters of the longest bar
_NAMES = {"ttft": "TTFT", "tps": "TPS", "e2e": "E2E", "first_answer": "answer", "error_rate": "failed"}
_STATUS = {"pass": "pass", "fail": "FAIL", "inconclusive": "open"}


def _ordered(found: Capacity) -> list[Point]:
    return sorted(found.points, key=lambda point: point.level.value)


def _shown(found: Capacity) -> list[Reading]:
    """The SLOs that have a column: of all classes first, as declared."""
    readings = {reading.path: reading for point in found.points for reading in point.readings}
    return sorted(readings.values(), key=lambda r: r.cls is not None)[:_COLUMNS]


def _rows(found: Capacity) -> tuple[list[str], list[list[str]]]:
    """The table's head and rows, lowest level first, the last column being the curve of requests a second."""
    shown, points = _shown(found), _ordered(found)
    head = ["in flight" if found.by == "flight" else "asked/s", "n"]
    head += [f"{_NAMES[r.metric]} {r.percentile}".strip() + (f" {r.cls}" if r.cls else "") for r in shown]
    head += ["req/s", "tok/s", "SLOs"]
    return head, [_row(point, shown) for point in points]


def _row(point: Point, shown: Sequence[Reading]) -> list[str]:
    by_path = {reading.path: reading for reading in point.readings}
    cells = [figure(point.level.value, 4), f"{point.requests}"]
    cells += [_value(by_path.get(reading.path)) for reading in shown]
    rate = _rate(point)
    cells += ["" if value is None else figure(value, 3) for value in (rate, point.output_rate)]
    return [*cells, _STATUS[point.status]]


def _rate(point: Point) -> float | None:
    return point.level.rate if point.reached is None else point.reached


def _value(reading: Reading | None) -> str:
    if reading is None:
        return ""
    if reading.value is None:
        return "failed"
    return quantity(reading.value, reading.unit).removesuffix(" tok/s")


def _curve(found: Capacity) -> list[str]:
    """A bar a level: tokens a second, which bend where more load brings no more of them."""
    points = _ordered(found)
    rates = [point.output_rate or 0.0 for point in points]
    top = max(rates, default=0.0)
    return ["#" * round(_BAR * rate / top) if top else "" for rate in rates]


def terminal(found: Capacity) -> str:
    """At most 80 columns of plain text."""
    head, rows = _rows(found)
    bars = _curve(found)
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    context = clean(" | ".join(found.context), 300)
    lines = [*wrap(clean(found.verdict_line, 600)), *(wrap(context, "  ") if context else ()), ""]
    if rows:
        lines.append("  " + "  ".join(cell.rjust(width) for cell, width in zip(head, widths, strict=True)) + "  tok/s")
        for row, bar in zip(rows, bars, strict=True):
            lines.append("  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + f"  {bar}")
        lines.append("")
    for label, text in _told(found):
        lines += wrap(text, f"  {label:<8}", 10)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _told(found: Capacity) -> list[tuple[str, str]]:
    """What limits, the knee, how the search ended, what is missing and what it cost."""
    told = [("limit", f"{found.limit}: {found.why}")] if found.limit else []
    if found.knee is not None:
        where = f"{found.knee.batch:.0f} in flight ({figure(found.knee.rate, 3)} requests a second)"
        told.append(("knee", f"{where}; more bring no more" if found.knee.reached else f"not reached up to {where}"))
    told += [("open", f"{found.words(p.level.value)}: {p.missing or p.why}") for p in _open(found)]
    told += [("ended", found.note)] if found.note else []
    spent = f"{count(found.requests, 'request')}, {found.tokens:,} tokens, {quantity(round(found.seconds), 's')}"
    return [(label, clean(text, 300)) for label, text in (*told, ("spent", spent))]


def _open(found: Capacity) -> list[Point]:
    levels = found.bracket.undecided
    return [p for p in _ordered(found) if p.level.value in levels and p.status == "inconclusive"]


def markdown(found: Capacity) -> str:
    """A table for a review."""
    head, rows = _rows(found)
    lines = [f"# {escape(found.verdict_line)}", "", escape(" | ".join(found.context)), ""]
    if rows:
        lines += ["| " + " | ".join([*head, "curve"]) + " |", "|" + "---|" * (len(head) + 1)]
        lines += [
            "| " + " | ".join([*map(escape, row), bar or " "]) + " |"
            for row, bar in zip(rows, _curve(found), strict=True)
        ]
        lines.append("")
    return "\n".join([*lines, *(f"- **{label}**: {escape(text)}" for label, text in _told(found))]) + "\n"


def data(found: Capacity) -> dict[str, Any]:
    """Everything, with every level's numbers and intervals."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict_line": found.verdict_line,
        "enough": found.enough,
        "bracket": plain(found.bracket),
        "exit_code": found.exit_code,
        **plain(found),
    }


def _json(found: Capacity) -> str:
    return dumps(data(found))


RENDERERS: Mapping[str, Callable[[Capacity], str]] = {"json": _json, "markdown": markdown, "terminal": terminal}
"""The formats by name."""
