"""What users sent before anything is loaded: from the Prometheus that scrapes the service, else from the engine's own
page; and in a passive audit all that the verdict rests on.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from auditor.errors import AuditError, UsageError
from auditor.evidence import Evidence
from auditor.loading import Loaded
from auditor.measurement import Snapshot
from auditor.probe.passive import LENGTHS, TIMES, Subject, look
from auditor.probe.prometheus import of_profile
from auditor.probe.scrape import scraper
from auditor.profile import EngineName, Profile
from auditor.watch import Observed

__all__ = ["WEEK", "lengths", "of_page", "window"]

WEEK = 7 * 86_400.0
"""Seconds: how far back lengths are read from a Prometheus; a week has all of a service's hours."""


async def window(evidence: Evidence, loaded: Loaded, seconds: float) -> Evidence:
    """The evidence with the last `seconds` of the service as its Prometheus saw them; nothing is sent to the service.

    Raises UsageError where the profile names no Prometheus or it holds several models, Unanswered where it does not
    answer.
    """
    if evidence.profile.monitoring.prometheus is None:
        where = evidence.where("monitoring.prometheus") or loaded.path
        raise UsageError(f"{where}: --passive reads Prometheus alone: set monitoring.prometheus to its address")
    observed = await _seen(evidence, loaded, seconds, (*TIMES, *LENGTHS))
    return replace(evidence, observed=observed, profile=_recognised(evidence.profile, observed.engine))


def _recognised(profile: Profile, engine: str | None) -> Profile:
    """The profile with the engine whose series Prometheus has, where it leaves that open."""
    known = next((name for name in get_args(EngineName) if name == engine), None)
    if profile.endpoint.engine != "auto" or known is None:
        return profile
    return replace(profile, endpoint=replace(profile.endpoint, engine=known))


async def lengths(evidence: Evidence, loaded: Loaded) -> Evidence:
    """The evidence with the prompt and output lengths of a week, or of the engine's page; unchanged without either.

    To be read before the audit's own load, which would be part of them.
    """
    found: Observed | None = None
    if evidence.profile.monitoring.prometheus is not None:
        try:
            found = await _seen(evidence, loaded, WEEK, LENGTHS)
        except AuditError:  # what watches the service is looked at elsewhere, and says there what is wrong
            found = None
    if found is None or not found.histograms:
        found = await _page(evidence, loaded.key)
    return evidence if found is None else replace(evidence, observed=replace(found, passive=False, slices=()))


async def _seen(evidence: Evidence, loaded: Loaded, seconds: float, concepts: Sequence[str]) -> Observed:
    profile, served = evidence.profile, evidence.served
    settings = evidence.settings
    model = served.model if served is not None and served.model is not None else profile.endpoint.model
    version = settings.engine_version if settings is not None else None
    subject = Subject(engine=evidence.engine, version=version, model=model, labels=profile.monitoring.selector)
    async with of_profile(profile, loaded.keys.get("prometheus")) as prometheus:
        return await look(prometheus, subject, seconds, concepts)


async def _page(evidence: Evidence, key: str | None) -> Observed | None:
    """The engine's page as it is now; None where it has no lengths or cannot be read."""
    if evidence.served is None:
        return None
    read = scraper(evidence.profile, evidence.served, key)
    if read is None:
        return None
    try:
        return of_page(await read(0.0, "before"), read.urls[0])
    finally:
        await read.close()


def of_page(snapshot: Snapshot | None, url: str) -> Observed | None:
    """The lengths that an engine counted since it started; None where its page tells none."""
    found = {c: h for c in LENGTHS if snapshot is not None and (h := snapshot.histograms.get(c)) and h.count > 0}
    return Observed(source=url, window=None, histograms=found) if found else None
