"""TTFT over prompt length: each request under load and alone, the SLOs, and the limit that nothing beats."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import slo
from auditor.evidence import Evidence, Report
from auditor.measurement import Measurement, Sample
from auditor.profile import Objective
from auditor.report import svg
from auditor.report.figures import latency, rank
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.report.pictures.limits import said
from auditor.theory.roofline import prefill_limit
from auditor.units import plain, quantity

__all__ = ["picture"]

_LEFT, _RIGHT, _HIGH = 52.0, svg.WIDTH - 12.0, 190.0
_BINS = 5
_ANY = Objective(metric="ttft", share=0.95, limit=math.inf, path="")

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Seen:
    """(prompt tokens, seconds) of requests: `within` their SLO, over it (`missed`), without a first token (`failed`),
    and `alone` with the engine.
    """

    within: list[Point]
    missed: list[Point]
    failed: list[Point]
    alone: list[Point]

    @property
    def loaded(self) -> list[Point]:
        """All under load, a failed one infinitely slow."""
        return [*self.within, *self.missed, *((x, math.inf) for x, _ in self.failed)]


def picture(report: Report) -> Picture | None:
    """The picture; None where no request has a first token."""
    evidence = report.evidence
    seen = _seen(evidence)
    known = [*seen.within, *seen.missed, *seen.alone]
    if not known:
        return None
    objectives = evidence.profile.objectives("ttft")
    limits = [o.limit for o in objectives]
    x = svg.Axis.over((n for n, _ in [*known, *seen.failed]), (_LEFT, _RIGHT), log=True)
    bound = _bound(evidence, x)
    keys, top = svg.legend(list(_keys(seen, objectives, bool(bound))))
    bottom = top + 30 + _HIGH
    times = [t for _, t in (*known, *bound)] + limits
    y = svg.Axis.over([*times, max(times) * (1.3 if seen.failed else 1.0)], (bottom, top + 30), log=True)
    plot = svg.Plot(x, y, "prompt tokens", "seconds to the first token", plain, lambda v: quantity(v, "s"))
    table = _table(evidence, seen)
    return Picture(
        key="ttft",
        question="W",
        title="TTFT over prompt length",
        summary=_summary(seen, objectives, bool(bound)),
        drawing=keys + _drawing(plot, seen, objectives, bound),
        height=bottom + 40,
        table=table,
        lines=tuple(_lines(seen, objectives)),
    )


def _seen(evidence: Evidence) -> _Seen:
    by_class: dict[str | None, float] = {}
    for objective in evidence.profile.objectives("ttft"):
        by_class[objective.cls] = max(objective.limit, by_class.get(objective.cls, 0.0))
    loaded = [pair for m in evidence.loads("slo") for pair in slo.readings_of(m, _ANY)]
    limit = {id(s): min(by_class.get(s.cls, math.inf), by_class.get(None, math.inf)) for s, _ in loaded}
    return _Seen(
        within=[(_length(s), t) for s, t in loaded if math.isfinite(t) and t <= limit[id(s)]],
        missed=[(_length(s), t) for s, t in loaded if math.isfinite(t) and t > limit[id(s)]],
        failed=[(_length(s), 0.0) for s, t in loaded if math.isinf(t)],
        alone=[point for m in evidence.loads("prefill") for point in _alone(m)],
    )


def _alone(measurement: Measurement) -> list[Point]:
    return [(float(n), t) for n, t in measurement.first_tokens()]


def _length(sample: Sample) -> float:
    return float(max(1, sample.prompt_tokens or sample.asked_prompt_tokens))


def _bound(evidence: Evidence, x: svg.Axis) -> list[Point]:
    """The physical limit over the axis; empty where model or hardware is unknown."""
    if evidence.theory is None or not evidence.theory[0].active_parameters:
        return []
    found = [(n, prefill_limit(*evidence.theory, n).seconds) for n in x.through()]
    return [point for point in found if point[1] > 0]


# ------------------------------------------------------------------------------------------------------------- drawing


def _keys(seen: _Seen, objectives: Sequence[Objective], bound: bool) -> Iterator[svg.Key]:
    if seen.within or seen.missed or seen.failed:
        yield svg.Key("dot", "dots", "under load")
    if seen.missed:
        yield svg.Key("cross", "miss", "over its SLO")
    if seen.failed:
        yield svg.Key("cross", "fail", "failed (at the top)")
    if seen.alone:
        yield svg.Key("ring", "ring", "alone")
    if objectives:
        yield svg.Key("dash", "slo", "SLO")
    if bound:
        yield svg.Key("line", "limit", "physical limit")


def _drawing(plot: svg.Plot, seen: _Seen, objectives: Sequence[Objective], bound: list[Point]) -> str:
    ceiling = plot.y.end + 1
    curve = plot.at(bound)
    floor = [(plot.x.end, plot.y.start), (plot.x.start, plot.y.start)]
    return "".join(
        (
            svg.path([*curve, *floor], "never", closed=True) if curve else "",
            plot.frame(),
            svg.path(curve, "limit"),
            svg.dots(plot.at(seen.within), "dots"),
            svg.crosses(plot.at(seen.missed), "miss"),
            svg.crosses([(plot.x(n), ceiling) for n, _ in seen.failed], "fail"),
            *(svg.circle(px, py, 3.2, "ring") for px, py in sorted(set(plot.at(seen.alone)))[:200]),
            plot.limits((o.limit, said(o)) for o in objectives),
        )
    )


# --------------------------------------------------------------------------------------------------------------- words


def _summary(seen: _Seen, objectives: Sequence[Objective], bound: bool) -> str:
    parts = []
    if total := len(seen.loaded):
        over = len(seen.missed) + len(seen.failed)
        against = " and ".join(said(o) for o in objectives)
        missed = f"{over} of {total} requests under load miss {against} or fail"
        parts.append(missed if against else f"{total} requests under load, {len(seen.failed)} failed")
    if seen.alone:
        parts.append(f"{len(seen.alone)} requests had the engine to themselves")
    if bound:
        parts.append("no prompt can be read in the shaded times below the physical limit")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _groups(seen: _Seen) -> list[tuple[float, float, list[float]]]:
    """Requests under load in groups of like length: (shortest, longest, their TTFTs). One length is in one group."""
    groups: list[list[Point]] = []
    for point in sorted(seen.loaded):
        if groups and (len(groups[-1]) < len(seen.loaded) / _BINS or groups[-1][-1][0] == point[0]):
            groups[-1].append(point)
        else:
            groups.append([point])
    return [(group[0][0], group[-1][0], [t for _, t in group]) for group in groups]


def _span(low: float, high: float) -> str:
    return plain(low) if low == high else f"{plain(low)} to {plain(high)}"


def _table(evidence: Evidence, seen: _Seen) -> Table:
    rows = [
        (_span(low, high), "load", str(len(times)), latency(rank(times, 0.5) or 0.0), latency(rank(times, 0.95) or 0.0))
        for low, high, times in _groups(seen)
    ]
    by_length: dict[float, list[float]] = {}
    for n, t in seen.alone:
        by_length.setdefault(n, []).append(t)
    rows += [
        (plain(n), "alone", str(len(times)), latency(rank(times, 0.5) or 0.0), latency(rank(times, 0.95) or 0.0))
        for n, times in sorted(by_length.items())
    ]
    bound = [_limit(evidence, high) for _, high, _ in _groups(seen)] + [_limit(evidence, n) for n in sorted(by_length)]
    table = tuple((*row, extra) for row, extra in zip(rows, bound, strict=True))
    return Table(head=("Prompt tokens", "Under", "Requests", "TTFT p50", "TTFT p95", "Physical limit"), rows=table)


def _limit(evidence: Evidence, tokens: float) -> str:
    if evidence.theory is None or not evidence.theory[0].active_parameters:
        return ""
    return quantity(prefill_limit(*evidence.theory, tokens).seconds, "s")


def _lines(seen: _Seen, objectives: Sequence[Objective]) -> Iterator[str]:
    groups = [(low, high, rank(ts, 0.5) or 0.0, rank(ts, 0.95) or 0.0) for low, high, ts in _groups(seen)]
    ends = [end for group in groups for end in group[2:] if math.isfinite(end)]
    limit = min((o.limit for o in objectives), default=None)
    whole = max([*ends, limit or 0.0], default=0.0)
    found = [
        Bar(
            f"{_span(low, high)} tokens",
            f"{latency(p50)} / {latency(p95)}",
            min(p50, whole),
            min(p95, whole),
        )
        for low, high, p50, p95 in groups
    ]
    if found:
        yield "TTFT under load, # up to p50, = up to p95" + (f", | SLO {quantity(limit, 's')}" if limit else "")
        yield from bars(found, whole, limit)
