"""One load on one endpoint, without an audit: the model found, prompt lengths set, the load sent and measured.

Nothing is generated but what was asked for where the server counts tokens itself (/tokenize); elsewhere a few short
requests come first, as before an audit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import urlsplit

from auditor.errors import NothingMeasured, PreflightFailed
from auditor.instruments.probe import Probed, Question, load_of
from auditor.measurement import Measurement, Sample
from auditor.probe.contact import Contact, connect, place_of
from auditor.probe.counting import counted
from auditor.probe.events import Event, Listener
from auditor.probe.load import LoadSource, LocalSource, Stop
from auditor.probe.models import choose_model, list_models, names_of
from auditor.probe.preflight import first_target, preflight
from auditor.probe.prompts import WORDS, Prompts
from auditor.probe.selfcheck import self_check
from auditor.probe.target import Api, Deadlines, Target, basic_of, forced
from auditor.probe.workers import Workers
from auditor.profile import Endpoint, Profile
from auditor.redact import Redactor
from auditor.units import percent
from auditor.validity.client import STARVED

__all__ = ["measure"]

_UNREACHED = 50  # requests in a row that reached nobody: the endpoint is gone
_FLAGS: Mapping[str, str] = {
    "endpoint.url": "--url",
    "endpoint.model": "--model",
    "endpoint.api_key_env": "--api-key-env",
    "endpoint.api": "--api",
    "endpoint.headers": "--header",
    "endpoint.verify_tls: false": "--insecure",
}


@dataclass(frozen=True, slots=True)
class _Ready:
    """Where the load goes and what its prompts are made of."""

    target: Target
    prompts: Prompts
    counted: str
    notes: tuple[str, ...] = ()


async def measure(
    question: Question, endpoint: Endpoint, key: str | None, events: Listener, deadlines: Deadlines
) -> Probed:
    """Send what was asked for and measure it. When cancelled, what was measured until then is returned.

    Raises PreflightFailed where no load can be sent, NothingMeasured where not one request was answered, UsageError for
    limits of this machine. Messages name flags of the command line and hold no secrets.
    """
    profile = Profile(version=1, name="probe", endpoint=endpoint)
    hide = _redactor(endpoint, key)
    try:
        ready = await _prepare(profile, key, question, events, deadlines)
    except PreflightFailed as failure:
        raise PreflightFailed(_flagged(hide.text(str(failure)))) from None
    load = load_of(question)
    events(Event(kind="load_start", load=load.id, total=question.requests, text=_described(question)))
    source: LoadSource = Workers(LocalSource(ready.target, ready.prompts, deadlines), await self_check())
    measured = await source.run(load, on_sample=_telling(events, question.requests), stop=_gone(question))
    measurement = _shown(measured, hide)
    ended = Event(kind="load_end", load=load.id, done=len(measurement.samples), text=measurement.stopped or "")
    events(ended)
    _check_answered(measurement)
    return Probed(
        question=question,
        url=hide.text(endpoint.url),
        model=ready.target.model,
        api=ready.target.api,
        counted=ready.counted,
        measurement=measurement,
        notes=(*ready.notes, *_unchecked(endpoint), *_starved(measurement)),
    )


def _starved(measurement: Measurement) -> tuple[str, ...]:
    """That the client had too little of this machine to time what came."""
    late = measurement.client.late_reads
    if late is None or late <= STARVED:
        return ()
    told = f"{percent(late)} of the reads came too late to tell one token from the next"
    return (f"this machine was too busy: {told}, so that first tokens look later and the rest faster than they were",)


# ---------------------------------------------------------------------------------------------------------- beforehand


async def _prepare(
    profile: Profile, key: str | None, question: Question, events: Listener, deadlines: Deadlines
) -> _Ready:
    """The model, the API and the lengths of words, found without generating where that is possible."""
    events(Event(kind="stage", text=f"asking {place_of(profile.endpoint.url).host} for its model"))
    contact = connect(place_of(profile.endpoint.url), profile, key)
    try:
        await contact.greet()
        replies = {"/v1/models": await list_models(contact)}
        model = choose_model(profile, replies, certain=False)
        target = first_target(profile, model, key)
        counts = await _count(contact, target, profile, question.seed)
    finally:
        await contact.client.aclose()
    return counts or await _try_out(target, profile, question, events, deadlines, served=names_of(replies))


async def _count(contact: Contact, target: Target, profile: Profile, seed: int) -> _Ready | None:
    """By /tokenize; None where the server has none."""
    apis: tuple[Api, ...] = ("chat", "completions") if profile.endpoint.api == "auto" else (target.api,)
    found = await counted(contact, target.model, apis)
    if found is None:
        return None
    vocabulary = found.words or WORDS
    prompts = Prompts(seed, found.tokens_per_word, found.template_tokens, vocabulary=vocabulary)
    return _Ready(replace(target, api=found.api, force=found.force), prompts, "/tokenize")


async def _try_out(
    target: Target,
    profile: Profile,
    question: Question,
    events: Listener,
    deadlines: Deadlines,
    *,
    served: Sequence[str],
) -> _Ready:
    """By a few short generations."""
    events(Event(kind="stage", text="no /tokenize there: a few short requests tell how long its words are"))
    any_api = profile.endpoint.api == "auto"
    answers = await preflight(target, deadlines, any_api=any_api, context=None, served=served)
    force = forced(min_tokens=answers.min_tokens, ignore_eos=answers.ignore_eos)
    target = replace(answers.target, force=force, usage=answers.usage is not False)
    words = answers.tokens_per_word
    prompts = Prompts(seed=question.seed, tokens_per_word=words or 1.0, template_tokens=answers.template_tokens)
    return _Ready(target, prompts, "usage of short requests" if words else "nobody", tuple(answers.warnings))


# ------------------------------------------------------------------------------------------------------------ the load


def _described(question: Question) -> str:
    if question.rate is None:
        return f"{question.concurrency} at once"
    return f"{question.rate:g}/s, {question.arrivals} arrivals"


def _telling(events: Listener, total: int) -> Callable[[Sample], None]:
    done = 0

    def tell(_: Sample) -> None:
        nonlocal done
        done += 1
        events(Event(kind="request", load="probe", done=done, total=total))

    return tell


def _gone(question: Question) -> Stop:
    """Ends the load where the endpoint is gone; every other failure is measured to the end."""
    most = max(_UNREACHED, 2 * question.concurrency)

    def stop(samples: Sequence[Sample]) -> str | None:
        latest = samples[-most:]
        if len(latest) == most and all(s.unreached for s in latest):
            return f"the last {most} requests reached nobody ({latest[-1].detail})"
        return None

    return stop


def _check_answered(measurement: Measurement) -> None:
    judged = measurement.judged
    if judged and all(s.status is None for s in judged):
        first = judged[0]
        raise NothingMeasured(
            f"not one of {len(judged)} requests was answered ({first.error}: {first.detail}); look at the server's log"
        )


# ------------------------------------------------------------------------------------------------------------ messages


def _flagged(text: str) -> str:
    """A message that names fields of a profile, naming flags instead."""
    return re.sub(r"\bendpoint\.[a-z_]+(?:: false)?", lambda match: _FLAGS.get(match[0], match[0]), text)


def _unchecked(endpoint: Endpoint) -> tuple[str, ...]:
    if endpoint.verify_tls or not endpoint.url.startswith("https:"):
        return ()
    return ("nobody checked the certificate (--insecure): whether this is the service is not known",)


def _redactor(endpoint: Endpoint, key: str | None) -> Redactor:
    """Hides what the user gave in secret, also where a server's error repeats it."""
    parts = urlsplit(endpoint.url)
    given = (key, parts.username, parts.password, basic_of(endpoint.url), *endpoint.headers.values())
    return Redactor([secret for secret in given if secret])


def _shown(measurement: Measurement, hide: Redactor) -> Measurement:
    """The measurement with every word of a server as it may be shown, and flags of the command line in its errors."""

    known = lru_cache(maxsize=64)(hide.text)  # of all words most are "length"

    def shown(sample: Sample) -> Sample:
        words = _words(sample)
        detail, own, end = (known(text) if text else text for text in words)
        detail = detail and _flagged(detail)
        if (detail, own, end) == words:
            return sample
        return replace(sample, detail=detail, server_id=own, finish_reason=end)

    stopped = measurement.stopped and _flagged(hide.text(measurement.stopped))
    samples, warmup = (tuple(map(shown, every)) for every in (measurement.samples, measurement.warmup))
    return replace(measurement, samples=samples, warmup=warmup, stopped=stopped)


def _words(sample: Sample) -> tuple[str | None, str | None, str | None]:
    return sample.detail, sample.server_id, sample.finish_reason
