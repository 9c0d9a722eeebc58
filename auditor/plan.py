"""What to send: which loads, how many requests each deciding rule needs, and what the budget cannot decide.

Pure: the same profile, served facts and seed give the same plan, down to each request's lengths. Loads for the SLOs
come first, ladders after, so that a short budget costs explanation before it costs a verdict.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from auditor.loads import Load, Plan, PlanNote, Shape
from auditor.measurement import Sample, Served
from auditor.profile import Budget, Lengths, Profile, Slo, TrafficClass
from auditor.theory.shape import Curve, at, curve
from auditor.theory.statistics import needed

__all__ = ["Demand", "Pace", "concurrency", "demands", "make_plan", "stop_rule", "without_loads"]

PREFILL_LENGTHS = (32, 256, 1024, 2048, 4096, 16384, 65536)
PREFILL_REPEATS = 5
SATURATING = 4096  # prompt tokens up to which the ladder goes even where no prompt of the traffic is that long
SPARE = 0.04  # of the budget's time, which such a length may take
DECODE_TOKENS = 48
STEP_TOKENS = 2048  # of prompts that a step reads at least, where it is not known (vLLM's smallest default)
MOST_STEPS = 96  # in which the prompts of a decode load are read: streams that decode already wait for the last
MISSES_PLANNED = (2, 10)  # requests over an SLO that the planned n still lets pass: at least, and where cheap
CHEAP = 0.25  # of the budget's requests: what an SLO may take to bear more misses than the fewest
STEADY_TURNOVERS = 5  # completions per slot that a steady window needs
SLO_SHARE = 0.75  # of the budget, at most; the rest is for the ladders
SLO_OF = {
    "W110": "slo.ttft",
    "W111": "slo.tps",
    "W112": "slo.e2e",
    "W113": "slo.error_rate",
    "W114": "slo.first_answer",
}
MOST_IN_FLIGHT = 100_000  # what a request rate may come to: one client cannot hold more
HOPELESS = 20  # requests in a row that may fail before a load is given up


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the service is expected to be: seconds per prompt token (alone) and per decode step at the target."""

    per_prompt_token: float
    per_step: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What one SLO needs: the rule, the class (None: all), the percentile as a share, and the fewest requests to
    pass.
    """

    rule: str
    cls: str | None
    quantile: float
    least: int
    wanted: int


def make_plan(
    profile: Profile, served: Served | None = None, pace: Pace | None = None, step_tokens: int | None = None
) -> Plan:
    """Plan the probe of `profile` against an endpoint that serves `served`. Sends nothing.

    `step_tokens` of prompts is what one step of the engine reads at most, where that is known.
    """
    budget, seed = profile.probe.budget, profile.probe.seed
    if not profile.traffic.classes:
        note = PlanNote("traffic.classes is missing: the traffic cannot be imitated", ("W110", "W111", "W112", "W113"))
        return Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=(note,), seed=seed)
    limit = served.max_model_len if served else None
    slots = concurrency(profile, pace)
    slo, notes = _slo_load(profile, slots, limit)
    loads: list[Load] = [load for load in (_cold_load(profile, limit), slo) if load.shapes]
    while loads and not _within(budget, *_cost(loads)):
        notes.append(PlanNote(f"{loads.pop(0).id} left out: the budget has no room for it", ("H204",)))
    if not loads or loads[-1].id != "slo":
        message = "probe.budget has no room for one request of this traffic: raise probe.budget.tokens"
        return Plan(loads=(), requests=0, tokens=0, seconds=0.0, notes=(PlanNote(message, tuple(SLO_OF)),), seed=seed)
    spent_requests, spent_tokens = _cost(loads)
    steps = _decode_ladder(profile, slots, limit, step_tokens or STEP_TOKENS)
    for ladder in (*_prefill_ladder(profile, limit, pace), *steps):
        requests, tokens = _cost([ladder])
        if not _within(budget, spent_requests + requests, spent_tokens + tokens):
            notes.append(PlanNote(f"{ladder.id} left out: the budget has no room for it", ("H202", "H203")))
            continue
        loads.append(ladder)
        spent_requests, spent_tokens = spent_requests + requests, spent_tokens + tokens
    seconds = sum(_seconds(load, pace, profile.deployment.replicas) for load in loads) if pace else 0.0
    if seconds > budget.duration:
        message = f"about {seconds:.0f} s of load are planned and {budget.duration:.0f} s allowed: the last will be cut"
        notes.append(PlanNote(message))
    return Plan(
        loads=tuple(loads),
        requests=spent_requests,
        tokens=spent_tokens,
        seconds=min(seconds, budget.duration),
        notes=tuple(notes),
        seed=seed,
    )


def concurrency(profile: Profile, pace: Pace | None = None) -> int:
    """Requests in flight at the target load.

    A declared request rate becomes a concurrency by Little's law, L = rate x time in system, with the time expected at
    `pace`, else the declared E2E ceiling, else one second.
    """
    traffic = profile.traffic
    if traffic.target_concurrency:
        return traffic.target_concurrency
    if not traffic.request_rate:
        return 1
    prompt = sum(c.share * c.prompt_tokens.p50 for c in traffic.classes)
    output = sum(c.share * c.output_tokens.p50 for c in traffic.classes)
    ceiling = min((profile.slo.e2e or {}).values(), default=1.0)
    stay = pace.per_prompt_token * prompt + pace.per_step * output if pace else ceiling
    return max(1, math.ceil(min(traffic.request_rate * stay, MOST_IN_FLIGHT)))


def demands(profile: Profile) -> tuple[Demand, ...]:
    """What every SLO of the profile needs to be decided at the profile's confidence."""
    shares = {c.name: c.share for c in profile.traffic.classes}
    found: list[Demand] = []
    for cls, slo in ((None, profile.slo), *profile.slo.classes.items()):
        room = CHEAP * profile.probe.budget.requests * shares.get(cls or "", 1.0)
        for rule, quantile in _quantiles(slo):
            least, wanted = _sizes(quantile, profile.probe.confidence, room)
            found.append(Demand(rule, cls, quantile, least, wanted))
    return tuple(found)


def _quantiles(slo: Slo) -> Iterator[tuple[str, float]]:
    """Each deciding rule of an SLO with the share of requests that must meet it."""
    ceilings = (("W110", slo.ttft), ("W112", slo.e2e), ("W114", slo.first_answer))
    for rule, limits in ceilings:
        yield from ((rule, _share(name)) for name in limits or {})
    yield from (("W111", 1 - _share(name)) for name in slo.tps or {})
    if slo.error_rate:
        yield "W113", 1 - slo.error_rate


def _sizes(quantile: float, confidence: float, room: float) -> tuple[int, int]:
    """The fewest requests that can pass, and how many to send: enough to bear a few misses, more where `room` allows.

    The more misses an n bears, the less often a service that meets its SLO with a small margin ends inconclusive.
    """
    fewest, most = MISSES_PLANNED
    sizes = (needed(quantile, confidence, bad=misses) for misses in range(most, fewest, -1))
    wanted = next((size for size in sizes if size <= room), needed(quantile, confidence, bad=fewest))
    return needed(quantile, confidence), wanted


def _share(percentile: str) -> float:
    """The share that a percentile's name stands for: p95 is 0.95, p99.9 is 0.999, p05 is 0.05."""
    return float(percentile.removeprefix("p")) / 100


def _slo_load(profile: Profile, slots: int, limit: int | None) -> tuple[Load, list[PlanNote]]:
    """The traffic mix at the target concurrency, with as many requests as the SLOs want and the budget allows."""
    classes, budget = profile.traffic.classes, profile.probe.budget
    shares = {c.name: c.share for c in classes}
    wants = [(d, math.ceil(d.least / shares.get(d.cls or "", 1.0))) for d in demands(profile)]
    best = [math.ceil(d.wanted / shares.get(d.cls or "", 1.0)) for d, _ in wants]
    wanted = max([STEADY_TURNOVERS * slots, *best])
    affordable = _affordable(classes, budget, limit)
    warmup = min(max(slots, 3), affordable // 3)
    count = min(wanted, affordable - warmup)
    notes = [
        PlanNote(
            f"{_called(demand)} needs {least} requests to pass and the budget allows {count}: "
            f"raise probe.budget or lower the percentile",
            (demand.rule,),
        )
        for demand, least in wants
        if least > count
    ]
    if count < STEADY_TURNOVERS * slots:
        steady = STEADY_TURNOVERS * slots
        message = f"a steady state at {slots} in flight takes {steady} requests and the budget allows {count}"
        notes.append(PlanNote(message, ("T509",)))
    load = Load(
        id="slo",
        purpose="slo",
        concurrency=max(1, min(slots, count)),
        shapes=tuple(_mix(classes, count, limit, random.Random(f"{profile.probe.seed}/slo"))),
        warmup=tuple(_mix(classes, warmup, limit, random.Random(f"{profile.probe.seed}/warmup"))),
        why=f"the traffic classes at {slots} in flight",
    )
    return load, notes


def _called(demand: Demand) -> str:
    return SLO_OF[demand.rule] + (f" of class {demand.cls}" if demand.cls else "") + f" at {demand.quantile:.4g}"


def _within(budget: Budget, requests: int, tokens: int) -> bool:
    return requests <= budget.requests and tokens <= budget.tokens


def _affordable(classes: Sequence[TrafficClass], budget: Budget, limit: int | None) -> int:
    """Requests of the mix within the SLO load's part of the budget."""
    sample = list(_mix(classes, 200, limit, random.Random(0)))
    mean = sum(s.prompt_tokens + s.output_tokens for s in sample) / len(sample)
    return min(math.floor(SLO_SHARE * budget.requests), math.floor(SLO_SHARE * budget.tokens / mean))


def _mix(classes: Sequence[TrafficClass], count: int, limit: int | None, rng: random.Random) -> Iterator[Shape]:
    """`count` requests in random order whose class counts and length quantiles are spread evenly, not drawn."""
    shapes: list[Shape] = []
    for cls, number in zip(classes, _apportion([c.share for c in classes], count), strict=True):
        prompts, outputs = _spread(cls.prompt_tokens, number, rng), _spread(cls.output_tokens, number, rng)
        prefixed = _prefixes(cls, number, rng)
        for prompt, output, prefix in zip(prompts, outputs, prefixed, strict=True):
            shapes.append(_clamped(cls, prompt, output, prefix, limit))
    rng.shuffle(shapes)
    yield from shapes


def _apportion(shares: Sequence[float], count: int) -> list[int]:
    """Largest remainders: whole numbers in proportion to `shares` that sum to `count`."""
    exact = [share / sum(shares) * count for share in shares]
    whole = [math.floor(x) for x in exact]
    for index in sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])[: count - sum(whole)]:
        whole[index] += 1
    return whole


def _spread(lengths: Lengths, count: int, rng: random.Random) -> list[int]:
    """`count` lengths at evenly spaced quantiles with a random offset in each stratum, shuffled."""
    points = _curve(lengths)
    values = [max(1, at(points, (i + rng.random()) / count)) for i in range(count)]
    rng.shuffle(values)
    return values


def _curve(lengths: Lengths) -> Curve:
    return curve(lengths.p50, lengths.p95, lengths.p99, lengths.max)


def _prefixes(cls: TrafficClass, count: int, rng: random.Random) -> list[int | None]:
    shared = cls.shared_prefix
    if not shared:
        return [None] * count
    with_prefix = round(shared.share * count)
    numbers: list[int | None] = [i % shared.distinct for i in range(with_prefix)]
    numbers += [None] * (count - with_prefix)
    rng.shuffle(numbers)
    return numbers


def _clamped(cls: TrafficClass, prompt: int, output: int, prefix: int | None, limit: int | None) -> Shape:
    """A shape that the context holds: lengths beyond it are cut (rule W106 reports them), the reply first."""
    if limit:
        prompt = max(1, min(prompt, limit - 2))
        output = max(1, min(output, limit - prompt - 1))
    tokens = min(cls.shared_prefix.tokens, prompt) if cls.shared_prefix and prefix is not None else 0
    return Shape(cls=cls.name, prompt_tokens=prompt, output_tokens=output, prefix=prefix, prefix_tokens=tokens)


def _cold_load(profile: Profile, limit: int | None) -> Load:
    """One request of the main class's median before anything else: the cold first token, kept apart."""
    main = max(profile.traffic.classes, key=lambda c: c.share)
    shape = _clamped(main, main.prompt_tokens.p50, min(16, main.output_tokens.p50), None, limit)
    return Load(id="cold", purpose="cold", concurrency=1, shapes=(shape,), why="the first request after start-up")


def _prefill_ladder(profile: Profile, limit: int | None, pace: Pace | None) -> Iterator[Load]:
    """TTFT over prompt length, one request at a time, one token out."""
    longest = max(_longest(c.prompt_tokens) for c in profile.traffic.classes)
    room = limit - 2 if limit else longest
    top = min(longest, room)
    lengths = sorted({n for n in PREFILL_LENGTHS if n < top} | {top} | _saturating(profile.probe.budget, room, pace))
    for length in lengths[:1] + lengths[1:][-5:]:
        shape = Shape(cls="ladder", prompt_tokens=length, output_tokens=1)
        yield Load(
            id=f"prefill-{length}",
            purpose="prefill",
            concurrency=1,
            shapes=(shape,) * PREFILL_REPEATS,
            prompt_tokens=length,
            why="TTFT over prompt length",
        )


def _saturating(budget: Budget, room: int, pace: Pace | None) -> set[int]:
    """Lengths that fill a device with work: without them nothing tells what a token costs. None where they are slow."""
    if pace is None:
        return set()
    affordable = SPARE * budget.duration / PREFILL_REPEATS / max(1e-9, pace.per_prompt_token)
    return {n for n in PREFILL_LENGTHS if n <= min(SATURATING, room, affordable)}


def _longest(lengths: Lengths) -> int:
    return lengths.p95 or lengths.p50


def _decode_ladder(profile: Profile, slots: int, limit: int | None, step_tokens: int) -> Iterator[Load]:
    """TPOT over batch size at a short and a long context, every stream decoding at once.

    Streams whose prompts came first must still decode when the last prompt has been read: replies are longer by the
    steps that this takes, and contexts shorter where it would take too many.
    """
    longest = max(_longest(c.prompt_tokens) for c in profile.traffic.classes)
    batches = [1, *sorted({max(2, round(slots * f)) for f in (0.125, 0.5, 1.0)} - {1})] if slots > 1 else [1]
    for batch in batches:
        far = min(longest, MOST_STEPS * step_tokens // batch)
        far = max(16, min(far, limit - DECODE_TOKENS - MOST_STEPS - 2) if limit else far)
        for context in sorted({max(16, far // 8), far}):
            reply = DECODE_TOKENS + min(MOST_STEPS, math.ceil(batch * context / step_tokens))
            shape = Shape(cls="ladder", prompt_tokens=context, output_tokens=reply)
            yield Load(
                id=f"decode-{batch}x{context}",
                purpose="decode",
                concurrency=batch,
                shapes=(shape,) * batch,
                context=context,
                why="TPOT over batch and context",
            )


def _cost(loads: Sequence[Load]) -> tuple[int, int]:
    shapes = [s for load in loads for s in (*load.warmup, *load.shapes)]
    return len(shapes), sum(s.prompt_tokens + s.output_tokens for s in shapes)


def _seconds(load: Load, pace: Pace, replicas: int) -> float:
    """Time of a load at `pace`: slots decode side by side, but prompts in flight share the devices of their replica."""
    shapes = (*load.warmup, *load.shapes)
    prompts = sum(s.prompt_tokens for s in shapes) * pace.per_prompt_token / min(max(1, replicas), load.concurrency)
    return prompts + sum(s.output_tokens for s in shapes) * pace.per_step / load.concurrency


def stop_rule(load: Load, samples: Sequence[Sample], elapsed: float, budget: Budget) -> str | None:
    """Why `load` should end now, or None. `elapsed` is the time spent on the endpoint in all, seconds."""
    if elapsed > budget.duration:
        return f"the time budget of {budget.duration:.0f} s is spent"
    latest = samples[-max(HOPELESS, load.concurrency) :]
    if len(latest) >= max(HOPELESS, load.concurrency) and not any(s.good for s in latest):
        return f"the last {len(latest)} requests all failed ({latest[-1].error})"
    return None


def without_loads(plan: Plan, reason: str) -> Plan:
    """The plan of an endpoint that must not be loaded: nothing is sent, and the reason is a note."""
    note = PlanNote(reason, ("W110", "W111", "W112", "W113"))
    return replace(plan, loads=(), requests=0, tokens=0, seconds=0.0, notes=(*plan.notes, note))
