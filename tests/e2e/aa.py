"""The same service audited again and again: how often the verdict is right when the truth is known.

The truth is the share of misses among the requests of all audits; each audit draws its own requests, arrivals and
jitter. The deployment has compute to spare, so that what a first token takes is the reading of its own prompt, and
requests tell nearly as much as independent ones. Everything runs in virtual time.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from auditor.emulator.spec import Spec
from auditor.emulator.virtual import VirtualSource
from auditor.evidence import Evidence
from auditor.loads import Load, Plan, Shape
from auditor.measurement import Measurement
from auditor.plan.arrivals import ARRIVALS, spans, with_rate
from auditor.profile import Endpoint, Lengths, Profile, Slo, Traffic, TrafficClass
from auditor.testing import run_check
from auditor.theory.judging import rank
from auditor.validity import family
from auditor.verdict import decide
from checks import workload_shape

SLOTS = 2
REQUESTS = 500
REPLY = (10, 80)  # tokens, evenly drawn: replies of one length would march in step
SPEC = Spec(pool_tokens=100_000)
CHAT = TrafficClass(
    name="chat", prompt_tokens=Lengths(p50=400, p95=1600, max=4000), output_tokens=Lengths(p50=45, max=80)
)

Measure = Callable[[Load], Measurement]


def loads(seed: object, count: int = REQUESTS) -> tuple[Load, Load]:
    """A closed loop and independent arrivals, half of the requests each; lengths are drawn one by one."""
    rng = random.Random(f"{seed}")
    half = count // 2
    closed = Load(id="slo", purpose="slo", concurrency=SLOTS, shapes=_shapes(rng, half), warmup=_shapes(rng, SLOTS))
    arrivals = spans(ARRIVALS["poisson"], SLOTS, half, rng)
    return closed, replace(
        closed, id="bursts", shapes=_shapes(rng, half), warmup=_shapes(rng, SLOTS), arrivals=arrivals
    )


def _shapes(rng: random.Random, count: int) -> tuple[Shape, ...]:
    prompts = (min(4000, max(50, round(rng.lognormvariate(6.0, 0.8)))) for _ in range(count))
    return tuple(Shape(cls="chat", prompt_tokens=n, output_tokens=rng.randint(*REPLY)) for n in prompts)


def virtual(seed: object) -> Measure:
    """Measures on an engine of its own."""
    return VirtualSource(replace(SPEC, seed=random.Random(f"{seed}").randrange(1 << 30))).measure


def both(measure: Measure, planned: Sequence[Load]) -> tuple[Measurement, ...]:
    """The closed loop, then the arrivals at the rate that it reached."""
    done: list[Measurement] = []
    for load in planned:
        timed = with_rate(load, done)
        assert timed is not None
        done.append(measure(timed))
    return tuple(done)


def audited(seed: int) -> tuple[Measurement, ...]:
    """One audit in virtual time."""
    return both(virtual(seed), loads(seed))


def limits(measured: Sequence[Measurement], shares: Sequence[float]) -> dict[float, float]:
    """For each share the seconds to the first token that so many of all requests take longer than."""
    waits = [s.ttft + (s.late or 0.0) for m in measured for s in m.judged if s.ttft is not None]
    return {share: rank(waits, 1 - share) for share in shares}


def verdict_of(measured: tuple[Measurement, ...], limit: float) -> str:
    """What an audit says of question W where the SLO is that limit at p95."""
    slo = Slo(ttft={"p95": limit}, tps={"p05": 1.0})
    traffic = Traffic(target_concurrency=SLOTS, optimize_for="ttft", classes=(CHAT,))
    profile = Profile(version=1, name="aa", endpoint=Endpoint(url="http://h/v1"), traffic=traffic, slo=slo)
    plan = Plan(loads=tuple(m.load for m in measured), requests=0, tokens=0, seconds=0.0)
    evidence = Evidence(profile=profile, today="2026-01-01", plan=plan, measurements=measured)
    check = workload_shape.CHECK
    found = [*family.judge(evidence), *run_check(check, evidence)]
    return decide(found, [check], profile, evidence, today="2026-01-01").verdict
