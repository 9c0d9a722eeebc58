"""Requests that imitate the traffic: class counts and length quantiles spread evenly, not drawn."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from auditor.loads import Shape
from auditor.profile import Lengths, TrafficClass
from auditor.theory.shape import at

__all__ = ["clamped", "mean_tokens", "mix"]


def mix(classes: Sequence[TrafficClass], count: int, limit: int | None, rng: random.Random) -> Iterator[Shape]:
    """`count` requests in random order whose class counts and length quantiles are spread evenly, not drawn.

    The turns of a conversation follow each other. Lengths beyond `limit` are cut.
    """
    talks: list[tuple[Shape, ...]] = []
    for cls, number in zip(classes, _apportion([c.share for c in classes], count), strict=True):
        talks += _talks(cls, number, limit, rng)
    rng.shuffle(talks)
    for shapes in talks:
        yield from shapes


def _talks(cls: TrafficClass, number: int, limit: int | None, rng: random.Random) -> Iterator[tuple[Shape, ...]]:
    """Conversations of `number` requests in all; each a single request where the class has no turns."""
    lengths = zip(_spread(cls.prompt_tokens, number, rng), _spread(cls.output_tokens, number, rng), strict=True)
    talks = _layers(list(lengths), cls.turns)
    shared, images = cls.shared_prefix, cls.images
    prefixes = _dealt(len(talks), shared.share, shared.distinct, rng) if shared else [None] * len(talks)
    pictured = _dealt(len(talks), images.share, 1, rng) if images else [None] * len(talks)
    for talk, (turns, prefix, picture) in enumerate(zip(talks, prefixes, pictured, strict=True)):
        first, *rest = _conversation(cls, turns, prefix, limit, talk if cls.turns > 1 else None)
        seen = ((images.width, images.height),) * images.count if images and picture is not None else ()
        yield (replace(first, images=seen), *rest)


def _layers(lengths: list[tuple[int, int]], turns: int) -> list[list[tuple[int, int]]]:
    """Lengths dealt to conversations so that prompts grow with each turn: the shortest of all are first turns.

    Over all requests the lengths stay as they were; the last conversation may have fewer turns.
    """
    if turns == 1:
        return [[pair] for pair in lengths]
    talks: list[list[tuple[int, int]]] = [[] for _ in range(math.ceil(len(lengths) / turns))]
    missing = len(talks) * turns - len(lengths)
    prompts = iter(sorted(prompt for prompt, _ in lengths))
    outputs = iter([output for _, output in lengths])
    for turn in range(turns):
        for talk in talks if turn < turns - missing else talks[:-1]:
            talk.append((next(prompts), next(outputs)))
    return talks


def _conversation(
    cls: TrafficClass, lengths: Sequence[tuple[int, int]], prefix: int | None, limit: int | None, number: int | None
) -> Iterator[Shape]:
    """Its turns: each prompt holds all that was said and a token more. A turn beyond the context begins anew."""
    said = 0
    for turn, (prompt, output) in enumerate(lengths):
        shape = clamped(cls, max(prompt, said + 1), output, prefix, limit)
        if number is None or shape.prompt_tokens <= said:
            yield shape
            continue
        yield replace(shape, talk=number, turn=turn, prefix_tokens=said or shape.prefix_tokens)
        said = shape.prompt_tokens + shape.output_tokens


def mean_tokens(classes: Sequence[TrafficClass], limit: int | None) -> float:
    """Prompt and output tokens of a request of the mix, in the mean."""
    sample = list(mix(classes, 200, limit, random.Random(0)))
    return sum(s.prompt_tokens + s.output_tokens for s in sample) / len(sample)


def _apportion(shares: Sequence[float], count: int) -> list[int]:
    """Largest remainders: whole numbers in proportion to `shares` that sum to `count`."""
    exact = [share / sum(shares) * count for share in shares]
    whole = [math.floor(x) for x in exact]
    for index in sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])[: count - sum(whole)]:
        whole[index] += 1
    return whole


def _spread(lengths: Lengths, count: int, rng: random.Random) -> list[int]:
    """`count` lengths at evenly spaced quantiles with a random offset in each stratum, shuffled."""
    points = lengths.curve
    values = [max(1, at(points, (i + rng.random()) / count)) for i in range(count)]
    rng.shuffle(values)
    return values


def _dealt(count: int, share: float, distinct: int, rng: random.Random) -> list[int | None]:
    """Numbers below `distinct` for a share of `count`, spread evenly, in random order; None for the others."""
    having = round(share * count)
    numbers: list[int | None] = [i % distinct for i in range(having)]
    numbers += [None] * (count - having)
    rng.shuffle(numbers)
    return numbers


def clamped(cls: TrafficClass, prompt: int, output: int, prefix: int | None, limit: int | None) -> Shape:
    """A shape that the context holds: lengths beyond it are cut (rule W106 reports them), the reply first."""
    if limit:
        prompt = max(1, min(prompt, limit - 2))
        output = max(1, min(output, limit - prompt - 1))
    tokens = min(cls.shared_prefix.tokens, prompt) if cls.shared_prefix and prefix is not None else 0
    return Shape(cls=cls.name, prompt_tokens=prompt, output_tokens=output, prefix=prefix, prefix_tokens=tokens)
