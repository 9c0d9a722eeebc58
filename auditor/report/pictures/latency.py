"""How long requests take, percentile by percentile, against each SLO, with the interval at the SLO's percentile.

One picture an SLO metric. The axis of percentiles is stretched towards the slow end (as HdrHistogram draws it), where
SLOs are decided: at the SLO's percentile the curve must be within the limit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import slo
from auditor.evidence import Evidence, Finding, Report
from auditor.profile import Objective
from auditor.report import svg
from auditor.report.figures import latency, rank, rate
from auditor.report.harmless import clean
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.report.pictures.limits import said
from auditor.report.pictures.shares import SHARES, axis, odds, percent, ticks
from auditor.report.words import STATUS_WORDS, number, quantity, weight
from auditor.units import plain

__all__ = ["pictures"]

_LEFT, _RIGHT, _HIGH = 56.0, svg.WIDTH - 14.0, 180.0
_TITLES = {
    "W110": ("TTFT by percentile", "seconds to the first token"),
    "W111": ("TPS of each stream by percentile", "tokens per second"),
    "W112": ("Time of whole requests by percentile", "seconds to the last token"),
    "W114": ("Time to the first answer by percentile", "seconds to the answer's first token"),
}


@dataclass(frozen=True, slots=True)
class _Curve:
    """The readings of all requests, or of one class, best first: seconds, or tokens per second with 0 for failed."""

    cls: str | None
    values: list[float]
    floor: bool

    def at(self, share: float) -> float:
        """What this share of the requests keeps or betters, by nearest rank."""
        found = rank([-v for v in self.values] if self.floor else self.values, share) or 0.0
        return -found if self.floor and found else found

    @property
    def failed(self) -> int:
        """How many have no value of their own."""
        return sum(1 for v in self.values if not v or math.isinf(v))

    def words(self, value: float) -> str:
        """A value of it."""
        return rate(value) if self.floor else latency(value)


def pictures(report: Report) -> list[Picture]:
    """One picture for each metric that has an SLO and readings."""
    found = ((rule, report.evidence.profile.objectives(metric)) for rule, metric in slo.LATENCY.items())
    drawn = (_picture(report, rule, objectives) for rule, objectives in found)
    return [picture for picture in drawn if picture is not None]


def _picture(report: Report, rule: str, objectives: Sequence[Objective]) -> Picture | None:
    curves = list(_curves(report.evidence, objectives))
    if not curves:
        return None
    findings = {f.subject or "": f for f in report.findings if f.rule == rule}
    keys, top = svg.legend(list(_keys(curves, judged=any(f.measured for f in findings.values()))))
    plot = _plot(rule, curves, objectives, findings, top + 30)
    title, _ = _TITLES[rule]
    return Picture(
        key=f"latency-{rule.lower()}",
        question="W",
        title=title,
        summary=" ".join(_sentence(o, findings.get(o.subject)) for o in objectives),
        drawing=keys + _drawing(plot, curves, objectives, findings),
        height=plot.y.start + 40,
        table=_table(curves),
        lines=tuple(_lines(title, curves, objectives)),
    )


def _curves(evidence: Evidence, objectives: Sequence[Objective]) -> Iterator[_Curve]:
    for cls in dict.fromkeys(o.cls for o in objectives):
        seconds = [t for _, t in slo.readings(evidence, next(o for o in objectives if o.cls == cls))]
        taken = [t for t in sorted(seconds) if t > 0]
        if taken and math.isfinite(taken[0]):
            floor = objectives[0].metric == "tps"
            yield _Curve(cls, [1 / t if floor else t for t in taken], floor)


# ------------------------------------------------------------------------------------------------------------- drawing


def _plot(
    rule: str, curves: Sequence[_Curve], objectives: Sequence[Objective], findings: dict[str, Finding], top: float
) -> svg.Plot:
    last = max([*(1 - 1 / len(c.values) for c in curves), *(o.share for o in objectives), 0.9])
    ends = [end for f in findings.values() if f.measured for end in (f.measured.low, f.measured.high) if end]
    seen = [v for c in curves for v in c.values if math.isfinite(v) and v > 0]
    most = max(*seen, *(o.limit for o in objectives)) * (1.15 if any(c.failed for c in curves) else 1.0)
    y = svg.Axis.over([*seen, *ends, *(o.limit for o in objectives), most], (top + _HIGH, top), log=_wide(seen))
    word = plain if curves[0].floor else lambda seconds: quantity(seconds, "s")
    title = "share of requests that are as fast or faster"
    return svg.Plot(axis(last, (_LEFT, _RIGHT)), y, title, _TITLES[rule][1], percent, word, ticks(last))


def _wide(seen: Sequence[float]) -> bool:
    return max(seen) > 20 * min(seen)


def _keys(curves: Sequence[_Curve], *, judged: bool) -> Iterator[svg.Key]:
    for position, curve in enumerate(curves):
        name = "all requests" if curve.cls is None else clean(curve.cls, 24)
        failed = f", {curve.failed} failed" if curve.failed else ""
        yield svg.Key("line", f"curve curve{position % 4}", f"{name} ({len(curve.values)}{failed})")
    yield svg.Key("dash", "slo", "SLO")
    if judged:
        yield svg.Key("line", "interval", "interval of the verdict")


def _drawing(
    plot: svg.Plot, curves: Sequence[_Curve], objectives: Sequence[Objective], findings: dict[str, Finding]
) -> str:
    parts = [plot.frame()]
    for objective in objectives:
        at = plot.x(odds(objective.share))
        parts.append(svg.line(at, plot.y.start, at, plot.y(objective.limit), "drop"))
    parts += [svg.path(_points(plot, c), f"curve curve{i % 4}") for i, c in enumerate(curves)]
    parts += [_interval(plot, o, findings.get(o.subject)) for o in objectives]
    return "".join([*parts, plot.limits((o.limit, said(o)) for o in objectives)])


def _points(plot: svg.Plot, curve: _Curve) -> list[tuple[float, float]]:
    """A step a request, thinned to a step a unit of width: the (i+1)th best of n stands at the share i/n.

    Where requests failed the curve leaves the picture.
    """
    n = len(curve.values)
    points: list[tuple[float, float]] = []
    last = n - curve.failed - 1
    for i, value in enumerate(curve.values[: last + 1]):
        place = plot.x(odds(i / n)), plot.y(value)
        if i in (0, last) or place[0] - points[-1][0] >= 1:
            points.append(place)
    return [*points, (points[-1][0], plot.y.start if curve.floor else plot.y.end)] if curve.failed else points


def _interval(plot: svg.Plot, objective: Objective, finding: Finding | None) -> str:
    """The measured percentile with its interval; an open end goes to the edge."""
    found = finding.measured if finding is not None else None
    if found is None or (found.low is None and found.high is None):
        return ""
    at = plot.x(odds(objective.share))
    worst = plot.y.start if objective.metric == "tps" else plot.y.end
    low, high = (worst if end is None else plot.y(end) for end in (found.low, found.high))
    bar = [svg.line(at, low, at, high, "interval"), *(svg.line(at - 4, e, at + 4, e, "interval") for e in (low, high))]
    return "".join(bar) + (svg.circle(at, plot.y(found.value), 3.4, "point") if found.value else "")


# --------------------------------------------------------------------------------------------------------------- words


def _sentence(objective: Objective, finding: Finding | None) -> str:
    unit = "tokens/s" if objective.metric == "tps" else "s"
    subject = clean(objective.subject, 40)
    least = "at least" if objective.metric == "tps" else "at most"
    wanted = f"{subject} must be {least} {quantity(objective.limit, unit)}"
    if finding is None or finding.measured is None:
        return f"{wanted}; not judged."
    return f"{wanted}: {number(finding.measured, provenance=False)}, {STATUS_WORDS[weight(finding)]}."


def _table(curves: Sequence[_Curve]) -> Table:
    n = max(len(c.values) for c in curves)
    shares = [s for s in SHARES[1:] if s <= 1 - 1 / n] or [0.5]
    rows = [
        (clean(c.cls or "all", 40), str(len(c.values)), *(c.words(c.at(s)) for s in shares), c.words(c.values[-1]))
        for c in curves
    ]
    return Table(head=("Requests", "n", *(f"{plain(100 * s, 4)} %" for s in shares), "worst"), rows=tuple(rows))


def _lines(title: str, curves: Sequence[_Curve], objectives: Sequence[Objective]) -> Iterator[str]:
    """Bars of the share that the SLO speaks of."""
    finite = [v for c in curves for v in c.values if math.isfinite(v)]
    for curve in curves:
        told = [o for o in objectives if o.cls == curve.cls]
        shares = sorted({0.5, 0.9, *(o.share for o in told)})
        values = [(s, curve.at(s)) for s in shares]
        found = [
            Bar(f"{plain(100 * s, 4)} % {'at least' if curve.floor else 'within'}", curve.words(v), min(v, max(finite)))
            for s, v in values
        ]
        unit, cls = "tokens/s" if curve.floor else "s", clean(curve.cls or "all", 30)
        for objective in told:
            yield f"{title}, {cls}; | SLO {objective.percentile} {quantity(objective.limit, unit)}"
            yield from bars(found, max([*finite, objective.limit]), objective.limit)
