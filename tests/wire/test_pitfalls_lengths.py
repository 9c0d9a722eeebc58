"""Pitfalls of lengths and prompts: replies shorter than asked, prompts of another length, prompts in a cache."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.preflight import preflight
from auditor.probe.prompts import Prompts
from auditor.probe.target import Target
from tests.wire import naive
from tests.wire.benches import audited, bench_row, gate
from tests.wire.byteserver import ByteServer, Request, Script, head
from tests.wire.pitfalls import WAITS, Row, check, delta, ended, finish, plain, usage


def _words(request: Request) -> list[str]:
    content: str = json.loads(request.body)["messages"][0]["content"]
    return content.split()


def _reply(first: float, output: int, prompt: int, **more: Any) -> Script:
    return plain(first, 0.01, output, finish("length") + usage(output, prompt, **more))


class Cache:
    """Answers a prompt whose first words it has seen from its cache."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, ...]] = set()

    def __call__(self, request: Request, _number: int) -> Script:
        words = _words(request)
        start = tuple(words[:8])
        known, count = start in self.seen, len(words)
        self.seen.add(start)
        held = {"prompt_tokens_details": {"cached_tokens": count if known else 0}}
        return _reply(0.005 if known else 0.1, 4, count, **held)


async def _runs(server: ByteServer, times: int) -> list[Measurement]:
    """The same load again and again, as a user starts the program again with the same seed."""
    load = Load(
        id="slo",
        purpose="slo",
        concurrency=4,
        shapes=(Shape(cls="chat", prompt_tokens=64, output_tokens=4),) * 40,
    )
    target = Target(url=server.url, model="m")
    return [await LocalSource(target, Prompts(0, 1.0, 0), WAITS).run(load) for _ in range(times)]


def _twice_ours() -> Mapping[str, Any]:
    async def run() -> list[Measurement]:
        async with ByteServer(Cache()) as server:
            return await _runs(server, 2)

    return audited(run_virtual(run())[-1])


def _twice_naive() -> Mapping[str, Any]:
    async def run() -> list[naive.Answer]:
        async with ByteServer(Cache()) as server:
            await naive.bench(server.url, requests=40, concurrency=4)
            return (await naive.bench(server.url, requests=40, concurrency=4))[0]

    return gate(run_virtual(run()))


def _calibrated() -> Mapping[str, Any]:
    """Prompts for a server that counts 0.58 tokens a word, and 10 for its template."""

    def count(request: Request) -> int:
        return 10 + round(0.58 * len(_words(request)))

    async def run() -> Mapping[str, Any]:
        def script(request: Request, _number: int) -> Script:
            return _reply(0.1, json.loads(request.body)["max_tokens"], count(request))

        async with ByteServer(script) as server:
            found = await preflight(Target(url=server.url, model="m"), WAITS, any_api=False, context=None)
            prompts = Prompts(0, found.tokens_per_word or 0, found.template_tokens)
            source = LocalSource(found.target, prompts, WAITS)
            shape = Shape(cls="chat", prompt_tokens=1000, output_tokens=4)
            got = await source.run(Load(id="slo", purpose="slo", concurrency=1, shapes=(shape,) * 3))
            return {"right": max(abs((s.prompt_tokens or 0) - 1000) for s in got.samples) <= 10}

    return run_virtual(run())


ROWS: list[Row] = [
    bench_row(
        "replies end early: the load is not what was asked for",
        "https://github.com/vllm-project/vllm/issues/18687",
        plain(0.1, 0.01, 6, finish("stop") + usage(6)),
        output=64,
        requests=60,
        concurrency=10,
        T502="inconclusive",
        verdict="inconclusive",
    ),
    bench_row(
        "replies are cut at the context and say that their length was reached",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/17249",
        plain(0.1, 0.01, 10, finish("length") + usage(10)),
        output=40,
        requests=60,
        concurrency=10,
        T502="inconclusive",
        verdict="inconclusive",
    ),
    bench_row(
        "the server counts 0.58 of the prompt that was meant",
        "https://github.com/vllm-project/vllm/pull/24937",
        _reply(0.1, 4, 58),
        load={"shapes": (Shape(cls="chat", prompt_tokens=100, output_tokens=4),) * 60},
        requests=60,
        concurrency=10,
        T502="inconclusive",
        verdict="inconclusive",
    ),
    Row(
        name="prompts of a length that the server counts, whatever its tokenizer",
        source="https://github.com/vllm-project/vllm/issues/10847",
        want={"right": True},
        ours=_calibrated,
        naive=lambda: {"right": abs(len(naive.PROMPT.split()) - 1000) <= 10},
    ),
    Row(
        name="a second run meets no prompt of the first in the cache",
        source="https://github.com/vllm-project/vllm/issues/54227",
        want={"p50": 0.1, "p95": 0.1, "T501": "pass"},
        ours=_twice_ours,
        naive=_twice_naive,
    ),
    bench_row(
        "most of each prompt came from a cache",
        "https://github.com/raullenchai/Rapid-MLX/issues/1641",
        _reply(0.005, 4, 7000, prompt_tokens_details={"cached_tokens": 6300}),
        load={"shapes": (Shape(cls="chat", prompt_tokens=7000, output_tokens=4),) * 60},
        requests=60,
        concurrency=10,
        T501="inconclusive",
        verdict="inconclusive",
    ),
    bench_row(
        "faster than memory can be read: padding counted as tokens",
        "https://github.com/premAI-io/benchmarks/issues/187",
        [(0.1, head() + delta(content="x")), *[(0.05, delta(content="x"))] * 19, (0.0, ended(512, "length"))],
        output=512,
        requests=20,
        concurrency=1,
        floor=100.0,
        T506="inconclusive",
        W111="inconclusive",
    ),
    bench_row(
        "longer than the context: refused, not left out",
        "https://github.com/tenstorrent/tt-inference-server/issues/213",
        lambda request, number: _too_long() if number % 4 == 0 else plain(0.1, 0.01, 4),
        requests=60,
        concurrency=10,
        sent=60,
        failed=15,
        verdict="fail",
    ),
]


def _too_long() -> Script:
    said = b'{"object":"error","message":"The prompt has 5000 tokens, the model takes 4096","code":400}'
    return [(0.001, head("400 Bad Request", framing=f"content-length: {len(said)}") + said)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_lengths_are_those_that_the_server_counts(row: Row) -> None:
    check(row)
