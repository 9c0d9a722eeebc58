"""What users sent and got by an engine's histograms, which know counts at their bounds and nothing between them.

A point for each bound, which is exact; between two of them a box that holds the truth.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from auditor.evidence import Report
from auditor.measurement import Histogram
from auditor.profile import Objective, Profile
from auditor.report import svg
from auditor.report.harmless import clean
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.report.pictures import shares
from auditor.report.pictures.limits import said
from auditor.theory import buckets
from auditor.units import plain, quantity
from auditor.watch import FEWEST_OF_USERS

__all__ = ["pictures"]

_LEFT, _RIGHT, _HIGH = 56.0, svg.WIDTH - 14.0, 150.0
_CONCEPTS = {
    "prompt_len": ("Prompts that users send", "prompt tokens", "tokens"),
    "output_len": ("Replies that users get", "output tokens", "tokens"),
    "ttft": ("TTFT that users saw", "seconds to the first token", "s"),
    "tpot": ("TPOT that users saw", "seconds for each further token", "s"),
    "e2e": ("Time of whole requests that users saw", "seconds to the last token", "s"),
}
_LIMITS: Mapping[str, Literal["ttft", "tps", "e2e"]] = {"ttft": "ttft", "tpot": "tps", "e2e": "e2e"}
_NAMED = (0.5, 0.9, 0.95, 0.99)


def pictures(report: Report) -> list[Picture]:
    """One picture for each histogram that counted requests of users; none without observation."""
    found = report.evidence.observed
    if found is None:
        return []
    source = clean(found.source, 80)
    tables = ((name, buckets.clean(h.buckets, h.count), h) for name in _CONCEPTS if (h := found.histograms.get(name)))
    return [
        _picture(name, table, whole, _objectives(report.evidence.profile, name), source)
        for name, table, whole in tables
        if whole.count >= (1 if found.passive else FEWEST_OF_USERS) and len(_exact(table)) > 1
    ]


def _objectives(profile: Profile, concept: str) -> list[Objective]:
    """The SLOs on all requests: a histogram tells no classes apart."""
    metric = _LIMITS.get(concept)
    return [o for o in profile.objectives(metric) if o.cls is None] if metric is not None else []


def _picture(
    name: str, table: buckets.Buckets, whole: Histogram, objectives: Sequence[Objective], source: str
) -> Picture:
    title, _, unit = _CONCEPTS[name]
    keys = [svg.Key("point", "point", "counted at a bound"), svg.Key("area", "during", "somewhere within")]
    drawn, top = svg.legend(keys + ([svg.Key("dash", "slo", "SLO")] if objectives else []))
    plot = _plot(name, table, [o.seconds for o in objectives], top + 30)
    return Picture(
        key=f"observed-{name.replace('_', '-')}",
        question="W",
        title=title,
        summary=f"{_summary(table, whole, unit)} By {source}.",
        drawing=drawn + _drawing(plot, table, objectives),
        height=plot.y.start + 40,
        table=_numbers(table, unit),
        lines=tuple(_lines(title, table, unit)),
    )


def _exact(table: buckets.Buckets) -> list[tuple[float, float]]:
    """Finite bounds with their counts, from the last that holds nothing to the first that holds all."""
    finite = [(bound, count) for bound, count in table if 0 < bound < math.inf]
    whole = table[-1][1]
    first = max((i for i, (_, count) in enumerate(finite) if count <= 0), default=0)
    last = min((i for i, (_, count) in enumerate(finite) if count >= whole), default=len(finite) - 1)
    return finite[first : last + 1]


# ------------------------------------------------------------------------------------------------------------- drawing


def _plot(name: str, table: buckets.Buckets, limits: Sequence[float], top: float) -> svg.Plot:
    _, y_title, unit = _CONCEPTS[name]
    last = max(0.9, min(1 - 1 / max(2.0, table[-1][1]), 0.999))
    bounds = [bound for bound, _ in _exact(table)]
    beyond = 2 * bounds[-1] if _exact(table)[-1][1] < table[-1][1] else bounds[-1]
    y = svg.Axis.over([*bounds, beyond, *limits], (top + _HIGH, top), log=True)
    title = "share of requests that are " + ("as short or shorter" if unit == "tokens" else "as fast or faster")
    word = plain if unit == "tokens" else lambda value: quantity(value, unit)
    return svg.Plot(shares.axis(last, (_LEFT, _RIGHT)), y, title, y_title, shares.percent, word, shares.ticks(last))


def _drawing(plot: svg.Plot, table: buckets.Buckets, objectives: Sequence[Objective]) -> str:
    count = table[-1][1]
    places = [(plot.x(shares.odds(c / count)), plot.y(bound)) for bound, c in _exact(table)]
    ends = places if count <= _exact(table)[-1][1] else [*places, (plot.x.end, plot.y.end)]
    boxes = [svg.rect(x1, y2, max(1.0, x2 - x1), max(1.0, y1 - y2), "during") for (x1, y1), (x2, y2) in pairwise(ends)]
    points = [svg.circle(x, y, 3.0, "point") for x, y in places]
    drops = [svg.line(*_foot(plot, o), plot.x(shares.odds(o.share)), plot.y(o.seconds), "drop") for o in objectives]
    return "".join([*boxes, plot.frame(), *drops, *points, plot.limits((o.seconds, said(o)) for o in objectives)])


def _foot(plot: svg.Plot, objective: Objective) -> tuple[float, float]:
    """Where the SLO's percentile stands on the axis."""
    return plot.x(shares.odds(objective.share)), plot.y.start


# --------------------------------------------------------------------------------------------------------------- words


def _span(table: buckets.Buckets, share: float, unit: str) -> str:
    low, high = buckets.holding(table, share) or (0.0, math.inf)
    if math.isinf(high):
        return f"over {_word(low, unit)}"
    return f"{_word(low, unit)} to {_word(high, unit)}"


def _word(value: float, unit: str) -> str:
    return plain(value) if unit == "tokens" else quantity(value, unit)


def _summary(table: buckets.Buckets, whole: Histogram, unit: str) -> str:
    p50, p95 = (_span(table, share, unit) for share in (0.5, 0.95))
    kind = " tokens" if unit == "tokens" else ""
    mean = quantity(whole.sum / whole.count, unit)
    return f"Over {plain(whole.count)} requests p50 is {p50}{kind}, p95 {p95}{kind}, the mean {mean}."


def _numbers(table: buckets.Buckets, unit: str) -> Table:
    count = table[-1][1]
    rows = tuple((_word(bound, unit), plain(c), f"{plain(100 * c / count, 4)} %") for bound, c in _exact(table))
    return Table(head=("At most", "Requests", "Share"), rows=rows)


def _lines(title: str, table: buckets.Buckets, unit: str) -> Iterator[str]:
    """Bars up to the bound that the percentile is sure to reach, = up to the one that it is sure not to exceed."""
    most = _exact(table)[-1][0]
    spans = [(share, buckets.holding(table, share) or (0.0, math.inf)) for share in _NAMED]
    found = [Bar(f"p{100 * share:g}", _span(table, share, unit), low, min(high, most)) for share, (low, high) in spans]
    yield f"{title}, # at least, = at most"
    yield from bars(found, most)
