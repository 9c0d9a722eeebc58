"""Measures one level of load after another on one source, within what is left of the budget, and judges each."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from auditor import judgement, looks
from auditor.evidence import Evidence
from auditor.loads import Logged, Plan, Purpose
from auditor.measurement import Measurement
from auditor.plan.point import least_requests, left, point_plan, spent
from auditor.points import Level, Point
from auditor.probe.load import INTERRUPTED
from auditor.probe.local import Ready
from auditor.probe.session import Judge, Watcher, run_plan
from auditor.profile import Budget
from auditor.theory.judging import largest
from auditor.units import count, quantity

__all__ = ["Levels", "Told"]


@dataclass(frozen=True, slots=True)
class Told:
    """Why a level was not measured."""

    why: str


class Levels:
    """Levels of load on one endpoint: what was measured, judged and spent. The budget's time begins now.

    `rules` say what makes a level pass. What others put into `measured` counts as spent too.
    """

    def __init__(
        self,
        evidence: Evidence,
        ready: Ready,
        watcher: Watcher,
        rules: Sequence[str],
        *,
        budget: Budget,
        log: Sequence[Logged] = (),
    ) -> None:
        self.evidence, self.ready, self.watcher, self.rules = evidence, ready, watcher, rules
        self.budget, self.log = budget, log
        self.measured: list[Measurement] = []
        self.points: list[Point] = []
        self.stay: float | None = None
        self.clock = asyncio.get_running_loop().time
        self.begun = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds of the budget's time that have passed."""
        return self.clock() - self.begun

    @property
    def room(self) -> Budget:
        """What is left."""
        served = self.evidence.served
        before = (served.spent_requests if served else 0, self.ready.spent_tokens)
        return left(self.budget, self.measured, self.elapsed, before)

    @property
    def stopped(self) -> str | None:
        """Why the last load ended early; None where it did not."""
        return self.measured[-1].stopped if self.measured else None

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the last load."""
        return self.stopped == INTERRUPTED

    async def measure(self, level: Level, *, reserve: bool = False, purpose: Purpose = "nearest") -> Point | Told:
        """The level, measured and judged; or why there was no room for it. Its loads are kept under `purpose`."""
        room = self.room
        plan = self._plan(level, room, reserve)
        if plan is None:
            return Told(self._no_room(level, room))
        took = self._expected(plan)
        if took > room.duration:
            time = f"{level} takes about {quantity(round(took), 's')}, {quantity(round(room.duration), 's')} are left"
            return Told(f"{time} (probe.budget.duration)")
        started = self.elapsed
        watcher = replace(self.watcher, load_ended=lambda m: self.watcher.load_ended(_kept(m, purpose, started)))
        judge = Judge(
            more=lambda seen: looks.reserve_wanted(self._here(level, plan, seen)),
            decided=lambda seen: looks.decided(self._here(level, plan, seen)),
            harm=self.ready.harm,
        )
        loads = await run_plan(plan, self.ready.source, room, watcher, judge=judge)
        self.measured += [_kept(m, purpose, started) for m in loads]
        self.points.append(judgement.point(self.evidence, level, loads, self.rules, plan))
        self.stay = self.points[-1].stay or self.stay
        return self.points[-1]

    async def measure_most(
        self, level: Level, above: int, *, reserve: bool = False, purpose: Purpose = "nearest"
    ) -> Point | Told:
        """The level, or where there is no room for it the highest over `above` for which there is."""
        outcome = await self.measure(level, reserve=reserve, purpose=purpose)
        if isinstance(outcome, Point) or level.flight is None:
            return outcome
        room = self.room
        most = largest(lambda n: n <= above or self._plan(Level(flight=n), room, False) is not None, level.flight)
        known = most <= above or most in {p.level.flight for p in self.points}
        return outcome if known else await self.measure(Level(flight=most))

    def _plan(self, level: Level, room: Budget, reserve: bool) -> Plan | None:
        served = self.evidence.served
        return point_plan(
            self.evidence.profile,
            level,
            room,
            limit=served.max_model_len if served else None,
            log=self.log,
            flight=self._flight(level),
            reserve=reserve,
        )

    def _flight(self, level: Level) -> int:
        """What a rate keeps in flight, by Little's law at the times of the level measured last."""
        if level.rate is None:
            return level.flight or 1
        return max(1, round(level.rate * self.stay if self.stay else self.evidence.target or 1))

    def _here(self, level: Level, plan: Plan, seen: Sequence[Measurement]) -> Evidence:
        return judgement.as_target(self.evidence, level, plan, seen)

    def _expected(self, plan: Plan) -> float:
        """Seconds for a plan's first loads at the pace of the loads before; 0 where there is none."""
        paces = list(_paces(self.measured))
        sent = sum(len(load.warmup) + len(load.shapes) for load in plan.loads)
        return sent * min(paces[-2:]) if paces else 0.0

    def _no_room(self, level: Level, room: Budget) -> str:
        needs = least_requests(level, self._flight(level))
        if needs > room.requests:
            have = f"{count(room.requests, 'request')} of probe.budget are left"
            return f"{level} takes {needs} requests or more, {have}"
        have = f"{count(room.requests, 'request')} and {room.tokens:,} tokens"
        return f"{have} of probe.budget are left, too little for {level}"


def _kept(measurement: Measurement, purpose: Purpose, started: float) -> Measurement:
    load = replace(measurement.load, purpose=purpose)
    return replace(measurement, load=load, started=measurement.started + started)


def _paces(measured: Sequence[Measurement]) -> Iterator[float]:
    """Seconds a request of the loads at some level."""
    for m in measured:
        sent, _ = spent([m])
        if m.load.purpose in ("slo", "nearest") and sent and m.duration > 0:
            yield m.duration / sent
