"""The recorded audits again, on engines that run now: by hand, after starting them as tests/wire/profiles say.

    AUDIT_VLLM_URL=http://127.0.0.1:8801/v1 pytest -m engine tests/wire/test_live_engines.py

An engine whose variable is not set is skipped.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from auditor.evidence import Report
from auditor.loading import load_profile
from auditor.run import Options, audit
from auditor.theory.kv.pool import kv_pool
from tests.wire.test_recorded_audits import HERE, SERVED

pytestmark = pytest.mark.engine
VARIABLES = {"vllm": "AUDIT_VLLM_URL", "sglang": "AUDIT_SGLANG_URL", "llamacpp": "AUDIT_LLAMACPP_URL"}


@pytest.fixture(scope="module")
def live() -> Callable[[str], Report]:
    """The report of one audit of each engine that runs."""
    reports: dict[str, Report] = {}

    def report(name: str) -> Report:
        url = os.environ.get(VARIABLES[name])
        if url is None:
            pytest.skip(f"{VARIABLES[name]} is not set")
        if name not in reports:
            loaded = load_profile(HERE / f"profiles/{name}.yaml")
            endpoint = replace(loaded.profile.endpoint, url=url)
            loaded = replace(loaded, profile=replace(loaded.profile, endpoint=endpoint))
            reports[name] = asyncio.run(audit(loaded, Options(), lambda _event: None))
        return reports[name]

    return report


@pytest.mark.parametrize("name", VARIABLES)
def test_served_facts_are_right(name: str, live: Callable[[str], Report]) -> None:
    served = live(name).evidence.served
    told = {field: value for field, value in SERVED[name].items() if not field.startswith("kv_")}
    assert {field: getattr(served, field) for field in told} == told


@pytest.mark.parametrize("name", VARIABLES)
def test_nothing_failed_and_the_pool_is_computed(name: str, live: Callable[[str], Report]) -> None:
    evidence = live(name).evidence
    assert [s.error for s in evidence.requests() if not s.good] == []
    assert evidence.geometry is not None
    assert evidence.settings is not None
    computed = kv_pool(evidence.geometry, evidence.settings, None).tokens
    served = evidence.served
    assert served is not None
    assert served.kv_tokens in (None, computed)


@pytest.mark.parametrize("load", ["slo", "bursts"])
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_ttft_agrees_with_the_engines_own_histogram(name: str, load: str, live: Callable[[str], Report]) -> None:
    m = next(m for m in live(name).evidence.measurements if m.load.id == load)
    before, after = m.snapshots[0].histograms.get("ttft"), m.snapshots[-1].histograms["ttft"]
    count = after.count - (before.count if before else 0)
    theirs = (after.sum - (before.sum if before else 0.0)) / count
    seen = [s.ttft for s in (*m.warmup, *m.samples) if s.ttft is not None]
    assert len(seen) == count
    assert abs(sum(seen) / count - theirs) <= max(0.1 * theirs, 0.003)
