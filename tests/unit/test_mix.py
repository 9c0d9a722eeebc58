"""Requests of conversations and with pictures, by hand."""

import random

from auditor.loads import Load, Shape, talks
from auditor.plan.mix import mix
from auditor.profile import Images, Lengths, SharedPrefix, TrafficClass

LINE = Lengths(p50=200, max=400)  # mirrored below the median: from 100 to 400


def made(count: int, limit: int | None = None, **facts: object) -> list[Shape]:
    base: dict[str, object] = {"name": "a", "prompt_tokens": LINE, "output_tokens": Lengths(p50=10)}
    return list(mix((TrafficClass(**(base | facts)),), count, limit, random.Random(0)))  # type: ignore[arg-type]


def test_turns_of_a_conversation_follow_each_other_and_grow_by_what_was_said() -> None:
    shapes = made(12, turns=3)
    assert [s.turn for s in shapes] == [0, 1, 2] * 4
    for first, second, third in zip(shapes[::3], shapes[1::3], shapes[2::3], strict=True):
        assert first.talk == second.talk == third.talk
        assert first.prefix_tokens == 0
        assert second.prefix_tokens == first.prompt_tokens + 10 < second.prompt_tokens
        assert third.prefix_tokens == second.prompt_tokens + 10 < third.prompt_tokens
    assert {s.talk for s in shapes} == {0, 1, 2, 3}


def test_turns_leave_the_lengths_of_all_requests_as_they_are() -> None:
    assert sorted(s.prompt_tokens for s in made(12, turns=3)) == sorted(s.prompt_tokens for s in made(12))


def test_the_last_conversation_may_be_shorter() -> None:
    shapes = made(10, turns=4)
    assert sorted(s.turn for s in shapes) == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]


def test_a_turn_beyond_the_context_begins_anew() -> None:
    """First turns of 100 to 200 tokens and 200 of reply: no second one fits into 300."""
    shapes = made(8, limit=300, turns=4, output_tokens=Lengths(p50=200))
    assert all(s.prompt_tokens + s.output_tokens < 300 for s in shapes)
    assert all(s.turn == 0 for s in shapes)


def test_a_conversation_keeps_its_shared_prefix() -> None:
    shapes = made(8, turns=2, shared_prefix=SharedPrefix(tokens=64, share=0.5, distinct=1))
    assert [s.prefix for s in shapes[::2]] == [s.prefix for s in shapes[1::2]]
    assert sorted(s.prefix_tokens for s in shapes if s.turn == 0) == [0, 0, 64, 64]


def test_pictures_come_with_the_first_turn() -> None:
    shapes = made(8, turns=2, images=Images(width=640, height=480, count=2, share=0.5))
    assert sorted(s.images for s in shapes if s.turn == 0) == [(), (), ((640, 480),) * 2, ((640, 480),) * 2]
    assert {s.images for s in shapes if s.turn == 1} == {()}


def test_a_slot_takes_a_conversation_whole() -> None:
    single = Shape(cls="b", prompt_tokens=1, output_tokens=1)
    shapes = (*made(4, turns=2), single, single)
    load = Load(id="l", purpose="slo", concurrency=2, shapes=shapes, warmup=shapes[:2])
    taken = list(talks(load))
    assert [[(turn.warm, turn.index) for turn in talk] for talk in taken] == [
        [(True, 0), (True, 1)],
        [(False, 0), (False, 1)],
        [(False, 2), (False, 3)],
        [(False, 4)],
        [(False, 5)],
    ]
