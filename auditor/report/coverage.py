"""The lines of `audit coverage` on the engine: whose pages were read, and how to show what no panel shows."""

from collections.abc import Collection, Iterator, Sequence

from auditor import panels
from auditor.catalog import metrics as catalogue
from auditor.catalog.pages import recognise
from auditor.measurement import MetricsPage
from auditor.watch import Coverage

__all__ = ["advice", "contents"]

_ASKED = ("ttft", "tps", "memory")


def contents(pages: Sequence[MetricsPage]) -> Iterator[tuple[str, str]]:
    """Address and content of each page: the programs whose series it has, with their versions."""
    for page in pages:
        found = recognise(page.types, page.buckets)
        yield page.url, "; ".join(map(str, found)) or "no program that is known"


def advice(
    found: Coverage, engine: str, version: str | None, stored: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """For each of the three that no live series shows: its concept, and how to show it on this engine.

    Nothing for an engine without an entry in the catalogue: what it lacks is not known. `stored` are the names of its
    series as a live Prometheus spells them.
    """
    if not catalogue.is_known(engine):
        return
    names = catalogue.remedies(engine, version)
    served = panels.as_stored(panels.offered_first(names, found.offered), stored)
    title = f"{catalogue.title(engine)} {version or ''}".strip()
    for item in found.items:
        if item.concept in _ASKED and (item.rung in ("missing", "proxy") or not item.names):
            yield item.concept, panels.advice(item.concept, panels.query(item.concept, served), names, title)
