"""Every row of what to change is true: applied in a second call it gives what it said."""

import re
from typing import Any

import pytest

from auditor.instruments.fit import Fit, fit
from auditor.instruments.inputs import inputs
from auditor.instruments.question import Question, one_class
from auditor.instruments.ruling import ruling
from auditor.theory.changes import Change
from auditor.theory.levers import flag

COMMANDS = {
    "vllm": "vllm serve x",
    "sglang": "python -m sglang.launch_server --model-path x",
    "llamacpp": "llama-server -m x",
    "trtllm": "trtllm-serve x",
    "lmdeploy": "lmdeploy serve api_server x",
}
LOADS: dict[str, tuple[str, str] | None] = {
    "none": None,
    "chat": ("2000:6000", "500:1000"),
    "short": ("1000", "200"),
    "long": ("40000", "500"),
    "middle": ("30000", "500"),
}


def ask(row: dict[str, Any], flags: str, load: str, target: int | None, replicas: int = 1) -> Fit:
    lengths = LOADS[load]
    classes = (one_class(*lengths),) if lengths else ()
    launched = row | {"launch": f"{COMMANDS[row['engine']]} {flags}".strip()}
    return fit(inputs(launched), Question(classes=classes, target=target, replicas=replicas))


def without(flags: str, name: str) -> str:
    return re.sub(rf"(?<!\S){re.escape(name)}(?!\S)( (?!-)\S+)?", "", flags)


def applied(found: Fit, change: Change, row: dict[str, Any], flags: str) -> tuple[dict[str, Any], str, int]:
    """The row, the flags and the replicas of a second call with the change in it."""
    row, replicas = dict(row), found.question.replicas
    for field, value in ((change.field, change.value), *change.also):
        if field == "replicas":
            replicas = int(value)
        elif field == "accelerator":
            row[field] = value
        elif field == "checkpoint":
            row["quantization"] = value
        else:
            name = flag(found.flags, field)
            assert name is not None, field
            switch = name.removeprefix("without ")
            flags = without(flags, name) + (f" {switch} {value}" if value not in ("on", "off") else f" {switch}")
    if "count" in row:
        row["count"] = change.devices // replicas
    return row, flags, replicas


CASES = [
    ({"model": "deepseek-v2-lite-chat", "accelerator": "h200-sxm"}, "vllm", "--enable-expert-parallel", "chat", 512),
    ({"model": "deepseek-v3.2", "accelerator": "h200-sxm", "count": 8}, "sglang", "--tp-size 8", "chat", 512),
    ({"model": "phi-4", "accelerator": "a100-sxm-80", "count": 2}, "vllm", "--tensor-parallel-size 2", "chat", 128),
    ({"model": "phi-4", "accelerator": "h100-sxm"}, "vllm", "--max-model-len 4096", "chat", 128),
    ({"model": "phi-4", "accelerator": "rtx-4090", "quantization": "q4_k_m"}, "llamacpp", "-c 8192 -np 4", "chat", 4),
    (
        {"model": "qwen3-32b", "accelerator": "l40s", "count": 4},
        "vllm",
        "--tensor-parallel-size 4 --performance-mode throughput",
        "chat",
        128,
    ),
    (
        {"model": "deepseek-v2-lite-chat", "accelerator": "rtx-4090", "count": 8},
        "sglang",
        "--tp-size 8 --max-running-requests 64",
        "middle",
        32,
    ),
    ({"model": "llama-3.1-8b", "accelerator": "l4"}, "vllm", "", "none", None),
    ({"model": "llama-3.1-8b", "accelerator": "l4"}, "vllm", "", "chat", 32),
    ({"model": "llama-3.1-8b", "accelerator": "h100-sxm"}, "vllm", "--max-num-seqs 16", "short", 64),
    ({"model": "llama-3.1-8b", "accelerator": "a100-sxm-40"}, "sglang", "", "chat", 64),
    ({"model": "llama-3.1-70b", "accelerator": "h100-sxm"}, "vllm", "", "short", 8),
    ({"model": "llama-3.1-70b", "accelerator": "h100-sxm", "count": 4}, "trtllm", "--tp_size 4", "chat", 200),
    ({"model": "llama-3.1-70b", "accelerator": "h100-sxm", "count": 4}, "lmdeploy", "--tp 4", "chat", 200),
    ({"model": "qwen3-32b", "quantization": "awq", "accelerator": "rtx-3090"}, "vllm", "", "none", None),
    ({"model": "qwen3.5-35b-a3b", "accelerator": "h100-sxm"}, "vllm", "", "chat", 256),
    ({"model": "gpt-oss-120b", "accelerator": "h100-sxm"}, "vllm", "", "chat", 64),
    ({"model": "gemma-3-27b", "accelerator": "a100-sxm-80"}, "vllm", "", "chat", 64),
    ({"model": "nemotron-3-nano", "accelerator": "l40s"}, "vllm", "", "chat", 32),
    ({"model": "deepseek-r1", "accelerator": "h200-sxm", "count": 8}, "vllm", "--tensor-parallel-size 8", "chat", 128),
    ({"model": "deepseek-r1", "accelerator": "h200-sxm", "count": 8}, "sglang", "--tp-size 8", "chat", 128),
    (
        {"model": "deepseek-v3.2", "accelerator": "h200-sxm", "count": 8},
        "vllm",
        "--tensor-parallel-size 8",
        "chat",
        400,
    ),
    (
        {"model": "llama-3.1-8b", "quantization": "q4_k_m", "accelerator": "rtx-4090"},
        "llamacpp",
        "-c 32768 -np 4",
        "chat",
        16,
    ),
    (
        {"model": "llama-3.1-70b", "quantization": "q4_k_m", "accelerator": "apple-m4-max-64gb"},
        "llamacpp",
        "-c 131072 -np 16",
        "chat",
        16,
    ),
    (
        {"model": "qwen3-32b", "quantization": "q8_0", "accelerator": "rtx-4090"},
        "llamacpp",
        "-c 131072 -np 16",
        "none",
        None,
    ),
    (
        {"model": "llama-3.1-70b", "quantization": "q4_k_m", "accelerator": "apple-m4-max-64gb"},
        "llamacpp",
        "",
        "long",
        4,
    ),
]


@pytest.mark.parametrize(("row", "engine", "flags", "load", "target"), CASES)
def test_every_row_is_true_in_a_second_call(row, engine, flags, load, target):
    row = row | {"engine": engine}
    found = ask(row, flags, load, target)
    assert found.changes
    for change in found.changes:
        again, more, replicas = applied(found, change, row, flags)
        share = target if target is None or change.field != "replicas" else -(-target // replicas)
        then = ask(again, more, load, share, replicas)
        limit = then.batch_limit or float("inf")
        got = min(then.decides.point, limit) * replicas
        said = (change.field, change.value, change.also)
        assert (said, got, then.pool.kv.tokens) == (said, pytest.approx(change.requests, rel=0.005), change.pool_tokens)
        assert (said, {"fits": 0, "may fit": 4}.get(change.verdict, 1)) == (said, ruling(then).exit_code)


def test_requests_beyond_what_the_model_takes_have_no_way_out():
    """Phi-4 takes 16,384 tokens: no lever makes prompts of 40,000 fit."""
    row = {"model": "phi-4", "accelerator": "h100-sxm", "engine": "vllm"}
    assert ask(row, "", "long", 4).changes == ()
    row |= {"engine": "llamacpp", "quantization": "q4_k_m"}
    assert ask(row, "-c 32768 -np 4", "long", 4).changes == ()
