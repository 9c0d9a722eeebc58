"""What watches the service, asked live: what a Prometheus scrapes and runs, and what the panels' queries return there.

`looked` says what it is, before any load; `answered` asks every query over the time of the load. What cannot be read
is a line in `Watch.problems` and stops nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from auditor.catalog import metrics as catalogue
from auditor.monitoring.subject import stored_names, subjects
from auditor.probe.prometheus import Prometheus, Refused, Result, Unanswered, seconds
from auditor.watch import Answer, Document, Query, RuleState, Target, Watch

__all__ = ["RECENT", "RULES", "Service", "answered", "looked"]

T = TypeVar("T")

RULES = "recording rules of Prometheus"
"""The name of the document that holds them."""

RECENT = 300.0
"""Seconds for which a Prometheus by default goes on to show a series that has ended (--query.lookback-delta)."""

_MOST_TARGETS = 200
_MOST_QUERIES = 500
_MOST_VALUES = 100
_AT_ONCE = 4
_POINTS = 60  # moments at which a query is evaluated over the window
_SHORTEST_STEP = 1.0
_CLOSE_STEP = 60.0  # a moment in each window of a common rate, for a query that a wide step finds empty
_MOST_NAMES = 20  # metric names whose series are looked up for their labels
_TELLING = ("running", "waiting", "kv_usage", "generation_tokens", "prompt_tokens", "requests", "ttft")
_MODEL = "model_name"  # how vLLM, SGLang, NIM and most others call what they serve
_RETRY_AFTER = 30.0  # seconds: the longest wait for a scrape that a short load may have missed
_SCRAPES = 4  # a rate over a common window needs so many


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is looked for: series of the engine (a catalogue name, else of any), of the model where series tell one;
    `pages` are the addresses of the engine's own pages, `labels` those that all its series have.
    """

    engine: str = "generic"
    model: str | None = None
    pages: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def selector(self, name: str) -> str:
        """The service's series of one name, as Prometheus selects them."""
        matched = {"__name__": name, **self.labels}.items()
        return "{" + ",".join(f"{label}={json.dumps(value, ensure_ascii=False)}" for label, value in matched) + "}"


async def looked(prometheus: Prometheus, service: Service, window: float = RECENT) -> Watch:
    """What the server is, scrapes and runs; the service's series are those of the last `window` seconds.

    Raises Unreachable where nothing there answers as a Prometheus.
    """
    now = await prometheus.now()
    ask = _Asking()
    version = await ask(prometheus.version)
    runtime: Mapping[str, Any] = await ask(prometheus.runtime) or {}
    flags: Mapping[str, str] = await ask(prometheus.flags) or {}
    targets = await ask(prometheus.targets)
    groups = await ask(prometheus.groups)
    dropped = await ask(prometheus.dropped)
    when = (now - max(window, RECENT), now)
    stored = await ask(lambda: prometheus.label_values("__name__", (), *when)) or ()
    series = await _series(prometheus, service, stored, when, ask)
    return Watch(
        url=prometheus.url,
        version=version,
        retention=_retention(runtime, flags),
        lookback=seconds(flags.get("query.lookback-delta", "")),
        targets=_told(targets or (), series, service.pages),
        active=None if targets is None else len(targets),
        dropped=dropped,
        names=tuple(sorted(name for name in stored if _of(name, service.engine))),
        rules=None if groups is None else prometheus.alerts_of(groups),
        labels=_labels(series),
        documents=_documents(groups or ()),
        problems=tuple(ask.problems),
    )


async def answered(
    prometheus: Prometheus,
    before: Watch,
    queries: Sequence[Query],
    service: Service,
    *,
    window: float,
) -> Watch:
    """What the server is now, and what every query returned over the last `window` seconds.

    A load shorter than a few scrapes may have left no rate yet: queries without an answer are then asked once more,
    after one more scrape. A server that stopped answering leaves what was known before, and says so.
    """
    try:
        now = await prometheus.now()
        watch = await looked(prometheus, service, window)
        asked = _distinct(queries)
        problems = list(watch.problems)
        if len(asked) > _MOST_QUERIES:
            problems.append(f"{len(asked) - _MOST_QUERIES} of {len(asked)} queries were not asked: too many")
        window = max(window, _SHORTEST_STEP)
        found = await _answers(prometheus, asked[:_MOST_QUERIES], now - window, now)
        wait = _missed(watch, window)
        if wait and any(answer.series == 0 for answer in found):
            await asyncio.sleep(wait)
            again = await _again(prometheus, asked, found, now - window, now + wait)
            found, window = again, window + wait
        return replace(
            watch,
            window=window,
            answers=tuple(found),
            rules=_with_grafana(watch, before),
            documents=before.documents or watch.documents,
            problems=tuple(dict.fromkeys([*before.problems, *problems])),
        )
    except Unanswered as error:
        return replace(before, problems=(*before.problems, str(error)))


def _with_grafana(watch: Watch, before: Watch) -> tuple[RuleState, ...] | None:
    """The rules that run now, with those of Grafana that were read before."""
    theirs = tuple(rule for rule in before.rules or () if rule.source == "grafana")
    return (*(watch.rules or ()), *theirs) if theirs else watch.rules


@dataclass(slots=True)
class _Asking:
    """Asks one thing after another, and keeps a line for each that is refused."""

    problems: list[str] = field(default_factory=list)

    async def __call__(self, question: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await question()
        except Refused as error:  # a server may serve one path and not another: Thanos has no scrape targets
            self.problems.append(str(error))
            return None


# ------------------------------------------------------------------------------------------------------ what it scrapes


async def _series(
    prometheus: Prometheus, service: Service, stored: Sequence[str], when: tuple[float, float], ask: _Asking
) -> tuple[Mapping[str, str], ...]:
    """The labels of the service's series, under whatever prefix they are stored."""
    names = sorted((place, name) for name in stored if (place := _telling(name, service.engine)) is not None)
    match = [service.selector(name) for _, name in names[:_MOST_NAMES]]
    found = (await ask(lambda: prometheus.series(match, *when)) if match else None) or ()
    own = tuple(labels for labels in found if service.model and labels.get(_MODEL) == service.model)
    return own or found


def _telling(name: str, engine: str) -> int | None:
    """How much the series of this name tell of the engine (0: most); None where they are not its own."""
    if name.endswith("_bucket"):
        return None
    mine = _of(name, engine)
    places = [_TELLING.index(m.concept) if m.concept in _TELLING else len(_TELLING) for m in mine]
    return min(places, default=None)


def _of(name: str, engine: str) -> list[catalogue.Metric]:
    """The metrics of the engine (an unknown one: of any) that carry this name, under whatever prefix."""
    known = catalogue.is_known(engine)
    return [
        m for m in catalogue.lookup(name) if (m.engine == engine if known else catalogue.kind(m.engine) == "engine")
    ]


def _labels(series: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The values of each label, without those that tell parts of one series."""
    values: dict[str, dict[str, None]] = {}
    for labels in series:
        for name, value in labels.items():
            if name not in ("__name__", "le", "quantile"):
                values.setdefault(name, {})[value] = None
    return {name: tuple(sorted(held)[:_MOST_VALUES]) for name, held in sorted(values.items())}


def _told(targets: Iterable[Target], series: Iterable[Mapping[str, str]], pages: Sequence[str]) -> tuple[Target, ...]:
    """The targets worth telling: those that serve, then those that are not up.

    A target that is down has no series; it serves where every target of its job that is up does.
    """
    served = {(labels.get("job", ""), labels.get("instance", "")) for labels in series}
    hosts = {place for page in pages if (place := _place(page))}
    listed = list(targets)
    serving = [t for t in listed if (t.job, t.labels.get("instance", "")) in served or _place(t.url) in hosts]
    others = {target.job for target in listed if target.health == "up" and target not in serving}
    jobs = {target.job for target in serving} - others
    marked = [
        replace(target, serves=target in serving or (target.health == "down" and target.job in jobs))
        for target in listed
    ]
    told = [target for target in marked if target.serves or target.health != "up"]
    return tuple(sorted(told, key=lambda t: (not t.serves, t.job, t.url))[:_MOST_TARGETS])


def _place(url: str) -> tuple[str | None, int | None] | None:
    """Host and port; localhost is 127.0.0.1."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return ("127.0.0.1" if parts.hostname == "localhost" else parts.hostname), port


def _retention(runtime: Mapping[str, Any], flags: Mapping[str, str]) -> float | None:
    """How long samples are kept: "15d" or "15d or 10GiB"; flags say 0s where they leave it at the default."""
    said = str(runtime.get("storageRetention") or "").partition(" ")[0]
    return seconds(said) or seconds(flags.get("storage.tsdb.retention.time", "")) or None


def _documents(groups: Sequence[Mapping[str, Any]]) -> tuple[Document, ...]:
    """The recording rules that run, as a rule file would hold them: panels draw what they record."""
    kept = [
        {"record": rule.get("name"), "expr": rule.get("query")}
        for listed in (group.get("rules") for group in groups)
        for rule in (listed if isinstance(listed, list) else ())
        if isinstance(rule, dict) and rule.get("type") == "recording"
    ]
    text = json.dumps({"groups": [{"name": "recorded", "rules": kept}]})
    return (Document(name=RULES, text=text, kind="rules"),) if kept else ()


# ----------------------------------------------------------------------------------------------------- what it returns


def _distinct(queries: Sequence[Query]) -> list[Query]:
    """Each expression once, those that show something of the service first."""
    by_text = {query.text: query for query in reversed(queries)}
    return sorted(by_text.values(), key=lambda query: not query.concepts)


async def _answers(prometheus: Prometheus, queries: Sequence[Query], start: float, end: float) -> list[Answer]:
    """Each query's answer from `start` to `end`. Raises Unreachable."""
    gate = asyncio.Semaphore(_AT_ONCE)
    present: dict[str, bool] = {}

    async def one(query: Query) -> Answer:
        async with gate:
            answer = await _answer(prometheus, query.text, start, end)
            if answer.series == 0:
                absent = [n for n in stored_names(query.text) if not await _present(prometheus, n, start, end, present)]
                answer = replace(answer, absent=tuple(absent))
            return answer

    tasks = [asyncio.ensure_future(one(query)) for query in queries]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _again(
    prometheus: Prometheus, queries: Sequence[Query], found: Sequence[Answer], start: float, end: float
) -> list[Answer]:
    """The answers with those renewed that held nothing."""
    empty = [q for q, answer in zip(queries, found, strict=False) if answer.series == 0]
    renewed = {answer.query: answer for answer in await _answers(prometheus, empty, start, end)}
    return [renewed.get(answer.query, answer) for answer in found]


async def _answer(prometheus: Prometheus, text: str, start: float, end: float) -> Answer:
    """The answer to one query: the fewest series that any of its subjects has."""
    step = max(_SHORTEST_STEP, (end - start) / _POINTS)
    counts, last = [], None
    for subject in subjects(text):
        try:
            shown = await _shown(prometheus, subject, start, end, step)
            if not shown and step > _CLOSE_STEP:  # an hour of traffic in a week lies between two wide steps
                shown = await _shown(prometheus, subject, start, end, _CLOSE_STEP)
        except Refused as error:
            return Answer(query=text, error=error.said)
        counts.append(len(shown))
        last = shown[0].last if len(shown) == 1 else None
    return Answer(query=text, series=min(counts), last=last if len(counts) == 1 else None)


async def _shown(prometheus: Prometheus, text: str, start: float, end: float, step: float) -> list[Result]:
    """The series that a query gives a number for, at one moment of the window at least."""
    return [found for found in await prometheus.query_range(text, start, end, step) if found.last is not None]


async def _present(prometheus: Prometheus, name: str, start: float, end: float, known: dict[str, bool]) -> bool:
    """Whether any series of this name had a sample; True where the server cannot say."""
    if name not in known:
        window = max(1, round(end - start))
        try:
            found: tuple[Result, ...] = await prometheus.query(
                f'count(count_over_time({{__name__="{name}"}}[{window}s]))', end
            )
            known[name] = bool(found)
        except Refused:
            known[name] = True
    return known[name]


def _missed(watch: Watch, window: float) -> float:
    """Seconds until the next scrape has come where the load was too short for a rate; 0 where it was not."""
    intervals = [target.interval for target in watch.targets if target.serves and target.interval]
    longest = max(intervals, default=0.0)
    return longest + _SHORTEST_STEP if longest <= _RETRY_AFTER and window < _SCRAPES * longest else 0.0
