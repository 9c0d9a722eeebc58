"""Conversations and slow starts against scripted bytes, on the virtual clock."""

import json
from typing import Any

import pytest

from auditor.emulator.clock import run_virtual
from auditor.loads import Load, Shape
from auditor.measurement import Measurement
from auditor.probe.load import LocalSource
from auditor.probe.prompts import Prompts
from auditor.probe.target import Target
from tests.wire.byteserver import ByteServer, Request, Script, head, tokens


def talk(number: int, turns: int = 3, prompt: int = 20) -> tuple[Shape, ...]:
    """Turns of 20, 40, 60 ... prompt tokens and 4 of reply."""
    sizes = (prompt * (turn + 1) for turn in range(turns))
    return tuple(
        Shape(cls="c", prompt_tokens=size, output_tokens=4, talk=number, turn=turn) for turn, size in enumerate(sizes)
    )


def measure(script: Any, load: Load) -> tuple[Measurement, list[list[dict[str, str]]], list[float]]:
    """What was measured, the messages of each request, and when each came."""

    async def run() -> tuple[Measurement, ByteServer]:
        async with ByteServer(script) as server:
            source = LocalSource(Target(url=server.url, model="m"), Prompts(1, 1.0, 0, nonce=""))
            return await source.run(load), server

    got, server = run_virtual(run())
    return got, [json.loads(r.body)["messages"] for r in server.requests], [r.at for r in server.requests]


def load(*shapes: Shape, **more: Any) -> Load:
    return Load(id="l", purpose="slo", concurrency=more.pop("concurrency", 1), shapes=shapes, **more)


def test_a_turn_holds_what_was_said_and_the_servers_own_replies() -> None:
    """The server counts 7 tokens for each prompt and 4 for each reply: a turn says what its prompt has beyond 11."""
    got, said, _ = measure(tokens(4), load(*talk(0)))
    assert [s.index for s in got.samples] == [0, 1, 2]
    first, second, third = said
    assert [m["role"] for m in first] == ["user"]
    assert [m["role"] for m in second] == ["user", "assistant", "user"]
    assert second[0] == first[0]
    assert second[1]["content"] == "xxxx"
    assert len(second[2]["content"].split()) == 40 - 11
    assert third[:3] == second
    assert [m["role"] for m in third] == ["user", "assistant"] * 2 + ["user"]


def test_turns_wait_for_each_other_and_conversations_do_not() -> None:
    """Replies of 0.16 s: three turns one after the other, both conversations side by side."""
    got, said, _ = measure(tokens(4), load(*talk(0), *talk(1), concurrency=2))
    starts = [round(s.start, 2) for s in got.samples]
    assert starts == pytest.approx([0.0, 0.16, 0.32, 0.0, 0.16, 0.32], abs=0.02)
    assert len({messages[0]["content"] for messages in said}) == 2


def test_single_requests_hold_nothing() -> None:
    single = Shape(cls="c", prompt_tokens=20, output_tokens=4)
    _, said, _ = measure(tokens(4), load(single, single, single))
    assert [len(messages) for messages in said] == [1, 1, 1]


def test_of_a_turn_that_failed_nothing_was_said() -> None:
    def script(_: Request, number: int) -> Script:
        return [(0.0, head("502 Bad Gateway", framing="content-length: 4") + b"oops")] if number == 1 else tokens(4)

    got, said, _ = measure(script, load(*talk(0)))
    assert [s.good for s in got.samples] == [True, False, True]
    assert [len(messages) for messages in said] == [1, 3, 3]
    assert len(said[2][2]["content"].split()) == 60 - 11


def test_in_an_open_loop_a_turn_comes_at_its_time_but_not_before_the_reply() -> None:
    """Replies take 0.16 s: the second turn is due at 0.1 s and waits for the first, the third at 1 s is on time."""
    got, _, _ = measure(tokens(4), load(*talk(0), arrivals=(0.0, 1.0, 10.0), rate=10.0))
    assert [round(s.start, 2) for s in got.samples] == pytest.approx([0.0, 0.16, 1.0], abs=0.02)
    assert all(s.late == pytest.approx(0.0, abs=0.01) for s in got.samples)


def test_a_ramp_lets_a_slot_begin_for_each_good_request() -> None:
    """Replies of 1 s: one request, then two, then four at once."""
    single = Shape(cls="c", prompt_tokens=20, output_tokens=1)
    got, _, _ = measure(tokens(1, first=1.0), load(*(single,) * 11, concurrency=4, ramp=True))
    assert [round(s.start) for s in got.samples] == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert got.client.peak_inflight == 4


def test_a_ramp_goes_no_further_while_requests_fail() -> None:
    single = Shape(cls="c", prompt_tokens=20, output_tokens=1)
    refusal = [(0.0, head("503 Service Unavailable", framing="content-length: 4") + b"busy")]
    got, _, _ = measure(refusal, load(*(single,) * 6, concurrency=4, ramp=True))
    assert got.client.peak_inflight == 1
    assert len(got.samples) == 6
