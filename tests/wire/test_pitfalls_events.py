"""Pitfalls of framing and events: lines, reads, comments, encodings, and bytes that no reader expects."""

import json

import pytest

from tests.wire.byteserver import HOLD, Script, chunked, head
from tests.wire.pitfalls import END, LAST, Row, check, delta, ended, event, finish, plain, reply_row, usage

X = delta(content="x")
TEXT = {"id": "r", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}
STOP = {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
RAW = f"data: {json.dumps(TEXT)}\n\n".encode()


def _body(line_end: str = "\n", field: str = "data: ", more: str = "", last: str = "\n\n") -> bytes:
    """Two tokens, finish and [DONE], written as one likes."""
    data = [json.dumps(one) for one in (TEXT, TEXT, STOP)] + ["[DONE]"]
    whole = "\n\n".join(f"{more}{field}{one}" for one in data) + last
    return whole.replace("\n", line_end).encode()


def _written(body: bytes, *, framing: str = "transfer-encoding: chunked") -> Script:
    length = framing.format(n=len(body))
    return [(0.3, head(framing=length) + (chunked(body) + LAST if "chunked" in length else body))]


def _said(text: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"' + text + b'"}}]}\n\n'


def _choice(index: int) -> bytes:
    return event({"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": None}]})


TWO = {"good": True, "ttft": 0.3, "tokens": 2, "events": 2, "finish": "stop"}
LONG = 300 * 1024
TAIL = "a reader of lines is right here; "

ROWS: list[Row] = [
    reply_row(
        "the space after the colon comes in a read of its own",
        "https://github.com/vllm-project/vllm/pull/51172",
        [(0.3, head() + chunked(RAW[:5])), (0.005, chunked(RAW[5:])), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.305,
        tokens=2,
        stays=f"{TAIL}one that strips each read is not",
    ),
    reply_row(
        "spaces at the edge of a read belong to the text",
        "https://github.com/vllm-project/vllm/pull/51172",
        [(0.3, head() + chunked(b'data: {"choices":[{"index":0,"delta":{"content":"a')), (0.1, chunked(b' b"}}]}\n\n')),
         (0.0, ended(3))],
        good=True,
        ttft=0.4,
        tokens=3,
        events=1,
    ),
    reply_row(
        "no space after the colon",
        "https://github.com/praxis-proxy/praxis/pull/739",
        _written(_body(field="data:")),
        **TWO,
    ),
    reply_row("lines that end with CR LF", "https://github.com/praxis-proxy/praxis/pull/739", _written(_body("\r\n")),
              **TWO, stays=f"{TAIL}one that looks for two line feeds waits for ever"),
    reply_row("lines that end with CR", "https://github.com/praxis-proxy/praxis/pull/739", _written(_body("\r")), **TWO,
              stays=f"{TAIL}one that looks for line feeds sees none"),
    reply_row(
        "no blank line after the last event",
        "https://github.com/justlovemaki/AIClient2API/pull/695",
        _written(_body(last="\n")),
        **TWO,
        stays=f"{TAIL}one that waits for blank lines loses the end",
    ),
    reply_row(
        "a byte-order mark",
        "https://github.com/openai/openai-python/pull/3819",
        _written(b"\xef\xbb\xbf" + _body()),
        **TWO,
    ),
    reply_row(
        "comments before the first token are no end and no token",
        "https://github.com/ggml-org/llama.cpp/pull/24013",
        [(0.0, head()), *[(0.2, chunked(b":\n\n"))] * 5, (0.0, X), (0.1, chunked(b": ping\n\n") + X), (0, ended(2))],
        good=True,
        ttft=1.0,
        tpot=0.1,
        tokens=2,
        stays=f"{TAIL}one that takes the first bytes for a token is not",
    ),
    reply_row(
        "event, id and retry lines, and no space",
        "https://github.com/continuedev/continue/pull/13144",
        _written(_body(field="data:", more="event: message\nid: 7\nretry: 100\n")),
        **TWO,
    ),
    reply_row(
        "a heartbeat event is no token",
        "https://github.com/mozilla-ai/otari/pull/1099",
        [(0.1, head() + chunked(b"event: ping\ndata: {}\n\n")), (0.2, X), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
        stays=f"{TAIL}one that takes the first event for a token is not",
    ),
    reply_row(
        "one event over two data lines",
        "https://html.spec.whatwg.org/multipage/server-sent-events.html",
        [(0.3, head() + chunked(b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"x"}}]}\n\n')),
         (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
        events=2,
    ),
    reply_row(
        "five events in one read share its time",
        "https://github.com/ai-dynamo/aiperf/pull/368",
        [(0.3, head() + X), (0.4, X * 4), (0.0, ended(5))],
        good=True,
        ttft=0.3,
        events=5,
        tokens=5,
        tpot=0.1,
        gap=0.4,
        stays=f"{TAIL}one that parses a read as one event is not (its gap is wrong for the TTFT in it)",
    ),
    reply_row(
        "two choices in turn are one stream",
        "https://github.com/vllm-project/vllm/issues/9561",
        [(0.3, head() + _choice(0)), *[(0.05, _choice(1)), (0.05, _choice(0))] * 2, (0.05, _choice(1)),
         (0.0, event({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}) + ended(6))],
        good=True,
        ttft=0.3,
        tokens=6,
        tpot=0.05,
        events=6,
        stays="it counts each event of any choice; a reader of choice 0 alone halves the speed",
    ),
    reply_row(
        "a line of 300 KiB",
        "https://github.com/kubernetes-sigs/inference-perf/issues/283",
        [(0.3, head() + event({**TEXT, "logprobs": "x" * LONG})), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
        stays="httpx has no limit; aiohttp's of 128 KiB fails",
    ),
    reply_row(
        "a first event of a megabyte is a token all the same",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/13952",
        [(0.3, head() + event({"prompt_token_ids": "7," * LONG * 2, **TEXT})), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
        stays="httpx has no limit; aiohttp's of 128 KiB fails",
    ),
    reply_row(
        "a character split between two reads",
        "https://github.com/jawah/urllib3.future/issues/349",
        [(0.3, head() + chunked(b'data: {"choices":[{"index":0,"delta":{"content":"\xe4\xbd')),
         (0.1, chunked(b'\xa0"}}]}\n\n')), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.4,
        tokens=2,
        stays="httpx decodes over reads; a reader that decodes each read crashes",
    ),
    reply_row(
        "half a character as a token: bytes that are no UTF-8",
        "https://github.com/api7/aisix/issues/111",
        [(0.3, head() + chunked(_said(b"\xe4"))), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
        stays="httpx replaces what is no UTF-8; a strict decoder crashes",
    ),
    reply_row(
        "line separators inside a text end no line",
        "https://github.com/modelscope/evalscope/pull/1642",
        [(0.3, head() + chunked(_said("a\u2028b\x85c".encode()))),
         (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
    ),
    reply_row(
        "what looks like the end inside a text",
        "https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation",
        [(0.3, head() + delta(content="data: [DONE]\n\n")), (0.1, X), (0.0, ended(2))],
        good=True,
        tokens=2,
        events=2,
        finish="stop",
        stays=f"{TAIL}one that looks for [DONE] in the bytes stops",
    ),
    reply_row(
        "a connection that stays open after [DONE] is not waited for",
        "https://github.com/NanoHttpd/nanohttpd/issues/46",
        [(0.3, head() + X), (0.1, X), (0.0, ended(2).removesuffix(LAST)), HOLD],
        good=True,
        tokens=2,
        e2e=0.4,
        stays="it stops reading at [DONE]; a reader of the whole body hangs",
    ),
    reply_row(
        "a body with a length, and one that the connection ends",
        "https://www.rfc-editor.org/rfc/rfc9112#section-6.3",
        _written(_body(), framing="content-length: {n}"),
        **TWO,
        stays="the framing is its library's",
    ),
    reply_row(
        "an interim reply before the headers",
        "https://github.com/snoyberg/http-client/issues/521",
        [(0.0, b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"), *plain(0.3, 0.1, 2)],
        good=True,
        ttft=0.3,
        tokens=2,
        stays="the framing is its library's",
    ),
    reply_row(
        "chunks with extensions, and trailers at the end",
        "https://github.com/moonbitlang/async/issues/618",
        [(0.3, head() + chunked(RAW).replace(b"\r\n", b";name=value\r\n", 1)), (0.1, X),
         (0.0, finish() + usage(2) + event("[DONE]") + b"0\r\nx-took: 5\r\n\r\n")],
        good=True,
        ttft=0.3,
        tokens=2,
        stays="the framing is its library's",
    ),
    reply_row(
        "a compressed stream is held back by who packs it",
        "https://github.com/tower-rs/tower-http/issues/419",
        [(0.3, head(framing="content-encoding: gzip\r\ncontent-length: 4") + b"\x1f\x8b\x08\x00")],
        good=False,
        ttft=None,
        detail="compressed",
    ),
    reply_row(
        "a broken event is no token and no success",
        "https://github.com/langgenius/dify/pull/39008",
        [(0.3, head() + X + event('{"choices": [{"del')), (0.1, X), (0.0, ended(2))],
        good=False,
        ttft=0.3,
        detail="not JSON",
        stays="its JSON reader raises and the request is dropped; that it happened is not told",
    ),
    reply_row(
        "an event that is JSON and no object",
        "https://www.rfc-editor.org/rfc/rfc8259#section-3",
        [(0.3, head() + event("null") + event("[]") + event('"ok"') + X), (0.1, X), (0.0, ended(2))],
        good=True,
        ttft=0.3,
        tokens=2,
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_events_are_read_in_every_split(row: Row) -> None:
    check(row)


def test_the_end_is_the_end() -> None:
    assert END.endswith(LAST)
