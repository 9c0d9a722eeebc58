"""The source of load on this machine: where requests go, what they say, who reads the server's metrics."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from auditor.loads import Plan
from auditor.measurement import Served
from auditor.probe.care import Care
from auditor.probe.load import LoadSource, LocalSource, Stop
from auditor.probe.scrape import scraper
from auditor.probe.selfcheck import self_check
from auditor.probe.target import Target, forced
from auditor.probe.web import headers_for
from auditor.probe.wording import wording
from auditor.probe.workers import Workers
from auditor.profile import Profile

__all__ = ["Ready", "local_source"]


@dataclass(frozen=True, slots=True)
class Ready:
    """What sends the loads, what says that they do harm, and the tokens spent on the way here."""

    source: LoadSource
    harm: Stop
    spent_tokens: int


@asynccontextmanager
async def local_source(
    profile: Profile, served: Served, key: str | None, plan: Plan, texts: Sequence[str] = ()
) -> AsyncIterator[Ready]:
    """A source for the loads of `plan`, tried on a server that answers at once. `texts` are the user's own prompts.

    Raises PreflightFailed where the endpoint does not take what the plan sends.
    """
    target, care = _target(profile, served, key), Care(profile)
    words = await wording(target, served, plan, texts)
    metrics = scraper(profile, served, key)
    try:
        local = LocalSource(target, words.prompts, snapshot=care.watching(metrics))
        yield Ready(Workers(local, await self_check()), care.harm, served.spent_tokens + words.spent_tokens)
    finally:
        if metrics:
            await metrics.close()


def _target(profile: Profile, served: Served, key: str | None) -> Target:
    """Where the load's requests go and how they are phrased, as discovery found it to work."""
    return Target(
        url=profile.endpoint.url,
        model=served.model or profile.endpoint.model,
        api=served.api,
        headers=headers_for(profile, profile.endpoint.url, key),
        extra_body=profile.endpoint.extra_body,
        max_tokens_field=served.max_tokens_field,
        force=forced(min_tokens=served.min_tokens, ignore_eos=served.ignore_eos),
        usage=served.usage is not False,
        verify_tls=profile.endpoint.verify_tls,
        ca=profile.endpoint.ca_file,
    )
