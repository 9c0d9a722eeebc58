"""A search on the emulator's law in virtual time, and the truth that this law gives when asked at length."""

import random
from dataclasses import replace
from typing import Any

from auditor.emulator.spec import spec_from
from auditor.emulator.virtual import VirtualSource
from auditor.evidence import Evidence
from auditor.levels import Levels
from auditor.loads import Load
from auditor.plan.mix import mix
from auditor.probe.local import Ready
from auditor.probe.session import Watcher
from auditor.profile import Budget, Lengths, Probe, Slo, Traffic, TrafficClass
from auditor.testing import make_evidence, make_profile, make_served

CHAT = TrafficClass(
    name="chat", prompt_tokens=Lengths(p50=100, p95=200, max=300), output_tokens=Lengths(p50=8, p95=10, max=12)
)
NO_ONE = Watcher(load_started=lambda _: None, sample=lambda _, __: None, load_ended=lambda _: None)


def evidence(target: int = 16, slo: Slo | None = None, *, requests: int = 4000, **traffic: Any) -> Evidence:
    """A target on one emulated H100, nothing measured yet."""
    fields = {"target_concurrency": target, "optimize_for": "tps", "classes": (CHAT,), **traffic}
    profile = make_profile(
        traffic=Traffic(**fields),
        slo=slo or Slo(e2e={"p95": 0.12}, error_rate=0.1),
        probe=Probe(budget=Budget(duration=600.0, requests=requests, tokens=4_000_000)),
    )
    return make_evidence(profile=profile, served=make_served(), measurements=(), plan=None)


def source(of: Evidence, **changes: Any) -> VirtualSource:
    """The deployment of the evidence, played; `changes` are to what the emulator is told."""
    assert of.geometry is not None
    assert of.device is not None
    assert of.settings is not None
    return VirtualSource(replace(spec_from(of.profile, of.geometry, of.device, of.settings), **changes))


def levels(of: Evidence, rules: tuple[str, ...], played: VirtualSource | None = None) -> Levels:
    """What measures levels on it. Needs a running loop."""
    ready = Ready(played or source(of), lambda _: None, 0)
    return Levels(of, ready, NO_ONE, rules, budget=of.profile.probe.budget)


def share_late(of: Evidence, flight: int, seconds: float, count: int = 1000) -> float:
    """The share of requests that take longer at a level, in a closed loop of `count` requests: the truth."""
    shapes = tuple(mix((CHAT,), count, None, random.Random("truth")))
    load = Load(id="truth", purpose="slo", concurrency=flight, shapes=shapes[flight:], warmup=shapes[:flight])
    samples = source(of).measure(load).samples
    return sum((s.e2e or 0.0) > seconds for s in samples) / len(samples)
