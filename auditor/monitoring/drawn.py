"""One query with what is known of each series in it: what `flaws` and its like look at."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.catalog import metrics as catalogue
from auditor.catalog.metrics import Metric
from auditor.monitoring.promql import Invalid
from auditor.monitoring.reading import Asked
from auditor.monitoring.standing import Place
from auditor.monitoring.traces import Trace, traces
from auditor.panels import Names, share_of_gpu
from auditor.watch import Flaw

__all__ = ["Known", "Read", "known", "share_of_device"]


@dataclass(frozen=True, slots=True)
class Known:
    """One series of a query and the catalogue's metric behind it."""

    trace: Trace
    metric: Metric


@dataclass(frozen=True, slots=True)
class Read:
    """A query, the series in it that the catalogue knows, where it runs, and what the engine there offers.

    `scraped` are the names of the engine's series as a live Prometheus stores them; empty without one.
    """

    drawn: Asked
    series: tuple[Known, ...]
    place: Place
    names: Names
    scraped: frozenset[str] = frozenset()

    def flaw(self, kind: str, concept: str, note: str, names: tuple[str, ...], instead: str | None = None) -> Flaw:
        """A flaw of this query."""
        where, query = self.drawn.where, self.drawn.raw
        return Flaw(kind=kind, concept=concept, where=where, query=query, note=note, names=names, instead=instead)

    def offers(self, engine: str) -> Names:
        """The series that a query may be written with: those of the engine in use, else of the one that it names."""
        return self.names if catalogue.is_known(self.place.engine) else catalogue.remedies(engine)

    @property
    def asked(self) -> frozenset[str]:
        """The labels that the query as written narrows to one value, a variable's included."""
        return frozenset(re.findall(r"\b(\w+)\s*=\s*[\"']", self.drawn.raw))

    def series_for(self, metric: Metric) -> str:
        """The selector to write instead: the metric itself if the engine in use has it, else its successor there."""
        offered = self.offers(metric.engine).get(metric.concept, ())
        written = catalogue.selector(metric)
        return written if written in offered or not offered else offered[0]


def share_of_device(used: Known) -> str | None:
    """The share of the device's memory in use, by all that its exporter has of it; None where that is no total."""
    first, free, reserved = (
        next(iter(catalogue.names(used.metric.engine).get(concept, ())), None)
        for concept in ("gpu_memory", "gpu_memory_free", "gpu_memory_reserved")
    )
    if used.metric.name != first or free is None or free.startswith("*"):
        return None
    return share_of_gpu(used.trace.name, free, reserved)


def known(
    drawn: Asked, recordings: Mapping[str, str], place: Place, names: Names, scraped: frozenset[str] = frozenset()
) -> Read:
    """The query read; one that does not parse has no series."""
    try:
        found = traces(drawn.text, recordings)
    except (Invalid, RecursionError):
        found = ()
    pairs = ((trace, _metric(trace, place)) for trace in found)
    series = tuple(Known(trace, metric) for trace, metric in pairs if metric is not None)
    return Read(drawn, series, place, names, scraped)


def _metric(trace: Trace, place: Place) -> Metric | None:
    """The metric behind a series, of the engine in use where several have the name, and by label where that tells."""
    pinned = trace.pinned
    fitting = [m for m in catalogue.lookup(trace.name) if all(pinned.get(k, v) == v for k, v in m.labels.items())]
    own = [m for m in fitting if m.engine == place.engine]
    return next(iter(own or fitting), None)
