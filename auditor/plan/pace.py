"""How many requests the target load keeps in flight, and how long loads take. Pure arithmetic on expected speeds."""

import math
from dataclasses import dataclass

from auditor.loads import Load
from auditor.profile import Profile

__all__ = ["Pace", "concurrency", "seconds"]

MOST_IN_FLIGHT = 100_000  # what a request rate may come to: one client cannot hold more


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the service is expected to be: seconds per prompt token (alone) and per decode step at the target."""

    per_prompt_token: float
    per_step: float


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


def seconds(load: Load, pace: Pace, replicas: int) -> float:
    """Time of a load at `pace`: slots decode side by side, but prompts in flight share the devices of their replica.

    An open loop at a known rate takes its schedule, and the last request's stay.
    """
    shapes = (*load.warmup, *load.shapes)
    prompts = sum(s.prompt_tokens for s in shapes) * pace.per_prompt_token / min(max(1, replicas), load.concurrency)
    took = prompts + sum(s.output_tokens for s in shapes) * pace.per_step / load.concurrency
    if not load.arrivals or load.rate is None:
        return took
    return load.arrivals[-1] / load.rate + took * load.concurrency / len(shapes)
