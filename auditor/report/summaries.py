"""What the JSON report says of things too long to print: loads, measurements, metrics pages. Pure plain data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from auditor.evidence import Location
from auditor.loads import Load, Purpose
from auditor.measurement import ClientHealth, Measurement, MetricsPage
from auditor.report.beside import Beside, beside
from auditor.report.figures import Figures, figures, prompt_and_output, tokens_of
from auditor.watch import Document, Slice

__all__ = ["SUMMARIES", "DocumentSummary", "LoadSummary", "MeasurementSummary", "PageSummary", "SliceSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """A load without its requests; `open` if they come by a schedule, `tokens` are asked for at most."""

    id: str
    purpose: Purpose
    concurrency: int
    open: bool
    rate: float | None
    requests: int
    warmup: int
    median_prompt_tokens: int
    median_output_tokens: int
    tokens: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSummary(Figures):
    """One load in numbers, beside the server's own account of it; `snapshots` counts readings of the metrics page."""

    server_beside_client: Beside | None
    started: float
    snapshots: int
    client: ClientHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSummary:
    """A metrics page: its address, the exporter behind it, the names on it."""

    url: str
    exporter: str | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSummary:
    """A dashboard or rule file that a server gave, without its text."""

    name: str
    kind: str
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSummary:
    """A slice of a passive audit's window: what was counted in it, of histograms how many events."""

    start: float
    seconds: float
    counts: Mapping[str, float]
    values: Mapping[str, float]


def _document(document: Document) -> DocumentSummary:
    return DocumentSummary(name=document.name, kind=document.kind, characters=len(document.text))


def _load(load: Load) -> LoadSummary:
    prompt, output = prompt_and_output(load)
    return LoadSummary(
        id=load.id,
        purpose=load.purpose,
        concurrency=load.concurrency,
        open=bool(load.arrivals),
        rate=load.rate,
        requests=len(load.shapes),
        warmup=len(load.warmup),
        median_prompt_tokens=prompt,
        median_output_tokens=output,
        tokens=tokens_of(load),
        why=load.why,
    )


def _measurement(measurement: Measurement) -> MeasurementSummary:
    found = figures(measurement)
    return MeasurementSummary(
        **{field.name: getattr(found, field.name) for field in fields(found)},
        server_beside_client=beside(measurement),
        started=measurement.started,
        snapshots=len(measurement.snapshots),
        client=measurement.client,
    )


def _page(page: MetricsPage) -> PageSummary:
    return PageSummary(url=page.url, exporter=page.exporter, names=tuple(sorted(page.types)))


def _slice(part: Slice) -> SliceSummary:
    counts = {concept: found.count for concept, found in part.histograms.items()}
    return SliceSummary(start=part.start, seconds=part.seconds, counts=counts, values=part.values)


SUMMARIES: Mapping[type, tuple[Callable[[Any], Any], type]] = {
    Load: (_load, LoadSummary),
    Measurement: (_measurement, MeasurementSummary),
    MetricsPage: (_page, PageSummary),
    Document: (_document, DocumentSummary),
    Slice: (_slice, SliceSummary),
    Location: (str, str),
}
"""By type, how it is summed up and what that gives: the report and its schema both follow this."""
