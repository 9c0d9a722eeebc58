"""Whole audits of engines that were really run, replayed byte for byte with their arrival times, in virtual time.

The recordings were made by `python -m tests.wire.record` around `audit run` with the profiles beside them. What is
expected is what the engines themselves said: their start-up lines, their flags and their own histograms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.evidence import Report
from auditor.loading import load_profile
from auditor.measurement import Measurement
from auditor.run import Options, audit
from auditor.theory.kv.pool import kv_pool
from tests.wire.replay import Replay
from tests.wire.replay import load as recording

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
RECORDINGS = ("vllm", "vllm-thrash", "sglang", "sglang-held-back", "llamacpp")


@dataclass(frozen=True)
class Replayed:
    """A report made from a recording, and the requests that the recording could not answer."""

    report: Report
    unknown: int

    def load(self, name: str) -> Measurement:
        return next(m for m in self.report.evidence.measurements if m.load.id == name)

    def rules(self, *statuses: str) -> set[str]:
        return {finding.rule for finding in self.report.findings if finding.status in statuses}


async def _replayed(name: str) -> Replayed:
    async with Replay(recording(HERE / f"recordings/{name}.jsonl.xz")) as server:
        loaded = load_profile(HERE / f"profiles/{name}.yaml")
        endpoint = replace(loaded.profile.endpoint, url=f"{server.url}/v1")
        loaded = replace(loaded, profile=replace(loaded.profile, endpoint=endpoint))
        report = await audit(loaded, Options(), lambda _event: None)
        return Replayed(report, len(server.unknown))


@pytest.fixture(scope="module")
def replayed() -> Mapping[str, Replayed]:
    return {name: run_virtual(_replayed(name)) for name in RECORDINGS}


SERVED: dict[str, dict[str, Any]] = {
    # start-up line: "CPU KV cache size: 65,536 tokens, Maximum concurrency for 4,096 tokens per request: 16.00x"
    "vllm": {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "model": "tiny",
        "max_model_len": 4096,
        "kv_tokens": 65536,
        "kv_blocks": 512,
        "block_size": 128,
        "kv_max_concurrency": 16.0,
        "min_tokens": True,
        "usage": True,
    },
    # "CPU KV cache size: 3,072 tokens, Maximum concurrency for 2,048 tokens per request: 1.50x"
    "vllm-thrash": {"engine": "vllm", "max_model_len": 2048, "kv_tokens": 3072, "kv_max_concurrency": 1.5},
    # "max_total_num_tokens=65536, chunked_prefill_size=4096, max_running_requests=16, context_len=4096"
    "sglang": {
        "engine": "sglang",
        "engine_version": "0.5.23",
        "model": "tiny",
        "max_model_len": 4096,
        "kv_tokens": 65536,
        "block_size": 1,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 4096,
        "attention_backend": "torch_native",
        "enforce_eager": True,
        "min_tokens": True,
    },
    "sglang-held-back": {"engine": "sglang", "kv_tokens": 4096},
    # started with -c 8192 -np 4: "n_slots = 4, n_ctx_slot = 2048"
    "llamacpp": {
        "engine": "llamacpp",
        "model": "gemma",
        "max_model_len": 2048,
        "max_num_seqs": 4,
        "cached_tokens": True,
    },
}
POOLS = {"vllm": 65536, "vllm-thrash": 3072, "sglang": 65536, "sglang-held-back": 4096, "llamacpp": 8192}


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_request_is_answered_and_every_answer_understood(name: str, replayed: Mapping[str, Replayed]) -> None:
    assert replayed[name].unknown == 0
    assert [s.error for s in replayed[name].report.evidence.requests() if not s.good] == []


@pytest.mark.parametrize("name", RECORDINGS)
def test_served_facts_are_what_the_engine_printed(name: str, replayed: Mapping[str, Replayed]) -> None:
    served = replayed[name].report.evidence.served
    assert {field: getattr(served, field) for field in SERVED[name]} == SERVED[name]


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_pool_computed_without_served_facts_is_the_engines(name: str, replayed: Mapping[str, Replayed]) -> None:
    evidence = replayed[name].report.evidence
    assert evidence.geometry is not None
    assert evidence.settings is not None
    assert kv_pool(evidence.geometry, evidence.settings, None).tokens == POOLS[name]


@pytest.mark.parametrize("load", ["slo", "bursts"])
@pytest.mark.parametrize("name", ["vllm", "vllm-thrash", "sglang", "sglang-held-back"])
def test_ttft_agrees_with_the_engines_own_histogram(name: str, load: str, replayed: Mapping[str, Replayed]) -> None:
    m = replayed[name].load(load)
    before, after = m.snapshots[0].histograms.get("ttft"), m.snapshots[-1].histograms["ttft"]
    count = after.count - (before.count if before else 0)
    theirs = (after.sum - (before.sum if before else 0.0)) / count
    seen = [s.ttft for s in (*m.warmup, *m.samples) if s.ttft is not None]
    assert len(seen) == count
    ours = sum(seen) / count
    assert abs(ours - theirs) <= max(0.1 * theirs, 0.003)


@pytest.mark.parametrize("load", ["slo", "bursts"])
@pytest.mark.parametrize("name", ["vllm", "vllm-thrash", "sglang", "sglang-held-back"])
def test_tokens_agree_with_the_engines_own_counters(name: str, load: str, replayed: Mapping[str, Replayed]) -> None:
    m = replayed[name].load(load)
    requests = (*m.warmup, *m.samples)
    assert m.moved("requests") == len(requests)
    assert m.moved("generation_tokens") == sum(s.output_tokens or 0 for s in requests)
    assert m.moved("prompt_tokens") == sum(s.prompt_tokens or 0 for s in requests)


def test_vllm_with_a_small_pool_preempts(replayed: Mapping[str, Replayed]) -> None:
    thrash = replayed["vllm-thrash"]
    assert thrash.report.exit_code == 1
    assert {"K302", "K304", "K305"} <= thrash.rules("fail")
    # vllm:num_preemptions_total stood at 0 before the closed loop, at 80 between the two, and at 99 at the end
    assert [m.moved("preemptions") for m in thrash.report.evidence.loads("slo")] == [80, 19]


def test_sglang_with_a_small_pool_holds_requests_back(replayed: Mapping[str, Replayed]) -> None:
    held = replayed["sglang-held-back"]
    assert held.report.exit_code == 1
    assert {"K302", "K305"} <= held.rules("fail")


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_large_pool_is_no_problem(name: str, replayed: Mapping[str, Replayed]) -> None:
    report = replayed[name].report
    assert {q.question: q.status for q in report.questions if q.asked} == {
        "W": "pass",
        "H": "inconclusive",
        "K": "pass",
    }
    assert "K304" in replayed[name].rules("pass")
