"""TPS over concurrency: how fast each stream decodes and what all decode together, against SLO and physical limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence import Evidence, Report
from auditor.measurement import Measurement
from auditor.report import svg
from auditor.report.figures import figures
from auditor.report.harmless import clean
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.report.pictures.limits import said
from auditor.theory.roofline import decode_limit
from auditor.units import plain, quantity

__all__ = ["picture"]

_LEFT, _RIGHT, _HIGH = 52.0, svg.WIDTH - 12.0, 130.0


@dataclass(frozen=True, slots=True)
class _Stop:
    """One load: requests in flight, TPS of a stream (p50, and p05 where the traffic's mix was sent) and of all."""

    name: str
    flight: float
    tps: float
    slow: float | None
    total: float | None
    context: int | None


def picture(report: Report) -> Picture | None:
    """The picture; None where no stream's speed was seen."""
    evidence = report.evidence
    stops = sorted((*_ladder(evidence), *_mixes(evidence)), key=lambda s: (s.flight, s.name))
    if not stops:
        return None
    target = evidence.target
    ends = [s.flight for s in stops] + ([float(target)] if target else [])
    x = svg.Axis.over(ends, (_LEFT, _RIGHT), log=True)
    bound = _bound(evidence, x)
    keys, top = svg.legend(list(_keys(evidence, stops, bound=bool(bound))))
    upper, lower = _plots(evidence, stops, bound, x, top + 30)
    return Picture(
        key="tps",
        question="W",
        title="TPS over concurrency",
        summary=_summary(evidence, stops),
        drawing=keys
        + _stream(upper, evidence, stops, bound)
        + (_total(lower, evidence, stops, bound) if lower is not None else ""),
        height=(lower or upper).y.start + 40,
        table=_table(stops),
        lines=tuple(_lines(evidence, stops)),
    )


def _ladder(evidence: Evidence) -> Iterator[_Stop]:
    for m in evidence.loads("decode"):
        if (steps := m.steps) is not None and steps.seconds > 0:
            flight = m.load.concurrency
            yield _Stop(m.load.id, flight, 1 / steps.seconds, None, flight / steps.seconds, m.load.context)


def _mixes(evidence: Evidence) -> Iterator[_Stop]:
    """Loads of the traffic's mix: the target's, and lighter ones that were tried after it failed."""
    for m in (*evidence.loads("slo"), *evidence.loads("nearest")):
        found = figures(m)
        if found.tps.get("p50"):
            slow = found.tps.get("p05")
            yield _Stop(m.load.id, _flight(m), found.tps["p50"], slow, found.output_rate, None)


def _flight(measurement: Measurement) -> float:
    """In flight as set, or in an open loop as it came out in the mean (Little's law)."""
    load, stay = measurement.load, measurement.stay
    return max(1.0, load.rate * stay) if load.arrivals and load.rate and stay else float(load.concurrency)


def _bound(evidence: Evidence, x: svg.Axis) -> list[tuple[float, float]]:
    """(in flight, TPS of a stream) that nothing beats at the target's mean lengths; empty where that is unknown."""
    prompt, output = evidence.profile.traffic.mean_lengths
    if evidence.theory is None or not evidence.theory[0].active_parameters or prompt <= 0:
        return []
    replicas, most = max(1, evidence.profile.deployment.replicas), evidence.accept_length
    if most is None:
        return []
    found = [(n, decode_limit(*evidence.theory, max(1.0, n / replicas), prompt + output / 2)) for n in x.through()]
    return [(n, most / limit.seconds) for n, limit in found if limit.seconds > 0]


# ------------------------------------------------------------------------------------------------------------- drawing


def _keys(evidence: Evidence, stops: Sequence[_Stop], *, bound: bool) -> Iterator[svg.Key]:
    contexts = sorted({s.context for s in stops if s.context is not None})
    for position, context in enumerate(contexts[:4]):
        yield svg.Key("line", f"curve curve{position % 4}", f"ladder at {plain(context)} tokens")
    if any(s.context is None for s in stops):
        yield svg.Key("point", "point", "the traffic, p50 to p05")
    if evidence.profile.objectives("tps"):
        yield svg.Key("dash", "slo", "SLO")
    if bound:
        yield svg.Key("line", "limit", "limit at the traffic's lengths")
    if evidence.target:
        yield svg.Key("line", "target", f"target {plain(evidence.target)}")


def _plots(
    evidence: Evidence, stops: Sequence[_Stop], bound: Sequence[tuple[float, float]], x: svg.Axis, top: float
) -> tuple[svg.Plot, svg.Plot | None]:
    """That of one stream, and that of all together where a load was steady for long enough to tell."""
    floors = [o.limit for o in evidence.profile.objectives("tps")]
    each = [v for s in stops for v in (s.tps, s.slow) if v] + floors
    crowded = [v for n, v in bound if v <= 3 * max(each)]
    y = svg.Axis.over([*each, *crowded], (top + _HIGH, top), log=True)
    totals = [s.total for s in stops if s.total]
    title = "tokens per second of a stream"
    if not totals:
        return svg.Plot(x, y, "requests in flight", title, plain, plain), None
    under = top + _HIGH + 34
    total = svg.Axis.over([*totals, 1.0], (under + _HIGH, under), log=False)
    upper = svg.Plot(x, y, "", title, plain, plain)
    return upper, svg.Plot(x, total, "requests in flight", "tokens per second of all together", plain, plain)


def _lanes(stops: Sequence[_Stop]) -> list[tuple[str, list[_Stop]]]:
    """The ladder's steps by context, each with the class of its line."""
    contexts = sorted({s.context for s in stops if s.context is not None})[:4]
    return [(f"curve curve{i}", [s for s in stops if s.context == c]) for i, c in enumerate(contexts)]


def _stream(plot: svg.Plot, evidence: Evidence, stops: Sequence[_Stop], bound: Sequence[tuple[float, float]]) -> str:
    curve = [p for p in bound if p[1] <= plot.y.high]
    parts = [plot.frame(ticks=5), _target(plot, evidence), svg.path(plot.at(curve), "limit")]
    for cls, lane in _lanes(stops):
        places = plot.at([(s.flight, s.tps) for s in lane])
        parts += [svg.path(places, cls), svg.dots(places, f"spot {cls}")]
    for stop in (s for s in stops if s.context is None):
        px = plot.x(stop.flight)
        parts.append(svg.line(px, plot.y(stop.tps), px, plot.y(stop.slow or plot.y.low), "interval"))
        parts.append(svg.circle(px, plot.y(stop.tps), 3.4, "point"))
    floors = evidence.profile.objectives("tps")
    return "".join([*parts, plot.limits((o.limit, said(o)) for o in floors)])


def _total(plot: svg.Plot, evidence: Evidence, stops: Sequence[_Stop], bound: Sequence[tuple[float, float]]) -> str:
    curve = [(n, n * v) for n, v in bound if n * v <= plot.y.high]
    parts = [plot.frame(ticks=5), _target(plot, evidence), svg.path(plot.at(curve), "limit")]
    for cls, lane in _lanes(stops):
        places = plot.at([(s.flight, s.total) for s in lane if s.total])
        parts += [svg.path(places, cls), svg.dots(places, f"spot {cls}")]
    mixes = [(s.flight, s.total) for s in stops if s.context is None and s.total]
    return "".join([*parts, *(svg.circle(px, py, 3.4, "point") for px, py in plot.at(mixes))])


def _target(plot: svg.Plot, evidence: Evidence) -> str:
    if not evidence.target:
        return ""
    return svg.line(plot.x(evidence.target), plot.y.start, plot.x(evidence.target), plot.y.end, "target")


# --------------------------------------------------------------------------------------------------------------- words


def _summary(evidence: Evidence, stops: Sequence[_Stop]) -> str:
    first, last = stops[0], stops[-1]
    parts = [f"A stream decodes {plain(first.tps)} tokens a second at {plain(round(first.flight))} in flight"]
    if last is not first:
        parts.append(f"{plain(last.tps)} at {plain(round(last.flight))}")
    floors = list(map(said, evidence.profile.objectives("tps")))
    return ", ".join(parts) + (f"; the SLO asks for {' and '.join(floors)}." if floors else ".")


def _table(stops: Sequence[_Stop]) -> Table:
    rows = tuple(
        (
            clean(s.name, 60),
            plain(round(s.flight)),
            plain(s.context) if s.context is not None else "the traffic's",
            plain(s.tps),
            plain(s.slow) if s.slow else "",
            plain(s.total) if s.total else "",
        )
        for s in stops
    )
    return Table(head=("Load", "In flight", "Context", "TPS p50", "TPS p05", "Total TPS"), rows=rows)


def _lines(evidence: Evidence, stops: Sequence[_Stop]) -> Iterator[str]:
    floor = max((o.limit for o in evidence.profile.objectives("tps")), default=None)
    yield "TPS of a stream over requests in flight" + (f", | SLO {quantity(floor, '/s')}" if floor else "")
    found = [Bar(f"{plain(round(s.flight))}: {clean(s.name, 30)}", f"{plain(s.tps)} tok/s", s.tps) for s in stops]
    yield from bars(found, None, floor)
