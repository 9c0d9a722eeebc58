"""KV usage, queue and preemptions over the run, as the engine's own page told them, load by load."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence import Evidence, Report
from auditor.measurement import Measurement
from auditor.report import svg
from auditor.report.harmless import clean, clip
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.units import plain, quantity

__all__ = ["picture"]

_LEFT, _RIGHT, _HIGH, _GAP = 44.0, svg.WIDTH - 12.0, 74.0, 34.0

Series = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Panel:
    """One strip of the picture: series of (seconds, value) by class of line."""

    title: str
    series: dict[str, list[Series]]
    share: bool = False

    @property
    def values(self) -> list[float]:
        """All its values."""
        return [v for lines in self.series.values() for line in lines for _, v in line]


def picture(report: Report) -> Picture | None:
    """The picture; None where no page was read while a load ran."""
    evidence = report.evidence
    panels = [panel for panel in _panels(evidence) if len(panel.values) > 1]
    if not panels:
        return None
    keys, top = svg.legend(list(_keys(evidence, panels)))
    top += 16
    x = svg.Axis.over([_end(m) for m in evidence.measurements], (_LEFT, _RIGHT))
    parts, loads = [keys], _bands(evidence)
    for position, panel in enumerate(panels):
        start = top + 16 + position * (_HIGH + _GAP)
        last = position == len(panels) - 1
        parts.append(_strip(panel, x, start, loads, last=last))
    height = top + 16 + len(panels) * (_HIGH + _GAP) - _GAP + 40
    return Picture(
        key="cache",
        question="K",
        title="KV cache and queue over the run",
        summary=_summary(evidence),
        drawing="".join(parts),
        height=height,
        table=_table(evidence),
        lines=tuple(_lines(evidence)),
    )


def _end(measurement: Measurement) -> float:
    return measurement.started + measurement.duration


def _panels(evidence: Evidence) -> Iterator[_Panel]:
    yield _Panel("KV cache in use", {"curve curve0": _gauge(evidence, "kv_usage")}, share=True)
    series = {"curve curve0": _gauge(evidence, "running"), "curve curve1": _gauge(evidence, "waiting")}
    yield _Panel("requests at the engine", series)
    yield _Panel("preemptions since the start of the run", {"curve curve2": [_counter(evidence, "preemptions")]})


def _gauge(evidence: Evidence, name: str) -> list[Series]:
    return [[(m.started + at, v) for at, v in m.gauge(name)] for m in evidence.measurements]


def _counter(evidence: Evidence, name: str) -> Series:
    """How far a counter moved since its first reading; a reset starts anew from where it was."""
    seen = [(m.started + s.at, s.values[name]) for m in evidence.measurements for s in m.snapshots if name in s.values]
    total, points, before = 0.0, [], None
    for at, value in sorted(seen):
        total += 0.0 if before is None else max(0.0, value - before)
        points.append((at, total))
        before = value
    return points


def _bands(evidence: Evidence) -> list[tuple[float, float, str]]:
    """Neighbouring loads of one purpose as one band: (from, to, purpose)."""
    found: list[tuple[float, float, str]] = []
    for m in evidence.measurements:
        if found and found[-1][2] == m.load.purpose:
            found[-1] = (found[-1][0], _end(m), m.load.purpose)
        else:
            found.append((m.started, _end(m), m.load.purpose))
    return found


# ------------------------------------------------------------------------------------------------------------- drawing


def _keys(evidence: Evidence, panels: Sequence[_Panel]) -> Iterator[svg.Key]:
    if any("curve curve1" in panel.series for panel in panels):
        yield svg.Key("line", "curve curve0", "running")
        yield svg.Key("line", "curve curve1", "waiting")
    if any(m.load.purpose == "slo" for m in evidence.measurements):
        yield svg.Key("area", "during", "loads at the target")


def _strip(
    panel: _Panel,
    x: svg.Axis,
    top: float,
    loads: Sequence[tuple[float, float, str]],
    *,
    last: bool,
) -> str:
    whole = svg.Axis(0.0, 1.0, top + _HIGH, top)
    y = whole if panel.share else svg.Axis.over([*panel.values, 2.0], (top + _HIGH, top))
    word = _percent if panel.share else plain
    plot = svg.Plot(x, y, "seconds from the start of the run" if last else "", panel.title, plain, word)
    shown = [svg.rect(x(a), top, x(b) - x(a), _HIGH, "during") for a, b, purpose in loads if purpose == "slo"]
    shown.append(plot.frame(ticks=3))
    for cls, lines in panel.series.items():
        shown += [svg.path(_thin(plot.at(line)), cls) for line in lines]
    return "".join(shown)


def _percent(share: float) -> str:
    return f"{plain(100 * share)} %"


def _thin(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most the highest and the lowest place of each unit of width, in order."""
    kept: list[tuple[float, float]] = []
    for place in places:
        if len(kept) > 2 and round(place[0]) == round(kept[-1][0]) == round(kept[-2][0]):
            low, high = sorted((kept[-2][1], kept[-1][1]))
            if low <= place[1] <= high:
                continue
        kept.append(place)
    return kept


# --------------------------------------------------------------------------------------------------------------- words


def _summary(evidence: Evidence) -> str:
    at_target = evidence.loads("slo") or evidence.measurements
    told = (
        ("the KV cache is at most {} full", _most(at_target, "kv_usage", "share")),
        ("at most {} requests run", _most(at_target, "running", "")),
        ("at most {} wait", _most(at_target, "waiting", "")),
        ("{} preemptions", _moved(at_target)),
    )
    parts = [words.format(value) for words, value in told if value is not None]
    where = "At the target" if evidence.loads("slo") else "Over all loads"
    return f"{where} {', '.join(parts)}." if parts else "The engine's page tells too little."


def _most(loads: Sequence[Measurement], name: str, unit: str) -> str | None:
    values = [value for m in loads for _, value in m.gauge(name)]
    return quantity(max(values), unit) if values else None


def _moved(loads: Sequence[Measurement]) -> str | None:
    moved = [found for m in loads if (found := m.moved("preemptions")) is not None]
    return plain(sum(moved)) if moved else None


def _table(evidence: Evidence) -> Table:
    rows = tuple(
        (
            clean(m.load.id, 60),
            f"{plain(round(m.started))} to {plain(round(_end(m)))} s",
            *(_most([m], name, unit) or "" for name, unit in (("kv_usage", "share"), ("running", ""), ("waiting", ""))),
            _moved([m]) or "",
        )
        for m in evidence.measurements
        if m.snapshots
    )
    head = ("Load", "When", "KV usage, most", "Running, most", "Waiting, most", "Preemptions")
    return Table(head=head, rows=rows)


def _lines(evidence: Evidence) -> Iterator[str]:
    seen = [(m, max((v for _, v in m.gauge("kv_usage")), default=None)) for m in evidence.measurements]
    if not any(usage is not None for _, usage in seen):
        return
    yield "KV cache in use at most, load by load; | the whole cache"
    found = [Bar(clip(m.load.id, 20), quantity(usage, "share"), usage) for m, usage in seen if usage is not None]
    yield from bars(found, 1.0, 1.0)
