"""Each thing that can be wrong with an endpoint, and the exact line that says so; then the questions that follow."""

import asyncio
import contextlib
import socket
from dataclasses import replace

import pytest
from fake_endpoint import PEM, Asked, generation, raw, reply, serving, stream, tls_context

from auditor.errors import PreflightFailed
from auditor.measurement import Sample, Served
from auditor.probe import preflight
from auditor.probe.contact import Place, place_of
from auditor.probe.discover import discover
from auditor.probe.target import Deadlines, Target
from auditor.profile import Endpoint, Profile

MODELS = reply({"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "me"}]})
CHAT = "POST /v1/chat/completions"
GOOD = {"GET /v1/models": MODELS, CHAT: generation}
HTML = "<html><head><title>502 Bad\n Gateway</title></head><body>nginx</body></html>"
DEADLINES = Deadlines(connect=2, first_token=2, gap=2, total=4)


def audit(url: str, key: str | None = None, *, wait: float = 5.0, **endpoint) -> Served:
    profile = Profile(version=1, name="t", endpoint=Endpoint(url=url, **endpoint))
    return asyncio.run(discover(profile, key, deadlines=DEADLINES, wait=wait))


def on(answers, suffix: str = "/v1", key: str | None = None, *, tls=None, wait: float = 5.0, **endpoint):
    """Discover a fake server; (Served or the line of PreflightFailed, the server)."""

    async def run():
        async with serving(answers, tls) as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=fake.origin + suffix, **endpoint))
            try:
                return await discover(profile, key, deadlines=DEADLINES, wait=wait), fake
            except PreflightFailed as failure:
                return str(failure), fake

    return asyncio.run(run())


def said(answers, suffix: str = "/v1", key: str | None = None, **rest) -> str:
    """The line of the failure, with the server's address as HOST."""
    line, fake = on(answers, suffix, key, **rest)
    assert isinstance(line, str), "discovery went through"
    assert "\n" not in line
    return line.replace(fake.host, "HOST")


# ------------------------------------------------------------------------------------------------------------ address


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("127.0.0.1:8000/v1", "127.0.0.1:8000/v1 has no scheme; write http://127.0.0.1:8000/v1"),
        ("ftp://h/v1", "ftp://h/v1 is no http:// or https:// address; write http://HOST:PORT/v1"),
        ("http://h:99999/v1", "http://h:99999/v1 is no http:// or https:// address; write http://HOST:PORT/v1"),
        ("http://", "http:// is no http:// or https:// address; write http://HOST:PORT/v1"),
    ],
)
def test_an_address_that_cannot_be_an_api_root(url, line):
    with pytest.raises(PreflightFailed) as failure:
        audit(url)
    assert str(failure.value) == f"endpoint.url: {line}"


def test_addresses_that_can():
    assert place_of("http://h:8000/v1/").api == "http://h:8000/v1"
    assert place_of("http://h:8000/v1").root == "http://h:8000"
    assert place_of("https://gw/openai/v1").root == "https://gw/openai"
    assert place_of("https://gw/api/v3").root == "https://gw/api/v3"
    assert place_of("http://me:pass@h:1/v1") == Place(api="http://h:1/v1", root="http://h:1", host="h:1")
    for written in (
        "",
        "/",
        "/v1",
        "/v1/",
        "//v1",
        "/v1/v1/",
        "/v1/chat/completions",
        "/v1/completions/",
        "/v1/models",
    ):
        assert place_of(f"http://h:8000{written}").api == "http://h:8000/v1"
    assert place_of("http://h/chat/completions").api == "http://h"


def test_a_trailing_slash_does_no_harm():
    served, _ = on(GOOD, "/v1/")
    assert served.model == "tiny"


def test_a_missing_v1():
    assert on(GOOD, "")[0].model == "tiny"
    deep = {f"{method} /api{path}": answer for key, answer in GOOD.items() for method, path in [key.split()]}
    line = "endpoint.url: http://HOST/api lacks /v1; write http://HOST/api/v1"
    assert said(deep, "/api") == line
    behind_a_key = deep | {"GET /api/v1/models": reply({"error": "Unauthorized"}, 401)}
    assert said(behind_a_key, "/api") == line
    website = deep | {"GET /api/models": reply(HTML, 200, "text/html")}
    assert said(website, "/api") == line


def test_a_wrong_path():
    assert said(GOOD, "/api") == (
        "endpoint.url: no OpenAI API at http://HOST/api (GET /models: 404 (Not Found)); "
        "correct the address, or name endpoint.model if this gateway lists no models"
    )


# --------------------------------------------------------------------------------------------------------- connection


def free_port() -> int:
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_nothing_listens():
    port = free_port()
    with pytest.raises(PreflightFailed) as failure:
        audit(f"http://127.0.0.1:{port}/v1")
    assert str(failure.value) == (
        f"endpoint.url: nothing listens at 127.0.0.1:{port} (connection refused); "
        "start the server or correct the address"
    )


def test_a_host_that_does_not_exist():
    with pytest.raises(PreflightFailed) as failure:
        audit("http://no-such-host.invalid/v1")
    assert str(failure.value) == (
        "endpoint.url: the host name of no-such-host.invalid cannot be resolved; correct it or look at DNS"
    )


def test_a_certificate_that_is_not_trusted():
    assert said(GOOD, tls=tls_context()) == (
        "endpoint.url: the certificate of HOST is not trusted (self-signed certificate); name your CA's PEM file "
        "in endpoint.ca_file or the environment variable SSL_CERT_FILE, or set endpoint.verify_tls: false"
    )


def test_each_remedy_for_an_untrusted_certificate_works(monkeypatch):
    unchecked, _ = on(GOOD, tls=tls_context(), verify_tls=False)
    assert unchecked.model == "tiny"
    assert [line for line in unchecked.warnings if "nobody checked" in line]
    named, _ = on(GOOD, tls=tls_context(), ca_file=str(PEM))
    assert named.model == "tiny"
    assert not [line for line in named.warnings if "nobody checked" in line]
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    served, _ = on(GOOD, tls=tls_context())
    assert served.model == "tiny"
    assert not [line for line in served.warnings if "nobody checked" in line]
    assert served.round_trip is not None


def failing(server, scheme: str, wait: float = 5.0) -> str:
    """The line for a server that is asked with this scheme, whatever it speaks."""

    async def run():
        async with server as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=f"{scheme}://{fake.host}/v1"))
            with pytest.raises(PreflightFailed) as failure:
                await discover(profile, None, deadlines=DEADLINES, wait=wait)
            return str(failure.value).replace(fake.host, "HOST")

    return asyncio.run(run())


def test_plain_http_on_a_tls_port():
    line = failing(serving(GOOD, tls_context()), "http")
    assert line == "endpoint.url: HOST speaks TLS; write https:// instead of http://"


def test_nginx_words_for_plain_http_on_a_tls_port():
    page = "<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>"
    answers = {"GET /v1/models": reply(page, 400, "text/html")}
    assert said(answers) == "endpoint.url: HOST speaks TLS; write https:// instead of http://"


def test_tls_on_a_plain_http_port():
    expected = "endpoint.url: HOST does not speak TLS; write http:// instead of https://"
    refuses = reply({"detail": "Invalid HTTP request received."}, 400)
    assert failing(raw(refuses), "https") == expected
    assert failing(serving(GOOD), "https", wait=0.3) == expected  # waits for the end of what it takes for headers


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "endpoint.url: HOST closed the connection without an answer; is this an HTTP server?"),
        (b"+OK ready\r\n\r\n", "endpoint.url: HOST does not speak HTTP; correct the address"),
    ],
)
def test_what_is_no_http_server(data, line):
    assert failing(raw(data), "http") == line


def test_a_server_that_never_answers_ends_by_its_deadline():
    assert said({"GET /v1/models": None}, wait=0.2) == (
        "endpoint.url: GET /v1/models at HOST was not answered within 0.2 s; "
        "the server hangs or is still loading: look at its log"
    )


# ------------------------------------------------------------------------------------------------------------ answers


def test_keys():
    wants = {"GET /v1/models": reply({"error": "Unauthorized"}, 401)}
    assert said(wants) == (
        "endpoint.api_key_env: the server wants a key (401) and none is given; "
        "name the environment variable that holds it, such as api_key_env: LLM_API_KEY"
    )
    assert said(wants, key="sk-wrong-1", api_key_env="MY_KEY") == (
        "endpoint.api_key_env: the server refuses the key in MY_KEY (401); put the right key there"
    )
    forbidden = {"GET /v1/models": reply("", 403)}
    assert said(forbidden, headers={"Authorization": "Bearer secret-1"}) == (
        "endpoint.headers: the server refuses the credentials in them (403); put the right ones there"
    )


def test_the_key_is_sent_to_its_own_host_only():
    async def run():
        async with serving(GOOD) as fake, serving({"GET /metrics": reply("a 1\n", kind="text/plain")}) as other:
            metrics = other.origin.replace("127.0.0.1", "localhost") + "/metrics"
            endpoint = Endpoint(url=f"{fake.origin}/v1", api_key_env="K", metrics=metrics)
            await discover(Profile(version=1, name="t", endpoint=endpoint), "sk-mine-1", deadlines=DEADLINES)
            return fake, other

    fake, other = asyncio.run(run())
    assert {one.headers.get("authorization") for one in fake.asked} == {"Bearer sk-mine-1"}
    assert [one.headers.get("authorization") for one in other.asked] == [None]


def test_a_key_that_the_server_sends_back_is_not_shown():
    echo = {"GET /v1/models": reply({"error": {"message": "no access with sk-mine-123456"}}, 500)}
    line = said(echo, key="sk-mine-123456", api_key_env="K")
    assert "sk-mine" not in line
    assert line.startswith(
        "endpoint.url: GET /v1/models at HOST answered 500 Internal Server Error (no access with ***)"
    )


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            reply("", 302, headers=["location: https://elsewhere/v1/models"]),
            "GET /v1/models at HOST is redirected (302) to https://elsewhere/v1/models; write that address",
        ),
        (
            reply(HTML, 502, "text/html"),
            "GET /v1/models at HOST answered 502 Bad Gateway (502 Bad Gateway); "
            "the server, or what stands behind this gateway, is not ready: look at its log",
        ),
        (
            reply("<html><title>Welcome</title></html>", 200, "text/html"),
            "GET /v1/models at HOST answered with an HTML page (Welcome); "
            "this is a website or a gateway's page, not an OpenAI API: correct the address",
        ),
        (
            reply("", 200),
            "GET /v1/models at HOST answered with an empty body; "
            "this is a website or a gateway's page, not an OpenAI API: correct the address",
        ),
        (
            reply("fine", 200, "text/plain"),
            "GET /v1/models at HOST answered with no JSON (fine); "
            "this is a website or a gateway's page, not an OpenAI API: correct the address",
        ),
        (
            reply({"error": {"message": "slow down"}}, 429),
            "GET /v1/models at HOST answered 429, a rate limit; wait, or use a key with a larger quota",
        ),
        (
            reply({"error": {"message": "bad header"}}, 400),
            "GET /v1/models at HOST answered 400 Bad Request (bad header); correct the request",
        ),
    ],
)
def test_answers_that_are_no_model_list(answer, line):
    assert said({"GET /v1/models": answer}) == f"endpoint.url: {line}"


# -------------------------------------------------------------------------------------------------------------- model


def listing(*entries) -> dict:
    return GOOD | {"GET /v1/models": reply({"data": [{"owned_by": "vllm"} | entry for entry in entries]})}


def test_an_unknown_model_lists_what_is_served():
    assert said(listing({"id": "a"}, {"id": "b"}), model="c") == (
        "endpoint.model: the server has no model c; it serves a, b"
    )


def test_auto_takes_the_only_base_model():
    served, _ = on(listing({"id": "base"}, {"id": "adapter", "parent": "base"}))
    assert served.model == "base"
    assert said(listing({"id": "a"}, {"id": "b"})) == (
        "endpoint.model: auto leaves the choice open, the server has a, b; name one"
    )
    assert said(GOOD | {"GET /v1/models": reply({"data": []})}) == (
        "endpoint.model: the server lists no model; write the model's name"
    )


def test_an_alias_is_a_name():
    served, _ = on(listing({"id": "gemma", "aliases": ["g3"]}), model="g3")
    assert served.model == "g3"


def test_a_gateway_that_lists_nothing_takes_a_named_model():
    served, fake = on({CHAT: generation}, model="mine")
    assert served.model == "mine"
    assert fake.asked[-1].body["model"] == "mine"


def test_a_gateway_that_does_not_know_the_model():
    unknown = reply({"error": {"message": "The model `mine` does not exist"}}, 404)
    assert said({CHAT: unknown}, model="mine") == (
        "endpoint.model: the server has no model mine (HTTP 404: The model `mine` does not exist); correct the name"
    )


# -------------------------------------------------------------------------------------------------------- generations


def test_an_endpoint_as_it_should_be_costs_three_generations():
    served, fake = on(GOOD)
    assert [one for one in fake.paths("POST") if one.startswith("/v1")] == ["/v1/chat/completions"] * 3
    assert (served.spent_requests, served.spent_tokens) == (3, 16 + 17 + 1 + 74 + 1 + 266)
    assert served.api == "chat"
    assert served.streaming is served.usage is served.min_tokens is True
    assert served.ignore_eos is None
    assert served.max_tokens_field == "max_tokens"
    assert served.tokens_per_word == 1.0
    assert served.template_tokens == 10
    assert served.cached_tokens is False
    assert served.first_ttft > 0
    assert served.round_trip > 0
    bodies = [one.body for one in fake.asked if one.path.endswith("/completions")]
    assert [body["min_tokens"] for body in bodies] == [16, 1, 1]
    assert all(isinstance(body["messages"][0]["content"], str) for body in bodies)


def refusing(word: str, status: int = 400, message: str | None = None):
    """A server that refuses requests with this field, in OpenAI's words."""

    def answer(asked: Asked):
        if word in asked.body:
            text = message or f"Unsupported parameter: '{word}' is not supported"
            return reply({"error": {"message": text}}, status)
        return generation(asked)

    return {"GET /v1/models": MODELS, CHAT: answer}


def test_max_completion_tokens():
    text = "Unsupported parameter: 'max_tokens' is not supported, use 'max_completion_tokens' instead"
    served, _ = on(refusing("max_tokens", message=text))
    assert served.max_tokens_field == "max_completion_tokens"
    assert served.min_tokens is True


def test_a_field_that_is_ignored_is_replaced_too():
    def answer(asked: Asked):
        return generation(asked, tokens=asked.body.get("max_completion_tokens", 40))

    served, _ = on({"GET /v1/models": MODELS, CHAT: answer})
    assert served.max_tokens_field == "max_completion_tokens"


def test_replies_that_nothing_limits():
    assert said({"GET /v1/models": MODELS, CHAT: lambda asked: generation(asked, tokens=40)}) == (
        "endpoint: neither max_tokens nor max_completion_tokens limits the reply; "
        "a load of known length cannot be made: look at what the gateway drops from requests"
    )


def test_ignore_eos_where_min_tokens_is_refused():
    served, fake = on(refusing("min_tokens"))
    assert (served.min_tokens, served.ignore_eos) == (False, True)
    assert fake.asked[-1].body["ignore_eos"] is True


def short_unless(word: str | None):
    """Replies end after two tokens unless `word` is in the request."""

    def answer(asked: Asked):
        return generation(asked, tokens=None if word and word in asked.body else min(2, asked.body["max_tokens"]))

    return {"GET /v1/models": MODELS, CHAT: answer}


def test_ignore_eos_where_min_tokens_has_no_effect():
    served, _ = on(short_unless("ignore_eos"))
    assert (served.min_tokens, served.ignore_eos) == (False, True)


def test_lengths_that_cannot_be_forced():
    served, fake = on(short_unless(None))
    assert (served.min_tokens, served.ignore_eos) == (False, False)
    assert any("neither min_tokens nor ignore_eos" in warning for warning in served.warnings)
    assert not {"min_tokens", "ignore_eos"} & fake.asked[-1].body.keys()


def test_usage_that_is_refused_or_never_sent():
    for answers in (
        refusing("stream_options"),
        {"GET /v1/models": MODELS, CHAT: lambda asked: generation(asked, usage=False)},
    ):
        served, _ = on(answers)
        assert served.usage is False
        assert served.tokens_per_word is None
        assert any("sends no usage" in warning for warning in served.warnings)


def test_counts_that_do_not_follow_the_prompt():
    line = said({"GET /v1/models": MODELS, CHAT: lambda asked: generation(asked, prompt_tokens=7)})
    assert line == (
        "prompt lengths: the server's usage.prompt_tokens does not follow the prompt (7 for 64 words, 7 for 256 words)"
    )


@pytest.mark.parametrize(
    "refusal",
    [
        reply({"detail": "Not Found"}, 404),
        reply({"error": {"message": "default chat template is no longer allowed, provide a chat template"}}, 400),
    ],
)
def test_completions_where_chat_does_not_work(refusal):
    answers = {"GET /v1/models": MODELS, CHAT: refusal, "POST /v1/completions": generation}
    served, fake = on(answers)
    assert served.api == "completions"
    assert isinstance(fake.asked[-1].body["prompt"], str)
    assert said(answers, api="chat").startswith("endpoint")


def test_neither_chat_nor_completions():
    assert said({"GET /v1/models": MODELS}) == (
        "endpoint.url: POST /completions does not exist at http://HOST/v1 (404); correct the address or endpoint.api"
    )


def test_no_streaming():
    whole = reply({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {}})
    line = said({"GET /v1/models": MODELS, CHAT: whole})
    assert line.startswith(
        "endpoint: POST /chat/completions: the reply came as one document though a stream was asked for, so TTFT and "
        "TPS cannot be measured; switch streaming on in the gateway or the engine"
    )


def test_a_stream_with_an_error_in_it():
    broken = stream([{"error": {"message": "engine is dead", "code": 500}}])
    assert said({"GET /v1/models": MODELS, CHAT: broken}) == (
        "endpoint: POST /chat/completions failed: in_stream (500: engine is dead); look at the server's log"
    )


def test_a_failure_that_passes_does_not_end_the_audit():
    replies = iter([stream([{"error": {"message": "try again", "code": 503}}]), reply("", 503)])
    served, fake = on({"GET /v1/models": MODELS, CHAT: lambda asked: next(replies, None) or generation(asked)})
    assert served.min_tokens is True
    assert [one for one in fake.paths("POST") if one.startswith("/v1")] == ["/v1/chat/completions"] * 5


def test_a_generation_that_never_comes():
    answers = {"GET /v1/models": MODELS, CHAT: None}

    async def run():
        async with serving(answers) as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=f"{fake.origin}/v1"))
            deadlines = replace(DEADLINES, first_token=0.3)
            with pytest.raises(PreflightFailed) as failure:
                await discover(profile, None, deadlines=deadlines)
            return str(failure.value)

    assert asyncio.run(run()) == (
        "endpoint: POST /chat/completions brought no token within 0.3 s; "
        "the engine hangs, or is busy or loading: look at its log and try again"
    )


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            reply({"error": "Unauthorized"}, 401),
            "endpoint.api_key_env: the server refuses the key for generations (401); use one that may",
        ),
        (
            reply({"error": {"message": "quota"}}, 429),
            "endpoint: POST /chat/completions answered 429 (HTTP 429: quota); "
            "a rate limit leaves no room for a load: raise the key's quota",
        ),
        (
            reply(HTML, 502, "text/html"),
            "endpoint: POST /chat/completions failed: http_5xx (HTTP 502: 502 Bad Gateway); look at the server's log",
        ),
        (
            reply({"error": {"message": "no"}}, 400),
            "endpoint: POST /chat/completions failed: http_4xx (HTTP 400: no); look at the server's log",
        ),
    ],
)
def test_generations_that_fail(answer, line):
    assert said({"GET /v1/models": MODELS, CHAT: answer}) == line


def test_a_compressed_body_that_is_none():
    answer = reply("no gzip", headers=["content-encoding: gzip"])
    assert said({"GET /v1/models": answer}) == (
        "endpoint.url: HOST sends a compressed body that cannot be unpacked; look at the gateway"
    )


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        ({"error": "timeout"}, "no token within 2 s"),
        ({"error": "timeout", "ttft": 0.1}, "tokens but no end within 4 s"),
        ({"error": "stalled", "ttft": 0.1}, "no further token within 2 s"),
    ],
)
def test_which_wait_was_too_long(seen, line):
    asked = {"asked_prompt_tokens": 0, "asked_output_tokens": 16}
    sample = Sample(load="preflight", index=0, cls="x", start=0.0, **asked, **seen)
    why = preflight._why(sample, Target(url="http://127.0.0.1:1/v1", model="m"), DEADLINES)
    assert why.startswith(f"endpoint: POST /chat/completions brought {line}; the engine hangs, or is busy or loading")


def test_a_key_that_is_named_but_not_there():
    answers = {"GET /v1/models": reply({"error": "Unauthorized"}, 401)}
    assert said(answers, api_key_env="LLM_API_KEY") == (
        "endpoint.api_key_env: the server wants a key (401) and there is none in LLM_API_KEY; put it there"
    )
