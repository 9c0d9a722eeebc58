"""What watches the service, around a load: the Prometheus and the Grafana that the profile names, and what the panels
cover in the light of both.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from auditor.evidence import Evidence
from auditor.loading import Loaded, load_monitoring
from auditor.measurement import MetricsPage
from auditor.monitoring.coverage import TextFile, coverage
from auditor.probe.api import Unanswered
from auditor.probe.events import Event, Listener
from auditor.probe.grafana import Grafana
from auditor.probe.prometheus import Prometheus, of_profile
from auditor.probe.watched import Service, answered, looked
from auditor.profile import Profile
from auditor.watch import Coverage, Document, RuleState, Watch

__all__ = ["after", "asked", "before", "covered", "replicas"]


async def replicas(evidence: Evidence, profile: Profile, loaded: Loaded, events: Listener) -> Profile:
    """The profile with the replicas' metrics pages, where it leaves it to the Prometheus to know them."""
    if profile.endpoint.metrics != "prometheus":
        return profile
    try:
        async with _prometheus(evidence, loaded, ()) as prometheus:
            targets = (await looked(prometheus, _service(evidence))).targets
        found = tuple(target.url for target in targets if target.serves and target.health == "up")
        why = "none of its targets has the engine's series (see monitoring.selector)"
    except Unanswered as error:
        found, why = (), str(error)
    if not found:
        events(Event(kind="note", text=f"endpoint.metrics: {why}: what the server counts is not seen"))
    return replace(profile, endpoint=replace(profile.endpoint, metrics=found or None))


async def before(evidence: Evidence, loaded: Loaded, events: Listener) -> Evidence:
    """The evidence with what the Prometheus and the Grafana of the profile are and hold; nothing of that stops it."""
    monitoring = evidence.profile.monitoring
    if monitoring.prometheus is None and monitoring.grafana is None:
        return evidence
    events(Event(kind="stage", text="look at what watches the service"))
    documents, states, problems = await _grafana(evidence, loaded)
    try:
        async with _prometheus(evidence, loaded, documents) as prometheus:
            watch = await looked(prometheus, _service(evidence))
    except Unanswered as error:
        watch = Watch(url=_shown(monitoring.prometheus or monitoring.grafana or ""), problems=(str(error),))
    watch = replace(
        watch,
        rules=(*(watch.rules or ()), *states) if states else watch.rules,
        documents=(*watch.documents, *documents),
        problems=(*problems, *watch.problems),
    )
    for line in watch.problems:
        events(Event(kind="note", text=line))
    seen = replace(evidence, watch=watch)
    return replace(seen, coverage=covered(seen, loaded))


async def after(evidence: Evidence, loaded: Loaded, events: Listener, since: float) -> Evidence:
    """The evidence with what every panel's and alert's query returned since the loop's clock showed `since`."""
    watch = evidence.watch
    if watch is None:
        return evidence
    queries = evidence.coverage.queries if evidence.coverage else ()
    events(Event(kind="stage", text="ask what the panels showed of it"))
    known, window = watch.problems, asyncio.get_running_loop().time() - since
    try:
        async with _prometheus(evidence, loaded, watch.documents) as prometheus:
            watch = await answered(prometheus, watch, queries, _service(evidence), window=window)
    except Unanswered as error:
        watch = replace(watch, problems=(*watch.problems, str(error)))
    watch = replace(watch, problems=tuple(dict.fromkeys(watch.problems)))
    for line in watch.problems:
        if line not in known:
            events(Event(kind="note", text=line))
    seen = replace(evidence, watch=watch)
    return replace(seen, coverage=covered(seen, loaded))


async def asked(
    prometheus: Prometheus,
    files: Sequence[TextFile],
    *,
    engine: str,
    version: str | None,
    pages: Sequence[MetricsPage],
    window: float,
) -> Watch:
    """What a Prometheus is, and what the queries of `files` and its own alerts returned over the last `window` seconds.

    Raises Unanswered.
    """
    service = Service(engine=engine, pages=_own(pages))
    watch = await looked(prometheus, service, window)
    queries = coverage([*files, *watch.documents], engine, version, pages, watch).queries
    return prometheus.hidden(await answered(prometheus, watch, queries, service, window=window))


def covered(evidence: Evidence, loaded: Loaded) -> Coverage:
    """What the files of the profile, and the dashboards and rules that servers hold, cover of the engine in use."""
    watch, settings, served = evidence.watch, evidence.settings, evidence.served
    files: list[TextFile] = [*load_monitoring(loaded), *(watch.documents if watch else ())]
    engine, version = (settings.engine, settings.engine_version) if settings else (evidence.engine, None)
    return coverage(files, engine, version, served.pages if served else (), watch)


def _service(evidence: Evidence) -> Service:
    """What of all that a Prometheus may scrape is the service that is audited."""
    served, declared = evidence.served, evidence.profile.endpoint.model
    model = served.model if served and served.model else None if declared == "auto" else declared
    engine = evidence.settings.engine if evidence.settings else evidence.engine
    labels, pages = evidence.profile.monitoring.selector, _own(served.pages if served else ())
    return Service(engine=engine, model=model, pages=pages, labels=labels)


def _own(pages: Sequence[MetricsPage]) -> tuple[str, ...]:
    """The addresses of the engine's pages: an exporter's target does not serve."""
    return tuple(page.url for page in pages if page.exporter is None)


@asynccontextmanager
async def _prometheus(evidence: Evidence, loaded: Loaded, documents: Sequence[Document]) -> AsyncIterator[Prometheus]:
    """The Prometheus that the profile names, else the one behind its Grafana. Raises Unanswered."""
    if evidence.profile.monitoring.prometheus is not None:
        async with of_profile(evidence.profile, loaded.keys.get("prometheus")) as prometheus:
            yield prometheus
        return
    async with _behind(evidence, loaded) as grafana:
        boards = [document for document in documents if document.kind == "dashboard"]
        async with await grafana.prometheus(boards) as prometheus:
            yield prometheus


def _behind(evidence: Evidence, loaded: Loaded) -> Grafana:
    profile = evidence.profile
    url, key = profile.monitoring.grafana or "", loaded.keys.get("grafana")
    asked: dict[str, Any] = {"verify_tls": profile.endpoint.verify_tls, "ca": profile.endpoint.ca_file}
    return Grafana(url, key=key, headers=profile.monitoring.headers, **asked)


async def _grafana(
    evidence: Evidence, loaded: Loaded
) -> tuple[tuple[Document, ...], tuple[RuleState, ...], tuple[str, ...]]:
    """Grafana's dashboards and alert rules, and lines on what could not be read."""
    if evidence.profile.monitoring.grafana is None:
        return (), (), ()
    documents: tuple[Document, ...] = ()
    problems: list[str] = []
    async with _behind(evidence, loaded) as grafana:
        try:
            documents, told = await grafana.dashboards()
            problems += told
        except Unanswered as error:
            return (), (), (str(error),)
        try:
            alerts, states = await grafana.alerts()
        except Unanswered as error:  # a token that may read dashboards need not be one that reads alert rules
            problems.append(str(error))
            alerts, states = (), ()
    return (*documents, *alerts), states, tuple(problems)


def _shown(url: str) -> str:
    """The address as it is told of one that answered: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
