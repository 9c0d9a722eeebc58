"""How many tokens a prompt has by the server's own count, without generating anything: POST /tokenize.

    vLLM, SGLang    {"model", "messages" or "prompt"}                        -> {"count": n}
    llama.cpp       {"content"}, after POST /apply-template for a chat        -> {"tokens": [...]}

Two texts of known numbers of words are enough to turn words into tokens and to tell a template (`prompts.calibrate`).
Where words differ, the lengths of single ones are asked too, so that alike ones alone are used and lengths are exact.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from auditor.errors import PreflightFailed
from auditor.probe.contact import Contact
from auditor.probe.prompts import CYCLE, LEAST_WORDS, WORDS, calibrate, filler
from auditor.probe.target import Api, Force

__all__ = ["Counted", "counted", "cycles"]

Count = Callable[[str], Awaitable[int | None]]
Way = Callable[[Contact, str, Api, str], Awaitable[int | None]]

_WAIT = 5.0  # seconds for counts: they are small, and there is another way
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """What /tokenize told: tokens of a word and of the template, the API whose prompts it counts, and how servers of
    this kind are made to give replies of a fixed length. `words` are some that all have that many tokens, where others
    have more or fewer.
    """

    tokens_per_word: float
    template_tokens: int
    api: Api
    force: Force
    words: tuple[str, ...] = ()


async def counted(contact: Contact, model: str, apis: tuple[Api, ...], context: int | None = None) -> Counted | None:
    """The lengths of words on this server, by the first of `apis` that it counts; None where it counts nothing."""
    try:
        async with asyncio.timeout(_WAIT):
            known = await _first(contact, model, apis, cycles(context))
    except TimeoutError:
        return None
    return known and await _exact(*known, cycles(context))


async def _first(
    contact: Contact, model: str, apis: tuple[Api, ...], lengths: tuple[int, int]
) -> tuple[Count, Counted] | None:
    """The first way to count that works, and what it gives."""
    ways: tuple[tuple[Way, Force], ...] = ((_by_count, "min_tokens"), (_by_tokens, "ignore_eos"))
    for way, force in ways:
        for api in apis:
            count = partial(way, contact, model, api)
            if (line := await _line(count, WORDS, lengths)) is not None:
                return count, Counted(*line, api, force)
    return None


def cycles(context: int | None) -> tuple[int, int]:
    """How many full cycles of words the two texts have, so that both fit into the context."""
    return (1, 2) if context is not None and context < 8 * CYCLE else (1, 4)


async def _line(count: Count, vocabulary: Sequence[str], lengths: Sequence[int]) -> tuple[float, int] | None:
    """Tokens of a word of this vocabulary and of the template; None where the server does not count them."""
    pairs = []
    for number in lengths:
        words = number * len(vocabulary)
        tokens = await count(filler(words, secrets.token_hex(8), vocabulary))
        if tokens is None:
            return None
        pairs.append((words, tokens))
    try:
        return calibrate(pairs)
    except PreflightFailed:  # it answers, but not with the tokens of the text
        return None


async def _exact(count: Count, found: Counted, lengths: tuple[int, int]) -> Counted:
    """What was found, with words of one length alone where they differ: the shortest of which there are enough."""
    if found.tokens_per_word == 1.0:
        return found
    turns = asyncio.Semaphore(_AT_ONCE)

    async def size(word: str) -> int | None:
        """Tokens of the word at the beginning and after another one, and of the template."""
        async with turns:
            return await count(f"{word} {word}")

    try:
        async with asyncio.timeout(_WAIT):
            words = _alike(await asyncio.gather(*map(size, WORDS)))
            line = await _line(count, words, lengths) if words else None
    except TimeoutError:
        return found
    if line is None or not line[0].is_integer() or len(words) == len(WORDS):
        return found
    return replace(found, tokens_per_word=line[0], template_tokens=line[1], words=words)


def _alike(sizes: Sequence[int | None]) -> tuple[str, ...]:
    """The words of the smallest size that enough of them have; none where all differ."""
    for wanted in sorted({size for size in sizes if size is not None}):
        words = tuple(word for word, size in zip(WORDS, sizes, strict=True) if size == wanted)
        if len(words) >= LEAST_WORDS:
            return words
    return ()


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
