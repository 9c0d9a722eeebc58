"""The loads at another level than the target's, for a search: the same traffic, the same rules, what is left to spend.

Pure. A level has the loads of the target (a closed loop and its bursts), or one open loop where rates are searched.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from auditor.loads import Load, Logged, Plan
from auditor.measurement import Measurement
from auditor.plan.target import CLOSED, SLO_SHARE, STEADY_TURNOVERS, Target, cost, target_loads
from auditor.points import Level
from auditor.profile import Budget, Profile

__all__ = ["at_level", "least_requests", "left", "point_plan", "spent"]

OPEN_TURNOVERS = 3  # requests, for each that is in flight, that an open loop sends before it counts as steady
RESERVE_SHARE = 1 / 3  # of what is left: what a second look at a level may take


def at_level(profile: Profile, level: Level, room: Budget | None = None) -> Profile:
    """The profile as if this level were its target; `room` is the budget that is left."""
    traffic = replace(profile.traffic, target_concurrency=level.flight, request_rate=level.rate)
    probe = profile.probe if room is None else replace(profile.probe, budget=room)
    return replace(profile, traffic=traffic, probe=probe)


def point_plan(
    profile: Profile,
    level: Level,
    room: Budget,
    *,
    limit: int | None = None,
    log: Sequence[Logged] = (),
    flight: int = 1,
    reserve: bool = False,
) -> Plan | None:
    """The loads of a level, warm-up and all within `room`; None where there is no room for what the level needs.

    `flight` is what a rate is expected to keep in flight; `reserve` plans a second look for what the first leaves open,
    where it is a small part of what is left.
    """
    slots = level.flight or max(1, flight)
    generous = replace(room, requests=_whole(room.requests), tokens=_whole(room.tokens))
    target = target_loads(at_level(profile, level, generous), slots, limit, log)
    if not target.loads or target.notes:
        return None
    loads = tuple(target.loads) if level.rate is None else (_open(target, level.rate),)
    requests, tokens = cost(loads)
    if requests > room.requests or tokens > room.tokens:
        return None
    more: tuple[Load, ...] = ()
    if reserve and level.rate is None:
        rest = replace(
            room,
            requests=math.floor(RESERVE_SHARE * (room.requests - requests)),
            tokens=math.floor(RESERVE_SHARE * (room.tokens - tokens)),
        )
        more = target.more(rest)
    asked, read = cost((*loads, *more))
    return Plan(
        loads=tuple(_marked(load, level) for load in loads),
        reserve=tuple(_marked(load, level) for load in more),
        requests=asked,
        tokens=read,
        seconds=0.0,
        seed=profile.probe.seed,
    )


def least_requests(level: Level, flight: int = 1) -> int:
    """Requests that a level takes at least, for its slots to turn over and to warm up."""
    slots = level.flight or max(1, flight)
    return (STEADY_TURNOVERS + 2) * slots if level.rate is None else (OPEN_TURNOVERS + 1) * slots


def _whole(part: int) -> int:
    """The budget of which the loads at the target may take `part`."""
    return math.floor(part / SLO_SHARE)


def _open(target: Target, rate: float) -> Load:
    """One open loop with the requests of both loads of the target."""
    warmup, count = target.sizes.warmup, target.sizes.closed + target.sizes.bursts
    count = max(count, OPEN_TURNOVERS * target.slots)
    return Load(
        id=CLOSED,
        purpose="slo",
        concurrency=target.slots,
        shapes=target.feed.shapes(CLOSED, warmup, count),
        warmup=target.feed.shapes(f"{CLOSED}/warmup", 0, warmup),
        arrivals=target.feed.arrivals(CLOSED, 0, warmup, count),
        rate=rate,
        why=f"the traffic at {rate:.3g} a second, as it arrives",
    )


def _marked(load: Load, level: Level) -> Load:
    return replace(load, id=f"{load.id}{level.mark}")


def spent(measurements: Sequence[Measurement]) -> tuple[int, int]:
    """Requests that loads sent, and tokens that they took as the server counted them, or as asked."""
    samples = [s for m in measurements for s in (*m.warmup, *m.samples)]
    return len(samples), sum(s.tokens for s in samples)


def left(budget: Budget, measurements: Sequence[Measurement], elapsed: float, before: tuple[int, int]) -> Budget:
    """What is left of a budget after loads, `elapsed` seconds, and the requests and tokens that were spent `before`."""
    requests, tokens = spent(measurements)
    return replace(
        budget,
        duration=max(0.0, budget.duration - elapsed),
        requests=max(0, budget.requests - requests - before[0]),
        tokens=max(0, budget.tokens - tokens - before[1]),
    )
