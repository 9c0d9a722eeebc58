"""Run a plan's loads one after another on one source, within the budget, losing nothing that was measured."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from auditor.loads import Load, Plan
from auditor.measurement import Measurement, Sample, Served
from auditor.plan.stopping import stop_rule
from auditor.probe.load import LoadSource, LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.scrape import headers_for, scraper
from auditor.probe.target import Target
from auditor.profile import Budget, Profile, is_loopback

__all__ = ["INTERRUPTED", "Watcher", "is_loopback", "local_source", "run_plan", "target_of"]

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who wants to know what happens: called as each load starts, each request ends, each load ends."""

    load_started: Callable[[Load], None]
    sample: Callable[[Load, Sample], None]
    load_ended: Callable[[Measurement], None]


async def run_plan(plan: Plan, source: LoadSource, budget: Budget, watcher: Watcher) -> tuple[Measurement, ...]:
    """Measure every load of `plan` in order.

    Ends early when a load ended early: the time is spent, the endpoint answers nothing, or the user interrupted. What
    was measured until then is returned; the last measurement's `stopped` says why.
    """
    clock = asyncio.get_running_loop().time
    begin = clock()
    measured: list[Measurement] = []
    for load in plan.loads:
        started = clock() - begin
        watcher.load_started(load)
        measurement = await source.run(
            load,
            on_sample=_telling(watcher, load),
            stop=_stopping(load, clock, begin, budget),
        )
        measured.append(replace(measurement, started=started))
        watcher.load_ended(measured[-1])
        if measurement.stopped:
            break
    return tuple(measured)


def _telling(watcher: Watcher, load: Load) -> Callable[[Sample], None]:
    return lambda sample: watcher.sample(load, sample)


def _stopping(
    load: Load, clock: Callable[[], float], begin: float, budget: Budget
) -> Callable[[Sequence[Sample]], str | None]:
    return lambda samples: stop_rule(load, samples, clock() - begin, budget)


@asynccontextmanager
async def local_source(
    profile: Profile, served: Served, key: str | None, texts: Sequence[str] = ()
) -> AsyncIterator[LocalSource]:
    """The source of load in this process: where requests go, what they say, and who reads the server's metrics."""
    metrics = scraper(profile, served, key)
    prompts = Prompts(
        seed=profile.probe.seed,
        tokens_per_word=served.tokens_per_word or 1.0,
        template_tokens=served.template_tokens,
        texts=texts,
    )
    try:
        yield LocalSource(target_of(profile, served, key), prompts, snapshot=metrics)
    finally:
        if metrics:
            await metrics.close()


def target_of(profile: Profile, served: Served, key: str | None) -> Target:
    """Where the load's requests go and how they are phrased, as discovery found it to work."""
    return Target(
        url=profile.endpoint.url,
        model=served.model or profile.endpoint.model,
        api=served.api,
        headers=headers_for(profile, profile.endpoint.url, key),
        extra_body=profile.endpoint.extra_body,
        max_tokens_field=served.max_tokens_field,
        force=_force(served),
        usage=served.usage is not False,
        verify_tls=profile.endpoint.verify_tls,
    )


def _force(served: Served) -> Literal["min_tokens", "ignore_eos"] | None:
    """How reply lengths are forced: by min_tokens where it works; SGLang admits ignore_eos requests by another path."""
    if served.min_tokens:
        return "min_tokens"
    return "ignore_eos" if served.ignore_eos else None
