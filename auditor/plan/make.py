"""What to send: which loads, how many requests each deciding rule needs, and what the budget cannot decide.

Pure: the same profile, served facts and seed give the same plan, down to each request's lengths. Loads for the SLOs
come first, ladders after, so that a short budget costs explanation before it costs a verdict.
"""

from collections.abc import Sequence
from dataclasses import replace

from auditor.loads import Load, Logged, Plan, PlanNote
from auditor.measurement import Served
from auditor.plan.demands import SLO_OF
from auditor.plan.ladders import STEP_TOKENS, decode_ladder, prefill_ladder
from auditor.plan.mix import clamped
from auditor.plan.pace import Pace, concurrency, seconds
from auditor.plan.target import cost, target_loads, unshared
from auditor.profile import Budget, Profile

__all__ = ["make_plan", "without_loads"]


def make_plan(
    profile: Profile,
    served: Served | None = None,
    pace: Pace | None = None,
    step_tokens: int | None = None,
    *,
    log: Sequence[Logged] = (),
) -> Plan:
    """Plan the probe of `profile` against an endpoint that serves `served`. Sends nothing.

    `step_tokens` of prompts is what one step of the engine reads at most, where that is known; `log` is the traffic's
    own, of which the classes came.
    """
    seed = profile.probe.seed
    if not profile.traffic.classes:
        note = PlanNote("traffic.classes is missing: the traffic cannot be imitated", tuple(SLO_OF))
        return _nothing(note, seed)
    profile, limit = _unspent(profile, served), served.max_model_len if served else None
    budget = profile.probe.budget
    slots = concurrency(profile, pace)
    target = target_loads(profile, slots, limit, log)
    notes = list(target.notes)
    if not target.loads or not _within(budget, target.loads):
        message = "probe.budget has no room for one request of this traffic: raise probe.budget.tokens"
        return _nothing(PlanNote(message, tuple(SLO_OF)), seed)
    loads = list(target.loads)
    if _within(budget, [cold := _cold(profile, limit), *loads]):
        loads = [cold, *loads]
    else:
        notes.append(PlanNote("cold left out: the budget has no room for it", ("H204",)))
    steps = decode_ladder(profile, slots, limit, step_tokens or STEP_TOKENS)
    beside = unshared(profile, target.slots, limit)
    for further in (*prefill_ladder(profile, limit, pace), *steps, *beside):
        if _within(budget, [*loads, further]):
            loads.append(further)
        else:
            rules = () if further in beside else ("H202", "H203")
            notes.append(PlanNote(f"{further.id} left out: the budget has no room for it", rules))
    took = _seconds(loads, pace, profile)
    if took > budget.duration:
        message = f"about {took:.0f} s of load are planned and {budget.duration:.0f} s allowed: the last will be cut"
        notes.append(PlanNote(message))
    reserve = target.more(_left(budget, loads))
    if took + _seconds(reserve, pace, profile) > budget.duration:
        reserve = ()
    requests, tokens = cost([*loads, *reserve])
    return Plan(
        loads=tuple(loads),
        reserve=reserve,
        requests=requests,
        tokens=tokens,
        seconds=min(took + _seconds(reserve, pace, profile), budget.duration),
        notes=tuple(notes),
        seed=seed,
    )


def without_loads(plan: Plan, reason: str) -> Plan:
    """The plan of an endpoint that must not be loaded: nothing is sent, and the reason is a note."""
    note = PlanNote(reason, tuple(SLO_OF))
    return replace(plan, loads=(), reserve=(), requests=0, tokens=0, seconds=0.0, notes=(*plan.notes, note))


def _nothing(note: PlanNote, seed: int) -> Plan:
    return Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=(note,), seed=seed)


def _unspent(profile: Profile, served: Served | None) -> Profile:
    """The profile with what is left of its budget: the requests that found out what is served count too."""
    if served is None:
        return profile
    budget = profile.probe.budget
    left = replace(
        budget,
        requests=max(0, budget.requests - served.spent_requests),
        tokens=max(0, budget.tokens - served.spent_tokens),
    )
    return replace(profile, probe=replace(profile.probe, budget=left))


def _cold(profile: Profile, limit: int | None) -> Load:
    """One request of the main class's median before anything else: the cold first token, kept apart."""
    main = max(profile.traffic.classes, key=lambda c: c.share)
    shape = clamped(main, main.prompt_tokens.p50, min(16, main.output_tokens.p50), None, limit)
    return Load(id="cold", purpose="cold", concurrency=1, shapes=(shape,), why="the first request after start-up")


def _within(budget: Budget, loads: Sequence[Load]) -> bool:
    requests, tokens = cost(loads)
    return requests <= budget.requests and tokens <= budget.tokens


def _left(budget: Budget, loads: Sequence[Load]) -> Budget:
    requests, tokens = cost(loads)
    return replace(budget, requests=budget.requests - requests, tokens=budget.tokens - tokens)


def _seconds(loads: Sequence[Load], pace: Pace | None, profile: Profile) -> float:
    return sum(seconds(load, pace, profile.deployment.replicas) for load in loads) if pace else 0.0
