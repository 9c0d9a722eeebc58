"""How often the verdict is right where the truth is known: the same deployment, audited again and again."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from auditor.emulator.clock import run_virtual
from auditor.emulator.server import Emulator
from auditor.measurement import Measurement
from auditor.plan.arrivals import with_rate
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Target
from tests.e2e import aa
from tests.spread import spread

pytestmark = pytest.mark.slow

GOOD, AT_THE_LIMIT, BAD = 0.02, 0.05, 0.10  # of the requests miss the p95
AUDITS, OVER_A_SOCKET = 200, 10


@dataclass(frozen=True, slots=True)
class Truth:
    """Many audits of one deployment, and for each share the limit that so many of all their requests miss."""

    audits: Sequence[tuple[Measurement, ...]]
    limits: Mapping[float, float]

    def verdicts(self, share: float) -> Counter[str]:
        return Counter(aa.verdict_of(measured, self.limits[share]) for measured in self.audits)


@pytest.fixture(scope="module", name="truth")
def _truth() -> Truth:
    audits = spread(aa.audited, range(AUDITS))
    return Truth(audits, aa.limits([m for audit in audits for m in audit], (GOOD, AT_THE_LIMIT, BAD)))


def test_a_service_within_its_slo_is_ready_in_nine_of_ten_audits(truth: Truth) -> None:
    seen = truth.verdicts(GOOD)
    assert (seen["READY"] >= 0.9 * AUDITS, seen["NOT READY"]) == (True, 0), seen


def test_a_service_beyond_its_slo_is_not_ready_in_six_of_ten_audits(truth: Truth) -> None:
    seen = truth.verdicts(BAD)
    assert (seen["NOT READY"] >= 0.6 * AUDITS, seen["READY"] <= 0.05 * AUDITS) == (True, True), seen


def test_at_the_limit_few_audits_are_wrong_either_way(truth: Truth) -> None:
    """5 % may be."""
    seen = truth.verdicts(AT_THE_LIMIT)
    assert max(seen["READY"], seen["NOT READY"]) <= 0.1 * AUDITS, seen


def test_over_a_socket_it_is_the_same(truth: Truth) -> None:
    """The real client on the emulator's server."""
    runs = spread(_over_a_socket, range(OVER_A_SOCKET))
    good, bad = (Counter(aa.verdict_of(measured, truth.limits[share]) for measured in runs) for share in (GOOD, BAD))
    assert (good["READY"] >= 8, good["NOT READY"]) == (True, 0), good
    assert (bad["NOT READY"] >= 6, bad["READY"]) == (True, 0), bad


def _over_a_socket(seed: int) -> tuple[Measurement, ...]:
    return run_virtual(_audited(seed))


async def _audited(seed: int) -> tuple[Measurement, ...]:
    emulator = Emulator(replace(aa.SPEC, template_tokens=0, seed=random.Random(f"{seed}").randrange(1 << 30)))
    await emulator.start()
    done: list[Measurement] = []
    try:
        target = Target(url=emulator.url, model=aa.SPEC.model, api="completions", force="min_tokens")
        source = LocalSource(target, Prompts(seed=seed, tokens_per_word=1.0, template_tokens=0))
        for load in aa.loads(seed):
            timed = with_rate(load, done)
            assert timed is not None
            done.append(await source.run(timed))
    finally:
        await emulator.stop()
        await asyncio.sleep(0)
    return tuple(done)
