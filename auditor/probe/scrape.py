"""The server's own metrics while a load runs: pages fetched, added up over series and replicas, by concept."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import httpx

from auditor.catalog import metrics as catalogue
from auditor.measurement import Histogram, Served, Snapshot
from auditor.monitoring.window import summed
from auditor.probe.exposition import Page, Series, parse_page
from auditor.probe.target import tls_context
from auditor.probe.web import get_text, headers_for
from auditor.profile import Profile

__all__ = ["Page", "Scraper", "parse_page", "scraper", "snapshot"]

Phase = Literal["before", "during", "after"]

_TIMEOUT = {"before": 10.0, "during": 3.0, "after": 10.0}
_AFTER_SILENCE = 1.0  # the wait for a page that let the last wait pass: it must not cost each load its time again
# Concepts that only ever grow; a gauge that carries such a name shows one moment and is not taken for it.
_GROWING = frozenset(
    [
        *("generation_tokens", "prompt_tokens", "requests", "preemptions", "refusals", "aborted", "prefix_hits"),
        *("prefix_queries", "spec_accepted", "spec_drafts", "spec_draft_tokens"),
    ]
)
# Shares: of several engines or replicas the fullest counts. Everything else adds up.
_SHARES = frozenset(["kv_usage", "prefix_hit_rate", "spec_accept_rate", "spec_accept_length", "page_size"])
_NOT_NUMBERS = frozenset(["other", "cache_config"])
# Ranks that show the same figures again, and the process that wrote them.
_SAME = frozenset([*catalogue.REPEATING, "pid", "le"])


@dataclass(slots=True)
class _Sum:
    """One concept of one page under way: values by identity of the series (ranks of one engine are one)."""

    metric: catalogue.Metric
    order: int
    values: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)
    parts: dict[str, dict[tuple[tuple[str, str], ...], float]] = field(default_factory=dict)


def snapshot(
    pages: Sequence[Iterable[Series]], engine: str, at: float, phase: Phase, *, version: str | None = None
) -> Snapshot | None:
    """The server's figures by concept over all pages (one a replica); None if no page holds a known metric.

    Counters and counts are added up, shares are the highest. Of a concept's alternative names the preferred one that a
    page has is taken. SGLang shows its retraction counter only from the first retraction on: absent means 0 there.
    """
    read = [found for page in pages if (found := _concepts(page, engine))]
    if not read:
        return None
    values: dict[str, float] = {}
    listed: dict[str, list[Histogram]] = {}
    for found in read:
        for concept, total in found.items():
            if total.metric.type == "histogram":
                listed.setdefault(concept, []).append(_histogram(total))
            elif total.values:
                combine = max if concept in _SHARES else sum
                value = combine(total.values.values())
                before = values.get(concept)
                values[concept] = value if before is None else combine([before, value])
    if engine == "sglang" and "running" in values and catalogue.version_key(version) >= (0, 5, 7):
        values.setdefault("preemptions", 0.0)
    histograms = {concept: added for concept, each in listed.items() if (added := summed(each)) is not None}
    return Snapshot(at=at, phase=phase, values=values, histograms=histograms)


def _concepts(page: Iterable[Series], engine: str) -> dict[str, _Sum]:
    order = {id(metric): place for place, metric in enumerate(catalogue.metrics(engine))}
    found: dict[str, _Sum] = {}
    for one in page:
        for metric in catalogue.lookup(one.name, engine):
            if metric.concept in _NOT_NUMBERS or metric.type == "summary" or not _counts(metric):
                continue
            if any(one.labels.get(name) != value for name, value in metric.labels.items()):
                continue
            place = order[id(metric)]
            total = found.get(metric.concept)
            if total is None or place < total.order:
                total = found[metric.concept] = _Sum(metric, place)
            if place == total.order:
                _take(total, one)
    return found


def _counts(metric: catalogue.Metric) -> bool:
    return metric.concept not in _GROWING or metric.type != "gauge" or "total" in metric.name


def _take(total: _Sum, one: Series) -> None:
    """Add a series; the same series from another rank counts once, with the higher figure."""
    key = tuple(sorted((name, value) for name, value in one.labels.items() if name not in _SAME))
    if total.metric.type == "histogram":
        part = one.name.rpartition("_")[2]
        name = f"le={one.labels.get('le', '')}" if part == "bucket" else part
        values = total.parts.setdefault(name, {})
    else:
        values = total.values
    values[key] = max(one.value, values.get(key, one.value))


def _histogram(total: _Sum) -> Histogram:
    sums = {name: sum(values.values()) for name, values in total.parts.items()}
    bounds = {float(name[3:]): value for name, value in sums.items() if name.startswith("le=")}
    return Histogram(sum=sums.get("sum", 0.0), count=sums.get("count", 0.0), buckets=tuple(sorted(bounds.items())))


# ------------------------------------------------------------------------------------------------------------ scraping


@dataclass(slots=True)
class _Seen:
    """What is remembered of one page: the last figure of each growing series, and what resets took away."""

    last: dict[tuple[str, str], float] = field(default_factory=dict)
    offset: dict[tuple[str, str], float] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    silent: bool = False


@dataclass(slots=True)
class Scraper:
    """Reads the pages of all replicas at once; made by `scraper`, closed by `close`.

    Counters go on where they stood when a replica restarts, and a replica that does not answer keeps its last counters
    but adds nothing to the gauges. Histograms are read before and after a load only.
    """

    urls: tuple[str, ...]
    engine: str
    version: str | None
    client: httpx.AsyncClient
    headers: Mapping[str, Mapping[str, str]]
    _seen: dict[str, _Seen] = field(default_factory=dict)

    async def __call__(self, at: float, phase: str) -> Snapshot | None:
        """The figures now, or None if no page could be read."""
        moment: Phase = "before" if phase == "before" else "after" if phase == "after" else "during"
        pages = await asyncio.gather(*(self._page(url, moment) for url in self.urls))
        if not any(page is not None for page in pages):
            return None
        series = [self._steady(url, page) for url, page in zip(self.urls, pages, strict=True)]
        return snapshot(series, self.engine, at, moment, version=self.version)

    async def close(self) -> None:
        """Let the connections go."""
        await self.client.aclose()

    async def _page(self, url: str, moment: Phase) -> Page | None:
        seen = self._seen.setdefault(url, _Seen())
        try:
            async with asyncio.timeout(_AFTER_SILENCE if seen.silent else _TIMEOUT[moment]):
                status, headers, text = await get_text(self.client, url, self.headers.get(url, {}))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            seen.silent = isinstance(error, TimeoutError | httpx.TimeoutException)
            return None
        seen.silent = False
        kind = headers.get("content-type", "")
        return (
            parse_page(text, kind, url, wanted=self._light if moment == "during" else self._wanted)
            if status == 200
            else None
        )

    def _wanted(self, name: str) -> bool:
        return any(metric.concept not in _NOT_NUMBERS for metric in catalogue.lookup(name, self.engine))

    def _light(self, name: str) -> bool:
        """Without histograms, which take most of the time: parsing shares the event loop with the load."""
        return any(
            metric.concept not in _NOT_NUMBERS and metric.type != "histogram"
            for metric in catalogue.lookup(name, self.engine)
        )

    def _steady(self, url: str, page: Page | None) -> tuple[Series, ...]:
        """A page's series with counters that never fall."""
        seen = self._seen.setdefault(url, _Seen())
        if page is None:
            return tuple(one for one in seen.series if self._grows(one.name))
        seen.series = tuple(self._unreset(seen, one) if self._grows(one.name) else one for one in page.series)
        return seen.series

    def _unreset(self, seen: _Seen, one: Series) -> Series:
        key = (one.name, repr(sorted(one.labels.items())))
        if one.value < seen.last.get(key, 0.0):
            seen.offset[key] = seen.offset.get(key, 0.0) + seen.last[key]
        seen.last[key] = one.value
        return Series(one.name, one.labels, one.value + seen.offset.get(key, 0.0))

    def _grows(self, name: str) -> bool:
        return any(
            metric.type == "histogram" or metric.concept in _GROWING for metric in catalogue.lookup(name, self.engine)
        )


def scraper(profile: Profile, served: Served, key: str | None) -> Scraper | None:
    """What reads the metrics pages that discovery found, or None if it found none of an engine's own."""
    urls = tuple(page.url for page in served.pages if page.exporter is None)
    if not urls or not catalogue.is_known(served.engine):
        return None
    secure = any(url.startswith("https:") for url in urls)
    client = httpx.AsyncClient(
        verify=tls_context(profile.endpoint.verify_tls, profile.endpoint.ca_file) if secure else False,
        trust_env=False,
        timeout=_TIMEOUT["before"],
        headers={"accept-encoding": "identity"},
    )
    headers = {url: headers_for(profile, url, key) for url in urls}
    return Scraper(urls=urls, engine=served.engine, version=served.engine_version, client=client, headers=headers)
