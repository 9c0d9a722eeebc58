"""A benchmark as one first writes it, kept to show that the pitfalls are real: httpx, lines, a chunk is a token.

It follows the documentation of its libraries and works on a well-behaved server. It times a token when a line with
content was parsed, takes each such line for one token, keeps the requests that did not raise, and compares a percentile
with the limit. Nothing in the product uses it.
"""

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

__all__ = ["Answer", "ask", "bench", "dependable", "exit_code", "percentile", "summary"]

PROMPT = "Write a story."


@dataclass(frozen=True, slots=True)
class Answer:
    """What it keeps of one reply, seconds since it began to send."""

    times: tuple[float, ...]
    e2e: float
    prompt_tokens: int

    @property
    def ttft(self) -> float:
        return self.times[0]

    @property
    def tokens(self) -> int:
        return len(self.times)

    @property
    def tpot(self) -> float:
        return (self.e2e - self.ttft) / (self.tokens - 1)

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip((0.0, *self.times), self.times, strict=False)]


async def ask(client: httpx.AsyncClient, url: str, model: str, output_tokens: int) -> Answer:
    """One streamed chat; raises whatever httpx or the reading of a line raises."""
    now = asyncio.get_running_loop().time
    body = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": output_tokens,
        "stream": True,
    }
    begun, times = now(), []
    async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                break
            for choice in json.loads(data).get("choices", ()):
                if choice["delta"].get("content"):
                    times.append(now() - begun)
    return Answer(tuple(times), now() - begun, len(PROMPT.split()))


async def bench(
    url: str,
    *,
    requests: int,
    concurrency: int,
    output_tokens: int = 4,
    model: str = "m",
    verify: ssl.SSLContext | None = None,
) -> tuple[list[Answer], int]:
    """The replies that worked, and how many requests were sent: all at once through one client and a semaphore.

    The certificates of a CA bundle take longer to load than the tests take: an empty `verify` stands for them.
    """
    gate = asyncio.Semaphore(concurrency)
    answers: list[Answer] = []
    async with httpx.AsyncClient(verify=verify or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client:

        async def one() -> None:
            async with gate:
                try:
                    answers.append(await ask(client, url, model, output_tokens))
                except Exception:
                    return

        await asyncio.gather(*(one() for _ in range(requests)))
    return answers, requests


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile of what there is, however little."""
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """The table that it prints."""
    ttft = [a.ttft for a in answers]
    return {
        "requests": len(answers),
        "ttft_mean": sum(ttft) / len(ttft),
        "ttft_p50": percentile(ttft, 0.5),
        "ttft_p95": percentile(ttft, 0.95),
        "attained": 1.0,
        "tokens": sum(a.tokens for a in answers),
    }


def dependable(answers: Sequence[Answer], limit: float) -> str:
    """Its gate: the percentile of the replies that worked against the limit."""
    return "pass" if percentile([a.ttft for a in answers], 0.95) <= limit else "fail"


def exit_code(_answers: Sequence[Answer]) -> int:
    """What its program ends with once the table is printed."""
    return 0
