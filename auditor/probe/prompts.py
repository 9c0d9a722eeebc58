"""Prompts of a wanted length in tokens, without the model's tokenizer. Pure.

The text is made of 64 very common English words, each of which is one token in the vocabularies of current models. For
any other tokenizer the words are used evenly: every full cycle of 64 holds each word once, so two prompts with the same
number of words have (nearly) the same number of tokens whatever their order, and two requests that the server counted
are enough to turn words into tokens (`calibrate`). Where the server tells which of the words have the same number of
tokens, those alone are used, and lengths are exact to half a word.

Each prompt starts with its own random order of words, so no prefix cache can help: caches of prefixes compare from the
first token on, hence only the beginning must differ. The order depends on the seed, the load, the index and a nonce
that is fresh for each `Prompts`: a second run with the same seed must not meet its own prompts in the server's cache.
"""

import secrets
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

from auditor.errors import PreflightFailed
from auditor.loads import BLOCK_TOKENS, Shape
from auditor.probe.messages import Message
from auditor.probe.pictures import data_url

__all__ = ["CYCLE", "LEAST_WORDS", "WORDS", "Prompts", "calibrate", "filler"]

_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one
you were all her she there would their we him been has when who will no more if out so up said what its about than into
them can only other time new some
"""
WORDS = tuple(_TEXT.split())
CYCLE = len(WORDS)
LEAST_WORDS = 16
"""Different words that a vocabulary needs: their orders tell prompts apart."""


def _shuffled(rng: Random, vocabulary: Sequence[str], words: int) -> list[str]:
    """`words` different words, in random order (all that there are at most)."""
    return rng.sample(vocabulary, min(words, len(vocabulary)))


def _pool(rng: Random, vocabulary: Sequence[str], size: int = 64) -> list[list[str]]:
    """Full cycles in random orders."""
    return [_shuffled(rng, vocabulary, len(vocabulary)) for _ in range(size)]


def _compose(rng: Random, vocabulary: Sequence[str], pool: Sequence[Sequence[str]], words: int) -> str:
    """`words` words: a fresh order first, then cycles of the pool, of the last as many as are still wanted."""
    parts = _shuffled(rng, vocabulary, words)
    for cycle in rng.choices(pool, k=-(-(words - len(parts)) // len(vocabulary))):
        parts += cycle[: words - len(parts)]
    return " ".join(parts)


def filler(words: int, key: str, vocabulary: Sequence[str] = WORDS) -> str:
    """A text of `words` words that depends on `key` alone: for calibration, best with full cycles of the vocabulary."""
    rng = Random(key)
    return _compose(rng, vocabulary, _pool(rng, vocabulary), words)


class Prompts:
    """Prompts by shape and index. `tokens_per_word` and `template_tokens` come from `calibrate`; `texts` are the user's
    own prompts, of which pieces of the wanted length are then used instead of single words, the words of `vocabulary`
    (LEAST_WORDS at least). `picture_tokens` is what the server counts for a picture of each size.
    """

    def __init__(
        self,
        seed: int,
        tokens_per_word: float,
        template_tokens: int,
        texts: Sequence[str] = (),
        *,
        nonce: str | None = None,
        picture_tokens: Mapping[tuple[int, int], int] | None = None,
        vocabulary: Sequence[str] = WORDS,
    ) -> None:
        self.nonce = secrets.token_hex(8) if nonce is None else nonce
        self.tokens_per_word = tokens_per_word
        self.template_tokens = template_tokens
        self.picture_tokens = picture_tokens or {}
        self._key = f"{seed}/{self.nonce}"
        self._words = tuple(vocabulary)
        self._pool = _pool(Random(f"{self._key}/pool"), self._words)
        self._texts = tuple(words for text in texts if (words := text.split()))

    def words(self, tokens: int) -> int:
        """How many words make a prompt of `tokens` tokens, template included; at least one."""
        return max(1, round((tokens - self.template_tokens) / self.tokens_per_word))

    def message(self, shape: Shape, index: int, load_id: str, held: int = 0) -> Message:
        """What the user says in request `index` of a load, with its pictures. A later turn of a conversation says what
        its prompt has beyond the `held` tokens that were said before.
        """
        if shape.turn:
            words = max(1, round((shape.prompt_tokens - held) / self.tokens_per_word))
            return Message("user", self._own(self._rng(shape, index, load_id), words))
        sizes = enumerate(shape.images)
        seen = tuple(data_url(*size, f"{self._key}/{load_id}/{index}/picture {number}") for number, size in sizes)
        return Message("user", self.make(shape, index, load_id), seen)

    def make(self, shape: Shape, index: int, load_id: str) -> str:
        """The words of a prompt: those that it shares with others if the shape has any, then its own."""
        rng = self._rng(shape, index, load_id)
        words = self.words(shape.prompt_tokens - sum(self.picture_tokens.get(size, 0) for size in shape.images))
        shared = self._shared(shape, words - 1)
        own = self._own(rng, words - sum(len(part.split()) for part in shared))
        return " ".join([*shared, own])

    def _rng(self, shape: Shape, index: int, load_id: str) -> Random:
        return Random(f"{self._key}/{load_id}/{index}/{shape.prompt_tokens}")

    def _shared(self, shape: Shape, most: int) -> list[str]:
        """The same words for every request with this prefix of its class, or with these blocks: `most` at most."""
        if shape.blocks:
            ends = [min(most, round(n * BLOCK_TOKENS / self.tokens_per_word)) for n in range(len(shape.blocks) + 1)]
            sizes = [end - begin for begin, end in pairwise(ends)]
            keys = [f"block/{number}" for number in shape.blocks]
        elif shape.prefix is not None and shape.prefix_tokens:
            sizes = [min(most, max(1, round(shape.prefix_tokens / self.tokens_per_word)))]
            keys = [f"prefix/{shape.cls}/{shape.prefix}"]
        else:
            return []
        return [self._own(Random(f"{self._key}/{k}"), n) for k, n in zip(keys, sizes, strict=True) if n > 0]

    def _own(self, rng: Random, words: int) -> str:
        if not self._texts:
            return _compose(rng, self._words, self._pool, words)
        parts = _shuffled(rng, self._words, min(words, LEAST_WORDS))
        while len(parts) < words:
            parts += rng.choice(self._texts)[: words - len(parts)]
        return " ".join(parts)


def calibrate(counts: Sequence[tuple[int, int]]) -> tuple[float, int]:
    """(tokens per word, tokens of the template) from (words sent, prompt tokens counted by the server) pairs.

    Least squares through pairs of at least two different lengths; a single pair gives no template. Raises
    PreflightFailed where the counts do not grow with the words: the server's count is then no measure of the prompt.
    """
    if not counts:
        raise PreflightFailed("prompt lengths: the server counted no prompt, so no length can be set")
    n = len(counts)
    mean_words = sum(words for words, _ in counts) / n
    mean_tokens = sum(tokens for _, tokens in counts) / n
    spread = sum((words - mean_words) ** 2 for words, _ in counts)
    if spread:
        slope = sum((words - mean_words) * (tokens - mean_tokens) for words, tokens in counts) / spread
    else:
        slope = mean_tokens / mean_words
    if slope <= 0:
        pairs = ", ".join(f"{tokens} for {words} words" for words, tokens in counts)
        raise PreflightFailed(f"prompt lengths: the server's usage.prompt_tokens does not follow the prompt ({pairs})")
    return slope, max(0, round(mean_tokens - slope * mean_words))
