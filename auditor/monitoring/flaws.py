"""How queries that name the right series still mislead, read from their syntax trees.

`misreads`, `claims`, `thresholds` and `rates` hold what one query or panel does by itself; here is what only the
whole set tells: an average that is the only TTFT, a gauge that is the only speed, GPU memory that is the only memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from auditor import panels
from auditor.catalog import metrics as catalogue
from auditor.monitoring import claims, misreads, rates, thresholds
from auditor.monitoring.drawn import Known, Read, known
from auditor.monitoring.meaning import Shown, shown
from auditor.monitoring.promql import Invalid, uses
from auditor.monitoring.reading import Asked
from auditor.monitoring.standing import Place
from auditor.watch import Flaw, Query

__all__ = ["facts", "flaws"]

_BY_ITSELF: tuple[Callable[[Read], Iterable[Flaw]], ...] = (
    misreads.lifetime,
    misreads.summed_shares,
    misreads.summed_ranks,
    misreads.mixed_tokens,
    misreads.total_without_reserved,
    misreads.renamed,
    claims.units,
    rates.interval_variable,
    thresholds.limits,
)
_GPU = ("gpu_memory", "gpu_memory_free")


@dataclass(frozen=True, slots=True)
class _Show:
    """One series that a panel shows, with the query that does."""

    read: Read
    shown: Shown


def flaws(
    drawn: Sequence[Asked], recordings: Mapping[str, str], place: Place, scraped: Collection[str] = ()
) -> tuple[Flaw, ...]:
    """Every way in which the queries mislead, in the order of the files; each said once.

    `scraped` are the names of the engine's series as a live Prometheus stores them.
    """
    offers = panels.offered_first(catalogue.remedies(place.engine, place.version), place.offered())
    offers, held = panels.as_stored(offers, scraped), frozenset(scraped)
    read = [known(one, recordings, place, offers, held) for one in drawn]
    found = [flaw for one in read for judge in _BY_ITSELF for flaw in judge(one)]
    for _, panel in groupby(read, key=lambda one: one.drawn.where):
        found += claims.titles(list(panel))
    shows = [show for one in read if not one.drawn.alert for show in _shows(one, recordings)]
    return tuple(dict.fromkeys([*found, *_of_the_set(shows)]))


def facts(query: Query, drawn: Asked, recordings: Mapping[str, str], place: Place) -> Query:
    """The query with its windows, the labels that it asks for by value, and whether it draws series one by one."""
    read = known(drawn, recordings, place, {})
    pinned = {label: value for one in read.series for label, value in one.trace.pinned.items()}
    return replace(
        query,
        windows=rates.written(drawn.raw, drawn.text),
        bare=any(_bare(one) for one in read.series),
        matchers=rates.literal_matchers(drawn.raw, pinned),
    )


def _bare(one: Known) -> bool:
    """An engine's series with nothing above it that adds up, averages or counts."""
    of_engine = catalogue.kind(one.metric.engine) == "engine"
    return of_engine and not one.trace.counted and not any(a.aggregates for a in one.trace.above)


# -------------------------------------------------------------------------------------------------------------- the set


def _shows(read: Read, recordings: Mapping[str, str]) -> Iterator[_Show]:
    try:
        used = uses(read.drawn.text, recordings)
    except Invalid:
        return
    for use in used:
        seen = shown(use)
        if seen is not None and seen.direct:
            yield _Show(read, seen)


def _of_the_set(shows: Sequence[_Show]) -> Iterator[Flaw]:
    yield from _only_averages([show for show in shows if show.shown.concept == "ttft"])
    yield from _only_a_gauge([show for show in shows if show.shown.concept == "tps"])
    if any(show.shown.concept != "memory" and catalogue.kind(show.shown.metric.engine) != "exporter" for show in shows):
        yield from _only_gpu_memory([show for show in shows if show.shown.concept == "memory"])
    yield from _one_pool([show for show in shows if show.shown.concept == "memory"])


def _only_averages(shows: Sequence[_Show]) -> Iterator[Flaw]:
    if shows and all(show.shown.use.mean for show in shows):
        one = shows[0]
        note = f"TTFT is shown only as an average of {one.shown.use.base}, which hides who waits longest"
        yield _flaw(one, "average_only", "ttft", note, panels.quantile(one.read.series_for(one.shown.metric)))


def _only_a_gauge(shows: Sequence[_Show]) -> Iterator[Flaw]:
    if shows and all(show.shown.metric.concept == "gen_throughput" and not show.shown.use.part for show in shows):
        one = shows[0]
        name = one.shown.use.name
        note = f"TPS is shown only by {name}, a gauge that the engine sets now and then: what lies between is lost"
        offers = one.read.offers(one.shown.metric.engine)
        instead = panels.query("tps", {"generation_tokens": offers.get("generation_tokens", ())})
        yield _flaw(one, "sampled_gauge", "tps", note, instead)


def _only_gpu_memory(shows: Sequence[_Show]) -> Iterator[Flaw]:
    """Engines take their share of the device at the start, so that its memory looks the same under any load."""
    if shows and all(show.shown.metric.concept in _GPU for show in shows):
        one = shows[0]
        note = (
            f"memory is shown only by {one.shown.use.name}: the engine takes it at its start, KV pressure never shows"
        )
        yield _flaw(one, "gpu_memory_only", "memory", note, panels.query("memory", one.read.names))


def _one_pool(shows: Sequence[_Show]) -> Iterator[Flaw]:
    """The page shows the use of several pools and no panel shows but one of them."""
    for show in shows[:1]:
        offered = catalogue.pools(show.read.place.offered().get("kv_usage", ()))
        drawn = {one.shown.metric.name for one in shows}
        missing = tuple(name for name in offered if catalogue.family(name) not in drawn)
        if drawn & set(map(catalogue.family, offered)) and missing:
            note = f"the page has {', '.join(missing)} beside what is drawn: another pool may be full first"
            spelled = (panels.stored(name, show.read.scraped) for name in offered)
            instead = f'max({{__name__=~"{"|".join(spelled)}"}})'
            yield _flaw(show, "one_pool", "memory", note, instead)


def _flaw(show: _Show, kind: str, concept: str, note: str, instead: str | None) -> Flaw:
    return show.read.flaw(kind, concept, note, (show.shown.use.name,), instead)
