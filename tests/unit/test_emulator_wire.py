"""What goes over the wire: events, usage, errors and statuses as vLLM 0.32 and SGLang 0.5.23 send them."""

import asyncio
from dataclasses import replace

import pytest
from raw_client import Seen, ask, chat, completion, emulated, request

from auditor.emulator.clock import run_virtual
from auditor.emulator.spec import Spec

VLLM = Spec(model="tiny", max_model_len=2048, api_key="sk-1")
SGLANG = Spec(flavour="sglang", version="0.5.23", model="tiny", max_model_len=2048, block_size=1, api_key="sk-1")
KEY = ("authorization: Bearer sk-1",)


def asked(spec, path, body=None, headers=KEY):
    async def main():
        async with emulated(spec) as emulator:
            return await ask(emulator.port, path, body, headers)

    return run_virtual(main())


# -------------------------------------------------------------------------------------------------------------- events


def test_vllm_chat_stream():
    """12 tokens: 13 events with a choice, the first a role; headers before the first token; then usage and [DONE]."""
    seen = asked(VLLM, "/v1/chat/completions", chat("say hi", 12))
    assert seen.status == 200
    assert seen.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert seen.headers["transfer-encoding"] == "chunked"
    assert seen.headers["server"] == "uvicorn"
    first, *tokens, usage = seen.data
    assert seen.events[-1][1] == "[DONE]"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert set(first) == {"id", "object", "created", "model", "choices", "prompt_token_ids", "prompt_text"}
    assert len(tokens) == 12
    assert all(set(token["choices"][0]["delta"]) == {"content"} for token in tokens)
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None] * 11 + ["length"]
    assert "" in [token["choices"][0]["delta"]["content"] for token in tokens]  # a token can decode to no text
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 6, "total_tokens": 18, "completion_tokens": 12}
    assert usage["system_fingerprint"].startswith("vllm-0.32.0")
    assert first["id"].startswith("chatcmpl-")
    assert seen.head_at < seen.events[0][0]


def test_vllm_completion_stream():
    seen = asked(VLLM, "/v1/completions", completion("the quick brown fox", 6))
    tokens = seen.data[:-1]
    assert len(tokens) == 6
    assert set(tokens[0]["choices"][0]) == {
        "index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids",
    }  # fmt: skip
    assert tokens[0]["object"] == "text_completion"
    assert tokens[0]["id"].startswith("cmpl-")
    assert seen.usage == {"prompt_tokens": 4, "total_tokens": 10, "completion_tokens": 6}


def test_sglang_chat_stream():
    """The role comes with the first token and the headers; empty tokens have no event; the reason has its own."""
    seen = asked(SGLANG, "/v1/chat/completions", chat("say hi", 12))
    first, *tokens, last, usage = seen.data
    assert first["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert len(tokens) == 11
    assert all(token["choices"][0]["delta"]["content"] for token in tokens)
    assert last["choices"][0] == {
        "index": 0, "delta": {"reasoning_content": None}, "logprobs": None, "finish_reason": "length",
        "matched_stop": None,
    }  # fmt: skip
    assert usage["usage"] == {
        "prompt_tokens": 6, "total_tokens": 18, "completion_tokens": 12, "prompt_tokens_details": None,
        "reasoning_tokens": 0, "completion_tokens_details": None,
    }  # fmt: skip
    assert seen.head_at == seen.events[0][0] == seen.events[1][0]
    assert "system_fingerprint" not in usage


def test_sglang_completion_stream():
    seen = asked(SGLANG, "/v1/completions", completion("the quick brown fox", 12))
    tokens = seen.data[:-1]
    assert len(tokens) == 12
    assert all(token["usage"] is None for token in tokens)
    assert seen.usage == {"prompt_tokens": 4, "total_tokens": 16, "completion_tokens": 12, "reasoning_tokens": 0}


def test_sglang_now_and_then_hands_two_tokens_on_together():
    seen = asked(SGLANG, "/v1/completions", completion("x", 400))
    assert seen.usage["completion_tokens"] == 400
    assert 390 < len(seen.token_times) < 400


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_only_when_asked(spec, path):
    body = chat("hi", 5) if "chat" in path else completion("hi", 5)
    del body["stream_options"]
    assert asked(spec, path, body).usage is None


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
def test_continuous_usage_counts_up(spec):
    options = {"include_usage": True, "continuous_usage_stats": True}
    seen = asked(spec, "/v1/completions", completion("a b c", 5, stream_options=options))
    assert [data["usage"]["completion_tokens"] for data in seen.data] == [1, 2, 3, 4, 5, 5]
    assert {data["usage"]["prompt_tokens"] for data in seen.data} == {3}


@pytest.mark.parametrize(("spec", "kind"), [(VLLM, "vllm"), (SGLANG, "sglang")])
def test_json_replies(spec, kind):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    seen = asked(spec, "/v1/chat/completions", body)
    assert seen.headers["content-type"] == "application/json"
    reply = seen.json
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"]["role"] == "assistant"
    assert reply["choices"][0]["message"]["content"] == "The answer follows from what"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 5
    assert ("metadata" in reply) == (kind == "sglang")
    assert ("system_fingerprint" in reply) == (kind == "vllm")
    seen = asked(spec, "/v1/completions", {"prompt": "hi", "max_tokens": 2, "ignore_eos": True})
    assert seen.json["choices"][0]["text"] == "The answer"


def test_cached_tokens_are_told_only_with_details():
    async def main(spec):
        async with emulated(spec) as emulator:
            body = completion("w " * 40, 3)
            await ask(emulator.port, "/v1/completions", body, KEY)
            return await ask(emulator.port, "/v1/completions", body, KEY)

    assert "prompt_tokens_details" not in run_virtual(main(VLLM)).usage
    told = run_virtual(main(replace(VLLM, prompt_tokens_details=True)))
    assert told.usage["prompt_tokens_details"] == {"cached_tokens": 32}


# -------------------------------------------------------------------------------------------------------------- errors

LONG = "w " * 2100


@pytest.mark.parametrize(
    ("spec", "body", "status", "words"),
    [
        (VLLM, {"prompt": LONG, "max_tokens": 4}, 400, "maximum context length is 2048 tokens"),
        (VLLM, {"prompt": "hi", "max_tokens": 100_000}, 400, "max_tokens=100000 cannot be greater"),
        (VLLM, {"prompt": "hi", "max_tokens": 0}, 400, "max_tokens must be at least 1, got 0"),
        (VLLM, {"prompt": "hi", "max_tokens": "many"}, 400, "int_parsing"),
        (VLLM, {"prompt": "", "max_tokens": 2}, 400, "must be provided and non-empty"),
        (VLLM, {"prompt": 7, "max_tokens": 2}, 400, "prompt must be"),
        (VLLM, {"prompt": "hi", "stream_options": {"include_usage": True}}, 400, "only be defined when `stream=True`"),
        (VLLM, {"prompt": "hi", "max_tokens": 2, "min_tokens": 3}, 400, "less than or equal to max_tokens"),
        (VLLM, {"model": "nope", "prompt": "hi"}, 404, "The model `nope` does not exist. Valid aliases: tiny."),
        (SGLANG, {"prompt": LONG, "max_tokens": 4}, 400, "longer than the model's context length (2048 tokens)"),
        (SGLANG, {"prompt": "hi", "max_tokens": 100_000}, 400, "total of 100001 tokens: 1 tokens from the input"),
        (SGLANG, {"prompt": "w " * 2000, "max_tokens": 100}, 400, "total of 2100 tokens: 2000 tokens from the input"),
        (SGLANG, {"prompt": "hi", "max_tokens": 0}, 400, "must be positive"),
        (SGLANG, {"prompt": "hi", "max_tokens": "many"}, 400, "int_parsing"),
        (SGLANG, {"prompt": "", "max_tokens": 2}, 400, "Prompt cannot be empty"),
        (SGLANG, {"prompt": [None]}, 400, "prompt must be"),
        (SGLANG, {"messages": "hi"}, 400, "messages must be a list"),
    ],
)
def test_refusals(spec, body, status, words):
    seen = asked(spec, "/v1/chat/completions" if "messages" in body else "/v1/completions", body)
    assert seen.status == status
    reply = seen.json
    error = reply["error"] if spec.flavour == "vllm" else reply
    assert words in error["message"]
    assert error["code"] == status
    if spec.flavour == "sglang":
        assert reply["object"] == "error"


def test_sglang_chat_refuses_a_reply_beyond_the_context():
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 100_000}
    assert "max_completion_tokens is too large: 100000" in asked(SGLANG, "/v1/chat/completions", body).json["message"]


def test_vllm_clamps_a_reply_that_does_not_fit():
    seen = asked(VLLM, "/v1/completions", completion("w " * 2040, 100, min_tokens=0, ignore_eos=True))
    assert seen.usage["completion_tokens"] == 8
    assert seen.data[-2]["choices"][0]["finish_reason"] == "length"


def test_sglang_takes_any_model_name_and_echoes_it():
    seen = asked(SGLANG, "/v1/completions", completion("hi", 2, model="no-such-model"))
    assert seen.status == 200
    assert seen.data[0]["model"] == "no-such-model"


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
def test_malformed_json(spec):
    async def main():
        async with emulated(spec) as emulator:
            reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
            body = b'{"prompt":'
            head = f"POST /v1/completions HTTP/1.1\r\n{KEY[0]}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            line = await reader.readline()
            writer.close()
            return line

    assert run_virtual(main()) == b"HTTP/1.1 400 Bad Request\r\n"


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
@pytest.mark.parametrize("headers", [(), ("authorization: Bearer sk-2",)])
def test_a_wrong_key_gets_a_string(spec, headers):
    seen = asked(spec, "/v1/models", headers=headers)
    assert (seen.status, seen.json) == (401, {"error": "Unauthorized"})


@pytest.mark.parametrize(
    ("spec", "path", "status"),
    [
        (VLLM, "/health", 200),
        (VLLM, "/version", 200),
        (VLLM, "/metrics", 200),
        (VLLM, "/get_server_info", 404),
        (VLLM, "/v1/models", 401),
        (SGLANG, "/health", 200),
        (SGLANG, "/metrics", 200),
        (SGLANG, "/get_server_info", 401),
        (SGLANG, "/version", 401),
    ],
)
def test_what_is_open_without_a_key(spec, path, status):
    assert asked(spec, path, headers=()).status == status


# --------------------------------------------------------------------------------------------------------- information


def test_vllm_information():
    model = asked(VLLM, "/v1/models").json["data"][0]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == ("tiny", "vllm", 2048)
    assert asked(VLLM, "/version").json == {"version": "0.32.0"}
    assert asked(VLLM, "/load").json == {"server_load": 0}
    assert asked(VLLM, "/props").json == {"detail": "Not Found"}
    assert asked(VLLM, "/health").body == b""
    assert asked(VLLM, "/v1/completions").status == 405


def test_sglang_information():
    model = asked(SGLANG, "/v1/models").json["data"][0]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == ("tiny", "sglang", 2048)
    info = asked(SGLANG, "/get_server_info").json
    assert info["api_key"] == "sk-1"  # in clear, as the real one
    assert info["version"] == "0.5.23"
    assert info["context_length"] == 2048
    assert info["max_total_num_tokens"] == info["internal_states"][0]["memory_usage"]["token_capacity"] > 100_000
    assert asked(SGLANG, "/model_info").json["served_model_name"] == "tiny"
    loads = asked(SGLANG, "/v1/loads").json["loads"]
    assert loads[0]["max_total_num_tokens"] == info["max_total_num_tokens"]
    assert asked(SGLANG, "/version").status == 404
    assert asked(SGLANG, "/ping").status == 200


def test_sglang_health_runs_a_generation_and_vllms_does_not():
    for spec, quick in ((VLLM, True), (SGLANG, False)):
        seen = asked(spec, "/health")
        assert (seen.status, seen.body) == (200, b"")
        assert (seen.head_at == seen.sent) == quick


@pytest.mark.parametrize("spec", [VLLM, SGLANG])
def test_tokenize_agrees_with_usage(spec):
    prompt = "words of a considerable length, and short ones"
    counted = asked(spec, "/tokenize", {"prompt": prompt}).json
    used = asked(spec, "/v1/completions", completion(prompt, 2)).usage
    assert counted["count"] == len(counted["tokens"]) == used["prompt_tokens"] == 9  # "considerable" is two
    assert counted["max_model_len"] == (2048 if spec.flavour == "vllm" else 131_072)
    messages = [{"role": "user", "content": [{"type": "text", "text": "a b"}]}]
    in_chat = asked(spec, "/tokenize", {"messages": messages}).json["count"]
    body = {"messages": messages, "max_tokens": 1, "ignore_eos": True}
    assert in_chat == asked(spec, "/v1/chat/completions", body).json["usage"]["prompt_tokens"] == 6
    assert asked(spec, "/tokenize", {"prompt": 3}).status == 400


def test_token_ids_are_taken_as_they_are():
    assert asked(VLLM, "/v1/completions", completion([11, 12, 13], 2)).usage["prompt_tokens"] == 3


# ---------------------------------------------------------------------------------------------------------------- HTTP


def test_keep_alive_pipelining_and_chunked_bodies():
    async def main():
        async with emulated(VLLM) as emulator:
            reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
            sized = request("/v1/completions", {"prompt": "a", "max_tokens": 1, "ignore_eos": True}, KEY)
            body = b'{"prompt":"a b","max_tokens":1,"ignore_eos":true}'
            head = f"POST /v1/completions HTTP/1.1\r\n{KEY[0]}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            parts = b"%x\r\n%b\r\n%x;x=1\r\n%b\r\n0\r\n\r\n" % (10, body[:10], len(body) - 10, body[10:])
            writer.write(sized + head + parts[:7])
            await asyncio.sleep(1)
            writer.write(parts[7:] + request("/version"))
            replies = []
            for _ in range(3):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                replies.append((head.split("\r\n")[0], await reader.readexactly(length)))
            writer.close()
            return replies

    replies = run_virtual(main())
    assert [line for line, _ in replies] == ["HTTP/1.1 200 OK"] * 3
    assert b'"prompt_tokens":1,' in replies[0][1]
    assert b'"prompt_tokens":2,' in replies[1][1]
    assert replies[2][1] == b'{"version":"0.32.0"}'


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"x" * 70_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # how a TLS client begins
    ],
)
def test_bad_requests_get_a_400_and_the_door(raw):
    async def main():
        async with emulated(VLLM) as emulator:
            reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
            writer.write(raw)
            reply = await reader.read()
            writer.close()
            return reply

    assert run_virtual(main()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_expect_continue_is_answered():
    async def main():
        async with emulated(VLLM) as emulator:
            reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
            writer.write(b"POST /tokenize HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 16\r\n\r\n")
            first = await reader.readuntil(b"\r\n\r\n")
            writer.write(b'{"prompt":"a b"}')
            second = await reader.readline()
            writer.close()
            return first, second

    assert run_virtual(main()) == (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_leaves_frees_its_slots():
    async def main():
        async with emulated(VLLM) as emulator:
            seen = await ask(emulator.port, "/v1/completions", completion("a b", 1500), KEY, patience=1.0)
            await asyncio.sleep(0.1)
            metrics = (await ask(emulator.port, "/metrics")).body.decode()
            return seen, emulator.record.requests[0], metrics

    seen, record, metrics = run_virtual(main())
    assert isinstance(seen, Seen)
    assert not seen.ended
    assert record.fault == "client left"
    assert 0 < record.output_tokens < 1500
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0' in metrics
    assert 'finished_reason="abort",model_name="tiny"} 1.0' in metrics
    assert 'vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 1.0' in metrics
    assert 'vllm:e2e_request_latency_seconds_count{engine="0",model_name="tiny"} 0.0' in metrics
