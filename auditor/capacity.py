"""The highest load that meets every SLO: one level after another on the endpoint, judged by the verdict's own rules.

Starts at the target, doubles or halves, then bisects to a tenth, within `probe.budget` as a whole. A level that decides
nothing is neither a pass nor a fail. Each load ends before the next begins.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from auditor import holding, slo, store
from auditor.errors import NothingMeasured, UsageError
from auditor.evidence import Evidence
from auditor.judgement import SLO_RULES
from auditor.levels import Levels, Told
from auditor.loading import Loaded
from auditor.plan.care import NEAR_FULL
from auditor.plan.pace import concurrency
from auditor.plan.point import point_plan
from auditor.plan.stopping import HOPELESS
from auditor.points import Capacity, Level, Nearest, Point
from auditor.probe.events import Event, Listener
from auditor.probe.load import INTERRUPTED
from auditor.probe.local import local_source
from auditor.report import words
from auditor.run import Options, conclude, declare, discovered, endpoint, redacting, watching
from auditor.theory.bracket import RESOLUTION, bracket, next_level
from auditor.theory.knee import Knee, knee
from auditor.theory.statistics import Outcome
from auditor.units import percent

__all__ = ["Wanted", "capacity", "search"]

MOST = 16  # times the target, where the user names no bound
CLIENT = ("T503", "T504", "T513", "T514")  # rules that say that the client was at work, not the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to search: rates instead of requests in flight, and no higher than `most`."""

    by_rate: bool = False
    most: float | None = None
    save: Path | None = None


async def capacity(loaded: Loaded, wanted: Wanted, events: Listener) -> Capacity:
    """Search the endpoint of a profile. Raises UsageError where there is nothing to search or the endpoint must not be
    loaded, NothingMeasured where not one request was answered.
    """
    options = Options(save=wanted.save)
    evidence = declare(loaded, options)
    _refuse(evidence)
    events = redacting(events, store.redactor_of(loaded, evidence))
    with store.recording(wanted.save, loaded, evidence, {}) as keep:
        async with endpoint(evidence, loaded.key, events) as profile:
            evidence = await discovered(evidence, profile, loaded, events)
            first = Level(flight=concurrency(profile))
            plan = point_plan(profile, first, profile.probe.budget, limit=_context(evidence), log=loaded.log)
            if plan is None or (served := evidence.served) is None:
                place = _where(evidence, "probe.budget")
                raise UsageError(f"{place}: probe.budget is too little for one load at {first}: raise it")
            evidence = replace(evidence, plan=plan)
            keep.update(evidence)
            async with local_source(profile, served, loaded.key, plan, loaded.prompts) as ready:
                levels = Levels(
                    evidence, ready, watching(keep, events), SLO_RULES, budget=profile.probe.budget, log=loaded.log
                )
                found = await search(levels, wanted, events)
        seen = [s for m in levels.measured for s in m.judged]
        if seen and all(s.unreached for s in seen):
            raise NothingMeasured(f"none of {len(seen)} requests was answered: {seen[0].detail or seen[0].error}")
        evidence = replace(evidence, measurements=tuple(levels.measured), nearest=Nearest(note=found.note))
        evidence = keep.redact(evidence)
        report = conclude(evidence, options)
        keep.finish(evidence, report)
    notes = "; ".join(filter(None, (found.note, keep.failure)))
    return replace(found, note=notes, context=tuple(words.context(report)))


def _refuse(evidence: Evidence) -> None:
    """Raise UsageError where a search makes no sense or may not be made."""
    profile = evidence.profile
    if not profile.traffic.classes:
        raise UsageError(f"{_where(evidence, 'traffic')}: traffic.classes is missing: the traffic cannot be imitated")
    if not any(slo.every(evidence)):
        raise UsageError(f"{_where(evidence, 'slo')}: declares no limit that a higher load could break: add one")
    if not (profile.probe.allow_load or profile.endpoint.on_this_machine):
        raise UsageError(
            f"{_where(evidence, 'endpoint.url')}: the endpoint is not on this machine: "
            f"it is loaded only with probe.allow_load: true"
        )


def _where(evidence: Evidence, path: str) -> str:
    return str(evidence.where(path) or path)


def _context(evidence: Evidence) -> int | None:
    return evidence.served.max_model_len if evidence.served else None


# ---------------------------------------------------------------------------------------------------------- the search


async def search(levels: Levels, wanted: Wanted, events: Listener) -> Capacity:
    """All levels; an interruption ends the search, and what was measured is told."""
    profile = levels.evidence.profile
    by_rate = wanted.by_rate or profile.traffic.request_rate is not None
    note, start = "", None
    try:
        start = await _start(levels, by_rate=by_rate, events=events)
        note = start if isinstance(start, str) else await _climb(levels, start, wanted.most, events)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not levels.points:
            raise
        task.uncancel()
        note = INTERRUPTED
    return _summed(levels, note, by_rate=by_rate)


async def _start(levels: Levels, *, by_rate: bool, events: Listener) -> Level | str:
    """Where the search begins: the declared target; for a rate that is not declared the one that the target in flight
    reaches. A reason where that gives none.
    """
    traffic = levels.evidence.profile.traffic
    flight = Level(flight=traffic.target_concurrency or 1)
    if not by_rate:
        return flight
    if traffic.request_rate is not None:
        return Level(rate=traffic.request_rate)
    events(Event(kind="stage", text=f"find the rate that {flight} reach"))
    outcome = await levels.measure(flight)
    if isinstance(outcome, Told):
        return outcome.why
    levels.points.clear()
    return Level(rate=outcome.reached) if outcome.reached else f"{flight} reach no rate: {outcome.why}"


async def _climb(levels: Levels, start: Level, most: float | None, events: Listener) -> str:
    """Measure levels until the bracket is narrow; returns why it ended before, empty where it did not."""
    whole, first = start.rate is None, start.value
    top = most if most is not None else MOST * first
    least, step = (1.0, 1.0) if whole else (first / 64, 0.0)
    while True:
        seen = [(p.level.value, p.status) for p in levels.points]
        value = next_level(seen, first, least, top, step=step)
        if value is None:
            return _ended(seen, least, top, step)
        level = Level(flight=round(value)) if whole else Level(rate=value)
        events(Event(kind="stage", text=f"measure {level}"))
        above = round((1 + RESOLUTION) * (bracket(seen).passed or 0))
        at_target = whole and value == levels.evidence.profile.traffic.target_concurrency
        outcome = await levels.measure_most(level, above, reserve=True, purpose="slo" if at_target else "nearest")
        if isinstance(outcome, Told):
            return outcome.why
        if levels.stopped is not None and levels.measured[-1].silence < HOPELESS:
            return levels.stopped


def _ended(seen: Sequence[tuple[float, Outcome]], least: float, top: float, step: float) -> str:
    """What keeps a search that is over from having found both ends."""
    found = bracket(seen)
    if found.settled(step=step):
        return ""
    if found.undecided:
        return "the levels between are too close to the limits to call"
    if found.passed is not None and found.passed >= top:
        return "the search goes no higher (--max)"
    return "the search goes no lower" if found.failed is not None and found.failed <= least else ""


# ---------------------------------------------------------------------------------------------------------- what limits


def _summed(levels: Levels, note: str, *, by_rate: bool) -> Capacity:
    """The search as one result."""
    evidence, points = levels.evidence, tuple(levels.points)
    bent = knee(list(_paces(points)))
    limit, why = _limit(evidence, points, bent)
    traffic = evidence.profile.traffic
    declared = traffic.request_rate if by_rate else traffic.target_concurrency
    room, budget = levels.room, levels.budget
    return Capacity(
        name=evidence.profile.name,
        date=evidence.today,
        by="rate" if by_rate else "flight",
        target=None if declared is None else float(declared),
        points=points,
        knee=bent,
        limit=limit,
        why=why,
        note=note,
        requests=budget.requests - room.requests,
        tokens=budget.tokens - room.tokens,
        seconds=levels.elapsed,
        interrupted=levels.interrupted or note == INTERRUPTED,
    )


def _paces(points: Sequence[Point]) -> Iterator[tuple[float, float, float]]:
    """(requests in flight, seconds in which they finish as many, standard error) of each closed loop."""
    for p in points:
        if p.level.rate is None and p.reached and p.stay:
            seconds = p.level.value / p.reached
            yield p.level.value, seconds, seconds * (p.stay_error or 0.0) / p.stay


def _limit(evidence: Evidence, points: Sequence[Point], bent: Knee | None) -> tuple[str, str]:
    """What limits at the lowest level that fails (or does not pass), and why that is said; empty where all passed."""
    found = bracket((p.level.value, p.status) for p in points)
    wall = found.wall if found.failed is None else found.failed
    at = next((p for p in points if p.level.value == wall and p.status != "pass"), None)
    if at is None:
        return "", ""
    signs, level = at.signs, at.level
    if client := [rule for rule in at.voided_by if rule in CLIENT]:
        return "client", f"the client itself was at its limit at {level} ({', '.join(client)}): nothing is claimed"
    if signs.rate_limited:
        return "rate limit", f"a gateway refused requests at {level} for their rate"
    if signs.kv_pressed or (signs.kv_usage or 0.0) >= NEAR_FULL:
        lost = f", {signs.preemptions:.0f} preemptions" if signs.preemptions else ""
        full = "has no room" if signs.kv_usage is None else f"is {percent(signs.kv_usage)} full"
        return "KV cache", f"the KV cache {full} at {level}{lost}"
    if (signs.waiting or 0.0) >= 1 and signs.running is not None:
        return _queue(evidence, at, signs.running, signs.waiting or 0.0)
    if bent is not None and bent.reached and bent.batch < level.value:
        return "compute", f"beyond {bent.batch:.0f} in flight requests a second no longer grow ({bent.rate:.3g}/s)"
    missed = ", ".join(r.path for r in at.readings if r.status == at.status)
    told = f"{missed} is {'missed' if at.status == 'fail' else 'too close to call'} at {level}" if missed else at.why
    queue = "the server shows no queue" if signs.waiting is not None else "nothing tells of a queue"
    return "time a token" if "tps" in missed else "time", f"{told}; {queue}"


def _queue(evidence: Evidence, at: Point, running: float, waiting: float) -> tuple[str, str]:
    """A queue before the batch limit, or for compute."""
    limits = [
        (limit * evidence.profile.deployment.replicas, field) for limit, field, _ in holding.batch_limits(evidence)
    ]
    limit, field = min(limits, default=(0, ""))
    seen = f"{waiting:.0f} of the requests wait in the mean at {at.level}"
    if limit and running >= 0.9 * limit and running < at.level.value:
        return "batch limit", f"{seen}: {evidence.flag(field)} lets {limit} run at once"
    if at.level.flight is not None and running < 0.9 * at.level.value:
        return "batch limit", f"{seen}: {running:.0f} run at once and never more"
    return "compute", f"{seen}, for their turn: the engine is busy"
