"""The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): what one device can do with the work of each phase
at the target, and what it does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import bounds
from auditor.evidence import Evidence, Report
from auditor.report import products, svg
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.report.products import Products
from auditor.theory.phases import Phase
from auditor.units import percent, plain, quantity

__all__ = ["picture"]

_LEFT, _RIGHT, _HIGH = 78.0, svg.WIDTH - 14.0, 190.0


@dataclass(frozen=True, slots=True)
class _Point:
    """A phase's FLOP/byte, the FLOP/s that the roof allows there, and those measured (None: no ladder told)."""

    name: str
    intensity: float
    roof: float
    seconds: float | None
    flops: float

    @property
    def measured(self) -> float | None:
        """FLOP/s."""
        return self.flops / self.seconds if self.seconds else None


def picture(report: Report) -> Picture | None:
    """The picture; None where model, hardware or target is unknown."""
    found = products.of_evidence(report.evidence)
    if found is None or found.peak <= 0:
        return None
    points = list(_points(report.evidence, found))
    keys, top = svg.legend(list(_keys(found, points)))
    seen = [v for p in points for v in (p.intensity, *found.ridges)]
    x = svg.Axis.over([min(seen) / 3, max(seen) * 3], (_LEFT, _RIGHT), log=True)
    rates = [v for p in points for v in (p.roof, p.measured) if v] + [found.peak]
    y = svg.Axis.over([min(rates) / 4, max(rates)], (top + 30 + _HIGH, top + 30), log=True)
    plot = svg.Plot(x, y, "FLOP per byte moved", "FLOP/s of one device", plain, lambda v: quantity(v, "FLOP/s"))
    return Picture(
        key="roofline",
        question="H",
        title="Roofline at the target",
        summary=_summary(points),
        drawing=keys + _drawing(plot, found, points),
        height=plot.y.start + 40,
        table=_table(points),
        lines=tuple(_lines(points)),
    )


def _points(evidence: Evidence, found: Products) -> Iterator[_Point]:
    for phase, ridge in zip(found.phases, found.ridges, strict=True):
        each = phase.total.intensity
        roof = found.peak * min(1.0, each / ridge) if ridge > 0 else found.peak
        yield _Point(phase.name, each, roof, _seconds(evidence, phase), phase.total.flops)


def _seconds(evidence: Evidence, phase: Phase) -> float | None:
    """What the ladders say that the phase takes at the target."""
    if phase.name == "prefill":
        return evidence.idle_ttft(phase.n)
    return bounds.step_seconds(evidence, bounds.measured(evidence))


# ------------------------------------------------------------------------------------------------------------- drawing


def _keys(found: Products, points: Sequence[_Point]) -> Iterator[svg.Key]:
    roof = f"roof: {quantity(found.peak, 'FLOP/s')} {found.dtype}, {quantity(found.bandwidth, 'bytes/s')}"
    yield svg.Key("line", "limit", roof)
    yield svg.Key("ring", "ring", "the most at this work")
    if any(p.measured for p in points):
        yield svg.Key("point", "point", "measured")


def _drawing(plot: svg.Plot, found: Products, points: Sequence[_Point]) -> str:
    ridge = min(found.ridges)
    roof = [(v, found.peak * min(1.0, v / ridge)) for v in sorted({*plot.x.through(), ridge})]
    roof = [point for point in roof if point[1] >= plot.y.low]
    above = [(plot.x.end, plot.y.end), (plot.x(roof[0][0]), plot.y.end)]
    parts = [svg.path([*plot.at(roof), *above], "never", closed=True), plot.frame(), svg.path(plot.at(roof), "limit")]
    return "".join([*parts, *(piece for row, p in enumerate(points) for piece in _place(plot, p, row))])


def _place(plot: svg.Plot, point: _Point, row: int) -> Iterator[str]:
    """A phase's points over its name, which has a row of its own at the foot."""
    x, y = plot.x(point.intensity), plot.y(point.roof)
    yield svg.line(x, y, x, plot.y.start, "drop")
    yield svg.circle(x, y, 3.6, "ring")
    if point.measured:
        yield svg.circle(x, plot.y(point.measured), 3.6, "point")
    side = "end" if x > (plot.x.start + plot.x.end) / 2 else ""
    yield svg.text(x + (-7 if side else 7), plot.y.start - 10 - 17 * row, _label(point), "halo", side)


def _label(point: _Point) -> str:
    return f"{point.name}, {percent(point.measured / point.roof)} of the roof" if point.measured else point.name


# --------------------------------------------------------------------------------------------------------------- words


def _summary(points: Sequence[_Point]) -> str:
    return " ".join(
        f"{p.name.capitalize()} does {plain(p.intensity)} FLOP a byte, where the roof is {quantity(p.roof, 'FLOP/s')}"
        + (f"; measured {quantity(p.measured, 'FLOP/s')}, {percent(p.measured / p.roof)}." if p.measured else ".")
        for p in points
    )


def _table(points: Sequence[_Point]) -> Table:
    rows = tuple(
        (
            p.name,
            plain(p.intensity),
            quantity(p.roof, "FLOP/s"),
            quantity(p.measured, "FLOP/s") if p.measured else "not measured",
            percent(p.measured / p.roof) if p.measured else "",
        )
        for p in points
    )
    return Table(head=("Phase", "FLOP/byte", "Roof", "Measured", "Share"), rows=rows)


def _lines(points: Sequence[_Point]) -> Iterator[str]:
    found = [Bar(p.name, percent(p.measured / p.roof), p.measured / p.roof) for p in points if p.measured]
    if found:
        yield "measured of what the roofline allows; | the roof"
        yield from bars(found, 1.0, 1.0)
