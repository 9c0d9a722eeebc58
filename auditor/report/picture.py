"""What a picture and a table of a report are, whatever format shows them; and bars in characters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.report.harmless import clip

__all__ = ["Bar", "Picture", "Table", "bars"]

_LABEL, _VALUE, _BAR = 22, 20, 34  # 76 columns with what stands between


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a head, in plain words: harmless, but not escaped. `notes` follow it, a line each."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture: `drawing` is SVG markup of size WIDTH x `height`, `summary` says in words what it shows, `table` has
    its numbers, `lines` draw it in characters of at most 78 columns. `question` is the letter that it belongs to.
    """

    key: str
    question: str
    title: str
    summary: str
    drawing: str
    height: float
    table: Table
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in characters: certain up to `value`, possible up to `high`; `value` None draws no bar."""

    label: str
    words: str
    value: float | None
    high: float | None = None


def bars(found: Sequence[Bar], whole: float | None = None, mark: float | None = None) -> Iterator[str]:
    """Bars of one scale, up to `whole` (default: the longest); `mark` is a value at which each has a |."""
    ends = [end for bar in found for end in (bar.value, bar.high, mark) if end is not None]
    whole = whole or max(ends, default=0.0)
    for bar in found:
        row = _row(bar, whole, mark)
        yield f"{clip(bar.label, _LABEL - 1):<{_LABEL}}{clip(bar.words, _VALUE - 1):<{_VALUE}}{row}".rstrip()


def _row(bar: Bar, whole: float, mark: float | None) -> str:
    if bar.value is None or whole <= 0:
        return ""
    sure, most = (_cells(end, whole) for end in (bar.value, max(bar.value, bar.high or 0.0)))
    cells = list(f"{'#' * sure}{'=' * (most - sure)}".ljust(_BAR + 1))
    if mark is not None:
        cells[_cells(mark, whole)] = "|"
    return "".join(cells)


def _cells(end: float, whole: float) -> int:
    return min(_BAR, max(0, round(_BAR * end / whole)))
