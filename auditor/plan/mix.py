"""Requests that imitate the traffic: class counts and length quantiles spread evenly, not drawn."""

import math
import random
from collections.abc import Iterator, Sequence

from auditor.loads import Shape
from auditor.profile import Lengths, TrafficClass
from auditor.theory.shape import at

__all__ = ["clamped", "mean_tokens", "mix"]


def mix(classes: Sequence[TrafficClass], count: int, limit: int | None, rng: random.Random) -> Iterator[Shape]:
    """`count` requests in random order whose class counts and length quantiles are spread evenly, not drawn."""
    shapes: list[Shape] = []
    for cls, number in zip(classes, _apportion([c.share for c in classes], count), strict=True):
        prompts, outputs = _spread(cls.prompt_tokens, number, rng), _spread(cls.output_tokens, number, rng)
        prefixed = _prefixes(cls, number, rng)
        for prompt, output, prefix in zip(prompts, outputs, prefixed, strict=True):
            shapes.append(clamped(cls, prompt, output, prefix, limit))
    rng.shuffle(shapes)
    yield from shapes


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


def _prefixes(cls: TrafficClass, count: int, rng: random.Random) -> list[int | None]:
    shared = cls.shared_prefix
    if not shared:
        return [None] * count
    with_prefix = round(shared.share * count)
    numbers: list[int | None] = [i % shared.distinct for i in range(with_prefix)]
    numbers += [None] * (count - with_prefix)
    rng.shuffle(numbers)
    return numbers


def clamped(cls: TrafficClass, prompt: int, output: int, prefix: int | None, limit: int | None) -> Shape:
    """A shape that the context holds: lengths beyond it are cut (rule W106 reports them), the reply first."""
    if limit:
        prompt = max(1, min(prompt, limit - 2))
        output = max(1, min(output, limit - prompt - 1))
    tokens = min(cls.shared_prefix.tokens, prompt) if cls.shared_prefix and prefix is not None else 0
    return Shape(cls=cls.name, prompt_tokens=prompt, output_tokens=output, prefix=prefix, prefix_tokens=tokens)
