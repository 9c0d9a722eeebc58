"""Run a plan's loads one after another on one source, within the budget, losing nothing that was measured."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from auditor.loads import Load, Plan
from auditor.measurement import Measurement, Sample
from auditor.plan.arrivals import with_rate
from auditor.plan.stopping import stop_rule, time_for
from auditor.probe.load import LoadSource, Stop
from auditor.profile import Budget

__all__ = ["Judge", "Watcher", "run_plan"]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who wants to know what happens: called as each load starts, each request ends, each load ends."""

    load_started: Callable[[Load], None]
    sample: Callable[[Load, Sample], None]
    load_ended: Callable[[Measurement], None]


Opinion = Callable[[Sequence[Measurement]], str | None]
"""What the loads measured so far mean for those to come: a reason, or None."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Who judges in between. `more`, asked once after the SLO loads: more requests would decide what these leave open.
    `decided`, asked before each further SLO load: nothing that it brings can change the outcome. `harm`, asked after
    each request: the endpoint must be spared.
    """

    more: Opinion = lambda _: None
    decided: Opinion = lambda _: None
    harm: Stop = lambda _: None


async def run_plan(
    plan: Plan,
    source: LoadSource,
    budget: Budget,
    watcher: Watcher,
    *,
    judge: Judge | None = None,
    spent_tokens: int = 0,
) -> tuple[Measurement, ...]:
    """Measure the loads of `plan` in order, those in reserve after the SLO loads where `judge` asks for more.

    Ends early when a load ended early: the budget is spent, the endpoint answers nothing, or the user interrupted. What
    was measured until then is returned; the last measurement's `stopped` says why. `spent_tokens` were spent before.
    """
    session = _Session(source, budget, watcher, judge or Judge())
    session.tokens = spent_tokens
    first = ("cold", "slo")
    await session.run(load for load in plan.loads if load.purpose in first)
    if plan.reserve and session.needs(plan.reserve):
        await session.run(plan.reserve)
    await session.run(load for load in plan.loads if load.purpose not in first)
    return tuple(session.measured)


class _Session:
    """A plan under way: what was measured and spent."""

    def __init__(self, source: LoadSource, budget: Budget, watcher: Watcher, judge: Judge) -> None:
        self.source, self.budget, self.watcher, self.judge = source, budget, watcher, judge
        self.tokens = 0
        self.measured: list[Measurement] = []
        self.clock = asyncio.get_running_loop().time
        self.begun = self.clock()
        self.ended = False

    @property
    def elapsed(self) -> float:
        """Seconds since the first load."""
        return self.clock() - self.begun

    async def run(self, loads: Iterable[Load]) -> None:
        """Measure loads until one is ended from outside; what cannot change the outcome any more is left out."""
        for load in loads:
            timed = with_rate(load, self.measured)
            if not self.ended and timed is not None and not self._settled(load):
                await self._measure(timed)

    def needs(self, reserve: Sequence[Load]) -> bool:
        """Whether the loads in reserve should run."""
        possible = not self.ended and time_for(reserve, self.measured, self.elapsed, self.budget)
        return possible and self.judge.more(self.measured) is not None

    async def _measure(self, load: Load) -> None:
        started = self.elapsed
        self.watcher.load_started(load)
        measurement = await self.source.run(
            load,
            on_sample=lambda sample: self._ended(load, sample),
            stop=lambda samples: self._stop(load, samples),
        )
        self.tokens += sum(sample.tokens for sample in measurement.warmup)
        self.measured.append(replace(measurement, started=started))
        self.watcher.load_ended(self.measured[-1])
        self.ended = measurement.stopped is not None

    def _ended(self, load: Load, sample: Sample) -> None:
        self.tokens += sample.tokens
        self.watcher.sample(load, sample)

    def _stop(self, load: Load, samples: Sequence[Sample]) -> str | None:
        return stop_rule(load, samples, self.elapsed, self.budget, self.tokens) or self.judge.harm(samples)

    def _settled(self, load: Load) -> bool:
        """Whether an SLO load is not worth its cost any more."""
        asked = load.purpose == "slo" and any(m.load.purpose == "slo" for m in self.measured)
        return asked and self.judge.decided(self.measured) is not None
