"""A metrics page read into samples: Prometheus text or OpenMetrics, hostile or broken pages included. Pure."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from auditor.catalog import metrics as catalogue
from auditor.measurement import MetricsPage

__all__ = ["PROMETHEUS_2", "Page", "Series", "escaped", "parse_page"]

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What a Prometheus 2 accepts (scrape/scrape.go of v2.42). A Prometheus 3 adds `escaping=allow-utf-8` and is given the
names as other readers are; where its metric_name_escaping_scheme is `underscores`, as a Prometheus 2 is."""

_LINE = re.compile(r"[a-zA-Z_:][\w:.]*(?:\{.*\})?\s+\S+(?:\s+\S+)*\s*")
_COMMENT = re.compile(r"#\s+(?:TYPE|HELP|UNIT)\s+\S+.*|#\s*EOF")
_LONGEST_LINE = 65_536
_RANKS = frozenset({"pid", "engine", "dp_rank", *catalogue.REPEATING})
_Reader = Callable[[str], Iterable[Metric]]


@dataclass(frozen=True, slots=True)
class Series:
    """One sample: its name as scraped (with _total, _bucket ...), its labels and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page that was understood: what it offers, and its samples. `skipped` counts lines that made no sense."""

    page: MetricsPage
    series: tuple[Series, ...] = ()
    skipped: int = 0
    names: frozenset[str] = field(default_factory=frozenset)


def parse_page(text: str, content_type: str, url: str, wanted: Callable[[str], bool] | None = None) -> Page | None:
    """Read a page; None if it is no metrics page at all (HTML, JSON, nothing that looks like a sample).

    The format follows the content type; lines that make no sense are left out. `wanted` (a test on sample names) keeps
    only those samples, which makes repeated scrapes of large pages cheap.
    """
    if "html" in content_type or text.lstrip()[:1] in ("<", "{", "["):
        return None
    lines, skipped = _sensible(text, wanted)
    families = _families(lines, openmetrics="openmetrics" in content_type)
    scraped = _scraped(lines)
    series = [
        Series(_own_name(sample.name, scraped), sample.labels, float(sample.value))
        for metric in families
        for sample in metric.samples
        if math.isfinite(sample.value)
    ]
    if not series:
        return None
    names = frozenset(one.name for one in series)
    page = MetricsPage(
        url=url,
        types=_types(families, scraped),
        buckets=_buckets(families),
        exporter=_exporter(names),
        ranks=_ranks(series, frozenset(name for name in names if catalogue.lookup(name))),
    )
    return Page(page=page, series=tuple(series), skipped=skipped, names=names)


def escaped(page: MetricsPage, answer: Page | None) -> MetricsPage:
    """The page with the names that its `answer` to PROMETHEUS_2 spells otherwise: with `_` for `:`."""
    spelled = {name.replace(":", "_") for name in page.types} - set(page.types)
    return replace(page, escaped=tuple(sorted(spelled.intersection(answer.page.types)))) if answer else page


def _sensible(text: str, wanted: Callable[[str], bool] | None) -> tuple[list[str], int]:
    """Lines that can be samples or metadata, and how many were neither."""
    kept, skipped = [], 0
    for line in text.splitlines():
        if not line.strip():
            continue
        if line.startswith("#"):
            if _COMMENT.fullmatch(line) and (wanted is None or line.startswith("# TYPE")):
                kept.append(line)
        elif len(line) <= _LONGEST_LINE and _LINE.fullmatch(line):
            if wanted is None or wanted(re.split(r"[{\s]", line, maxsplit=1)[0]):
                kept.append(line)
        else:
            skipped += 1
    return kept, skipped


def _families(lines: list[str], *, openmetrics: bool) -> list[Metric]:
    """The metric families; a page that the strict reader refuses is read as text, then line by line."""
    text = "\n".join(lines) + "\n"
    readers: list[_Reader] = [read_openmetrics, read_text] if openmetrics else [read_text]
    for read in readers:
        try:
            return list(read(text))
        except (ValueError, KeyError, IndexError):
            continue
    found: list[Metric] = []
    for line in lines:
        try:
            found += read_text(line + "\n")
        except (ValueError, KeyError, IndexError):
            continue
    return found


def _scraped(lines: Iterable[str]) -> frozenset[str]:
    """The names of the samples as the page writes them."""
    return frozenset(re.split(r"[{\s]", line, maxsplit=1)[0] for line in lines if not line.startswith("#"))


def _own_name(parsed: str, scraped: frozenset[str]) -> str:
    """A sample's name as scraped: the reader of Prometheus text gives every counter a _total, and not all have one."""
    short = parsed.removesuffix("_total")
    return short if parsed not in scraped and short in scraped else parsed


def _types(families: Iterable[Metric], scraped: frozenset[str]) -> dict[str, str]:
    """Every sample name with the type of its family."""
    return {_own_name(sample.name, scraped): metric.type for metric in families for sample in metric.samples}


def _buckets(families: Iterable[Metric]) -> dict[str, tuple[float, ...]]:
    """The finite histogram bounds by family name."""
    found: dict[str, tuple[float, ...]] = {}
    for metric in families:
        if metric.type == "histogram":
            bounds = {_number(s.labels.get("le", "")) for s in metric.samples if s.name.endswith("_bucket")}
            found[metric.name] = tuple(sorted(b for b in bounds if math.isfinite(b)))
    return found


def _ranks(series: Iterable[Series], known: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The values of the labels that tell ranks and processes apart, on the series with a `known` name."""
    found: dict[str, set[str]] = {}
    for one in series:
        if one.name in known:
            for label in _RANKS.intersection(one.labels):
                found.setdefault(label, set()).add(one.labels[label])
    return {label: tuple(sorted(values)) for label, values in sorted(found.items())}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _exporter(names: Iterable[str]) -> str | None:
    """The exporter to which most of a page's samples belong; None for an engine's or gateway's page."""
    votes: dict[str, int] = {}
    for name in names:
        for metric in catalogue.lookup(name)[:1]:
            votes[metric.engine] = votes.get(metric.engine, 0) + 1
    best = max(votes, key=lambda engine: votes[engine], default=None)
    return best if best is not None and catalogue.kind(best) == "exporter" else None
