"""Where the time of a prompt and of a decode step goes, as the ladders told it: a bar with its range for each part."""

from collections.abc import Iterator, Sequence

from auditor.evidence import Finding, Number, Report
from auditor.report import steps, svg
from auditor.report.harmless import clean, clip
from auditor.report.picture import Picture, Table
from auditor.units import quantity

__all__ = ["pictures"]

_ROW, _TOP = 30.0, 8.0


def pictures(report: Report) -> list[Picture]:
    """One picture a phase; none where no ladder told."""
    blocks = steps.blocks(report)
    return [
        _picture(finding, parts, block) for (finding, parts), block in zip(steps.phases(report), blocks, strict=True)
    ]


def _picture(finding: Finding, parts: Sequence[Number], block: Sequence[str]) -> Picture:
    rows = tuple((steps.label(part), steps.words(part), quantity(part.value, "s")) for part in parts)
    return Picture(
        key=f"time-{clean(finding.subject or 'step', 20)}",
        question="H",
        title=f"Where the time of {steps.title(finding)} goes",
        summary=f"{clean(finding.why, 300)} {_largest(parts)}",
        drawing="".join(_drawing(parts)),
        height=_TOP + _ROW * len(parts) + 44,
        table=Table(head=("Part", "Range", "Most likely"), rows=rows),
        lines=tuple(block),
    )


def _largest(parts: Sequence[Number]) -> str:
    return f"The largest part is {steps.label(parts[0])}, {steps.words(parts[0])}."


def _drawing(parts: Sequence[Number]) -> Iterator[str]:
    top = max(part.high or part.value or 0.0 for part in parts)
    bottom = _TOP + _ROW * len(parts)
    left = 14 + max(svg.width_of(_name(part)) for part in parts)
    x = svg.Axis.over([top], (left, svg.WIDTH - 24.0))
    for tick in x.ticks():
        yield svg.line(x(tick), _TOP, x(tick), bottom, "grid")
        yield svg.text(x(tick), bottom + 16, quantity(tick, "s") if tick else "0", "tick", "middle")
    for row, part in enumerate(parts):
        yield from _bar(part, x, _TOP + _ROW * row)
    yield svg.text((x.start + x.end) / 2, bottom + 33, "likely (bar), range (line)", "title", "middle")


def _name(part: Number) -> str:
    """Short enough to leave room for the bars."""
    return clip(steps.label(part), 24)


def _bar(part: Number, x: svg.Axis, top: float) -> Iterator[str]:
    value = part.value or 0.0
    yield svg.text(x.start - 8, top + 18, _name(part), "name", "end")
    yield svg.rect(x(0), top + 5, x(value) - x(0), 16, "part part0")
    if part.low is not None and part.high is not None:
        y = top + 13
        yield svg.line(x(part.low), y, x(part.high), y, "interval")
        yield from (svg.line(x(end), y - 4, x(end), y + 4, "interval") for end in (part.low, part.high))
