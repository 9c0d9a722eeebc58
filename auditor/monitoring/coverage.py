"""What dashboards and rules cover, concept by concept, and how far each can be trusted.

The ladder: missing < proxy < named (a query computes it) < valid (the engine's version has the name) < on_page (the
page has it) < parses (and the query is PromQL) < returns_data (a live Prometheus answered) < alerted (and a rule
watches it). Files are judged as a set. A query that does not parse covers nothing, so on_page is never the last rung.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from auditor.measurement import MetricsPage
from auditor.monitoring import dashboards, documents, promql, rules
from auditor.monitoring.meaning import Shown, shown
from auditor.monitoring.standing import Place, Standing
from auditor.monitoring.variables import substitute
from auditor.watch import Coverage, CoverageItem

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
_LADDER = ("named", "valid", "on_page", "parses", "returns_data")


class TextFile(Protocol):
    """A monitoring file as loaded: its name as the user wrote it, its text, and what the profile lists it as."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Query:
    """One expression and where it stands: file and panel title, or alert name."""

    text: str
    where: str
    alert: str | None = None


@dataclass(slots=True)
class _Read:
    """What the files hold, gathered file by file."""

    queries: list[_Query] = field(default_factory=list)
    recordings: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Concept:
    """The evidence for one concept, gathered query by query."""

    names: dict[str, str] = field(default_factory=dict)
    proxies: dict[str, None] = field(default_factory=dict)
    where: dict[str, dict[str, None]] = field(default_factory=dict)
    dead: dict[str, None] = field(default_factory=dict)
    foreign: dict[str, None] = field(default_factory=dict)
    alerts: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


def coverage(
    files: Sequence[TextFile], engine: str, engine_version: str | None = None, pages: Sequence[MetricsPage] = ()
) -> Coverage:
    """Judge the files together against the engine (a catalogue name; others: any), its version and its pages."""
    read = _Read()
    for file in files:
        _read_file(file, read)
    place = Place(engine, engine_version, tuple(pages))
    found: dict[str, _Concept] = {}
    invalid: list[str] = []
    for query in read.queries:
        try:
            used = promql.uses(query.text, read.recordings)
        except promql.Invalid as error:
            invalid.append(f"{query.where}: {error}")
            continue
        for use in used:
            _gather(use, query, place, found)
    return Coverage(
        items=tuple(_item(concept, found.get(concept, _Concept())) for concept in _concepts(found)),
        offered=place.offered(),
        files=tuple(file.name for file in files),
        unreadable=tuple(read.unreadable),
        invalid_queries=tuple(dict.fromkeys(invalid)),
    )


# ------------------------------------------------------------------------------------------------------------- reading


def _read_file(file: TextFile, into: _Read) -> None:
    try:
        found = list(documents.documents(file.text))
    except documents.Unreadable as error:
        into.unreadable.append(f"{file.name}: {error}")
        return
    readable = [_read_document(document, file, into) for document in found]
    if not any(readable):
        into.unreadable.append(f"{file.name}: holds no dashboard and no rules")


def _read_document(document: Mapping[str, object], file: TextFile, into: _Read) -> bool:
    listed = rules.rules(document)
    if listed is not None:
        for rule in listed:
            if rule.kind == "record":
                into.recordings[rule.name] = rule.expr
            else:
                into.queries.append(_Query(rule.expr, f"{file.name}: alert {rule.name}", rule.name))
        return True
    try:
        board = dashboards.dashboard(document)
    except documents.Unreadable as error:
        into.unreadable.append(f"{file.name}: {error}")
        return True
    if board is None:
        return False
    into.unreadable += [f"{file.name}: {problem}" for problem in board.unread]
    for panel in board.panels:
        where = f"{file.name}: {panel.title or 'a panel without title'}"
        into.queries += [_Query(substitute(text, board.variables), where) for text in panel.queries]
    return True


# ------------------------------------------------------------------------------------------------------------- judging


def _gather(use: promql.Use, query: _Query, place: Place, found: dict[str, _Concept]) -> None:
    seen = shown(use)
    if seen is None:
        _unknown(use, query, place, found)
        return
    standing = place.standing(seen.metric, use)
    if seen.concept in _SILENT and not standing.dead:
        return
    concept = found.setdefault(OTHER if seen.concept in _SILENT else seen.concept, _Concept())
    if standing.dead:
        _bury(_name(seen), standing, query, concept)
        return
    if query.alert:
        if seen.direct:
            concept.alerts[query.alert] = None
        return
    if standing.note:
        concept.notes[standing.note] = None
    concept.where.setdefault(_name(seen), {})[query.where] = None
    if seen.direct:
        concept.names.setdefault(_name(seen), standing.rung)
        concept.buckets = concept.buckets or place.buckets(seen.metric)
    else:
        concept.proxies[_name(seen)] = None


def _unknown(use: promql.Use, query: _Query, place: Place, found: dict[str, _Concept]) -> None:
    """A name with the engine's own prefix that no version has: the panel is empty, the alert never fires."""
    if place.unheard_of(use):
        standing = Standing("named", dead=True, note=f"{use.base} is on no page and in no known version")
        _bury(use.base, standing, query, found.setdefault(OTHER, _Concept()))


def _bury(name: str, standing: Standing, query: _Query, concept: _Concept) -> None:
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
        note="; ".join(gathered.notes),
        buckets=gathered.buckets,
    )


def _rung(gathered: _Concept) -> str:
    """The highest rung that any live name reached; a dead name is named and no more."""
    if gathered.names:
        best = max(gathered.names.values(), key=_LADDER.index)
        return "alerted" if gathered.alerts and best in ("parses", "returns_data") else best
    if gathered.proxies:
        return "proxy"
    return "named" if gathered.dead or gathered.foreign else "missing"
