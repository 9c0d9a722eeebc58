"""What prompts and replies were: cached, short, buffered, counted, guessed, or faster than physics."""

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from auditor import slo
from auditor.evidence import Evidence, Finding, Number
from auditor.measurement import Measurement, Sample
from auditor.theory import judging
from auditor.theory.physics import beaten
from auditor.theory.statistics import median
from auditor.units import percent, quantity
from auditor.validity.findings import LOADED, doubt, each_load, finding, fine, skip, voids

__all__ = [
    "t501_cached",
    "t502_lengths",
    "t506_physics",
    "t507_buffered",
    "t510_estimated",
    "t511_speculation",
    "t517_answer",
]

CACHED = 0.05  # of the prompt tokens, beyond declared prefixes
SHORT = 0.95  # of the tokens asked for
COARSE = 10  # tokens an event


def t501_cached(evidence: Evidence) -> Iterable[Finding]:
    """The server's own count of cached tokens, less the prefixes that the profile declares and the chat template."""
    for m, rest in each_load(evidence):
        share = m.cached_share((evidence.served.template_tokens if evidence.served else 0) + 32)  # a block of rounding
        if share is None:
            yield skip("T501", "cached tokens in usage, or prefix-cache counters on the metrics page", **rest)
            continue
        rest["measured"] = Number.of("prompt tokens cached, undeclared", share, "share", "measured", len(m.samples))
        if share <= CACHED:
            yield fine("T501", f"{percent(share)} of the prompt tokens came from an undeclared cache.", **rest)
            continue
        why = f"{percent(share)} of the prompt tokens came from a cache: real prompts would take longer."
        fix = ("declare shared_prefix where the traffic has one, or measure with caches cleared",)
        yield doubt("T501", why, voids(LOADED, "pass"), "a load whose prompts no cache holds", remedies=fix, **rest)


def t502_lengths(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        good = [s for s in m.judged if s.good]
        replies = judging.got((s.output_tokens, s.asked_output_tokens) for s in good)
        prompts = judging.got((s.prompt_tokens, s.asked_prompt_tokens) for s in good)
        if replies is None:
            yield skip("T502", "good replies with their token counts", **rest)
            continue
        rest["measured"] = Number.of("output tokens got of those asked", replies, "share", "measured", len(good))
        rest["numbers"] = (Number.of("prompt tokens counted of those asked", prompts, "share", "measured"),)
        if replies < SHORT:
            why = f"Replies had {percent(replies)} of the tokens asked for: they hold less cache for less time."
            fix = ("let the engine honour min_tokens or ignore_eos for the probe, or declare shorter output_tokens",)
            yield doubt("T502", why, voids(LOADED, "pass"), "replies of the declared length", remedies=fix, **rest)
        elif prompts is not None and not SHORT <= prompts <= 1 / SHORT:
            why = f"Prompts had {percent(prompts)} of the tokens that the profile declares: users send others."
            fix = ("look at what changes prompts on the way, and at the texts of traffic.prompts",)
            void = voids(LOADED, "pass" if prompts < SHORT else "fail")
            yield doubt("T502", why, void, "prompts of the declared length", remedies=fix, **rest)
        else:
            yield fine("T502", f"Replies had {percent(replies)} of the tokens asked for.", **rest)


def t506_physics(evidence: Evidence) -> Iterable[Finding]:
    theory, accepted = evidence.theory, evidence.accept_length
    good = [(s, s.tpot) for s in evidence.requests() if s.good and s.tpot is not None]
    decode = list(evidence.decode_points)
    if good:
        context = round(median([s.prompt_tokens or s.asked_prompt_tokens for s, _ in good]))
        decode.append((1, context, median([tpot for _, tpot in good])))
    if theory is None or not (evidence.prefill_points or decode):
        yield skip("T506", evidence.lacking or "ladders or a load to hold against the limits")
        return
    found = beaten(*theory, evidence.prefill_points, decode, accepted)
    for b in found:
        rest: dict[str, Any] = {"subject": b.phase, "where": evidence.where("deployment")}
        rest["measured"] = Number.of(b.what, b.seconds, "s", "measured")
        rest["required"] = Number.of("physical limit", b.limit, "s", "computed")
        needs = f"the declared hardware needs {quantity(b.limit, 's')} at least"
        why = f"{b.what.capitalize()} took {quantity(b.seconds, 's')}, and {needs}."
        if not b.sure:
            yield finding("T506", "warn", f"{why} Its figures are provisional.", **rest)
            continue
        rules = (*(("W110", "W114") if b.phase == "prefill" else ("W111",)), "W112", "H202", "H203", "H210")
        yield doubt("T506", why, voids(rules, "pass"), "inputs that the measurement does not contradict", **rest)
    known = "" if accepted is not None else " (decode left out: speculation of unknown yield)"
    if not found:
        yield fine("T506", f"Nothing was faster than the declared hardware allows{known}.")


def t507_buffered(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        seen = [s.buffered for s in m.judged if s.buffered is not None]
        refused = sum(s.error == "not_streamed" for s in m.judged)
        events = [s.tokens_an_event for s in m.judged if s.good and s.tokens_an_event is not None]
        clumps = [s.clump for s in m.judged if s.clump is not None]
        held = sum(clump >= COARSE for clump in clumps)
        coarse = bool(events) and median(events) >= COARSE
        rest["numbers"] = (
            Number.of("replies at once", sum(seen), "requests", "measured", len(seen)),
            Number.of("tokens an event", median(events) if events else None, "tokens", "measured", len(events)),
        )
        if refused or (seen and sum(seen) > len(seen) / 2):
            yield _hidden(f"{refused or sum(seen)} of {len(m.judged)} replies came all at once", m, rest)
        elif held > sum(s.good for s in m.judged) / 2 and not coarse:
            yield _hidden(f"{held} of {len(m.judged)} replies came in bursts of {median(clumps):.0f} tokens", m, rest)
        elif coarse:
            why = f"An event carries {median(events):.0f} tokens: first tokens and gaps are seen that coarsely."
            yield finding("T507", "warn", why, **rest)
        elif seen or events:
            yield fine("T507", "Tokens arrive as they are made.", **rest)
        else:
            yield skip("T507", "replies of ten tokens or more", **rest)


def _hidden(seen: str, m: Measurement, rest: dict[str, Any]) -> Finding:
    """A path that keeps tokens back, and who says that it is on it."""
    between = next((s.via for s in m.judged if s.via), None)
    why = f"{seen}: this path hides gaps and TPS{f' (it names {between})' if between else ''}."
    fix = ("probe the path without the buffering proxy too, to see what the engine does",)
    void = voids(("W111", "K307", "H207", "H203"), "pass")
    return doubt("T507", why, void, "a stream that arrives as it is made", remedies=fix, **rest)


def t510_estimated(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        guessed = sum(s.estimated for s in m.judged if s.good)
        if not guessed:
            yield fine("T510", "Token counts are the server's own.", **rest)
            continue
        why = f"{guessed} replies came without usage: their tokens are counted from events, which may carry several."
        rest["measured"] = Number.of("replies without usage", guessed, "requests", "measured", len(m.judged))
        slowest, fastest = (
            list(slo.outcomes(evidence, "W111", slo.instead(x, attrgetter("estimated")))) for x in (math.inf, 0.0)
        )
        void = voids(("W111",), "pass") if any(o != "pass" for o in slowest) else ()
        void += voids(("W111",), "fail") if "fail" not in fastest else ()
        fix = ("let the endpoint honour stream_options.include_usage",)
        yield doubt("T510", why, void, "usage in the replies", remedies=fix, **rest)


def t511_speculation(evidence: Evidence) -> Iterable[Finding]:
    if not evidence.speculates:
        yield fine("T511", "No speculative decoding.")
    elif evidence.profile.traffic.prompts:
        yield fine("T511", "Speculation ran on the traffic's own prompts.")
    else:
        why = "Speculative decoding guessed synthetic text, whose acceptance rate is not that of real traffic."
        fix = ("give the traffic's own prompts in traffic.prompts",)
        rest = {"remedies": fix, "where": evidence.where("traffic.prompts")}
        yield doubt("T511", why, voids(("W111", "W112"), "pass"), "a load of the traffic's own prompts", **rest)


def t517_answer(evidence: Evidence) -> Iterable[Finding]:
    """Where the first answer has an SLO: a reply whose length ran out within its reasoning shows no answer's time."""
    for m, rest in each_load(evidence) if evidence.profile.objectives("first_answer") else ():
        silent = sum(_silent(s) for s in m.judged)
        if not silent:
            yield fine("T517", "Every good reply reached its answer.", **rest)
            continue
        why = f"{silent} of {len(m.judged)} replies ended within their reasoning: they count as "
        why += "misses, and when their answers would have come is not known."
        rest["measured"] = Number.of("replies without an answer", silent, "requests", "measured", len(m.judged))
        void = (
            voids(("W114",), "fail") if "fail" not in slo.outcomes(evidence, "W114", slo.instead(0.0, _silent)) else ()
        )
        fix = ("declare output_tokens that hold reasoning and answer, or bound the reasoning",)
        yield doubt("T517", why, void, "replies that reach their answer", remedies=fix, **rest)


def _silent(sample: Sample) -> bool:
    return sample.good and sample.first_answer is None
