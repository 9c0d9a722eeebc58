"""What prompts are made of on this server: the lengths of the user's own texts and of pictures, by its own count.

Single words were counted before an audit begins; texts of the traffic have other lengths, and what a picture takes only
the server knows. A request of one token for each text length and picture size asks it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from auditor.errors import PreflightFailed
from auditor.loads import Plan, Shape
from auditor.measurement import Sample, Served
from auditor.probe.load import ask
from auditor.probe.messages import Message
from auditor.probe.pictures import data_url
from auditor.probe.prompts import CYCLE, WORDS, Prompts, calibrate, filler
from auditor.probe.target import Target

__all__ = ["Wording", "wording"]

_LENGTHS = (4 * CYCLE, 16 * CYCLE)  # words of a text that is tried, where the context allows
_SHARE = 4  # of the context, which the longest may take: texts have more tokens than words

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wording:
    """Prompts of the lengths that the server counts, and the tokens that it took to know."""

    prompts: Prompts
    spent_tokens: int = 0


async def wording(target: Target, served: Served, plan: Plan, texts: Sequence[str] = ()) -> Wording:
    """Prompts for the loads of `plan`, of the user's `texts` where there are any.

    Raises PreflightFailed where the plan has pictures that the endpoint does not take.
    """
    per_word, template, vocabulary = served.tokens_per_word or 1.0, served.template_tokens, served.words or WORDS
    spent: list[Sample] = []
    if texts:
        trial = Prompts(plan.seed, 1.0, 0, texts, vocabulary=vocabulary)
        counts = [await _counted(target, trial, words, spent) for words in _lengths(served.max_model_len)]
        known = [(words, tokens) for words, tokens in counts if tokens is not None]
        per_word, template = _fitted(known) if len(known) > 1 else (per_word, template)
    pictures = {size: await _picture(target, size, served, spent) for size in _sizes(plan)}
    prompts = Prompts(plan.seed, per_word, template, texts, picture_tokens=pictures, vocabulary=vocabulary)
    return Wording(prompts, sum(s.tokens for s in spent))


def _fitted(known: Sequence[tuple[int, int]]) -> tuple[float, int]:
    """Tokens a word, and what the template has beyond them. Less than nothing where the words with which each prompt
    begins have fewer tokens than those of the texts.
    """
    per_word, _ = calibrate(known)
    words, tokens = known[-1]
    return per_word, round(tokens - per_word * words)


def _lengths(context: int | None) -> tuple[int, ...]:
    most = _LENGTHS[-1] if context is None else min(_LENGTHS[-1], context // _SHARE)
    return (max(1, most // _SHARE), max(2, most))


async def _counted(target: Target, trial: Prompts, words: int, spent: list[Sample]) -> tuple[int, int | None]:
    """The words of a text and its tokens; None where the server did not count them."""
    shape = Shape(cls="wording", prompt_tokens=words, output_tokens=1)
    sample = await ask(target, trial.make(shape, words, "wording"), 1, load="wording")
    spent.append(sample)
    return words, sample.prompt_tokens


def _sizes(plan: Plan) -> Collection[Size]:
    loads = (*plan.loads, *plan.reserve)
    return {size for load in loads for shape in (*load.warmup, *load.shapes) for size in shape.images}


async def _picture(target: Target, size: Size, served: Served, spent: list[Sample]) -> int:
    """Tokens of a picture of this size: what the server counts beyond the words beside it."""
    if target.api != "chat":
        raise PreflightFailed("pictures are sent by the chat API only: set endpoint.api: chat")
    beside = served.template_tokens + CYCLE * (served.tokens_per_word or 1.0)
    seen = Message("user", filler(CYCLE, f"beside {size}", served.words or WORDS), (data_url(*size, "wording"),))
    sample = await ask(target, (seen,), 1, load="wording")
    spent.append(sample)
    if not sample.good:
        width, height = size
        why = sample.detail or sample.error
        raise PreflightFailed(f"traffic.classes: the endpoint takes no picture of {width} x {height} pixels: {why}")
    return max(0, round((sample.prompt_tokens or 0) - beside))
