"""What dashboards and rules cover, concept by concept, and how far each can be trusted.

The ladder: missing < proxy < named (a query computes it) < valid (the engine's version has the name) < on_page (the
page has it) < parses (and the query is PromQL) < returns_data (a live Prometheus answered) < alerted (and a rule
watches it). Files are judged as a set. A query that does not parse covers nothing, so on_page is never the last rung.
A query that a live Prometheus answers with nothing gets no further than parses, and its names are called silent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from auditor.catalog import metrics as catalogue
from auditor.measurement import MetricsPage
from auditor.monitoring import promql
from auditor.monitoring.flaws import facts, flaws
from auditor.monitoring.meaning import Shown, shown
from auditor.monitoring.reading import Asked, TextFile, read
from auditor.monitoring.standing import EMPTY, Place, Standing, answered, comes_late
from auditor.monitoring.subject import stored_names
from auditor.watch import Answer, Coverage, CoverageItem, Query, RuleState, Watch

__all__ = ["ASKED", "OTHER", "TextFile", "coverage"]

ASKED = ("ttft", "tps", "memory")
OTHER = "other"
_ORDER = (
    *ASKED,
    "running",
    "waiting",
    "preemptions",
    "e2e",
    "queue_time",
    "prompt_len",
    "output_len",
    "requests",
    "memory_activity",
)
_SILENT = (OTHER, "gpu_memory_total", "gpu_memory_reserved", "gpu_activity", "cache_config", "host_memory_total")
_IDLE = ("never_fires", "always_fires")  # flaws of alerts that watch nothing
_LADDER = ("named", "valid", "on_page", "parses", "returns_data")


@dataclass(slots=True)
class _Concept:
    """The evidence for one concept, gathered query by query."""

    names: dict[str, str] = field(default_factory=dict)
    proxies: dict[str, None] = field(default_factory=dict)
    where: dict[str, dict[str, None]] = field(default_factory=dict)
    dead: dict[str, None] = field(default_factory=dict)
    foreign: dict[str, None] = field(default_factory=dict)
    alerts: dict[str, None] = field(default_factory=dict)
    silent: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Watched:
    """What a live Prometheus says: the answers by query, and why an alert cannot be relied on; nothing without one."""

    watch: Watch | None

    @property
    def spells(self) -> bool:
        """Whether it is known how the names are spelled that it stores."""
        return self.watch is not None and bool(self.watch.names)

    def answer(self, query: Asked) -> Answer | None:
        """The answer to a query; to an alert's, without its threshold."""
        found = self.watch.answers if self.watch else ()
        return next((answer for answer in found if answer.query == query.text), None)

    def alerts(self, known: Sequence[Asked]) -> Iterator[Asked]:
        """The alerts that the Prometheus runs beside those `known` from files."""
        for rule in (self.watch.rules or ()) if self.watch else ():
            if self.watch and not any(_loaded(rule, alert) for alert in known):
                yield Asked(rule.query, f"{self.watch.url}: alert {rule.name}", rule.name, raw=rule.query)

    def doubt(self, alert: Asked) -> str | None:
        """Why the alert cannot fire there: not loaded, or failing."""
        if self.watch is None or self.watch.rules is None:
            return None
        states = [rule for rule in self.watch.rules if _loaded(rule, alert)]
        if not states:
            return f"alert {alert.alert} is not loaded by {self.watch.url}"
        failing = next((rule for rule in states if rule.health == "err"), None)
        return f"alert {alert.alert} fails: {failing.error or 'its query cannot be evaluated'}" if failing else None


def _loaded(rule: RuleState, alert: Asked) -> bool:
    """Whether the rule is this alert: other services' alerts have the same names, and read other series."""
    if rule.name != alert.alert:
        return False  # first: a Prometheus may run thousands
    runs, asks = set(stored_names(rule.query)), set(stored_names(alert.raw or alert.text))
    return not runs or not asks or bool(runs & asks)


def coverage(
    files: Sequence[TextFile],
    engine: str,
    engine_version: str | None = None,
    pages: Sequence[MetricsPage] = (),
    watch: Watch | None = None,
) -> Coverage:
    """Judge the files together against the engine (a catalogue name; others: the pages' own), its version and pages.

    `watch` is a live Prometheus that was asked the coverage's `queries` (judge without it first to learn them).
    """
    held, live = read(files), _Watched(watch)
    place = Place.of(engine, engine_version, pages)
    known = [query for query in held.queries if query.alert]
    found: dict[str, _Concept] = {}
    queries: list[Query] = []
    invalid: list[str] = []
    drawn = (*held.queries, *live.alerts(known))
    wrong = flaws(drawn, held.recordings, place, watch.names if watch else ())
    idle = {(f.where, f.query, name) for f in wrong if f.kind in _IDLE for name in f.names}
    for asked in drawn:
        try:
            used = promql.uses(asked.text, held.recordings)
        except promql.Invalid as error:
            invalid.append(f"{asked.where}: {error}")
            continue
        queries += (facts(query, asked, held.recordings, place) for query in _query(asked, used, place))
        answer = live.answer(asked)
        for use in used:
            alone = all(other.base == use.base for other in used)
            tells = (asked.where, asked.raw, use.name) not in idle
            _gather(_Case(use, asked, answer, alone=alone, tells=tells), place, live, found)
    return Coverage(
        items=tuple(_item(concept, found.get(concept, _Concept())) for concept in _concepts(found)),
        offered=place.offered(),
        files=tuple(file.name for file in files),
        unreadable=tuple(held.unreadable),
        invalid_queries=tuple(dict.fromkeys(invalid)),
        queries=tuple({(query.text, query.where): query for query in queries}.values()),
        flaws=wrong,
    )


def _query(asked: Asked, used: Sequence[promql.Use], place: Place) -> Iterator[Query]:
    """The query as data, if it is about the service at all: a series of it is known, or has the engine's own prefix."""
    if any(catalogue.lookup(use.name) or place.unheard_of(use) for use in used):
        concepts = dict.fromkeys(one.concept for use in used if (one := shown(use)))
        names = tuple(dict.fromkeys(use.name for use in used))
        yield Query(text=asked.text, where=asked.where, concepts=tuple(concepts), names=names, alert=asked.alert)


# ------------------------------------------------------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True)
class _Case:
    """One series in one query, and what a live Prometheus answered to the query.

    `alone`: the query has no other series. `tells`: false for an alert that fires always or never, whatever happens.
    """

    use: promql.Use
    query: Asked
    answer: Answer | None
    alone: bool
    tells: bool


def _gather(case: _Case, place: Place, live: _Watched, found: dict[str, _Concept]) -> None:
    use, query = case.use, case.query
    seen = shown(use)
    if seen is None:
        if place.unheard_of(use) and not (case.answer and case.answer.series):
            _bury(use.base, place.unheard(use), query, found.setdefault(OTHER, _Concept()))
        return
    own = place.divided(use, place.standing(seen.metric, use))
    own = replace(own, note="", reader="") if own.reader and live.spells else own
    standing = answered(own, case.answer, query.where, alone=case.alone)
    if seen.concept in _SILENT and not standing.dead:
        return
    concept = found.setdefault(OTHER if seen.concept in _SILENT else seen.concept, _Concept())
    if standing.dead:
        _bury(standing.culprit or _name(seen), standing, query, concept)
    elif query.alert and case.tells:
        _alert(query, seen, standing.silent and not _not_yet(case, seen), live, concept)
    elif not query.alert:
        _show(seen, standing, query, place, concept)


def _not_yet(case: _Case, seen: Shown) -> bool:
    """True where the series has no sample because what it counts has not happened: the alert waits for just that."""
    return case.answer is not None and case.use.name in case.answer.absent and comes_late(seen.metric)


def _alert(query: Asked, seen: Shown, dumb: bool, live: _Watched, concept: _Concept) -> None:
    doubt = f"alert {query.alert} can never fire: what it asks for {EMPTY}" if dumb else live.doubt(query)
    if doubt:
        concept.notes[doubt] = None
    elif seen.direct and query.alert:
        concept.alerts[query.alert] = None


def _show(seen: Shown, standing: Standing, query: Asked, place: Place, concept: _Concept) -> None:
    name = _name(seen)
    if standing.note:
        concept.notes[standing.note] = None
    concept.where.setdefault(name, {})[query.where] = None
    if not seen.direct:
        concept.proxies[name] = None
        return
    before = concept.names.get(name)
    if before is None or _LADDER.index(before) < _LADDER.index(standing.rung):
        concept.names[name] = standing.rung
    if standing.silent:
        concept.silent[name] = None
    if standing.reader:
        concept.readers[name] = standing.reader
    concept.buckets = concept.buckets or place.buckets(seen.metric)


def _bury(name: str, standing: Standing, query: Asked, concept: _Concept) -> None:
    """Another engine's names do no harm beside the right ones; names that should live and do not are kept apart."""
    (concept.foreign if standing.foreign else concept.dead)[name] = None
    if not standing.foreign:
        note = f"alert {query.alert} can never fire: {standing.note}" if query.alert else standing.note
        concept.notes[note] = None


def _name(seen: Shown) -> str:
    return seen.use.base if seen.metric.type in ("histogram", "summary") else seen.use.name


def _concepts(found: Iterable[str]) -> list[str]:
    known = [concept for concept in _ORDER if concept in found or concept in ASKED]
    return known + sorted(concept for concept in found if concept not in _ORDER)


def _item(concept: str, gathered: _Concept) -> CoverageItem:
    names = sorted(gathered.names, key=lambda name: -_LADDER.index(gathered.names[name])) or list(gathered.proxies)
    dead = gathered.dead if names else gathered.dead | gathered.foreign
    return CoverageItem(
        concept=concept,
        rung=_rung(gathered),
        names=tuple(names),
        where=tuple(dict.fromkeys(place for name in names for place in gathered.where.get(name, ()))),
        dead=tuple(dead),
        alerts=tuple(gathered.alerts),
        silent=tuple(name for name in gathered.silent if gathered.names.get(name) != "returns_data"),
        note="; ".join(gathered.notes),
        buckets=gathered.buckets,
        one_reader=_one_reader(gathered),
    )


def _one_reader(gathered: _Concept) -> bool:
    """Whether one kind of Prometheus alone stores every name, as far as is known."""
    readers = {gathered.readers.get(name, "") for name, rung in gathered.names.items() if rung != "returns_data"}
    sure = "returns_data" in gathered.names.values()
    return not sure and len(readers) == 1 and readers != {""}


def _rung(gathered: _Concept) -> str:
    """The highest rung that any live name reached; a dead name is named and no more."""
    if gathered.names:
        best = max(gathered.names.values(), key=_LADDER.index)
        return "alerted" if gathered.alerts and best in ("parses", "returns_data") else best
    if gathered.proxies:
        return "proxy"
    return "named" if gathered.dead or gathered.foreign else "missing"
