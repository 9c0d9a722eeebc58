"""Pitfalls of failure: what ends badly under a good status, how replies may end, what is no stream, who waits."""

import json
from typing import Any

import pytest

from tests.wire.byteserver import HOLD, RESET, Script, chunked, head
from tests.wire.pitfalls import END, LAST, Row, check, delta, ended, event, finish, plain, reply_row, usage

X = delta(content="x")
BARE = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
ROLE = delta(role="assistant", content="")
BROKEN = {"message": "EngineCore died", "type": "InternalServerError", "code": 500}
THREE: Script = [(0.1, head() + X), (0.1, X), (0.1, X)]
DROPPED = "its library raises and the request is dropped: it is not counted as good, nor anywhere else"


def _fails(problem: bytes, *before: bytes) -> Script:
    """A reply under status 200 in which something goes wrong after `before`."""
    return [(0.1, head() + b"".join(before)), (0.1, problem + END)]


def _whole(body: Any, status: str = "200 OK", kind: str = "application/json", wait: float = 0.5) -> Script:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return [(wait, head(status, kind=kind, framing=f"content-length: {len(data)}") + data)]


def _choice(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, **fields}]})


FULL = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a b c"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}

INSIDE: list[Row] = [
    reply_row(
        "an error after three tokens",
        "https://github.com/sgl-project/sglang/pull/38868",
        [*THREE, (0.0, event({"error": BROKEN}) + END)],
        good=False,
        error="in_stream",
        detail="^500: EngineCore died$",
        events=3,
        tokens=3,
        ttft=0.1,
    ),
    reply_row(
        "an error before any token: nothing was generated",
        "https://github.com/vllm-project/vllm/pull/57519",
        _fails(event({"error": BROKEN}), ROLE),
        output=512,
        good=False,
        error="in_stream",
        tokens=None,
        ttft=None,
    ),
    reply_row(
        "an error as a string",
        "https://github.com/kubernetes-sigs/inference-perf/issues/713",
        _fails(event({"error": "upstream went away"}), X, X),
        good=False,
        detail="upstream went away",
    ),
    reply_row(
        "an error event by its name, its data no JSON",
        "https://github.com/doublewordai/control-layer/pull/1048",
        _fails(chunked(b"event: error\ndata: overloaded\n\n"), X, X),
        good=False,
        detail="overloaded",
        stays=DROPPED,
    ),
    reply_row(
        "an error that lies flat in the event",
        "https://github.com/sgl-project/sglang/pull/33193",
        _fails(event({"object": "error", "message": "queue is full", "code": 503}), X, X),
        good=False,
        detail="503: queue is full",
    ),
    reply_row(
        "an error event with a JSON object that has no error in it",
        "https://github.com/tugot17/tokenomics/pull/16",
        _fails(chunked(b'event: error\ndata: {"message": "engine stopped", "choices": [{"delta": {}}]}\n\n'), X, X),
        good=False,
        detail="engine stopped",
    ),
    reply_row(
        "an error inside the choice",
        "https://github.com/ai-dynamo/aiperf/pull/1338",
        _fails(_choice(error={"code": 502, "message": "provider broke"}, finish_reason="error"), X, X),
        good=False,
        detail="502: provider broke",
    ),
    reply_row(
        "a reply that the engine aborted",
        "https://github.com/vllm-project/vllm/pull/26478",
        _fails(finish("abort") + usage(2), X, X),
        good=False,
        error="in_stream",
    ),
    reply_row(
        "a refusal under status 200, with a usage of nothing after it",
        "https://github.com/sgl-project/sglang/pull/38868",
        _fails(event({"error": {"message": "The request queue is full.", "code": 503}}) + usage(0)),
        good=False,
        detail="503: The request queue is full",
        tokens=0,
        ttft=None,
    ),
    reply_row(
        "error: null on good events",
        "https://github.com/kubernetes-sigs/inference-perf/issues/713",
        [
            (0.1, head() + event({"error": None, "choices": [{"index": 0, "delta": {"content": "x"}}]})), (0.1, X),
            (0.0, ended(2)),
        ],
        good=True,
        tokens=2,
        stays="it looks at no error, so none misleads it",
    ),
]  # fmt: skip

ENDS: list[Row] = [
    reply_row(
        "closed cleanly after 10 of 1,024 tokens",
        "https://github.com/kubernetes-sigs/inference-perf/issues/655",
        [(0.1, head() + X), *[(0.02, X)] * 9, (0.0, LAST)],
        output=1024,
        good=False,
        error="cut_off",
        events=10,
        detail="without finish_reason or .DONE., after 10 events",
    ),
    reply_row(
        "a body that the connection ends, in the middle",
        "https://github.com/kubernetes-sigs/inference-perf/pull/746",
        [(0.1, head(framing="") + BARE), (0.1, b"")],
        output=1024,
        good=False,
        error="cut_off",
    ),
    reply_row(
        "a finish_reason without [DONE] is an end",
        "https://github.com/CommandCodeAI/command-code/issues/785",
        [*THREE, (0.0, finish() + usage(3) + LAST)],
        good=True,
        tokens=3,
        stays="it takes any end for a good one",
    ),
    reply_row(
        "[DONE] without a finish_reason is an end",
        "https://github.com/CommandCodeAI/command-code/issues/785",
        [*THREE, (0.0, END)],
        good=True,
        tokens=3,
        estimated=True,
        stays="it takes any end for a good one",
    ),
    reply_row(
        "neither finish_reason nor [DONE] is none",
        "https://github.com/infiniflow/ragflow/pull/19498",
        [*THREE, (0.0, LAST)],
        good=False,
        error="cut_off",
    ),
    reply_row(
        "the last chunk never came",
        "https://github.com/infiniflow/ragflow/pull/19498",
        [*THREE, (0.0, finish())],
        good=False,
        error="cut_off",
        stays=DROPPED,
    ),
    reply_row(
        "reset in the middle",
        "https://github.com/vllm-project/guidellm/issues/444",
        [*THREE, (0.1, b""), RESET],
        good=False,
        error="cut_off",
        events=3,
        stays=DROPPED,
    ),
    reply_row(
        "a stream that stands still is given up, and keeps its tokens",
        "https://github.com/kubernetes-sigs/inference-perf/issues/148",
        [*THREE, HOLD],
        good=False,
        error="stalled",
        events=3,
        detail="stood still for 20 s",
        stays=DROPPED,
    ),
    reply_row(
        "a length that promises more than comes",
        "https://www.rfc-editor.org/rfc/rfc9112#section-8",
        [(0.1, head(framing="content-length: 5000") + BARE), (0.1, b"")],
        good=False,
        error="cut_off",
        stays=DROPPED,
    ),
]  # fmt: skip

WHOLE: list[Row] = [
    reply_row(
        "a stream was asked for, one JSON body came: no TTFT",
        "https://github.com/Netis/heron/pull/4",
        _whole(FULL),
        good=False,
        error="not_streamed",
        ttft=None,
        tokens=3,
        prompt=7,
    ),
    reply_row(
        "an error as a JSON body under status 200",
        "https://github.com/gpustack/gpustack/issues/1677",
        _whole({"error": {"message": "no worker", "code": 503}}),
        good=False,
        error="in_stream",
        detail="503: no worker",
    ),
    reply_row(
        "a whole reply in one event: its speed is not known",
        "https://github.com/fw-ai/benchmark/pull/3",
        [(0.5, head() + delta(role="assistant", content="word " * 40)), (0.0, ended(40))],
        good=True,
        ttft=0.5,
        tokens=40,
        tpot=None,
        buffered=True,
    ),
    reply_row(
        "all events at once: buffered, whatever its gaps say",
        "https://github.com/dstackai/dstack/issues/4269",
        [(2.0, head() + X * 40), (0.0, ended(40))],
        good=True,
        tokens=40,
        buffered=True,
        stays="it times what it gets; that this is no stream is not told",
    ),
    reply_row(
        "a page under status 200",
        "https://github.com/hmchangw/newchat/pull/200",
        _whole(b"<html><title>Sign in</title></html>", kind="text/html"),
        good=False,
        error="protocol",
        detail="text/html",
    ),
    reply_row(
        "an empty body under status 200",
        "https://github.com/vllm-project/vllm/pull/5895",
        _whole(b""),
        good=False,
        error="protocol",
        detail="empty",
    ),
    reply_row(
        "a redirect is no reply",
        "https://www.rfc-editor.org/rfc/rfc9110#section-15.4",
        [(0.1, head("308 Permanent Redirect", framing="location: /elsewhere\r\ncontent-length: 0"))],
        good=False,
        error="protocol",
        detail="redirected to /elsewhere",
        stays=DROPPED,
    ),
    reply_row(
        "a refusal is fast and no reply",
        "https://github.com/SemiAnalysisAI/InferenceX/issues/357",
        _whole({"error": {"message": "overloaded", "code": 503}}, "503 Service Unavailable", wait=0.01),
        good=False,
        error="http_5xx",
        ttft=None,
        status=503,
        stays=DROPPED,
    ),
    reply_row(
        "a first token after six seconds is no failure",
        "https://github.com/llm-d/llm-d-benchmark/pull/1787",
        plain(6.0, 0.02, 5),
        good=True,
        ttft=6.0,
        tokens=5,
    ),
    reply_row(
        "comments do not keep a reply without tokens alive for ever",
        "https://github.com/openshift-psap/llm-load-test/issues/90",
        [(0.0, head()), *[(2.0, chunked(b": wait\n\n"))] * 60],
        good=False,
        error="timeout",
        ttft=None,
        detail="no token within 100 s",
        stays=DROPPED,
    ),
    reply_row(
        "comments keep a reply with tokens alive",
        "https://github.com/continuedev/continue/pull/13144",
        [(0.1, head() + X), *[(4.0, chunked(b": wait\n\n"))] * 10, (0.0, X + ended(2))],
        good=True,
        tokens=2,
        gap=40.0,
        stays="any byte resets the wait of its library too",
    ),
]  # fmt: skip

ROWS = [*INSIDE, *ENDS, *WHOLE]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_failures_are_failures_and_good_ends_are_not(row: Row) -> None:
    check(row)
