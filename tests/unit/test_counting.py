"""Tokens counted by the server without a generation: what each kind of /tokenize is asked, and what it is worth."""

import asyncio
import json

import pytest
from fake_endpoint import Asked, generation, reply, serving

from auditor.loads import Shape
from auditor.probe import counting
from auditor.probe.contact import connect, place_of
from auditor.probe.counting import Counted, counted
from auditor.probe.discover import discover
from auditor.probe.prompts import Prompts
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
    assert set(fake.paths("POST")) == {"/tokenize"}
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


def uneven(asked: Asked) -> bytes:
    """Words of up to three letters have one token, others two; a template of 9."""
    text = asked.body["messages"][0]["content"] if "messages" in asked.body else asked.body["prompt"]
    return reply({"count": sum(1 if len(word) <= 3 else 2 for word in text.split()) + 9})


def test_words_of_one_token_make_lengths_exact():
    found, fake = ask({"POST /tokenize": uneven})
    assert (found.tokens_per_word, found.template_tokens) == (1.0, 9)
    assert len(found.words) >= 16
    assert all(len(word) <= 3 for word in found.words)
    prompts = Prompts(0, found.tokens_per_word, found.template_tokens, vocabulary=found.words)
    for tokens in (10, 50, 131, 1000):
        text = prompts.make(Shape(cls="c", prompt_tokens=tokens, output_tokens=1), 0, "l")
        asked = Asked("POST", "/tokenize", {}, {"prompt": text})
        assert json.loads(uneven(asked).partition(b"\r\n\r\n")[2])["count"] == tokens
    assert len(fake.paths("POST")) == 2 + 64 + 2


def long(asked: Asked) -> bytes:
    """No word has one token: three letters are two, four are three, all others five; a template of 9."""
    sizes = (min(len(word) - 1, 5) if 2 < len(word) < 5 else 5 for word in asked.body["messages"][0]["content"].split())
    return reply({"count": sum(sizes) + 9})


def test_words_of_several_tokens_are_alike_too():
    found, _ = ask({"POST /tokenize": long})
    assert (found.tokens_per_word, found.template_tokens) == (2.0, 9)
    assert {len(word) for word in found.words} == {3}


def test_where_all_words_differ_the_mean_counts():
    def each(asked: Asked) -> bytes:
        """A word's tokens are its place in the alphabet and its length."""
        text = asked.body["messages"][0]["content"]
        return reply({"count": sum(ord(word[0]) + 40 * len(word) for word in text.split())})

    found, _ = ask({"POST /tokenize": each})
    assert found.words == ()
    assert found.tokens_per_word > 100


def test_a_server_too_slow_for_single_words_still_counts(monkeypatch):
    calls = iter([1, 1])
    monkeypatch.setattr(counting, "_WAIT", 0.5)
    found, _ = ask({"POST /tokenize": lambda asked: uneven(asked) if next(calls, None) else None})
    assert found.words == ()
    assert 1.0 < found.tokens_per_word < 2.0


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
