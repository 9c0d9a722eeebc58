"""Pitfalls of usage: who counts, where the count stands, and which counts are none."""

from typing import Any

import pytest

from tests.wire.byteserver import head
from tests.wire.pitfalls import END, LAST, Row, check, delta, ended, event, finish, plain, reply_row, usage

X = delta(content="x")
BROKEN_USAGE = event({"choices": [], "usage": {"completion_tokens": "two"}})
NULL_USAGE = event({"choices": [], "usage": {"completion_tokens": None, "prompt_tokens": None}})
ROLE = delta(role="assistant", content="")
THOUGHT = delta(reasoning="x")


def _counted(total: int, reason: str | None = None, /, **fields: Any) -> bytes:
    """A delta with the server's running count beside it."""
    choice = {"index": 0, "delta": fields, "finish_reason": reason}
    return event({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": total}})


ROWS: list[Row] = [
    reply_row(
        "reasoning tokens are a part of the completion tokens",
        "https://github.com/tugot17/tokenomics/pull/16",
        [
            (0.1, head() + THOUGHT), *[(0.01, THOUGHT)] * 59, *[(0.01, X)] * 40,
            (0.0, finish() + usage(100, completion_tokens_details={"reasoning_tokens": 60}) + END),
        ],
        output=100,
        good=True,
        tokens=100,
        tpot=0.01,
    ),
    reply_row(
        "choices empty, null or missing, on the first event and the last",
        "https://github.com/sgl-project/sglang/issues/5451",
        [
            (0.1, head() + event({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]})),
            (0.1, event({"choices": None}) + event({"id": "r"}) + X),
            (0.1, event({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}], "usage": None})),
            (0.0, ended(2)),
        ],
        good=True,
        ttft=0.2,
        tokens=2,
        tpot=0.1,
    ),
    reply_row(
        "usage inside the finishing event",
        "https://github.com/sgl-project/sglang/pull/14826",
        [
            (0.1, head() + X + X),
            (0.3, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
                         "usage": {"prompt_tokens": 11, "completion_tokens": 6}}) + END),
        ],
        good=True,
        tokens=6,
        prompt=11,
        e2e=0.1,
    ),
    reply_row(
        "a running usage on every event: the last one counts, not their sum",
        "https://github.com/kubernetes-sigs/inference-perf/pull/410",
        [(0.1, head() + _counted(1, content="x")), (0.1, _counted(3, content="xx")), (0.1, _counted(5, content="xx")),
         (0.0, finish() + END)],
        good=True,
        tokens=5,
        tpot=0.05,
    ),
    reply_row(
        "the prompt comes back as the first text",
        "https://github.com/vllm-project/vllm/issues/48853",
        [(0.3, head() + delta(content="prompt " * 8000)), (0.0, finish() + usage(1, prompt=8000) + END)],
        good=True,
        tokens=1,
        tpot=None,
        detail=r"far more text",
    ),
    reply_row(
        "no usage and no tokenizer: an estimate, and it says so",
        "https://github.com/ray-project/llmperf/pull/81",
        plain(0.1, 0.02, 10, finish()),
        good=True,
        tokens=10,
        estimated=True,
        prompt=None,
    ),
    reply_row(
        "thoughts that are counted and never shown came before the first token",
        "https://github.com/duolahypercho/codex-router/pull/195",
        [
            (4.0, head() + X),
            *[(0.02, X)] * 19,
            (0.0, finish() + usage(220, completion_tokens_details={"reasoning_tokens": 200}) + END),
        ],
        output=300,
        good=True,
        ttft=4.0,
        tokens=220,
        tpot=0.02,
    ),
    reply_row(
        "the usage event comes late and is no token",
        "https://github.com/vllm-project/vllm/pull/55508",
        [(0.1, head() + X), *[(0.02, X)] * 4, (0.0, finish()), (0.5, usage(5)), (0.5, END)],
        good=True,
        e2e=0.18,
        tpot=0.02,
        tokens=5,
    ),
    reply_row(
        "counts that are no counts",
        "https://github.com/intel/ipex-llm/pull/12271",
        [(0.1, head() + X), (0.1, X), (0.0, finish() + BROKEN_USAGE + END)],
        good=True,
        tokens=2,
        estimated=True,
        tpot=0.1,
        stays="it never looks at usage, so it cannot believe a broken one",
    ),
    reply_row(
        "usage comes early, and null or nothing after it",
        "https://github.com/openai/openai-agents-python/pull/2126",
        [
            (0.1, head() + X),
            (0.1, X + usage(4)),
            (0.0, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None})),
            (0.0, event({"choices": []}) + END),
        ],
        good=True,
        tokens=4,
        prompt=7,
        tpot=0.05,
    ),
    reply_row(
        "a usage of zeros beside a text is none",
        "https://github.com/BerriAI/litellm/issues/8349",
        [(0.1, head() + X), *[(0.1, X)] * 4, (0.0, ended(0))],
        good=True,
        tokens=5,
        tpot=0.1,
        estimated=True,
        stays="it never looks at usage, so it cannot believe a broken one",
    ),
    reply_row(
        "counts of null",
        "https://github.com/livekit/agents/pull/6596",
        [(0.1, head() + X), (0.1, X), (0.0, finish() + NULL_USAGE + END)],
        good=True,
        tokens=2,
        prompt=None,
        tpot=0.1,
        estimated=True,
    ),
    reply_row(
        "more tokens than were asked for: the limit was not passed on, or the count is none",
        "https://github.com/mozilla-ai/llamafile/issues/701",
        [(0.1, head() + X), *[(0.1, X)] * 4, (0.0, ended(5000))],
        output=16,
        good=True,
        tokens=5,
        estimated=True,
        detail="usage says 5000 output tokens, 16 were asked for",
        stays="it never looks at usage, so it cannot believe a broken one",
    ),
    reply_row(
        "the engine's own timings count where usage is not sent",
        "https://github.com/ggml-org/llama.cpp/pull/24013",
        [
            (0.1, head() + delta(role="assistant", content=None) + X), (0.1, X), (0.1, X),
            (0.0, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
                         "timings": {"prompt_n": 30, "cache_n": 5, "predicted_n": 3}}) + event("[DONE]") + LAST),
        ],
        good=True,
        tokens=3,
        prompt=35,
        cached=5,
        estimated=False,
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_server_s_count_counts_where_it_is_one(row: Row) -> None:
    check(row)
