"""What users really sent and got, from Prometheus alone: nothing here reaches the service.

The engine's histograms, counters and gauges over a window, at the edges of its slices (`monitoring.window`), by names
from the catalogue.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from auditor.catalog import metrics as catalogue
from auditor.errors import UsageError
from auditor.monitoring.window import Edges, Read, observed
from auditor.probe.prometheus import Prometheus, Refused, Result
from auditor.watch import Observed

__all__ = ["LENGTHS", "TIMES", "Subject", "look"]

LENGTHS = ("prompt_len", "output_len")
TIMES = ("ttft", "tpot", "e2e", "queue_time")
_COUNTERS = ("requests", "aborted", "refusals", "preemptions", "prompt_tokens", "generation_tokens")
_SLICES = 96  # a quarter of an hour of a day
_LOOKS = 1000  # at which the beginning of the series is looked for
_INTERVAL = 15.0  # seconds between scrapes, where no target tells
_RANKS = ", ".join((*catalogue.REPEATING, "pid"))  # series that show the same figures again
_MODEL = "model_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom to look for: an engine ("auto": whichever has most series), its version, the model's served name, and
    `labels` that all its series have.
    """

    engine: str = "auto"
    version: str | None = None
    model: str = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)


async def look(
    prometheus: Prometheus, subject: Subject, window: float, concepts: Sequence[str] = (*TIMES, *LENGTHS)
) -> Observed:
    """The last `window` seconds of the service, by the server's clock; without series of the engine it holds nothing.

    Counters, gauges and `up` are asked for only beside times: lengths alone are read over weeks.

    Raises UsageError where the series are of another model or of several, Unanswered where Prometheus does not answer.
    """
    now = await prometheus.now()
    when = (now - window, now)
    present = await prometheus.label_values("__name__", (), *when)
    engine = _engine(subject.engine, present)
    if engine is None:
        return observed(Read(source=prometheus.url, edges=_edges(when, _INTERVAL)))
    names = _names(engine, present)
    selector = await _selector(prometheus, subject, names, when)
    shared = _select(_told_by_all(engine, names), selector)
    interval = await _interval(prometheus, shared, when)
    edges = _edges((await _since(prometheus, shared, when), now), interval)
    asked = _Asked(prometheus, edges, interval, selector)
    families = {c: name for c in concepts if (name := _histogram(engine, c, present))}
    histograms = {c: await asked.histogram(name) for c, name in families.items()}
    lows = {c: await asked.lowest(f"{name}_count") for c, name in families.items()}
    if not set(TIMES) & set(concepts):
        return observed(Read(source=prometheus.url, edges=edges, engine=engine, histograms=histograms, lows=lows))
    counted = {c: name for c in _COUNTERS if (name := _plain(engine, c, present))}
    counters = {c: await asked.counter(name) for c, name in counted.items()}
    lows |= {c: await asked.lowest(name) for c, name in counted.items()}
    named = {c: name for c in ("running", "waiting", "kv_usage") if (name := _plain(engine, c, present))}
    tracks = [track for listed in histograms.values() for track in listed]
    return observed(
        Read(
            source=prometheus.url,
            edges=edges,
            engine=engine,
            histograms=histograms,
            counters=counters,
            gauges=await asked.gauges(named),
            lows=lows,
            up=await asked.up(tracks),
            zero=_zero(engine, subject.version),
        )
    )


def _edges(when: tuple[float, float], interval: float) -> Edges:
    """The edges of the slices, none shorter than the time between two scrapes, up to now."""
    start, now = when
    step = math.ceil(max((now - start) / _SLICES, interval, 1.0))
    count = math.floor((now - start) / step)
    return Edges(start=now - step * count, step=step, count=count)


async def _since(prometheus: Prometheus, series: str, when: tuple[float, float]) -> float:
    """When in the window these series began: a day's slices are too wide for the quarter of an hour that is there."""
    start, now = when
    step = (now - start) / _LOOKS
    found = await prometheus.query_range(f"count({series})", start, now, step)
    first = min((result.points[0][0] for result in found if result.points), default=start) - step
    return first if first - start > (now - start) / _SLICES else start


async def _interval(prometheus: Prometheus, selector: str, when: tuple[float, float]) -> float:
    """The longest time between scrapes of the targets that have these series; others' are none of the service's."""
    try:
        targets = await prometheus.targets()
    except Refused:  # Thanos and Mimir scrape nothing themselves
        return _INTERVAL
    own = {(labels.get("job", ""), labels.get("instance", "")) for labels in await prometheus.series([selector], *when)}
    known = [t.interval for t in targets if t.interval and (t.job, t.labels.get("instance", "")) in own]
    return max(known, default=_INTERVAL)


# ---------------------------------------------------------------------------------------------------------------- names


def _engine(wanted: str, present: Sequence[str]) -> str | None:
    """The engine in use: as declared, else that of most names."""
    if catalogue.is_known(wanted):
        return wanted if _names(wanted, present) else None
    votes = {e: len(_names(e, present)) for e in catalogue.engines() if catalogue.kind(e) == "engine"}
    best = max(votes, key=lambda engine: votes[engine], default=None)
    return best if best is not None and votes[best] else None


def _names(engine: str, present: Sequence[str]) -> list[str]:
    return [name for name in present if any(m.engine == engine for m in catalogue.lookup(name))]


def _carrying(engine: str, concept: str, present: Sequence[str], types: tuple[str, ...]) -> list[str]:
    """Names of the first of the engine's metrics for a concept that Prometheus has, as they stand there."""
    for metric in catalogue.metrics(engine):
        if metric.concept == concept and metric.type in types and not metric.labels:
            found = [name for name in present if metric in catalogue.lookup(name, engine)]
            exact = [name for name in found if name.startswith(metric.name)]
            if found:
                return exact or found
    return []


def _histogram(engine: str, concept: str, present: Sequence[str]) -> str | None:
    """The family name of a histogram with classic buckets; None where there is none."""
    found = _carrying(engine, concept, present, ("histogram",))
    return next((name.removesuffix("_bucket") for name in sorted(found) if name.endswith("_bucket")), None)


def _plain(engine: str, concept: str, present: Sequence[str]) -> str | None:
    return next(iter(sorted(_carrying(engine, concept, present, ("counter", "gauge")))), None)


def _zero(engine: str, version: str | None) -> tuple[str, ...]:
    """Counters that an engine shows from the first event on only: absent means none."""
    if not catalogue.source(engine).lazy:
        return ()
    names = catalogue.names(engine, version)
    return tuple(concept for concept in ("aborted", "refusals") if names.get(concept))


def _told_by_all(engine: str, names: Sequence[str]) -> str:
    """A name with few series that each of the engine's targets has."""
    return _plain(engine, "running", names) or next((name for name in names if not name.endswith("_bucket")), names[0])


async def _selector(prometheus: Prometheus, subject: Subject, names: Sequence[str], when: tuple[float, float]) -> str:
    """The matchers for the service in question: labels as declared, and its model where the series tell one."""
    declared = [f"{label}={_quoted(value)}" for label, value in subject.labels.items()]
    match = [f"{{{', '.join([f'__name__=~{_quoted(_any(names))}', *declared])}}}"]
    models = await prometheus.label_values(_MODEL, match, *when)
    if subject.model in models:
        return ", ".join([*declared, f"{_MODEL}={_quoted(subject.model)}"])
    listed = ", ".join(models[:5])
    if subject.model != "auto" and models:
        raise UsageError(f"{prometheus.url}: has series of {listed}, none of endpoint.model, {subject.model}")
    if len(models) > 1:
        raise UsageError(f"{prometheus.url}: has series of several models: set endpoint.model to one of {listed}")
    return ", ".join(declared)


def _select(name: str, selector: str) -> str:
    """The series of one name that have the labels of `selector`."""
    return f"{{{', '.join(filter(None, (f'__name__={_quoted(name)}', selector)))}}}"


def _any(names: Iterable[str]) -> str:
    """A regular expression for these names."""
    return "|".join(re.escape(name) for name in names)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# -------------------------------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class _Asked:
    """Questions over one window, about series of one model."""

    prometheus: Prometheus
    edges: Edges
    interval: float
    selector: str

    async def histogram(self, name: str) -> tuple[Result, ...]:
        """The cumulative series of one histogram at every edge."""
        names = f"__name__=~{_quoted(f'{_any([name])}_(bucket|sum|count)')}"
        return await self._range(f"{{{', '.join(filter(None, (names, self.selector)))}}}")

    async def counter(self, name: str) -> tuple[Result, ...]:
        """A counter's series at every edge."""
        return await self._range(self._series(name))

    async def lowest(self, name: str) -> tuple[Result, ...]:
        """The least of each series over each slice."""
        return await self._range(f"min_over_time({self._series(name)}[{self._span(self.edges.step)}])")

    async def gauges(self, names: Mapping[str, str]) -> dict[str, tuple[Result, ...]]:
        """Peaks of each gauge over each slice, the mean of what runs or waits, and the least that waited."""
        step, every = self._span(self.edges.step), self._span(max(1.0, min(self.interval, self.edges.step / 4)))
        found: dict[str, tuple[Result, ...]] = {}
        for concept, name in names.items():
            over = "max" if concept == "kv_usage" else "sum"
            total = f"{over}(max without ({_RANKS}) ({self._series(name)}))"
            found[concept] = await self._range(f"max_over_time(({total})[{step}:{every}])")
            if concept == "waiting":
                found["waiting_least"] = await self._range(f"min_over_time(({total})[{step}:{every}])")
        if {"running", "waiting"} <= names.keys():
            parts = (f"sum(max without ({_RANKS}) ({self._series(names[c])}))" for c in ("running", "waiting"))
            found["in_flight"] = await self._range(f"avg_over_time(({' + '.join(parts)})[{step}:{every}])")
        return found

    async def up(self, tracks: Sequence[Result]) -> tuple[Result, ...]:
        """The share of each slice in which the targets of these series answered."""
        targets = {(t.labels.get("job", ""), t.labels.get("instance", "")) for t in tracks}
        if not targets:
            return ()
        jobs = _quoted(_any(sorted({job for job, _ in targets})))
        found = await self._range(f"avg_over_time(up{{job=~{jobs}}}[{self._span(self.edges.step)}])")
        return tuple(r for r in found if (r.labels.get("job", ""), r.labels.get("instance", "")) in targets)

    def _series(self, name: str) -> str:
        return _select(name, self.selector)

    async def _range(self, text: str) -> tuple[Result, ...]:
        return await self.prometheus.query_range(text, self.edges.start, self.edges.end, self.edges.step)

    @staticmethod
    def _span(seconds: float) -> str:
        return f"{round(seconds * 1000)}ms"
