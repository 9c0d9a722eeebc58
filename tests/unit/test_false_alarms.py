"""A gate that compares runs must not fail on identical code: the same endpoint against itself, a thousand times.

Requests of one endpoint scatter by 40 % (lognormal), and whole runs are drawn from the same source. A fixed threshold
on each metric's percentile, as pipelines have it, fails such runs all the time.
"""

import heapq
import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from auditor.compare import Against, compare
from auditor.compared import Comparison
from auditor.evidence import Evidence
from auditor.profile import Slo
from auditor.testing import make_evidence, make_profile
from auditor.theory.judging import rank

SLO = Slo(ttft={"p95": 10.0}, e2e={"p95": 60.0})
EVIDENCE = replace(make_evidence(), profile=make_profile(slo=SLO))
(LOAD,) = EVIDENCE.loads("slo")
SCATTER, REQUESTS, ALPHA = 0.4, 100, 0.05


def drawn(seed: str, slower: float = 1.0) -> Evidence:
    """A run of the endpoint in a closed loop: each request's TTFT and its time per token scatter by themselves."""
    rng, samples, free = random.Random(seed), [], [0.0] * LOAD.load.concurrency
    for sample in LOAD.samples[:REQUESTS]:
        ttft, each = (slower * usual * math.exp(SCATTER * rng.gauss(0, 1)) for usual in (0.4, 0.02))
        arrivals = tuple(ttft + each * i for i in range(len(sample.arrivals)))
        start = heapq.heappop(free)
        heapq.heappush(free, start + arrivals[-1])
        samples.append(
            replace(sample, start=start, ttft=ttft, arrivals=arrivals, e2e=arrivals[-1], closed=arrivals[-1])
        )
    load = replace(LOAD, samples=tuple(samples), snapshots=(), duration=max(free))
    rest = [m for m in EVIDENCE.measurements if m.load.purpose != "slo"]
    return replace(EVIDENCE, measurements=(load, *rest))


def compared(seed: int, slower: float = 1.0) -> Comparison:
    return compare([Against("before", drawn(f"{seed} before"))], drawn(f"{seed} now", slower))


def p95(evidence: Evidence, metric: str) -> float:
    return rank([getattr(sample, metric) for sample in evidence.loads("slo")[0].samples], 0.95)


def test_a_fixed_threshold_fails_identical_runs() -> None:
    """What the comparison is there to do better: 10 % more of a p95 is what chance brings."""
    pairs = [(drawn(f"{seed} before"), drawn(f"{seed} now")) for seed in range(200)]
    alarms = sum(any(p95(b, m) > 1.1 * p95(a, m) for m in ("ttft", "e2e")) for a, b in pairs)
    assert alarms > 0.3 * len(pairs)


def test_several_metrics_are_compared_at_once_and_none_is_in_doubt() -> None:
    """So that the risk of a false alarm has to be shared among them, and no doubt hides one."""
    changes = compared(0).changes
    assert {change.metric for change in changes} == {"ttft", "tpot", "e2e", "failed"}
    assert [change.doubts for change in changes] == [()] * len(changes)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [1000])
def test_identical_runs_raise_no_more_alarms_than_promised(trials: int) -> None:
    found = Counter(compared(seed).status for seed in range(trials))
    chance = 3 * math.sqrt(ALPHA * (1 - ALPHA) / trials)  # three deviations of the count
    assert found["worse"] / trials <= ALPHA + chance, found
    assert found["better"] / trials <= ALPHA + chance, found


def test_a_run_that_is_slower_by_half_is_found() -> None:
    assert [compared(seed, slower=1.5).status for seed in range(20)].count("worse") >= 19
