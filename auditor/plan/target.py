"""The loads at the target, on which the SLOs are judged: a closed loop, the same traffic in bursts, and more of both.

The closed loop holds the declared concurrency; the open loop that follows sends at the rate that the closed one
reached (or the declared one) as independent users do. Both together have as many requests as the SLOs need.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from auditor.loads import Load, Logged, PlanNote, Shape
from auditor.plan.demands import SLO_OF, Demand, demands
from auditor.plan.feed import Feed, feed
from auditor.plan.mix import mean_tokens
from auditor.profile import Budget, Profile, TrafficClass

__all__ = ["BURSTS", "CLOSED", "Target", "cost", "target_loads", "unshared"]

CLOSED, BURSTS = "slo", "bursts"  # what the loads are called
STEADY_TURNOVERS = 5  # completions per slot that a steady state needs, of both loads together
CLOSED_TURNOVERS = 3  # of the closed loop
SLO_SHARE = 0.75  # of the budget, at most; the rest is for the ladders
LEAST_WARMUP = 3
LEAST_UNSHARED = 20  # requests of a load beside the SLOs' that tell a median and little more
YOUNGEST = 0.5  # of its reply that a slot's first request still has, at least: fewer would end in the first crowd
WORTH_MORE = 0.5  # of the first look's requests: fewer more would hardly change what they leave open


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Requests of the two loads: those that warm each up, and those that are judged."""

    warmup: int
    closed: int
    bursts: int

    @property
    def sent(self) -> int:
        """All of them."""
        return 2 * self.warmup + self.closed + self.bursts


@dataclass(frozen=True, slots=True)
class Target:
    """The loads on which the SLOs are judged, what the budget cannot decide, and what more of them would be."""

    loads: tuple[Load, ...]
    notes: tuple[PlanNote, ...]
    slots: int
    sizes: _Sizes
    feed: Feed

    def more(self, room: Budget) -> tuple[Load, ...]:
        """As many requests again, or as many as there is room for; none where that is few, or no steady state."""
        warmup, count = self.sizes.warmup, self.sizes.closed + self.sizes.bursts
        mean = mean_tokens(self.feed.profile.traffic.classes, self.feed.limit)
        possible = min(count, min(room.requests, math.floor(room.tokens / mean)) - 2 * warmup)
        if possible < max(WORTH_MORE * count, min(count, STEADY_TURNOVERS * self.slots)):
            return ()
        sizes = _split(self.feed.profile, possible, warmup, self.slots)
        more = _loads(self.feed, self.slots, sizes, self.sizes.sent, "-2")
        return more if more and _fits(room, more) else ()


def target_loads(profile: Profile, slots: int, limit: int | None, log: Sequence[Logged] = ()) -> Target:
    """The traffic at the target, with as many requests as the SLOs want and the budget allows.

    No load where the budget has no room for one request; the notes say what it cannot decide.
    """
    classes, budget = profile.traffic.classes, profile.probe.budget
    shares = {c.name: c.share for c in classes}
    wants = [(d, math.ceil(d.least / shares.get(d.cls or "", 1.0))) for d in demands(profile)]
    best = [math.ceil(d.wanted / shares.get(d.cls or "", 1.0)) for d, _ in wants]
    affordable = _affordable(classes, budget, limit)
    warmup = min(max(slots, LEAST_WARMUP), affordable // 6)
    count = min(max([STEADY_TURNOVERS * slots, *best]), affordable - 2 * warmup)
    sizes = _split(profile, count, warmup, slots)
    source = feed(profile, limit, log, 2 * sizes.sent)
    notes = _notes(profile, wants, count, slots, sizes)
    return Target(_loads(source, slots, sizes), tuple(notes), slots, sizes, source)


def unshared(profile: Profile, slots: int, limit: int | None) -> tuple[Load, ...]:
    """The same traffic without its shared prefixes, beside what a cache makes of it; none where it has no prefix."""
    classes = tuple(replace(cls, shared_prefix=None) for cls in profile.traffic.classes)
    if classes == profile.traffic.classes:
        return ()
    alone = Feed(replace(profile, traffic=replace(profile.traffic, classes=classes)), limit)
    return (
        Load(
            id="unshared",
            purpose="unshared",
            concurrency=slots,
            shapes=alone.shapes("unshared", 0, max(slots, LEAST_UNSHARED)),
            warmup=alone.shapes("unshared/warmup", 0, slots),
            why=f"the traffic at {slots} in flight, no prefix shared",
        ),
    )


def cost(loads: Sequence[Load]) -> tuple[int, int]:
    """Requests and tokens that loads ask for at most, warm-up included."""
    shapes = [s for load in loads for s in (*load.warmup, *load.shapes)]
    return len(shapes), sum(s.prompt_tokens + s.output_tokens for s in shapes)


def _fits(room: Budget, loads: Sequence[Load]) -> bool:
    requests, tokens = cost(loads)
    return requests <= room.requests and tokens <= room.tokens


def _affordable(classes: Sequence[TrafficClass], budget: Budget, limit: int | None) -> int:
    """Requests of the mix within the SLO loads' part of the budget."""
    mean = mean_tokens(classes, limit)
    return min(math.floor(SLO_SHARE * budget.requests), math.floor(SLO_SHARE * budget.tokens / mean))


def _split(profile: Profile, count: int, warmup: int, slots: int) -> _Sizes:
    """Half to each loop, but for a closed loop that needs more to become steady, and all to one that is alone."""
    if profile.traffic.arrivals == "closed":
        return _Sizes(warmup, count, 0)
    steady = math.ceil(min(CLOSED_TURNOVERS * slots, count * CLOSED_TURNOVERS / STEADY_TURNOVERS))
    closed = max(math.ceil(count / 2), steady)
    return _Sizes(warmup, closed, count - closed)


def _notes(
    profile: Profile, wants: Sequence[tuple[Demand, int]], count: int, slots: int, sizes: _Sizes
) -> list[PlanNote]:
    """What the budget cannot decide."""
    notes = [
        PlanNote(
            f"{_called(demand)} needs {least} requests to pass and the budget allows {count}: "
            f"raise probe.budget or lower the percentile",
            (demand.rule,),
        )
        for demand, least in wants
        if least > count
    ]
    steady = STEADY_TURNOVERS * slots
    if count < steady:
        message = f"a steady state at {slots} in flight takes {steady} requests and the budget allows {count}"
        notes.append(PlanNote(message, ("T509",)))
    if count > 0 and not sizes.bursts and profile.traffic.arrivals != "closed":
        notes.append(PlanNote("bursts left out: the budget has no room for them", ("W110", "W111", "W112")))
    return notes


def _called(demand: Demand) -> str:
    return SLO_OF[demand.rule] + (f" of class {demand.cls}" if demand.cls else "") + f" at {demand.quantile:.4g}"


def _loads(source: Feed, slots: int, sizes: _Sizes, start: int = 0, again: str = "") -> tuple[Load, ...]:
    """The closed loop and the bursts, where they have requests; `again` tells those of a second look, `start` is what
    was sent before.
    """
    closed = _closed(source, slots, sizes, start, again)
    bursts = (_bursts(source, slots, sizes, start, again),) if sizes.bursts else ()
    return (closed, *bursts) if sizes.closed else bursts


def _closed(source: Feed, slots: int, sizes: _Sizes, start: int, again: str) -> Load:
    name, warmup = CLOSED + again, sizes.warmup
    return Load(
        id=name,
        purpose="slo",
        concurrency=max(1, min(slots, sizes.closed)),
        shapes=source.shapes(name, start + warmup, sizes.closed),
        warmup=_aged(source.shapes(f"{name}/warmup", start, warmup), source.profile.probe.seed),
        ramp=not again and not source.profile.endpoint.on_this_machine,
        why=f"the traffic at {slots} in flight",
    )


def _bursts(source: Feed, slots: int, sizes: _Sizes, start: int, again: str) -> Load:
    name, warmup, rate = BURSTS + again, sizes.warmup, source.profile.traffic.request_rate
    begin = start + warmup + sizes.closed
    told = f"at {rate:.3g} a second" if rate else "as fast as the closed loop went"
    return Load(
        id=name,
        purpose="slo",
        concurrency=max(1, slots),
        shapes=source.shapes(name, begin + warmup, sizes.bursts),
        warmup=source.shapes(f"{name}/warmup", begin, warmup),
        arrivals=source.arrivals(name, begin, warmup, sizes.bursts),
        rate=rate,
        why=f"the traffic {told}, as it arrives",
    )


def _aged(shapes: Sequence[Shape], seed: int) -> tuple[Shape, ...]:
    """The first request of each slot as one met at a random age: with the rest of its reply.

    Slots that begin together with replies of one length would march in step for the whole load, each turn a crowd of
    prompts that no user sees. Ages are spread evenly over the slots and end at half: a reply that is over sooner would
    hand its slot on while the crowd of the beginning is still being read.
    """
    rng = random.Random(f"{seed}/ages")
    rests = [1 - (1 - YOUNGEST) * (i + rng.random()) / len(shapes) for i in range(len(shapes))]
    rng.shuffle(rests)
    return tuple(
        replace(shape, output_tokens=max(1, math.ceil(rest * shape.output_tokens)))
        for shape, rest in zip(shapes, rests, strict=True)
    )
