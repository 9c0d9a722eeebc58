"""Two runs of one emulated service, and of one that is slower, whose truth is known: for the comparison of runs.

Each run draws its own scatter of steps, and its own requests unless told to send the same. Everything runs in virtual
time.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from auditor.compare import Against, compare
from auditor.compared import Comparison
from auditor.emulator.timing import law
from auditor.emulator.virtual import StepLaw, VirtualSource
from auditor.evidence import Evidence
from auditor.loads import Load, Plan, Shape
from auditor.profile import Endpoint, Profile, Slo, Traffic
from tests.e2e.aa import CHAT, REPLY, SPEC

__all__ = ["Pair", "compared", "run"]

SLOTS = 8
REQUESTS = 250
JITTER = 0.05  # of each step's time


@dataclass(frozen=True, slots=True)
class Slower:
    """A law of time whose steps take so many times as long."""

    law: StepLaw
    factor: float

    @property
    def frontend(self) -> float:
        return self.law.frontend

    @property
    def frontend_per_token(self) -> float:
        return self.law.frontend_per_token

    def step(self, contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> float:
        return self.factor * self.law.step(contexts, chunks)


def _shapes(rng: random.Random, count: int) -> tuple[Shape, ...]:
    prompts = (min(4000, max(50, round(rng.lognormvariate(6.0, 0.8)))) for _ in range(count))
    return tuple(Shape(cls="chat", prompt_tokens=n, output_tokens=rng.randint(*REPLY)) for n in prompts)


def run(requests: str, scatter: str, factor: float = 1.0) -> Evidence:
    """One run: `requests` and `scatter` seed what it sends and how its steps scatter."""
    rng = random.Random(requests)
    shapes, warmup = _shapes(rng, REQUESTS), _shapes(rng, SLOTS)
    load = Load(id="slo", purpose="slo", concurrency=SLOTS, shapes=shapes, warmup=warmup)
    seeded = replace(SPEC, jitter=JITTER, seed=random.Random(scatter).randrange(1 << 30))
    measured = VirtualSource(seeded, Slower(law(SPEC), factor)).measure(load)  # the seed would draw another law too
    slo = Slo(ttft={"p95": 2.0}, tps={"p05": 1.0})
    traffic = Traffic(target_concurrency=SLOTS, classes=(CHAT,))
    profile = Profile(version=1, name="pair", endpoint=Endpoint(url="http://h/v1"), traffic=traffic, slo=slo)
    plan = Plan(loads=(load,), requests=0, tokens=0, seconds=0.0)
    return Evidence(profile=profile, today="2026-01-01", plan=plan, measurements=(measured,))


@dataclass(frozen=True, slots=True)
class Pair:
    """Which pair of runs, whether both send the same requests, and how much longer the second one's steps take."""

    number: int
    same: bool
    factor: float = 1.0


def compared(pair: Pair) -> Comparison:
    """The second run of a pair against the first."""
    first = run(f"a {pair.number}", f"first {pair.number}")
    second = run(f"{'a' if pair.same else 'b'} {pair.number}", f"second {pair.number}", pair.factor)
    return compare([Against("first", first)], second)
