"""Pitfalls of tokens: which events stand for them, and how many they stand for."""

from typing import Any

import pytest

from tests.wire.byteserver import Script, head
from tests.wire.pitfalls import END, Row, check, delta, ended, event, finish, reply_row, usage

X = delta(content="x")
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
        "empty events while the prompt is read are padding: the count says so",
        "https://github.com/NVIDIA-NeMo/Guardrails/pull/1564",
        [(0.1, head() + ROLE + delta(content="")), *[(0.1, delta(content=""))] * 4, *[(0.1, X)] * 5, (0.0, ended(5))],
        good=True,
        ttft=0.6,
        events=5,
        tokens=5,
        tpot=0.1,
        stays="a reader that asks for text is right here; one that takes an empty string for a token is not",
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
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_tokens_are_counted_as_the_server_made_them(row: Row) -> None:
    check(row)
