"""Where would an audit that failed under load pass? A guess by arithmetic, then two or three levels measured.

The guess takes the least of what the cache carries, what the batch limit lets run, and the streams at which what was
measured would be within its limits. It only says where to look: a level counts once it was measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from auditor import bounds, holding
from auditor.evidence import Evidence
from auditor.judgement import KV_RULES, SLO_RULES, point
from auditor.levels import Levels, Told
from auditor.measurement import Measurement
from auditor.plan.stopping import HOPELESS
from auditor.points import Level, Nearest, Point, Reading
from auditor.theory.alternatives import Alternative, alternatives
from auditor.theory.bracket import bracket, next_level
from auditor.theory.judging import largest
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.step_costs import plain_costs
from auditor.units import quantity

__all__ = ["RULES", "judged", "seek"]

RULES = (*SLO_RULES, *KV_RULES)
"""What a level must pass."""

MOST = 3  # levels that are tried
STATIC = ("K302", "K303")  # which files alone can fail
MARGIN = 0.9  # of what a scaled time allows: times scatter, and a pass must be beyond doubt
COMPUTED = 2  # changes that are named


@dataclass(frozen=True, slots=True)
class _Guess:
    """A part of the target at which to look first."""

    part: float
    why: str


async def seek(levels: Levels, only: Sequence[str] = ()) -> Evidence:
    """The evidence of `levels` with loads below its target, where that failed by what was measured.

    Ends once a level passes close to the target, three were tried, or the budget is spent. `only` names the questions
    that are asked.
    """
    evidence = levels.evidence
    target = _at_target(evidence, only)
    if target is None or not _failed_under_load(target):
        return evidence
    note = _hopeless(target, levels) or await _measure(target, levels)
    return replace(evidence, nearest=Nearest(note=note), measurements=tuple(levels.measured))


def judged(evidence: Evidence) -> Nearest | None:
    """What the search came to, judged from the loads that were kept; None where there was none, or nothing fails."""
    target = _at_target(evidence)
    if evidence.nearest is None or target is None or not _failed_under_load(target):
        return None
    loads = [m for m in evidence.measurements if m.load.purpose == "nearest"]
    by_level = [tuple(group) for _, group in groupby(loads, key=lambda m: m.load.id.partition("@")[2])]
    points = tuple(point(evidence, _level(evidence, group), group, RULES) for group in by_level)
    return replace(evidence.nearest, points=points, computed=tuple(_computed(evidence, target)))


def _at_target(evidence: Evidence, only: Sequence[str] = ()) -> Point | None:
    """The target itself as a level; None without a load at it."""
    level, loads = _target(evidence), evidence.loads("slo")
    rules = [rule for rule in RULES if not only or rule[0] in only]
    if level is None or not loads or not rules:
        return None
    return point(evidence, level, loads, rules, evidence.plan)


def _failed_under_load(target: Point) -> bool:
    """Whether a level failed by what was measured there, not by files alone."""
    return target.status == "fail" and any(rule not in STATIC for rule in target.broken)


def _target(evidence: Evidence) -> Level | None:
    traffic = evidence.profile.traffic
    if traffic.request_rate is not None:
        return Level(rate=traffic.request_rate)
    return Level(flight=traffic.target_concurrency) if traffic.target_concurrency else None


def _level(evidence: Evidence, loads: Sequence[Measurement]) -> Level:
    """What the target of these loads was: a rate where the profile declares one, else requests in flight."""
    if evidence.profile.traffic.request_rate is None:
        return Level(flight=loads[0].load.concurrency)
    return Level(rate=next((m.load.rate for m in loads if m.load.rate is not None), None))


async def _measure(target: Point, levels: Levels) -> str:
    """Measure up to three levels; returns why no further one was, empty where none was needed."""
    whole, seen = target.level.rate is None, [(target.level.value, target.status)]
    start = _first(levels.evidence, target)
    wanted: float | None = start
    least, step = (1.0, 1.0) if whole else (start / 16, 0.0)
    while wanted is not None and len(levels.points) < MOST:
        passed = bracket(seen).passed or 0
        outcome = await levels.measure_most(Level(flight=round(wanted)) if whole else Level(rate=wanted), round(passed))
        if isinstance(outcome, Told):
            return outcome.why
        if levels.stopped is not None:
            return levels.stopped
        seen.append((outcome.level.value, outcome.status))
        wanted = next_level(seen, start, least, target.level.value, step=step)
    return "" if wanted is None else f"{MOST} levels were tried"


def _hopeless(target: Point, levels: Levels) -> str | None:
    """Why no lower load should be tried; None where one may be.

    A load that ended as its last requests failed bars none, but for one that got no reply at all.
    """
    if levels.measured and not any(s.good for s in levels.measured[-1].judged):
        return "the endpoint answers nothing any more"
    if levels.stopped is not None and levels.measured[-1].silence < HOPELESS:
        return levels.stopped
    return "there is no lower load than one request" if target.level.rate is None and target.level.value <= 1 else None


# ----------------------------------------------------------------------------------------------------------- the guess


def _first(evidence: Evidence, target: Point) -> float:
    """The level to try first: the least guess, half of the target without one."""
    part = min((g.part for g in _guesses(evidence, target) if 0 < g.part < 1), default=0.5)
    wanted = target.level.value * max(part, 1 / 16)
    if target.level.rate is not None:
        return wanted
    return float(min(max(1, int(wanted)), (target.level.flight or 2) - 1))


def _guesses(evidence: Evidence, target: Point) -> Iterator[_Guess]:
    """What may hold the target back, as parts of it."""
    share = evidence.share_of_target
    if share:
        pool = evidence.pool()
        if pool is not None and evidence.profile.traffic.classes:
            yield _Guess(holding.carried(evidence, pool[0].kv, 0.95) / share, "what the KV cache carries")
        limit = min((limit for limit, _, _ in holding.batch_limits(evidence)), default=None)
        if limit is not None:
            yield _Guess(limit / share, "the batch limit")
    in_flight = target.level.flight
    if in_flight and target.signs.running and (target.signs.waiting or 0) >= 1:
        yield _Guess(target.signs.running / in_flight, "what ran at once")
    for reading in target.readings:
        if reading.status == "fail" and reading.value:
            yield _Guess(MARGIN * _scaled(evidence, reading), f"{reading.path} as measured")


def _scaled(evidence: Evidence, reading: Reading) -> float:
    """The part of the target at which a time would meet its limit: by the decode ladder where it tells, else in
    proportion.
    """
    value, limit = reading.value or 0.0, reading.limit
    if reading.metric == "error_rate":
        return 0.5
    over = limit / value if reading.metric == "tps" else value / limit  # how many times too slow
    if over <= 1:
        return 1 / MARGIN
    found, batch = bounds.ladders(evidence), evidence.batch
    costs = plain_costs(found.steps) if found is not None and reading.metric in ("tps", "e2e") else None
    if found is None or batch is None or costs is None or costs.noise is not None or len(costs.levels) < 2:
        return 1 / over

    def step(streams: float) -> float:
        return costs.level(streams) + costs.cost.point * streams * found.context

    within = largest(lambda n: n < 1 or step(n) * over <= step(batch), int(batch))
    return max(1, within) / batch


# ----------------------------------------------------------------------------------------------- computed, not measured


def _computed(evidence: Evidence, target: Point) -> Iterator[str]:
    """Changes that would carry the target, by arithmetic scaled to what was measured; the first of them."""
    told = list(dict.fromkeys((*_faster(evidence, target), *_roomier(evidence, target))))
    yield from told[:COMPUTED]


def _faster(evidence: Evidence, target: Point) -> Iterator[str]:
    """Levers that bring every missed time within its limit."""
    missed = [r for r in target.readings if r.status == "fail" and r.value and r.metric in ("tps", "ttft", "e2e")]
    theory, batch = evidence.theory, evidence.batch
    unknown = [r for r in target.readings if r.status == "fail" and not r.value]
    if theory is None or batch is None or unknown or not missed:
        return
    geometry, settings, device = theory
    for lever in alternatives(settings, device, geometry):
        if not evidence.has(lever.field):
            continue
        told = [_then(evidence, lever, batch, reading) for reading in missed]
        if all(then is not None for then in told):
            yield f"{evidence.flag(lever.field)} {lever.value} ({', '.join(then for then in told if then)})"


def _then(evidence: Evidence, lever: Alternative, batch: int, reading: Reading) -> str | None:
    """The SLO's figure with a lever, in words, where it is within the limit."""
    assert evidence.theory is not None
    geometry, settings, device = evidence.theory
    prompt, output = evidence.profile.traffic.mean_lengths
    there = lever.device or device
    if reading.metric == "ttft":
        now, then = (
            predict_prefill(geometry, s, d, max(1, round(prompt))).seconds
            for s, d in ((settings, device), (lever.settings, there))
        )
    else:
        ratio = prompt / output if output > 0 else 0.0
        now, then = (
            predict_decode(geometry, s, d, batch, max(1.0, prompt + output / 2), ratio).seconds
            for s, d in ((settings, device), (lever.settings, there))
        )
    value = (reading.value or 0.0) * (now / then if reading.metric == "tps" else then / now)
    within = value >= reading.limit if reading.metric == "tps" else value <= reading.limit
    return f"{reading.metric.upper()} {reading.percentile} {quantity(value, reading.unit)}" if within else None


def _roomier(evidence: Evidence, target: Point) -> Iterator[str]:
    """Levers for the cache where it was the cache that failed."""
    pool, share = evidence.pool(), evidence.share_of_target
    if not {"K302", "K304", "K307"} & set(target.broken) or pool is None or share is None:
        return
    if evidence.profile.traffic.classes:
        yield from holding.ways_to_carry(evidence, pool[0].kv, share)
