"""Tokens counted by the server without a generation: what each kind of /tokenize is asked, and what it is worth."""

import asyncio

import pytest
from fake_endpoint import Asked, generation, reply, serving

from auditor.probe import counting
from auditor.probe.contact import connect, place_of
from auditor.probe.counting import Counted, counted
from auditor.probe.discover import discover
from auditor.probe.target import Deadlines
from auditor.profile import Endpoint, Profile

MODELS = {"GET /v1/models": reply({"data": [{"id": "tiny", "owned_by": "me"}]})}


def words(text: str) -> int:
    return len(text.split())


def vllm(asked: Asked) -> bytes:
    """Two tokens a word; a template of 9 tokens; 3 for the start of a bare prompt."""
    body = asked.body
    if "messages" in body:
        assert body["add_generation_prompt"] is True
        return reply({"count": 2 * words(body["messages"][0]["content"]) + 9, "tokens": [], "max_model_len": 4096})
    if "prompt" in body:
        return reply({"count": 2 * words(body["prompt"]) + 3, "tokens": [], "max_model_len": 4096})
    return reply({"detail": "no prompt"}, 422)


def templateless(asked: Asked) -> bytes:
    return reply({"error": "no chat template"}, 400) if "messages" in asked.body else vllm(asked)


def llamacpp(asked: Asked) -> bytes:
    """Takes `content` alone, and answers with an empty list to whatever else."""
    return reply({"tokens": [7] * words(asked.body.get("content", ""))})


def template(asked: Asked) -> bytes:
    return reply({"prompt": f"<user> {asked.body['messages'][0]['content']} <model>"})


def ask(answers, apis=("chat", "completions"), key: str | None = None):
    async def run():
        async with serving(answers) as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=fake.origin + "/v1"))
            contact = connect(place_of(profile.endpoint.url), profile, key)
            try:
                return await counted(contact, "tiny", apis), fake
            finally:
                await contact.client.aclose()

    return asyncio.run(run())


def test_vllm_counts_a_chat_with_its_template():
    found, fake = ask({"POST /tokenize": vllm})
    assert found == Counted(2.0, 9, "chat", "min_tokens")
    assert fake.paths("POST") == ["/tokenize"] * 2
    assert all(one.body["model"] == "tiny" for one in fake.asked)


def test_a_server_without_a_chat_template_counts_prompts():
    assert ask({"POST /tokenize": templateless})[0] == Counted(2.0, 3, "completions", "min_tokens")


def test_only_the_api_that_is_wanted_is_counted():
    assert ask({"POST /tokenize": vllm}, ("completions",))[0] == Counted(2.0, 3, "completions", "min_tokens")
    assert ask({"POST /tokenize": templateless}, ("chat",))[0] is None


def test_llamacpp_counts_what_its_template_makes_of_a_chat():
    found, _ = ask({"POST /tokenize": llamacpp, "POST /apply-template": template})
    assert found == Counted(1.0, 2, "chat", "ignore_eos")
    assert ask({"POST /tokenize": llamacpp}, ("completions",))[0] == Counted(1.0, 0, "completions", "ignore_eos")


@pytest.mark.parametrize(
    "answer",
    [
        reply({"detail": "Not Found"}, 404),
        reply("<html>a gateway</html>", kind="text/html"),
        reply([1, 2, 3]),
        reply({"count": "many"}),
        reply({"count": True}),
        reply({"count": -5}),
        reply({"count": 12}),  # whatever the text
        b"nonsense",
    ],
)
def test_what_counts_nothing_is_no_count(answer):
    assert ask({"POST /tokenize": answer})[0] is None


def test_a_server_that_is_silent_costs_a_moment_only(monkeypatch):
    monkeypatch.setattr(counting, "_WAIT", 0.2)
    assert ask({"POST /tokenize": None})[0] is None


def test_the_key_goes_along():
    _, fake = ask({"POST /tokenize": vllm}, key="sesame")
    assert {one.headers["authorization"] for one in fake.asked} == {"Bearer sesame"}


def test_an_audit_s_preflight_spares_the_server_two_generations():
    answers = {**MODELS, "POST /v1/chat/completions": generation, "POST /tokenize": vllm}

    async def run():
        async with serving(answers) as fake:
            profile = Profile(version=1, name="t", endpoint=Endpoint(url=fake.origin + "/v1"))
            return await discover(profile, None, deadlines=Deadlines()), fake

    served, fake = asyncio.run(run())
    assert fake.paths("POST").count("/v1/chat/completions") == 1
    assert (served.tokens_per_word, served.template_tokens) == (2.0, 9)
    assert (served.spent_requests, served.spent_tokens) == (1, 16 + 17)
