"""Whole audits of emulated deployments that go wrong in one way each, beside a twin that does not.

Every row names what is wrong, the verdict, the exit code, how each question ends, and rules that must say so; the twin
differs in that one thing and must end otherwise. Virtual time: minutes of load cost seconds.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from auditor.emulator.spec import Faults
from tests.e2e.scenario import HEALTHY, Outcome, Scenario, changed, running

SGLANG = changed(
    HEALTHY,
    {
        "endpoint.engine": "sglang",
        "deployment.engine_version": "0.5.23",
        "deployment.gpu_memory_utilization": None,
        "deployment.mem_fraction_static": 0.85,
        "monitoring": {"required": False},
    },
)
CROWD = {"traffic.target_concurrency": 24, "probe.budget.requests": 300, "slo.tps": {"p05": "5/s"}}
# Ten full and thirty gated delta net layers. A block is as large as a state: 1,056 tokens of ten layers, 21,626,880
# bytes. A request takes three for its states, one for its prompt, and a fifth when its reply grows beyond 1,056 tokens.
HYBRID = {
    "deployment.model": "Qwen/Qwen3.5-35B-A3B",
    "deployment.accelerator": "h100-sxm",
    "deployment.engine_version": "0.32.0",
    "deployment.max_num_seqs": 64,
    "traffic.target_concurrency": 24,
    "traffic.classes.0.prompt_tokens": {"p50": 950, "p95": 1000, "max": 1020},
    "traffic.classes.0.output_tokens": {"p50": 150, "p95": 200, "max": 250},
    "probe.budget.requests": 300,
}
REPLICAS = {
    "deployment.replicas": 3,
    "traffic.target_concurrency": 48,
    "slo.ttft": {"p95": "700ms"},
    "probe.budget.requests": 500,
}
PINNED = {
    "deployment.launch": "vllm serve meta-llama/Llama-3.1-8B-Instruct --quantization fp8 --max-model-len 4096 "
    "--max-num-seqs 64 --kv-cache-memory-bytes 4G"
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A scenario and its twin, with what is expected of both."""

    name: str
    scenario: Scenario
    twin: Scenario
    exit_code: int
    failing: str = ""  # the questions that fail
    unclear: str = ""  # the questions that are inconclusive
    rules: Mapping[str, str] = field(default_factory=dict)  # rule -> status that one of its findings has
    twin_exit: int = 0


HEALTHY_TWIN = Scenario()

ROWS = [
    Row(
        name="thrash on vLLM",
        scenario=Scenario(profile=CROWD, served={"pool_tokens": 4200}),
        twin=Scenario(profile=CROWD),
        exit_code=1,
        failing="K",
        unclear="W",  # requests fare alike in waves: few of them are independent
        rules={"K302": "fail", "K304": "fail"},
    ),
    Row(
        name="thrash of a hybrid",  # 24 requests start in 96 blocks and need 120
        scenario=Scenario(profile=HYBRID, served={"pool_bytes": 104 * 21_626_880}),
        twin=Scenario(profile=HYBRID),
        exit_code=1,
        failing="K",
        unclear="W",  # requests fare alike in waves: few of them are independent
        rules={"K302": "fail", "K304": "fail", "K303": "pass", "K308": "pass"},
    ),
    Row(
        name="held-back admissions on SGLang",
        scenario=Scenario(base=SGLANG, profile=CROWD, served={"pool_tokens": 4200}),
        twin=Scenario(base=SGLANG, profile=CROWD),
        exit_code=1,
        failing="K",
        unclear="W",  # requests fare alike in waves: few of them are independent
        rules={"K302": "fail", "K305": "fail"},
    ),
    Row(
        name="batch limit below the target",
        scenario=Scenario(served={"max_num_seqs": 2}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="WK",
        rules={"W110": "fail", "K305": "fail"},
    ),
    Row(
        name="drifted batch limit that no SLO shows",  # but bursts at the rate that all of it takes wait for each other
        scenario=Scenario(served={"max_num_seqs": 4}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="K",
        unclear="W",
        rules={"K305": "fail", "W110": "inconclusive"},
    ),
    Row(
        name="declared batch limit below the target",
        scenario=Scenario(profile={"deployment.max_num_seqs": 4}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="K",
        unclear="W",
        rules={"K303": "fail"},
    ),
    Row(
        name="the engine's queue limit refuses",
        scenario=Scenario(served={"max_num_seqs": 4}, faults=Faults(queue_limit=2)),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="WK",
        rules={"W113": "fail"},
    ),
    Row(
        name="a gateway's quota",
        scenario=Scenario(faults=Faults(quota=30)),
        twin=Scenario(faults=Faults(quota=3000)),
        exit_code=4,
        unclear="WK",
        rules={"T505": "inconclusive"},
    ),
    Row(
        name="every prompt is cached",
        scenario=Scenario(faults=Faults(prefix_cached=True), served={"prompt_tokens_details": True}),
        twin=Scenario(served={"prompt_tokens_details": True}),
        exit_code=4,
        unclear="WK",
        rules={"T501": "inconclusive", "W110": "inconclusive"},
    ),
    Row(
        name="speculation on synthetic text",
        scenario=Scenario(profile={"deployment.speculative": {"method": "ngram", "num_speculative_tokens": 3}}),
        twin=HEALTHY_TWIN,
        exit_code=4,
        unclear="W",
        rules={"T511": "inconclusive", "W111": "inconclusive", "W110": "pass"},
    ),
    Row(
        name="replicas that are not there",
        scenario=Scenario(profile=REPLICAS, served={"replicas": 1, "max_num_seqs": 16}),
        twin=Scenario(profile=REPLICAS),
        exit_code=1,
        failing="WK",
        rules={"K305": "fail"},
    ),
    Row(
        name="foreign traffic breaks the SLO",
        scenario=Scenario(
            faults=Faults(foreign_rate=12, foreign_tokens=(400, 100)), profile={"slo.ttft": {"p95": "100ms"}}
        ),
        twin=Scenario(profile={"slo.ttft": {"p95": "100ms"}}),
        exit_code=4,
        unclear="W",
        rules={"T508": "inconclusive", "W110": "inconclusive"},
    ),
    Row(
        name="the stream is buffered",
        scenario=Scenario(faults=Faults(buffered=True), profile={"slo.ttft": {"p95": "300ms"}}),
        twin=Scenario(profile={"slo.ttft": {"p95": "300ms"}}),
        exit_code=1,
        failing="W",
        rules={"W110": "fail", "T507": "inconclusive"},
    ),
    Row(
        name="replies end early",
        scenario=Scenario(faults=Faults(short_replies=5)),
        twin=HEALTHY_TWIN,
        exit_code=4,
        unclear="WK",
        rules={"T502": "inconclusive", "W112": "inconclusive"},
    ),
    Row(
        name="min_tokens has no effect",
        scenario=Scenario(faults=Faults(ignore_min_tokens=True, short_replies=20)),
        twin=HEALTHY_TWIN,
        exit_code=4,
        unclear="WK",
        rules={"T502": "inconclusive"},
    ),
    Row(
        name="no usage",
        scenario=Scenario(faults=Faults(no_usage=True)),
        twin=HEALTHY_TWIN,
        exit_code=4,
        unclear="W",
        rules={"T510": "inconclusive", "W111": "inconclusive"},
    ),
    Row(
        name="usage lies",
        scenario=Scenario(faults=Faults(lies_usage=True)),
        twin=HEALTHY_TWIN,
        exit_code=4,
        unclear="W",
        rules={"T510": "inconclusive"},
    ),
    Row(
        name="the endpoint dies halfway",
        scenario=Scenario(faults=Faults(dies_after=40)),
        twin=Scenario(faults=Faults(dies_after=6000)),
        exit_code=1,
        failing="W",
        unclear="K",
        rules={"W113": "fail", "T512": "inconclusive"},
    ),
    Row(
        name="streams stall",
        scenario=Scenario(faults=Faults(stall_every=4)),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="W",
        rules={"W113": "fail"},
    ),
    Row(
        name="streams are cut",
        scenario=Scenario(faults=Faults(drop_every=4)),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="W",
        rules={"W113": "fail", "W110": "fail"},
    ),
    Row(
        name="errors inside a 200 stream",
        scenario=Scenario(faults=Faults(error_in_stream_every=4)),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="W",
        rules={"W113": "fail"},
    ),
    Row(
        name="no metrics page",
        scenario=Scenario(faults=Faults(no_metrics=True)),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="M",
        rules={"M405": "fail"},
    ),
    Row(
        name="TTFT SLO below physics",
        scenario=Scenario(profile={"slo.ttft": {"p95": "5ms"}}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="WH",
        rules={"H201": "fail"},
    ),
    Row(
        name="TPS SLO below physics",
        scenario=Scenario(profile={"slo.tps": {"p05": "400/s"}}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="WH",
        rules={"H201": "fail", "W111": "fail"},
    ),
    Row(
        name="the tail is longer than the context",
        scenario=Scenario(profile={"deployment.max_model_len": 256}),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="W",
        rules={"W106": "fail"},
    ),
    Row(
        name="another model is served",
        scenario=Scenario(
            profile={"deployment.launch": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --port 9"},
            served={"model": "meta-llama/Llama-3.2-1B"},
        ),
        twin=Scenario(
            profile={"deployment.launch": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --port 9"}
        ),
        exit_code=1,
        failing="H",
        rules={"H208": "fail"},
    ),
    Row(
        name="no panels and no alerts",
        scenario=Scenario(
            profile={"deployment.engine_version": "0.18.0", "monitoring.dashboards": [], "monitoring.rules": []}
        ),
        twin=HEALTHY_TWIN,
        exit_code=1,
        failing="M",
        rules={"M401": "fail", "M402": "fail", "M403": "fail"},
    ),
]


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Outcome]]]:
    scenarios = {f"test_scenario[{row.name}]": row.scenario for row in ROWS}
    with running(scenarios | {f"test_twin[{name}]": twin for name, twin in _twins().items()}, request) as outcomes:
        yield outcomes


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_scenario(row: Row, ran: Mapping[str, Future[Outcome]], request: pytest.FixtureRequest) -> None:
    outcome = ran[request.node.name].result()
    wrong = {question for question, status in outcome.statuses().items() if status == "fail"}
    unclear = {question for question, status in outcome.statuses().items() if status == "inconclusive"}
    seen = {f"{finding.rule} {finding.status}" for finding in outcome.report.findings}
    assert (outcome.report.exit_code, wrong, unclear) == (row.exit_code, set(row.failing), set(row.unclear)), seen
    assert {f"{rule} {status}" for rule, status in row.rules.items()} <= seen
    assert outcome.report.verdict == {0: "READY", 1: "NOT READY", 4: "INCONCLUSIVE"}[row.exit_code]


def _twins() -> dict[str, Scenario]:
    """Every twin once: most rows share the healthy deployment."""
    return {row.name: row.twin for row in ROWS if row.twin is not HEALTHY_TWIN} | {"healthy": HEALTHY_TWIN}


@pytest.mark.slow
@pytest.mark.parametrize("name", _twins())
def test_twin(name: str, ran: Mapping[str, Future[Outcome]], request: pytest.FixtureRequest) -> None:
    outcome = ran[request.node.name].result()
    bad: dict[str, Any] = {f.rule: f.why for f in outcome.report.findings if f.status in ("fail", "inconclusive")}
    assert outcome.report.exit_code == 0, bad
    assert outcome.report.verdict == "READY"


def test_a_cold_start_and_kernel_capture_off_are_told_and_decide_nothing(tmp_path: Path) -> None:
    slow = Scenario(faults=Faults(cold_first_token=8), profile={"deployment.enforce_eager": True}).run(tmp_path)
    assert slow.report.exit_code == 0
    assert [finding.status for rule in ("H204", "H205") for finding in slow.of(rule)] == ["warn", "warn"]


def test_a_pool_five_percent_smaller_than_its_flag_is_told_and_decides_nothing(tmp_path: Path) -> None:
    """4 GiB are 2,048 blocks of 2 MiB."""
    short = Scenario(profile=PINNED, served={"pool_bytes": 0.95 * 2**32}).run(tmp_path)
    assert short.report.exit_code == 0
    [finding] = short.of("K308")
    assert finding.status == "warn"
    assert finding.why.startswith("Computed 2,048 blocks, served 1,945 (+5.3 %). Computed: vLLM: pool / (32 layers, ")
    assert finding.why.endswith("It would agree with --kv-cache-memory-bytes 4080218931.")
    assert [f.subject for f in short.of("K310") if f.status == "warn"] == ["kv_pool_bytes"]


def test_a_pool_of_its_flags_size_agrees_to_the_block(tmp_path: Path) -> None:
    whole = Scenario(profile=PINNED).run(tmp_path)
    assert whole.report.exit_code == 0
    [finding] = whole.of("K308")
    assert finding.status == "pass"
    assert finding.why.startswith("Computed 2,048 blocks, served 2,048 (+0 %)")
