"""Pitfalls of tokens and usage: which events stand for tokens, how many they stand for, who counts."""

from typing import Any

import pytest

from tests.wire.byteserver import Script, head
from tests.wire.pitfalls import END, LAST, Row, check, delta, ended, event, finish, plain, reply_row, usage

X = delta(content="x")
BROKEN_USAGE = event({"choices": [], "usage": {"completion_tokens": "two"}})
NULL_USAGE = event({"choices": [], "usage": {"completion_tokens": None, "prompt_tokens": None}})
ROLE = delta(role="assistant", content="")
THOUGHT = delta(reasoning="x")
DETAILED = delta(content="", reasoning_details=[{"type": "reasoning.text", "text": "x"}])
OLDER = delta(content=None, reasoning_content="x")
PARTS = delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}])


def _thinks(thought: bytes) -> Script:
    """20 thoughts from 100 ms on, one every 50 ms, then 3 tokens of the answer."""
    answer = [(0.05, X)] * 3
    return [(0.1, head() + ROLE + thought), *[(0.05, thought)] * 19, *answer, (0.0, ended(23))]


def _call(arguments: str, **more: Any) -> bytes:
    return delta(tool_calls=[{"index": 0, "function": {"arguments": arguments, **more}}])


def _counted(total: int, reason: str | None = None, /, **fields: Any) -> bytes:
    """A delta with the server's running count beside it."""
    choice = {"index": 0, "delta": fields, "finish_reason": reason}
    return event({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": total}})


ROWS: list[Row] = [
    *(
        reply_row(
            f"thoughts in {field} are tokens",
            source,
            _thinks(thought),
            ttft=0.1,
            first_answer=1.1,
            tokens=23,
            tpot=0.05,
            good=True,
            stays="" if field != "parts of the content" else "any content is a token to it; the others' is not",
        )
        for field, source, thought in (
            ("reasoning", "https://github.com/vllm-project/guidellm/issues/737", THOUGHT),
            ("reasoning_content", "https://github.com/kubernetes-sigs/inference-perf/issues/559", OLDER),
            ("reasoning_details", "https://github.com/modelscope/evalscope/pull/1700", DETAILED),
            ("a field of the server's own", "https://github.com/modelscope/evalscope/issues/1694", delta(thinking="x")),
            ("parts of the content", "https://github.com/sgl-project/genai-bench/issues/81", PARTS),
        )
    ),
    reply_row(
        "only thoughts: there is no answer yet",
        "https://github.com/vllm-project/guidellm/pull/760",
        [(0.1, head() + ROLE + THOUGHT), *[(0.05, THOUGHT)] * 9, (0.0, ended(10, "length"))],
        good=True,
        ttft=0.1,
        first_answer=None,
        tokens=10,
    ),
    reply_row(
        "the role is no token, with content empty or null",
        "https://github.com/api7/aisix/pull/869",
        [(0.0, head() + ROLE + delta(role="assistant", content=None)), (0.5, X), (0.1, X), (0, ended(2))],
        good=True,
        ttft=0.5,
        events=2,
        tpot=0.1,
        stays="a reader that asks for text is right here; one that takes the first event or an empty string is not",
    ),
    reply_row(
        "the first event is the whole reply, usage included",
        "https://github.com/sgl-project/genai-bench/pull/44",
        [(0.4, head()), (0.0, _counted(1, "stop", role="assistant", content="yes") + END)],
        good=True,
        ttft=0.4,
        e2e=0.4,
        tokens=1,
        tpot=None,
    ),
    reply_row(
        "an event of four tokens is not one token",
        "https://github.com/vllm-project/vllm/pull/42661",
        [(0.5, head() + delta(content="a b c d")), *[(0.04, delta(content="a b c d"))] * 9, (0, ended(40))],
        good=True,
        tokens=40,
        tpot=0.01,
        gap=0.04,
    ),
    reply_row(
        "speculative steps of four tokens, counted at the end",
        "https://github.com/sgl-project/sglang/pull/12064",
        [(0.1, head() + delta(content="abcd")), *[(0.0136, delta(content="abcd"))] * 99, (0, ended(400))],
        output=400,
        good=True,
        tokens=400,
        tpot=0.0034,
    ),
    reply_row(
        "a bundled first event, by its text",
        "https://github.com/ai-dynamo/aiperf/pull/1279",
        [(0.5, head() + delta(content="word " * 30)), *[(0.02, delta(content="word "))] * 10, (0, ended(40))],
        good=True,
        tokens=40,
        tpot=0.02,
    ),
    reply_row(
        "a bundled first event, by the running count",
        "https://github.com/triton-inference-server/client/pull/698",
        [(0.5, head() + _counted(30, content="x")), *[(0.02, X)] * 10, (0, ended(40))],
        good=True,
        tokens=40,
        tpot=0.02,
    ),
    reply_row(
        "a tool call held back by its parser: only usage moves",
        "https://github.com/sgl-project/sglang/pull/36272",
        [
            (0.2, head() + _counted(1, role="assistant", tool_calls=[{"index": 0, "function": {"name": "f"}}])),
            (0.32, _counted(17, tool_calls=[{"index": 0, "function": {"arguments": "{\"a\": 1"}}])),
            (0.28, _counted(31, tool_calls=[{"index": 0, "function": {"arguments": "}"}}])),
            (0.0, ended(31, "tool_calls")),
        ],
        output=200,
        good=True,
        ttft=0.2,
        tokens=31,
        tpot=0.02,
    ),
    reply_row(
        "a tool call without usage: never as many tokens as were asked for",
        "https://github.com/PaddlePaddle/FastDeploy/pull/8113",
        [(0.2, head() + _call("", name="f")), (0.1, _call("{}")), (0.0, finish("tool_calls") + END)],
        output=512,
        good=True,
        ttft=0.2,
        tokens=2,
        estimated=True,
    ),
    reply_row(
        "a hundred spaces are a hundred tokens",
        "https://github.com/vllm-project/vllm/pull/12288",
        [(0.1, head() + delta(content="     ")), *[(0.05, delta(content="     "))] * 19, (0, ended(100))],
        output=100,
        good=True,
        tokens=100,
        tpot=0.01,
    ),
    reply_row(
        "tokens that decode to nothing get an event all the same",
        "https://github.com/CentML/flexible-inference-bench/pull/66",
        [(0.1, head() + ROLE), (0.0, X), *[(0.05, delta(content=""))] * 8, (0.05, X), (0.0, ended(10))],
        good=True,
        events=10,
        tokens=10,
        tpot=0.05,
        gap=0.05,
    ),
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
        "headers are no token, however early",
        "https://github.com/locustio/locust/issues/1406",
        [(0.001, head()), (0.5, X), *[(0.02, X)] * 4, (0.0, ended(5))],
        good=True,
        ttft=0.501,
        e2e=0.581,
        tokens=5,
        stays="it waits for text; a reader that times the response object is not right",
    ),
    reply_row(
        "no event with a token though twenty were made: no speed, and no time of 0",
        "https://github.com/sgl-project/sglang/pull/36047",
        [(0.0, head() + ROLE), (0.8, finish("length") + usage(20) + END)],
        output=20,
        good=True,
        ttft=0.8,
        tokens=20,
        tpot=None,
        buffered=True,
    ),
    reply_row(
        "all events at once: a speed of nothing a token is no speed",
        "https://github.com/vllm-project/vllm-omni/pull/6696",
        [(0.8, head() + X * 20), (0.0, ended(20))],
        output=20,
        good=True,
        ttft=0.8,
        tokens=20,
        tpot=None,
        buffered=True,
    ),
    reply_row(
        "TTFT is no gap between tokens",
        "https://github.com/vllm-project/vllm/issues/7242",
        [(1.0, head() + X), *[(0.01, X)] * 2, (0.0, ended(3))],
        good=True,
        ttft=1.0,
        gap=0.01,
    ),
    reply_row(
        "one token has no time per token",
        "https://github.com/ray-project/llmperf/issues/55",
        [(0.1, head() + ROLE + X), (0.0, ended(1, "length"))],
        output=1,
        good=True,
        tokens=1,
        tpot=None,
    ),
    reply_row(
        "a reply without a token is none, and divides by nothing",
        "https://github.com/vllm-project/vllm/pull/3397",
        [(0.1, head() + ROLE), (0.0, ended(0))],
        good=False,
        ttft=None,
        tokens=0,
        tpot=None,
    ),
    reply_row(
        "a reply of one token that decodes to nothing",
        "https://github.com/vllm-project/vllm/issues/6064",
        [(0.0, head() + ROLE), (0.3, ended(1))],
        output=1,
        good=True,
        ttft=0.3,
        tokens=1,
        tpot=None,
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
        "completions: text instead of deltas",
        "https://github.com/openshift-psap/llm-load-test/pull/54",
        [
            (0.1, head() + event({"choices": [{"index": 0, "text": "x", "finish_reason": None}]})),
            (0.1, event({"choices": [{"index": 0, "text": "", "finish_reason": None}]})),
            (0.1, event({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]}) + usage(3) + END),
        ],
        good=True,
        ttft=0.1,
        events=3,
        tokens=3,
        tpot=0.1,
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
def test_tokens_are_counted_as_the_server_made_them(row: Row) -> None:
    check(row)
