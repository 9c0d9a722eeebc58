"""How many tokens a prompt has by the server's own count, without generating anything: POST /tokenize.

    vLLM, SGLang    {"model", "messages" or "prompt"}                        -> {"count": n}
    llama.cpp       {"content"}, after POST /apply-template for a chat        -> {"tokens": [...]}

Two texts of known numbers of words are enough to turn words into tokens and to tell a template (`prompts.calibrate`).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from auditor.errors import PreflightFailed
from auditor.probe.contact import Contact
from auditor.probe.prompts import CYCLE, calibrate, filler

__all__ = ["Counted", "counted", "cycles"]

Api = Literal["chat", "completions"]
Force = Literal["min_tokens", "ignore_eos"]
_WAIT = 5.0  # seconds for all counts: they are small, and there is another way
Count = Callable[[Contact, str, Api, str], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Counted:
    """What /tokenize told: tokens of a word and of the template, the API whose prompts it counts, and how servers of
    this kind are made to give replies of a fixed length.
    """

    tokens_per_word: float
    template_tokens: int
    api: Api
    force: Force


async def counted(contact: Contact, model: str, apis: tuple[Api, ...], context: int | None = None) -> Counted | None:
    """The lengths of words on this server, by the first of `apis` that it counts; None where it counts nothing."""
    try:
        async with asyncio.timeout(_WAIT):
            return await _counted(contact, model, apis, context)
    except TimeoutError:
        return None


async def _counted(contact: Contact, model: str, apis: tuple[Api, ...], context: int | None) -> Counted | None:
    ways: tuple[tuple[Count, Force], ...] = ((_by_count, "min_tokens"), (_by_tokens, "ignore_eos"))
    for count, force in ways:
        for api in apis:
            pairs = await _pairs(count, contact, model, api, context)
            if pairs is None:
                continue
            try:
                slope, template = calibrate(pairs)
            except PreflightFailed:  # it answers, but not with the tokens of the text
                continue
            return Counted(slope, template, api, force)
    return None


def cycles(context: int | None) -> tuple[int, int]:
    """How many full cycles of words the two texts have, so that both fit into the context."""
    return (1, 2) if context is not None and context < 8 * CYCLE else (1, 4)


async def _pairs(
    count: Count, contact: Contact, model: str, api: Api, context: int | None
) -> list[tuple[int, int]] | None:
    pairs = []
    for number in cycles(context):
        words = number * CYCLE
        tokens = await count(contact, model, api, filler(words, secrets.token_hex(8)))
        if tokens is None:
            return None
        pairs.append((words, tokens))
    return pairs


async def _by_count(contact: Contact, model: str, api: Api, text: str) -> int | None:
    """vLLM and those that follow it: the server applies the chat template itself."""
    body: dict[str, Any] = {"model": model}
    if api == "chat":
        body |= {"messages": _messages(text), "add_generation_prompt": True}
    else:
        body["prompt"] = text
    return _whole((await _post(contact, "/tokenize", body)).get("count"))


async def _by_tokens(contact: Contact, _: str, api: Api, text: str) -> int | None:
    """llama.cpp: a chat is turned into its prompt first."""
    if api == "chat":
        text = (await _post(contact, "/apply-template", {"messages": _messages(text)})).get("prompt", "")
        if not isinstance(text, str) or not text:
            return None
    body = {"content": text, "add_special": True, "parse_special": True}
    tokens = (await _post(contact, "/tokenize", body)).get("tokens")
    return len(tokens) or None if isinstance(tokens, list) else None


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def _post(contact: Contact, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON object that a path answers with; empty where it does not exist or answers with anything else."""
    reply = await contact.post(path, body)
    return reply.json if reply is not None and reply.status == 200 and isinstance(reply.json, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
