"""The ladders: loads that explain a verdict, by prompt length and by batch size."""

import math
from collections.abc import Iterator

from auditor.loads import Load, Shape
from auditor.plan.pace import Pace
from auditor.profile import Budget, Lengths, Profile

__all__ = ["decode_ladder", "prefill_ladder"]

PREFILL_LENGTHS = (32, 256, 1024, 2048, 4096, 16384, 65536)
PREFILL_REPEATS = 5
SATURATING = 4096  # prompt tokens up to which the ladder goes even where no prompt of the traffic is that long
SPARE = 0.04  # of the budget's time, which such a length may take
DECODE_TOKENS = 48
STEP_TOKENS = 2048  # of prompts that a step reads at least, where it is not known (vLLM's smallest default)
MOST_STEPS = 96  # in which the prompts of a decode load are read: streams that decode already wait for the last


def prefill_ladder(profile: Profile, limit: int | None, pace: Pace | None) -> Iterator[Load]:
    """TTFT over prompt length, one request at a time, one token out."""
    longest = max(_longest(c.prompt_tokens) for c in profile.traffic.classes)
    room = limit - 2 if limit else longest
    top = min(longest, room)
    lengths = sorted({n for n in PREFILL_LENGTHS if n < top} | {top} | _saturating(profile.probe.budget, room, pace))
    for length in lengths[:1] + lengths[1:][-5:]:
        shape = Shape(cls="ladder", prompt_tokens=length, output_tokens=1)
        yield Load(
            id=f"prefill-{length}",
            purpose="prefill",
            concurrency=1,
            shapes=(shape,) * PREFILL_REPEATS,
            prompt_tokens=length,
            why="TTFT over prompt length",
        )


def _saturating(budget: Budget, room: int, pace: Pace | None) -> set[int]:
    """Lengths that fill a device with work: without them nothing tells what a token costs. None where they are slow."""
    if pace is None:
        return set()
    affordable = SPARE * budget.duration / PREFILL_REPEATS / max(1e-9, pace.per_prompt_token)
    return {n for n in PREFILL_LENGTHS if n <= min(SATURATING, room, affordable)}


def decode_ladder(profile: Profile, slots: int, limit: int | None, step_tokens: int) -> Iterator[Load]:
    """TPOT over batch size at a short and a long context, every stream decoding at once.

    Streams whose prompts came first must still decode when the last prompt has been read: replies are longer by the
    steps that this takes, and contexts shorter where it would take too many.
    """
    longest = max(_longest(c.prompt_tokens) for c in profile.traffic.classes)
    batches = [1, *sorted({max(2, round(slots * f)) for f in (0.125, 0.5, 1.0)} - {1})] if slots > 1 else [1]
    for batch in batches:
        far = min(longest, MOST_STEPS * step_tokens // batch)
        far = max(16, min(far, limit - DECODE_TOKENS - MOST_STEPS - 2) if limit else far)
        for context in sorted({max(16, far // 8), far}):
            reply = DECODE_TOKENS + min(MOST_STEPS, math.ceil(batch * context / step_tokens))
            shape = Shape(cls="ladder", prompt_tokens=context, output_tokens=reply)
            yield Load(
                id=f"decode-{batch}x{context}",
                purpose="decode",
                concurrency=batch,
                shapes=(shape,) * batch,
                context=context,
                why="TPOT over batch and context",
            )


def _longest(lengths: Lengths) -> int:
    return lengths.p95 or lengths.p50
