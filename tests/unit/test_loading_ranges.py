"""Numbers that no deployment has: refused where they stand, before arithmetic or memory overflows."""

from pathlib import Path

import pytest

from auditor.errors import ProfileError
from auditor.loading import load_profile

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://127.0.0.1:8000/v1'}\n"
CLASSES = "classes: [{name: a, prompt_tokens: {p50: %s}, output_tokens: {p50: 5}}]"


def said(folder: Path, text: str) -> list[str]:
    path = folder / "p.yaml"
    path.write_text(HEAD + text)
    try:
        load_profile(path)
    except ProfileError as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "traffic: {target_concurrency: 1000000000}",
            "traffic.target_concurrency: needs at most 100000: one client cannot hold more requests in flight",
        ),
        ("traffic: {%s}" % (CLASSES % "1G"), "traffic.classes.0.prompt_tokens.p50: needs at most 100M tokens"),
        ("probe: {budget: {requests: 2000000}}", "probe.budget.requests: needs at most 1M requests"),
        (f"deployment: {{count: {10**16}}}", "deployment.count: is larger than anything a deployment has"),
        ("deployment: {price_per_hour: 1e300}", "deployment.price_per_hour: is larger than anything"),
        (f"deployment: {{engine_version: '{'9' * 5000}'}}", "deployment.engine_version: needs a version"),
        ("slo: {ttft: {p99.99999: 1s}}", "slo.ttft.p99.99999: 'p99.99999' is no percentile"),
        ("slo: {error_rate: 0.0000001}", "slo.error_rate: takes more than a million requests to show"),
        ("probe: {confidence: 0.9999999999999}", "probe.confidence: needs a confidence between 0.5 and 1"),
        ("deployment: {launch: vllm serve m --block-size -1}", "deployment.launch: --block-size -1: needs at least 1"),
        ("deployment: {launch: vllm serve m -tp 0}", "deployment.launch: -tp 0: needs at least 1"),
        ("deployment: {launch: vllm serve m --gpu-memory-utilization nan}", "--gpu-memory-utilization nan: needs a"),
        (f"deployment: {{launch: vllm serve m --max-num-seqs {10**40}}}", f"--max-num-seqs {10**40}: is larger than"),
    ],
)
def test_a_number_out_of_range_is_a_problem_at_its_place(text: str, message: str, tmp_path: Path) -> None:
    [problem] = said(tmp_path, text)
    assert message in problem


@pytest.mark.parametrize(
    "text",
    [
        "traffic: {target_concurrency: 100000}",
        "traffic: {%s}" % (CLASSES % "100M"),
        "slo: {ttft: {p99.9999: 1s}, error_rate: 0%}",
        "slo: {error_rate: 0.0001%}",
        f"probe: {{seed: {2**64 - 1}, budget: {{tokens: 1000G, requests: 1000000}}}}",
        "deployment: {launch: vllm serve m --max-model-len -1 --port 0}",
        "deployment: {launch: python -m sglang.launch_server --model m --chunked-prefill-size -1}",
        "deployment: {launch: llama-server -m m.gguf -c 0 -np -1}",
    ],
)
def test_numbers_at_the_edge_are_taken(text: str, tmp_path: Path) -> None:
    assert said(tmp_path, text) == []


@pytest.mark.parametrize("host", ["a" * 64, ".".join(["a" * 60] * 5), "a..b"])
def test_a_host_that_no_resolver_takes_is_a_problem(host: str, tmp_path: Path) -> None:
    exporters = f"monitoring: {{exporters: ['http://{host}:9400/metrics']}}"
    assert said(tmp_path, exporters) == ["monitoring.exporters.0: needs a host, such as http://127.0.0.1:8000/v1"]
