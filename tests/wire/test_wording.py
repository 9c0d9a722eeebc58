"""Lengths of own texts and of pictures, by the count of a scripted server, on the virtual clock."""

import json
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.errors import PreflightFailed
from auditor.loads import Load, Plan, Shape
from auditor.measurement import Served
from auditor.probe.target import Target
from auditor.probe.wording import Wording, wording
from tests.wire.byteserver import ByteServer, Request, Script, head, tokens

TEXTS = ("antidisestablishmentarianism is long",)


def count(request: Request) -> int:
    """Ten tokens of template, one for each six letters of a word begun, 300 for a picture."""
    [message] = json.loads(request.body)["messages"]
    parts = (
        message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": message["content"]}]
    )
    words = [word for part in parts if part["type"] == "text" for word in part["text"].split()]
    return 10 + sum(-(-len(word) // 6) for word in words) + 300 * sum(part["type"] == "image_url" for part in parts)


def made(script: Any, plan: Plan, api: str = "chat", texts: tuple[str, ...] = ()) -> tuple[Wording, int]:
    """The wording, and how many requests it took."""

    async def run() -> tuple[Wording, int]:
        async with ByteServer(script) as server:
            target = Target(url=server.url, model="m", api=api)  # type: ignore[arg-type]
            served = Served(engine="vllm", api="chat", tokens_per_word=1.0, template_tokens=10, max_model_len=8192)
            return await wording(target, served, plan, texts), len(server.requests)

    return run_virtual(run())


def answer(request: Request, _: int) -> Script:
    return tokens(1, prompt=count(request))


def plan(*shapes: Shape) -> Plan:
    load = Load(id="slo", purpose="slo", concurrency=1, shapes=shapes)
    return Plan(loads=(load,), requests=0, tokens=0, seconds=0, seed=3)


PLAIN = Shape(cls="a", prompt_tokens=500, output_tokens=1)
SEEN = Shape(cls="a", prompt_tokens=1000, output_tokens=1, images=((640, 480), (640, 480)))


def test_words_are_counted_already() -> None:
    got, requests = made(answer, plan(PLAIN))
    assert (requests, got.spent_tokens) == (0, 0)
    assert len(got.prompts.make(PLAIN, 0, "slo").split()) == 490


def test_own_texts_are_counted_on_themselves() -> None:
    """Of three words with 28, 2 and 4 letters: 5 + 1 + 1 tokens."""
    got, requests = made(answer, plan(PLAIN), texts=TEXTS)
    assert requests == 2
    assert got.prompts.tokens_per_word == pytest.approx(7 / 3, rel=0.01)
    assert got.prompts.template_tokens == pytest.approx(10 - 16 * 4 / 3, abs=3)  # sixteen words of one token begin it
    text = got.prompts.make(PLAIN, 0, "slo")
    made_tokens = 10 + sum(-(-len(word) // 6) for word in text.split())
    assert made_tokens == pytest.approx(500, rel=0.02)
    assert got.spent_tokens > 0


def test_a_picture_takes_what_the_server_counts_beyond_the_words() -> None:
    got, requests = made(answer, plan(SEEN, SEEN))
    assert requests == 1
    assert got.prompts.picture_tokens == {(640, 480): 300}
    assert len(got.prompts.message(SEEN, 0, "slo").text.split()) == 1000 - 10 - 600
    assert got.spent_tokens == 10 + 64 + 300 + 1


def test_an_endpoint_that_takes_no_pictures_is_not_loaded() -> None:
    refusal = [(0.0, head("400 Bad Request", framing="content-length: 4") + b"nope")]
    with pytest.raises(PreflightFailed, match=r"takes no picture of 640 x 480 pixels: HTTP 400: nope"):
        made(refusal, plan(SEEN))
    with pytest.raises(PreflightFailed, match="chat API only"):
        made(answer, plan(SEEN), api="completions")
