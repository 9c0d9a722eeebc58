"""A few tiny generations before any load: does the endpoint stream, count, obey lengths, and how long are its words?

Three requests where all is well: a short question whose reply is forced to 16 tokens, and two prompts of known numbers
of words for one token each, of which a server is spared that counts tokens without generating (`counting`). Each thing
that an endpoint does not have (min_tokens, stream_options, chat) and each failure that may pass costs one request more,
ten in all at the most: an endpoint that fails now and then is measured, not turned away. Token ids are never sent: an
engine may die of one it does not know.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from auditor.errors import PreflightFailed
from auditor.measurement import Sample
from auditor.probe.counting import Counted, cycles
from auditor.probe.load import ask
from auditor.probe.models import listed
from auditor.probe.prompts import CYCLE, calibrate, filler
from auditor.probe.target import Deadlines, Target
from auditor.probe.web import headers_for
from auditor.profile import Profile

__all__ = ["Answers", "Count", "facts", "first_target", "preflight"]

Count = Callable[[Target], Awaitable[Counted | None]]

_TOKENS = 16
_QUESTION = "Reply with the single word yes."
_MOST = 10
_PASSING = frozenset(["cut_off", "in_stream", "stalled", "http_5xx", "connect"])


@dataclass(slots=True)
class Answers:
    """What the generations told: the target as it must be phrased, and facts for `Served`."""

    target: Target
    min_tokens: bool | None = None
    ignore_eos: bool | None = None
    usage: bool | None = None
    cached_tokens: bool = False
    buffered: bool | None = None
    first_ttft: float | None = None
    round_trip: float | None = None
    tokens_per_word: float | None = None
    template_tokens: int = 0
    words: tuple[str, ...] = ()
    spent_requests: int = 0
    spent_tokens: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Talk:
    """The conversation so far; `tried` are the changes already made to the request."""

    target: Target
    deadlines: Deadlines
    any_api: bool
    tried: set[str] = field(default_factory=set)
    sent: int = 0
    tokens: int = 0
    round_trip: float | None = None

    async def ask(self, prompt: str, tokens: int) -> Sample:
        """One generation, with whatever the endpoint refuses in it left out; what may pass is tried twice again."""
        again = 0
        while True:
            sample = await self._once(prompt, tokens)
            if sample.good or self.sent >= _MOST:
                return sample
            if (change := self._change(sample)) is not None:
                self.target = change
            elif sample.error in _PASSING and again < 2:
                again += 1
            else:
                return sample

    async def _once(self, prompt: str, tokens: int) -> Sample:
        self.sent += 1
        sample = await ask(self.target, prompt, tokens, self.deadlines, load="preflight")
        self.tokens += sample.tokens
        if sample.connect is not None:  # one round trip, and one more for TLS 1.3
            trip = sample.connect / 2 if self.target.url.startswith("https:") else sample.connect
            self.round_trip = min(trip, self.round_trip or trip)
        return sample

    def _change(self, sample: Sample) -> Target | None:
        """The request without the one thing that the endpoint says it does not take; None if that is not the matter."""
        text = (sample.detail or "").lower()
        refused = sample.status in (400, 404, 405, 415, 422, 501) or sample.error == "in_stream"
        if not refused:
            return None
        target = self.target
        changes: list[tuple[str, bool, Target]] = [
            (
                "max_completion_tokens",
                "max_completion_tokens" in text and target.max_tokens_field == "max_tokens",
                replace(target, max_tokens_field="max_completion_tokens"),
            ),
            ("usage", "stream_options" in text or "include_usage" in text, replace(target, usage=False)),
            ("min_tokens", "min_tokens" in text, replace(target, force="ignore_eos")),
            ("ignore_eos", "ignore_eos" in text, replace(target, force=None)),
            ("completions", self.any_api and _lacks_chat(sample, text), replace(target, api="completions")),
            ("force", _refuses_fields(text) and target.force is not None, replace(target, force=None)),
        ]
        for name, applies, changed in changes:
            if applies and name not in self.tried and changed != target:
                self.tried.add(name)
                return changed
        return None


def _lacks_chat(sample: Sample, text: str) -> bool:
    if re.search(r"chat.?template", text):
        return True
    return sample.status in (404, 405, 501) and not _names_model(text)


def _names_model(text: str) -> bool:
    return "model" in text and re.search(r"not exist|not found|unknown|no such|not supported", text) is not None


def _refuses_fields(text: str) -> bool:
    return re.search(r"extra|unknown|unrecognized|unexpected|not permitted|unsupported", text) is not None


def first_target(profile: Profile, model: str, key: str | None) -> Target:
    """How the load is phrased before anything is known of the endpoint but its model."""
    endpoint = profile.endpoint
    return Target(
        url=endpoint.url,
        model=model,
        api="completions" if endpoint.api == "completions" else "chat",
        headers=headers_for(profile, endpoint.url, key),
        extra_body=endpoint.extra_body,
        verify_tls=endpoint.verify_tls,
        ca=endpoint.ca_file,
    )


async def preflight(
    target: Target,
    deadlines: Deadlines,
    *,
    any_api: bool,
    context: int | None,
    served: Sequence[str] = (),
    count: Count | None = None,
) -> Answers:
    """Ask the few questions and say how the load must be phrased.

    `any_api` allows completions where chat does not work; `context` is the context length, if known; `served` are the
    models that the server lists; `count` counts words without a generation where the server can. Raises
    PreflightFailed, in one line, where no load could be judged.
    """
    talk = _Talk(replace(target, force="min_tokens"), deadlines, any_api)
    answers = Answers(target)
    sample = await talk.ask(f"{_QUESTION} ({secrets.token_hex(4)})", _TOKENS)
    if not sample.good:
        raise PreflightFailed(_why(sample, talk.target, deadlines, served))
    answers.first_ttft = sample.ttft
    await _lengths(talk, sample, answers)
    await _calibrate(talk, answers, context, count)
    answers.target = talk.target
    answers.round_trip = talk.round_trip
    answers.spent_requests, answers.spent_tokens = talk.sent, talk.tokens
    return answers


async def _lengths(talk: _Talk, sample: Sample, answers: Answers) -> None:
    """Whether the reply's length obeys: max_tokens as the most, min_tokens or ignore_eos as the least."""
    _note(sample, answers)
    if (sample.output_tokens or 0) > _TOKENS and talk.target.max_tokens_field == "max_tokens":
        talk.target = replace(talk.target, max_tokens_field="max_completion_tokens")
        sample = await talk.ask(f"{_QUESTION} ({secrets.token_hex(4)})", _TOKENS)
        _note(sample, answers)
        if not sample.good or (sample.output_tokens or 0) > _TOKENS:
            raise PreflightFailed(
                "endpoint: neither max_tokens nor max_completion_tokens limits the reply; "
                "a load of known length cannot be made: look at what the gateway drops from requests"
            )
    if talk.target.force != "min_tokens":
        answers.min_tokens = False
    for force in ("min_tokens", "ignore_eos"):
        if talk.target.force == force:
            obeyed = sample.good and (sample.output_tokens or 0) >= _TOKENS
            setattr(answers, force, obeyed)
            if obeyed:
                return
            fallback: Literal["ignore_eos"] | None = "ignore_eos" if force == "min_tokens" else None
            talk.target = replace(talk.target, force=fallback)
            if fallback:
                sample = await talk.ask(f"{_QUESTION} ({secrets.token_hex(4)})", _TOKENS)
                _note(sample, answers)
    answers.min_tokens, answers.ignore_eos = False, bool(answers.ignore_eos)
    answers.warnings.append(
        "neither min_tokens nor ignore_eos forces the reply's length: replies may be shorter than the profile says"
    )


def _note(sample: Sample, answers: Answers) -> None:
    if not sample.good:
        return
    answers.usage = not sample.estimated
    answers.buffered = sample.buffered if sample.buffered is not None else answers.buffered
    answers.cached_tokens = answers.cached_tokens or sample.cached_tokens is not None


async def _calibrate(talk: _Talk, answers: Answers, context: int | None, count: Count | None) -> None:
    """Tokens of a word and of the template: by /tokenize, else from two prompts that the server counts."""
    found = None if count is None else await count(talk.target)
    if found is not None:
        answers.tokens_per_word, answers.template_tokens = found.tokens_per_word, found.template_tokens
        answers.words = found.words
        return
    lengths = cycles(context)
    counts = []
    for number in lengths:
        words = number * CYCLE
        sample = await talk.ask(filler(words, secrets.token_hex(8)), 1)
        if not sample.good:
            raise PreflightFailed(_why(sample, talk.target, talk.deadlines))
        answers.cached_tokens = answers.cached_tokens or sample.cached_tokens is not None
        if sample.prompt_tokens is not None:
            counts.append((words, sample.prompt_tokens))
    if len(counts) == len(lengths):
        answers.tokens_per_word, answers.template_tokens = calibrate(counts)
    else:
        answers.warnings.append(
            "the server sends no usage: prompt lengths are taken as one token a word, output tokens counted from events"
        )


_WORDS: Mapping[str, str] = {
    "not_streamed": (
        "the reply came as one document though a stream was asked for, so TTFT and TPS cannot be measured; "
        "switch streaming on in the gateway or the engine"
    ),
    "cut_off": "the connection broke in the middle of a reply of 16 tokens; look at the server's log",
    "protocol": "the reply is no valid HTTP stream; look at what stands between this machine and the engine",
}


def _why(sample: Sample, target: Target, deadlines: Deadlines, served: Sequence[str] = ()) -> str:
    """One line for a generation that failed: where, what, what to do."""
    where = f"endpoint: POST {'/chat/completions' if target.api == 'chat' else '/completions'}"
    detail = f" ({sample.detail})" if sample.detail else ""
    text = (sample.detail or "").lower()
    if sample.status in (401, 403):
        return f"endpoint.api_key_env: the server refuses the key for generations ({sample.status}); use one that may"
    if sample.status == 404 and _names_model(text):
        cure = f"it serves {listed(served)}" if served else "correct the name"
        return f"endpoint.model: the server has no model {target.model}{detail}; {cure}"
    if sample.status in (404, 405):
        what = f"{where.removeprefix('endpoint: ')} does not exist at {target.url} ({sample.status})"
        return f"endpoint.url: {what}; correct the address or endpoint.api"
    if sample.error in ("timeout", "stalled"):
        return (
            f"{where} brought {_waited(sample, deadlines)}; the engine hangs, or is busy or loading: "
            "look at its log and try again"
        )
    if sample.rate_limited or sample.status == 429:
        return f"{where} answered 429{detail}; a rate limit leaves no room for a load: raise the key's quota"
    if sample.error is not None and sample.error in _WORDS:
        return f"{where}: {_WORDS[sample.error]}{detail}"
    return f"{where} failed: {sample.error}{detail}; look at the server's log"


def _waited(sample: Sample, deadlines: Deadlines) -> str:
    if sample.ttft is None:
        return f"no token within {deadlines.first_token:g} s"
    if sample.error == "timeout":
        return f"tokens but no end within {deadlines.total:g} s"
    return f"no further token within {deadlines.gap:g} s"


def facts(answers: Answers) -> dict[str, Any]:
    """The fields of `Served` that these answers fill."""
    return {
        "api": answers.target.api,
        "streaming": True,
        "usage": answers.usage,
        "min_tokens": answers.min_tokens,
        "ignore_eos": answers.ignore_eos,
        "max_tokens_field": answers.target.max_tokens_field,
        "cached_tokens": answers.cached_tokens,
        "buffered": answers.buffered,
        "first_ttft": answers.first_ttft,
        "round_trip": answers.round_trip,
        "tokens_per_word": answers.tokens_per_word,
        "template_tokens": answers.template_tokens,
        "words": answers.words,
        "spent_requests": answers.spent_requests,
        "spent_tokens": answers.spent_tokens,
    }
