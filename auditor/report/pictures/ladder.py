"""The coverage ladder: for each thing that must be watched how far up its panels and alerts got."""

from collections.abc import Iterator, Sequence

from auditor.evidence import CoverageItem, Report
from auditor.report import svg
from auditor.report.harmless import clean, clip
from auditor.report.picture import Picture, Table

__all__ = ["picture"]

_RUNGS = ("missing", "proxy", "named", "valid", "on_page", "parses", "returns_data", "alerted")
_WORDS = {
    "missing": "missing",
    "proxy": "proxy",
    "named": "named",
    "valid": "valid query",
    "on_page": "on the page",
    "parses": "parses",
    "returns_data": "returns data",
    "alerted": "alerted",
}
_NAMES = {"ttft": "TTFT", "tps": "TPS", "memory": "memory", "kv_usage": "KV usage", "tpot": "TPOT", "e2e": "E2E"}
_FIRST = ("ttft", "tps", "memory")
_LEFT, _ROW, _TOP = 112.0, 26.0, 8.0


def picture(report: Report) -> Picture | None:
    """The picture; None where no dashboard or rule was read, and nothing is shown."""
    coverage = report.evidence.coverage
    items = _ordered(coverage.items) if coverage is not None else []
    if coverage is None or not (coverage.files or any(_height(item) for item in items)):
        return None
    return Picture(
        key="coverage",
        question="M",
        title="Coverage ladder",
        summary=_summary(items, asked=report.evidence.watch is not None),
        drawing="".join(_drawing(items, asked=report.evidence.watch is not None)),
        height=_TOP + _ROW * len(items) + 66,
        table=_table(items),
        lines=tuple(_lines(items)),
    )


def _ordered(items: Sequence[CoverageItem]) -> list[CoverageItem]:
    """The three that are asked for together first, then as they are."""
    return sorted(items, key=lambda item: _FIRST.index(item.concept) if item.concept in _FIRST else len(_FIRST))[:40]


def _name(item: CoverageItem) -> str:
    return _NAMES.get(item.concept, clean(item.concept.replace("_", " "), 30))


def _height(item: CoverageItem) -> int:
    """Rungs climbed; an unknown one counts as none."""
    return _RUNGS.index(item.rung) if item.rung in _RUNGS else 0


def _rung(item: CoverageItem) -> str:
    return _WORDS.get(item.rung, clean(item.rung, 20))


# ------------------------------------------------------------------------------------------------------------- drawing


def _drawing(items: Sequence[CoverageItem], *, asked: bool) -> Iterator[str]:
    """`asked`: a live Prometheus was; else nobody knows whether queries return data."""
    wide = (svg.WIDTH - _LEFT) / (len(_RUNGS) - 1)
    for row, item in enumerate(items):
        y, top = _TOP + _ROW * row, _height(item)
        yield svg.text(_LEFT - 10, y + 15, clip(_name(item), 17), "name", "end")
        for step in range(1, len(_RUNGS)):
            x = _LEFT + wide * (step - 1)
            unasked = _RUNGS[step] == "returns_data" and not asked
            yield svg.rect(x + 1, y + 3, wide - 2, 16, "rung none" if step > top or unasked else _kind(item))
        if top == 0:
            yield svg.text(_LEFT + 8, y + 15, "missing", "halo")
    yield from _scale(_TOP + _ROW * len(items), wide)


def _kind(item: CoverageItem) -> str:
    return "rung dead" if item.dead else "rung proxy" if item.rung == "proxy" else "rung got"


def _scale(top: float, wide: float) -> Iterator[str]:
    """The rungs' names in two rows of turns, each under its column."""
    for step, rung in enumerate(_RUNGS[1:]):
        x = _LEFT + wide * (step + 0.5)
        low = top + (20 if step % 2 == 0 else 38)
        yield svg.line(x, top, x, low - 11, "drop")
        yield svg.text(min(x, svg.WIDTH - 22), low, _WORDS[rung], "tick", "middle")


# --------------------------------------------------------------------------------------------------------------- words


def _summary(items: Sequence[CoverageItem], *, asked: bool) -> str:
    told = [f"{_name(i)}: {_rung(i)}{', some names dead' if i.dead else ''}" for i in items if i.concept in _FIRST]
    alerted = sum(bool(i.alerts) for i in items)
    text = "; ".join(told) or f"{len(items)} things to watch"
    unasked = "" if asked else " No live Prometheus was asked, so that nobody knows which queries return data."
    return f"{text[:1].upper()}{text[1:]}. {alerted} of {len(items)} have an alert.{unasked}"


def _table(items: Sequence[CoverageItem]) -> Table:
    rows = tuple(
        (
            _name(item),
            _rung(item),
            clip(", ".join(item.names), 120),
            clip(", ".join(item.where), 120),
            clip(", ".join(item.alerts), 80),
            clip(", ".join(item.dead), 80),
        )
        for item in items
    )
    return Table(head=("What", "How far", "Metrics", "Shown on", "Alerts", "Dead names"), rows=rows)


def _lines(items: Sequence[CoverageItem]) -> Iterator[str]:
    yield "rungs climbed: proxy, named, valid, on the page, parses, returns data, alerted"
    for item in items:
        climbed = f"{'#' * _height(item)}{'.' * (len(_RUNGS) - 1 - _height(item))}"
        dead = "  dead names" if item.dead else ""
        yield f"{clip(_name(item), 21):<22}{climbed}  {_rung(item)}{dead}"
