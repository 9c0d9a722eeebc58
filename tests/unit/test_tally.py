"""Which events stand for tokens, what the server counted, and how a reply ended.

The event shapes are those that vLLM 0.32, SGLang 0.5.23 and llama.cpp (server build 11434) send.
"""

import json
import time
from typing import Any

import pytest

from auditor.probe.sse import read_reply
from auditor.probe.tally import Reply, error_text, page_title


def delta(finish: str | None = None, /, **fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def text(value: str, finish: str | None = None, /, **choice: Any) -> dict[str, Any]:
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": value, "finish_reason": finish, **choice}]}


def usage(completion: Any, prompt: Any = 7, /, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


ROLE = delta(role="assistant", content="")


def read(*messages: dict[str, Any] | str, asked: int | None = None, complete: bool = True) -> Reply:
    """Event n arrives at n seconds; [DONE] follows."""
    lines = [message if isinstance(message, str) else json.dumps(message) for message in (*messages, "[DONE]")]
    reads = [(float(n), f"data: {line}\n\n".encode()) for n, line in enumerate(lines)]
    return read_reply(reads, complete=complete, asked=asked)


# -------------------------------------------------------------------------------------------------------------- tokens


def test_vllm_empty_text_stands_for_a_token_and_the_role_does_not() -> None:
    got = read(
        ROLE,
        delta(content="_"),
        delta(content=""),
        delta(content="_"),
        {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "length", "stop_reason": None}]},
        usage(4),
    )
    assert got.arrivals == (1.0, 2.0, 3.0, 4.0)
    assert (got.output_tokens, got.prompt_tokens, got.first_tokens, got.finish_reason) == (4, 7, 1, "length")
    assert (got.error, got.done, got.server_id) == (None, True, "chatcmpl-1")


def test_vllm_without_usage_counts_its_last_empty_token_by_its_stop_reason() -> None:
    last = {"choices": [{"index": 0, "text": "", "finish_reason": "length", "stop_reason": None}]}
    got = read(text("a"), text(""), last)
    assert (got.output_tokens, got.estimated, got.arrivals) == (3, True, (0.0, 1.0, 2.0))


def test_sglang_finish_without_content_is_no_token_and_empty_tokens_get_no_event() -> None:
    got = read(
        delta(role="assistant", content="", reasoning_content=None),
        delta(reasoning_content=None, content="_"),
        delta(reasoning_content=None, content="_"),
        delta(reasoning_content=None, content="_"),
        delta("length", reasoning_content=None),
        usage(6, prompt_tokens_details=None),
    )
    # six tokens in three events of two each
    assert (got.arrivals, got.output_tokens, got.first_tokens) == ((1.0, 2.0, 3.0), 6, 2)


def test_llamacpp_extra_empty_event_is_no_token() -> None:
    chat = read(
        delta(role="assistant", content=None),
        delta(content="a"),
        delta(content="b"),
        delta("length"),
        {**usage(2, 26, prompt_tokens_details={"cached_tokens": 21}), "timings": {"predicted_n": 2}},
    )
    assert (chat.arrivals, chat.output_tokens, chat.cached_tokens) == ((1.0, 2.0), 2, 21)
    completions = read(text("a"), text("b"), {**text("", "length"), "usage": {"completion_tokens": 2}})
    assert (completions.arrivals, completions.output_tokens) == ((0.0, 1.0), 2)


def test_llamacpp_timings_count_where_usage_was_not_sent() -> None:
    last = {**delta("length"), "timings": {"cache_n": 21, "prompt_n": 5, "predicted_n": 2, "predicted_ms": 9.0}}
    got = read(delta(content="a"), delta(content="b"), last)
    assert (got.prompt_tokens, got.output_tokens, got.cached_tokens, got.estimated) == (26, 2, 21, False)


def test_empty_events_beyond_the_servers_count_are_padding() -> None:
    got = read(delta(content=""), delta(content="a"), delta(content="b"), delta(content=""), delta("stop"), usage(2))
    assert got.arrivals == (1.0, 2.0)


def test_a_reply_of_invisible_tokens_counts_its_finish() -> None:
    got = read(ROLE, delta("length", reasoning_content=None), usage(1))
    assert (got.arrivals, got.output_tokens, got.error) == ((1.0,), 1, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "x"},
        {"reasoning_content": "x"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "x"}]},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
        {"function_call": {"name": "f"}},
        {"content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": "x"},
    ],
)
def test_every_kind_of_output_is_a_token(fields: dict[str, Any]) -> None:
    assert read(delta(**fields), delta("stop"), usage(1)).arrivals == (0.0,)


@pytest.mark.parametrize("fields", [{}, {"role": "assistant"}, {"content": None}, {"role": "assistant", "content": ""}])
def test_what_is_no_token(fields: dict[str, Any]) -> None:
    assert read(delta(**fields), delta(content="a"), delta("stop"), usage(1)).arrivals == (1.0,)


def test_reasoning_comes_before_the_first_answer() -> None:
    thoughts = [delta(reasoning="x")] * 20
    got = read(*thoughts, *[delta(content="y")] * 3, delta("stop"), usage(23))
    assert (got.arrivals[0], got.first_answer, got.output_tokens, len(got.arrivals)) == (0.0, 20.0, 23, 23)


def test_reasoning_alone_has_no_first_answer() -> None:
    assert read(delta(reasoning_content="x"), delta("length"), usage(1)).first_answer is None


def test_choices_may_be_missing_null_or_empty() -> None:
    got = read(
        {"choices": [], "prompt_filter_results": [{}]}, {"choices": None}, {"object": "ping"},
        {**delta(content="a"), "usage": None, "error": None}, delta("stop"), usage(1),
    )  # fmt: skip
    assert (got.error, got.arrivals, got.output_tokens) == (None, (3.0,), 1)


def test_several_choices_are_one_stream() -> None:
    def choice(index: int, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": index, "text": "a", "finish_reason": finish}]}

    got = read(choice(0), choice(1), choice(0, "length"), choice(1, "length"), usage(4))
    assert (len(got.arrivals), got.output_tokens) == (4, 4)


# --------------------------------------------------------------------------------------------------- the first event


def test_cumulative_usage_says_what_the_first_event_carried() -> None:
    def with_usage(content: str, so_far: int) -> dict[str, Any]:
        return {**delta(content=content), "usage": {"prompt_tokens": 7, "completion_tokens": so_far}}

    got = read(
        {**ROLE, "usage": {"completion_tokens": 0}}, with_usage("abc", 3), with_usage("d", 4), delta("stop"), usage(4)
    )
    assert (got.first_tokens, got.output_tokens) == (3, 4)


def test_a_bundled_first_event_is_not_spread_over_the_rest() -> None:
    # 30 tokens at once, then ten of one token: TPOT is (last - first) / 10
    got = read(delta(content="word " * 30), *[delta(content="word ")] * 10, delta("stop"), usage(40))
    assert (got.first_tokens, got.output_tokens) == (30, 40)


def test_chunks_of_four_tokens() -> None:
    got = read(*[delta(content="abcd")] * 10, delta("stop"), usage(40))
    assert (got.first_tokens, got.output_tokens, len(got.arrivals)) == (4, 40, 10)


def test_hidden_reasoning_came_before_the_first_event() -> None:
    parts = {"reasoning_tokens": 60}
    hidden = read(*[delta(content="a")] * 40, delta("stop"), usage(100, completion_tokens_details=parts))
    assert (hidden.output_tokens, hidden.first_tokens) == (100, 61)
    shown = read(
        *[delta(reasoning="a")] * 60, *[delta(content="a")] * 40, delta("stop"),
        usage(100, completion_tokens_details=parts),
    )  # fmt: skip
    assert (shown.output_tokens, shown.first_tokens) == (100, 1)


def test_one_event_holds_all() -> None:
    got = read(delta(content="all of it"), delta("stop"), usage(12))
    assert (got.first_tokens, got.output_tokens) == (12, 12)


# ------------------------------------------------------------------------------------------------------------- counts


def test_no_count_is_an_estimate_from_events() -> None:
    got = read(*[delta(content="a")] * 5, delta("stop"))
    assert (got.output_tokens, got.estimated, got.prompt_tokens, got.cached_tokens) == (5, True, None, None)


@pytest.mark.parametrize("broken", [None, "12", -3, True, 4.0, 0])
def test_a_count_that_is_none_is_not_observed(broken: Any) -> None:
    got = read(*[delta(content="a")] * 5, delta("stop"), usage(broken, broken))
    assert (got.output_tokens, got.estimated) == (5, True)
    assert got.prompt_tokens == (0 if broken == 0 and broken is not False else None)


def test_more_tokens_than_asked_is_no_count() -> None:
    got = read(*[delta(content="a")] * 5, delta("stop"), usage(500), asked=5)
    assert (got.output_tokens, got.estimated, got.error) == (5, True, None)
    assert "500" in (got.detail or "")


def test_the_last_usage_wins_and_usage_wins_over_the_text() -> None:
    echoed = read(delta(content="the whole prompt " * 500), delta("stop"), usage(9), usage(1))
    assert (echoed.output_tokens, echoed.estimated, echoed.first_tokens) == (1, False, 1)


def test_other_servers_names_for_cached_tokens() -> None:
    assert read(delta(content="a"), delta("stop"), usage(1, 9, prompt_cache_hit_tokens=8)).cached_tokens == 8
    assert read(delta(content="a"), delta("stop"), usage(1, prompt_tokens_details={})).cached_tokens is None


# ------------------------------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        ({"error": {"message": "EngineCore died", "code": 500}}, "500: EngineCore died"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"object": "error", "message": "too long", "code": 400}, "400: too long"),
        ({"error": {"type": "overloaded"}}, "overloaded"),
        ({"error": {"odd": 1}}, '{"odd": 1}'),
    ],
)
def test_an_error_in_the_stream_fails_the_request(event: dict[str, Any], detail: str) -> None:
    got = read(delta(content="a"), event, usage(0))
    assert (got.error, got.detail, got.arrivals) == ("in_stream", detail, (0.0,))
    assert read(event).error == "in_stream"


def test_an_error_event_by_name() -> None:
    body = b"event: error\ndata: it broke\n\n"
    assert read_reply([(0.0, body)], complete=True).detail == "it broke"
    body = b'event: error\ndata: {"message": "it broke"}\n\n'
    assert read_reply([(0.0, body)], complete=True).detail == "it broke"
    assert read_reply([(0.0, b'event: error\ndata: "text"\n\n')], complete=True).error == "in_stream"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_aborted_reply_fails(reason: str) -> None:
    assert read(delta(content="a"), delta(reason), usage(1)).error == "in_stream"


def test_a_finish_without_done_is_a_good_end() -> None:
    body = f"data: {json.dumps(delta(content='a'))}\n\ndata: {json.dumps(delta('stop'))}\n\n".encode()
    got = read_reply([(0.0, body)], complete=True)
    assert (got.error, got.done) == (None, False)


def test_done_without_a_finish_is_a_good_end() -> None:
    assert read(delta(content="a"), usage(1)).error is None


def test_nothing_after_done_counts() -> None:
    got = read(delta(content="a"), delta("stop"), usage(1), "[DONE]", delta(content="b"), usage(9))
    assert (got.output_tokens, len(got.arrivals)) == (1, 1)


def test_a_reply_without_a_token_is_no_good_reply() -> None:
    assert read(ROLE, delta("stop"), usage(0)).error == "protocol"
    assert read().detail == "the reply ended without a single token"


def test_an_id_of_a_megabyte_is_not_kept() -> None:
    got = read(delta(content="a") | {"id": "i" * 1_000_000}, text("b", "x" * 1_000_000))
    assert (got.server_id, got.finish_reason, got.error) == ("i" * 200, "x" * 200, None)


def test_broken_json_is_named() -> None:
    got = read(delta(content="a"), "{broken", delta("stop"))
    assert (got.error, got.detail) == ("protocol", "event 2 is not JSON: b'{broken'")


def test_json_that_is_no_object_is_ignored() -> None:
    assert read("[1]", '"ping"', "null", delta(content="a"), delta("stop")).error is None


def test_deep_nesting_is_broken_json_and_no_crash() -> None:
    assert read("[" * 100_000).error == "protocol"


def test_invalid_utf8_is_replaced() -> None:
    body = b'data: {"choices":[{"delta":{"content":"\xf0\x9f"},"finish_reason":"stop"}]}\n\n'
    assert read_reply([(0.0, body)], complete=True).error is None


def test_bodies_that_are_no_stream() -> None:
    def body(data: bytes, kind: str = "", complete: bool = True) -> tuple[str | None, str]:
        got = read_reply([(0.0, data)] if data else [], complete=complete, content_type=kind)
        return got.error, got.detail or ""

    assert body(b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}')[0] == "not_streamed"
    assert body(b'{"error":{"message":"no"}}') == ("in_stream", "no")
    assert body(b"") == ("protocol", "the reply is empty")
    assert body(b"", complete=False)[0] == "cut_off"
    assert body(b"<html>", "text/html")[1] == "answered text/html, not an event stream: <html>"
    assert body(b"{half", "application/json")[0] == "protocol"


def test_a_whole_body_keeps_the_servers_counts_and_no_times() -> None:
    message = {"id": "i", "choices": [{"message": {"content": "a b c"}, "finish_reason": "length"}]}
    counted = {**message, "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    got = read_reply([(4.0, json.dumps(counted).encode())], complete=True)
    assert (got.arrivals, got.first_answer, got.prompt_tokens, got.output_tokens) == ((), None, 5, 3)
    assert read_reply([(4.0, json.dumps(message).encode())], complete=True).output_tokens is None


def test_error_texts_are_one_bounded_line() -> None:
    assert error_text({"message": "a\n  b", "code": None}) == "a b"
    assert error_text({"detail": "Not Found"}) == "Not Found"
    assert len(error_text("x" * 5000)) == 300


@pytest.mark.parametrize("count", [-1, 10**9, 10**400, 2.0, True, "7", None])
def test_a_count_that_cannot_be_one_is_none(count: Any) -> None:
    got = read(delta(content="a"), delta("stop"), usage(count, count, prompt_tokens_details={"cached_tokens": count}))
    assert (got.prompt_tokens, got.cached_tokens) == (None, None)
    assert (got.output_tokens, got.estimated) == (1, True)


def test_the_title_of_a_page_is_looked_for_at_its_beginning_only() -> None:
    assert page_title("<html><TITLE lang=en>502\nBad</title>") == "502\nBad"
    began = time.monotonic()
    assert page_title("<title>" * 500_000) is None
    assert time.monotonic() - began < 1.0
