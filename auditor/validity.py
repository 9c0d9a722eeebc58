"""Measurement validity: could the measurement have faked a verdict? Judged before the checks, belongs to no question.

Each rule names the outcomes that it could have faked (`voids`: "W110:pass", "K305:fail") and voids only those. What
makes a service look better than it is voids passes; what makes it look worse voids failures. A rule never hides a
failure that is real all the same: a queue that grows under a healthy client, a stream buffered on the users' own path,
an SLO that is missed even if each doubtful request is judged in the service's favour (`slo.outcomes`).

| rule | what could have gone wrong | voids |
|---|---|---|
| T501 | prompts came from a cache | passes |
| T502 | replies or prompts were not as long as asked | passes; failures where prompts were longer |
| T503 | the concurrency was not reached | passes |
| T504 | the client was the bottleneck | failures of latency |
| T505 | a rate limit in front of the engine | failures of latency and errors, passes of KV |
| T506 | faster than physics | passes that rest on the phase |
| T507 | the stream was buffered | passes that need gaps |
| T508 | others used the service | failures |
| T509 | no steady state, dependent requests | passes while it warms up, failures while it cools down |
| T510 | tokens were estimated | TPS either way |
| T511 | speculation on synthetic text | TPS and E2E passes |
| T512 | stopped early, or beyond the budget | passes |
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from auditor import slo
from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.measurement import Measurement
from auditor.theory import judging
from auditor.theory.physics import beaten
from auditor.theory.statistics import effective_size, median
from auditor.units import count, percent, quantity

__all__ = ["FAMILY", "judge"]

CACHED = 0.05  # of the prompt tokens, beyond declared prefixes
SHORT = 0.95  # of the tokens asked for
REACHED = 0.9  # of the concurrency
MOSTLY = 0.8  # of the time while requests are still to be sent
LAG = 0.005  # seconds of the client's own delay that no verdict notices
BUSY = 0.9  # of one core
TURNOVERS = 5  # completions a slot before a load counts as steady
COARSE = 10  # tokens an event
SLIGHT = 0.2  # requests of others for one of ours that explain no preemption

LATENCY = tuple(slo.LATENCY)
NEEDED_BY = {  # what each purpose is called, and the rules that look at it
    "cold": ("the first request kept apart", ("H204",)),
    "slo": ("the load at the target", (*LATENCY, "W102", "W113", "W120", "K304", "K305", "K306", "K307", "H207")),
    "prefill": ("the prefill ladder", ("H202", "H203", "H204", "H207", "W103")),
    "decode": ("the decode ladder", ("H202", "H203", "W103")),
}
LOADED = (*LATENCY, "W113", "W120", "H210", "H212", "K304", "K305", "K306", "K307")


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """All T findings. Evidence without measurements gives none: there is nothing that could be invalid."""
    rules = FAMILY.rules if evidence.measurements else ()
    return tuple(finding for rule in rules for finding in rule.judge(evidence))


def _voids(rules: Iterable[str], status: str) -> tuple[str, ...]:
    return tuple(f"{rule}:{status}" for rule in rules)


def _loads(evidence: Evidence) -> Iterator[tuple[Measurement, dict[str, Any]]]:
    """The SLO loads that sent something, with the subject that tells several apart."""
    loads = [m for m in evidence.loads("slo") if m.samples]
    for m in loads:
        yield m, {"subject": m.load.id if len(loads) > 1 else None, "where": evidence.where("traffic")}


def _doubt(rule: str, why: str, voids: tuple[str, ...], missing: str, **rest: Any) -> Finding:
    return FAMILY.finding(rule, "inconclusive", why, voids=voids, missing=missing, **rest)


def _fine(rule: str, why: str, **rest: Any) -> Finding:
    return FAMILY.finding(rule, "pass", why, **rest)


# ---------------------------------------------------------------------------------------------- looks better than it is


def t501_cached(evidence: Evidence) -> Iterable[Finding]:
    """The server's own count of cached tokens, less the prefixes that the profile declares and the chat template."""
    for m, rest in _loads(evidence):
        share = m.cached_share((evidence.served.template_tokens if evidence.served else 0) + 32)  # a block of rounding
        if share is None:
            yield FAMILY.skip("T501", "cached tokens in usage, or prefix-cache counters on the metrics page", **rest)
            continue
        rest["measured"] = Number.of("prompt tokens cached, undeclared", share, "share", "measured", len(m.samples))
        if share <= CACHED:
            yield _fine("T501", f"{percent(share)} of the prompt tokens came from an undeclared cache.", **rest)
            continue
        why = f"{percent(share)} of the prompt tokens came from a cache: real prompts would take longer."
        fix = ("declare shared_prefix where the traffic has one, or measure with caches cleared",)
        yield _doubt("T501", why, _voids(LOADED, "pass"), "a load whose prompts no cache holds", remedies=fix, **rest)


def t502_lengths(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        good = [s for s in m.judged if s.good]
        replies = judging.got((s.output_tokens, s.asked_output_tokens) for s in good)
        prompts = judging.got((s.prompt_tokens, s.asked_prompt_tokens) for s in good)
        if replies is None:
            yield FAMILY.skip("T502", "good replies with their token counts", **rest)
            continue
        rest["measured"] = Number.of("output tokens got of those asked", replies, "share", "measured", len(good))
        rest["numbers"] = (Number.of("prompt tokens counted of those asked", prompts, "share", "measured"),)
        if replies < SHORT:
            why = f"Replies had {percent(replies)} of the tokens asked for: they hold less cache for less time."
            fix = ("let the engine honour min_tokens or ignore_eos for the probe, or declare shorter output_tokens",)
            yield _doubt("T502", why, _voids(LOADED, "pass"), "replies of the declared length", remedies=fix, **rest)
        elif prompts is not None and not SHORT <= prompts <= 1 / SHORT:
            why = f"Prompts had {percent(prompts)} of the tokens that the profile declares: users send others."
            fix = ("look at what changes prompts on the way, and at the texts of traffic.prompts",)
            voids = _voids(LOADED, "pass" if prompts < SHORT else "fail")
            yield _doubt("T502", why, voids, "prompts of the declared length", remedies=fix, **rest)
        else:
            yield _fine("T502", f"Replies had {percent(replies)} of the tokens asked for.", **rest)


def t503_concurrency(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        asked = max(m.load.concurrency, evidence.target or 0)
        peak = m.client.peak_inflight
        part = m.time_near(REACHED * asked)
        rest["measured"] = Number.of("most in flight", peak, "requests", "measured")
        rest["required"] = Number.of("target", asked, "requests", "declared")
        rest["numbers"] = (Number.of(f"time at {percent(REACHED)} of the target or more", part, "share", "measured"),)
        if peak >= REACHED * asked and part >= MOSTLY:
            yield _fine("T503", f"{count(peak, 'request')} in flight, {asked} asked.", **rest)
            continue
        why = f"At most {peak} of {count(asked, 'request')} were in flight, {percent(part)} of the time near that."
        fix = "raise probe.budget, or lift what limits connections on the way (proxy, ulimit)"
        if evidence.profile.traffic.request_rate and asked > m.load.concurrency:
            fix = f"declare traffic.target_concurrency: {asked}, which the rate takes at the measured times"
        yield _doubt("T503", why, _voids(LOADED, "pass"), "a load at the declared concurrency", remedies=(fix,), **rest)


def t506_physics(evidence: Evidence) -> Iterable[Finding]:
    theory, accepted = evidence.theory, evidence.accept_length
    good = [(s, s.tpot) for s in evidence.requests() if s.good and s.tpot is not None]
    decode = list(evidence.decode_points)
    if good:
        context = round(median([s.prompt_tokens or s.asked_prompt_tokens for s, _ in good]))
        decode.append((1, context, median([tpot for _, tpot in good])))
    if theory is None or not (evidence.prefill_points or decode):
        yield FAMILY.skip("T506", evidence.lacking or "ladders or a load to hold against the limits")
        return
    found = beaten(*theory, evidence.prefill_points, decode, accepted)
    for b in found:
        rest: dict[str, Any] = {"subject": b.phase, "where": evidence.where("deployment")}
        rest["measured"] = Number.of(b.what, b.seconds, "s", "measured")
        rest["required"] = Number.of("physical limit", b.limit, "s", "computed")
        needs = f"the declared hardware needs {quantity(b.limit, 's')} at least"
        why = f"{b.what.capitalize()} took {quantity(b.seconds, 's')}, and {needs}."
        if not b.sure:
            yield FAMILY.finding("T506", "warn", f"{why} Its figures are provisional.", **rest)
            continue
        rules = (*(("W110", "W114") if b.phase == "prefill" else ("W111",)), "W112", "H202", "H203", "H210")
        yield _doubt("T506", why, _voids(rules, "pass"), "inputs that the measurement does not contradict", **rest)
    known = "" if accepted is not None else " (decode left out: speculation of unknown yield)"
    if not found:
        yield _fine("T506", f"Nothing was faster than the declared hardware allows{known}.")


def t507_buffered(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        seen = [s.buffered for s in m.judged if s.buffered is not None]
        refused = sum(s.error == "not_streamed" for s in m.judged)
        sizes = [s.tokens_an_event for s in m.judged if s.good and s.tokens_an_event is not None]
        rest["numbers"] = (Number.of("replies at once", sum(seen), "requests", "measured", len(seen)),)
        if refused or (seen and sum(seen) > len(seen) / 2):
            why = f"{refused or sum(seen)} of {len(m.judged)} replies came all at once: this path hides gaps and TPS."
            voids = _voids(("W111", "K307", "H207", "H203"), "pass")
            fix = ("probe the path without the buffering proxy too, to see what the engine does",)
            yield _doubt("T507", why, voids, "a stream that arrives as it is made", remedies=fix, **rest)
        elif sizes and median(sizes) >= COARSE:
            why = f"An event carries {median(sizes):.0f} tokens: first tokens and gaps are seen that coarsely."
            yield FAMILY.finding("T507", "warn", why, **rest)
        elif seen or sizes:
            yield _fine("T507", "Tokens arrive as they are made.", **rest)
        else:
            yield FAMILY.skip("T507", "replies of ten tokens or more", **rest)


def t511_speculation(evidence: Evidence) -> Iterable[Finding]:
    if not evidence.speculates:
        yield _fine("T511", "No speculative decoding.")
    elif evidence.profile.traffic.prompts:
        yield _fine("T511", "Speculation ran on the traffic's own prompts.")
    else:
        why = "Speculative decoding guessed synthetic text, whose acceptance rate is not that of real traffic."
        fix = ("give the traffic's own prompts in traffic.prompts",)
        rest = {"remedies": fix, "where": evidence.where("traffic.prompts")}
        yield _doubt("T511", why, _voids(("W111", "W112"), "pass"), "a load of the traffic's own prompts", **rest)


# ----------------------------------------------------------------------------------------------- looks worse than it is


def t504_client(evidence: Evidence) -> Iterable[Finding]:
    limits = [o.limit for metric in ("ttft", "first_answer") for o in evidence.profile.objectives(metric)]
    allowed = max(LAG, 0.01 * min(limits, default=0.0))
    for m, rest in _loads(evidence):
        lag, cpu = m.client.loop_lag_p99, m.client.cpu_share
        if lag is None and cpu is None:
            yield FAMILY.skip("T504", "the client's own lag", **rest)
            continue
        rest["measured"] = Number.of("client lag p99", lag, "s", "measured")
        rest["required"] = Number.of("client lag allowed", allowed, "s", "computed")
        rest["numbers"] = (Number.of("client CPU, share of a core", cpu, "share", "measured"),)
        if (lag or 0.0) <= allowed and (cpu or 0.0) <= BUSY:
            yield _fine("T504", "The client kept up.", **rest)
            continue
        seen = (f"lagged {quantity(lag, 's')}" if lag else "", f"used {percent(cpu)} of a core" if cpu else "")
        why = f"The client itself {' and '.join(filter(None, seen))}: part of the measured time is its own."
        doubtful = slo.doubtful(evidence, partial(slo.later, lag=m.client.loop_lag_max))
        felt = ("K307",) if m.gauge("waiting") else ("K305", "K307")  # a queue that the server counts is no lag
        voids = _voids((*doubtful, "W120", *felt), "fail")
        fix = ("run the audit from a machine with a free core, near the service",)
        yield _doubt("T504", why, voids, "a client with a free core", remedies=fix, **rest)


def t505_rate_limit(evidence: Evidence) -> Iterable[Finding]:
    """Only what a gateway refuses by quota; an engine that refuses because its queue is full has failed."""
    for m, rest in _loads(evidence):
        limited = [s for s in m.judged if s.rate_limited]
        if not limited:
            yield _fine("T505", "No gateway limited the rate.", **rest)
            continue
        waits = [s.retry_after for s in limited if s.retry_after is not None]
        wait = f", which asks to wait {max(waits):.0f} s" if waits else ""
        said = next((f" ({s.detail})" for s in limited if s.detail), "")
        why = f"A gateway's quota refused {len(limited)} of {len(m.judged)} requests{wait}{said}; no engine saw them."
        rest["measured"] = Number.of("refused by quota", len(limited), "requests", "measured", len(m.judged))
        doubtful = slo.doubtful(evidence, lambda _: slo.instead(None, attrgetter("rate_limited")))
        errors = ("W113",) if "fail" not in slo.error_outcomes(evidence, attrgetter("rate_limited")) else ()
        voids = _voids((*doubtful, *errors, "W120"), "fail") + _voids(("K304", "K305", "K306", "K307"), "pass")
        fix = ("lift the quota of the probe's key, or set probe.budget and the target within it",)
        yield _doubt("T505", why, voids, "a key without a quota", remedies=fix, **rest)


def t508_foreign(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        ours, asked = len(m.samples) + len(m.warmup), m.load.concurrency
        moved, running = m.moved("requests"), [v for _, v in m.gauge("running")]
        if moved is None and not running:
            yield FAMILY.skip("T508", "the server's own request counters", **rest)
            continue
        extra = max(0.0, (moved or 0.0) - ours)
        seen = max([*running, *(m.present if moved is None else ())], default=0.0)
        most = seen - sum(not s.good for s in m.samples)  # requests that ended here may still run there
        rest["measured"] = Number.of("requests the server counted", moved, "requests", "measured")
        rest["required"] = Number.of("requests sent", ours, "requests", "measured")
        rest["numbers"] = (Number.of("most at the server at once", seen, "requests", "measured"),)
        if extra <= max(2, 0.05 * ours) and most <= max(asked + 1, 1.05 * asked):
            sure = "high" if moved is not None else "medium"
            yield _fine("T508", _alone(moved is not None, seen, asked), confidence=sure, **rest)
            continue
        counted = f"counted {extra:.0f} requests more than were sent" if moved is not None else "counts no requests"
        why = f"The server {counted}, {seen:.0f} were there at once with {asked} in flight here: others used it."
        fix = ("audit a replica that takes no other traffic, or at a quiet hour",)
        slight = moved is not None and extra <= SLIGHT * ours and most <= (1 + SLIGHT) * asked
        voids = _voids((r for r in LOADED if r != "K304" or not slight), "fail")
        yield _doubt("T508", why, voids, "a load without other users", remedies=fix, **rest)


def _alone(counted: bool, most: float, asked: int) -> str:
    if counted:
        return "The server counted no requests but these."
    why = f"Never more than {count(most, 'request')} ran or waited at the server with {asked} in flight here. "
    return f"{why}It does not count finished requests: those of others between two readings would not show."


# ---------------------------------------------------------------------------------------------------------- either way


def t509_steady(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        few = FAMILY.skip("T509", "requests with a first token", **rest)
        yield few if len(m.first_waits) < 3 else _steady(m, evidence.profile.probe.confidence, rest)


def _steady(m: Measurement, confidence: float, rest: dict[str, Any]) -> Finding:
    """Whether TTFT settles is told by the same rule as in W120."""
    points, wanted = m.first_waits, TURNOVERS * m.load.concurrency
    times = [ttft for _, ttft in points]
    middle = median(times)
    worth = effective_size([t > middle for t in times])
    rest["numbers"] = (
        Number.of("requests", len(points), "requests", "measured"),
        Number.of("independent requests they are worth", worth, "requests", "measured"),
    )
    if len(m.judged) < wanted:
        why = f"{len(m.judged)} requests over {m.load.concurrency} slots: fewer than {TURNOVERS} a slot never settle."
        missing = f"{wanted - len(m.judged)} more requests"
        fix = ("raise probe.budget",)
        return _doubt("T509", why, _voids(LOADED, "pass"), missing, remedies=fix, **rest)
    moving = judging.growth(points, confidence)
    way = f"from {quantity(moving.first, 's')} to {quantity(moving.last, 's')}" if moving is not None else ""
    if moving is not None and (moving.grows or moving.falls) and not judging.settles(points, confidence):
        word, status = ("rises", "pass") if moving.grows else ("falls", "fail")
        fix, why = ("raise probe.budget",), f"TTFT {word} {way} and never settles: the load is not steady."
        return _doubt("T509", why, _voids(LATENCY, status), "a longer load", remedies=fix, **rest)
    if worth < len(points) / 2:
        why = f"Neighbours fare alike: judged at the median, {len(points)} are worth {worth:.0f} independent requests."
        return FAMILY.finding("T509", "warn", why, severity="low", **rest)
    if moving is not None and (moving.grows or moving.falls):
        why = f"TTFT moves {way} and settles: the percentiles count the beginning too."
        return FAMILY.finding("T509", "warn", why, severity="low", **rest)
    return _fine("T509", "The load is steady.", **rest)


def t510_estimated(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        guessed = sum(s.estimated for s in m.judged if s.good)
        if not guessed:
            yield _fine("T510", "Token counts are the server's own.", **rest)
            continue
        why = f"{guessed} replies came without usage: their tokens are counted from events, which may carry several."
        rest["measured"] = Number.of("replies without usage", guessed, "requests", "measured", len(m.judged))
        slowest, fastest = (
            list(slo.outcomes(evidence, "W111", slo.instead(x, attrgetter("estimated")))) for x in (math.inf, 0.0)
        )
        voids = _voids(("W111",), "pass") if any(o != "pass" for o in slowest) else ()
        voids += _voids(("W111",), "fail") if "fail" not in fastest else ()
        fix = ("let the endpoint honour stream_options.include_usage",)
        yield _doubt("T510", why, voids, "usage in the replies", remedies=fix, **rest)


def t512_stopped(evidence: Evidence) -> Iterable[Finding]:
    stopped = [m for m in evidence.measurements if m.stopped]
    found = [*map(_ended, stopped), *_never_ran(evidence, stopped), *_known_before(evidence)]
    for finding in found or [_fine("T512", "Every planned load ran to its end.")]:
        yield replace(finding, where=evidence.where("probe.budget"))


def _ended(m: Measurement) -> Finding:
    sent, planned = len(m.judged), len(m.load.shapes)
    why = f"Load {m.load.id} ended after {sent} of {count(planned, 'request')}: {m.stopped}."
    rest: dict[str, Any] = {"subject": m.load.id, "remedies": _budget(m.stopped)}
    if m.load.purpose == "slo":
        missing = f"the rest of load {m.load.id}, {count(planned - sent, 'request')}"
        return _doubt("T512", why, _voids(LOADED, "pass"), missing, **rest)
    return FAMILY.finding("T512", "warn", why, severity="low", **rest)


def _budget(ended: str | None) -> tuple[str, ...]:
    return ("raise probe.budget",) if ended and "budget" in ended else ()


def _never_ran(evidence: Evidence, stopped: Sequence[Measurement]) -> Iterator[Finding]:
    """The loads of the plan that the end of the probe left out, and the rules that would have looked at them."""
    ran = {m.load.id for m in evidence.measurements}
    left = Counter(load.purpose for load in (evidence.plan.loads if evidence.plan else ()) if load.id not in ran)
    if left:
        ended = stopped[-1].stopped if stopped else None
        names = " and ".join(f"{NEEDED_BY[purpose][0]} ({count(n, 'load')})" for purpose, n in left.items())
        rules = ", ".join(sorted({rule for purpose in left for rule in NEEDED_BY[purpose][1]}))
        why = f"Planned and never run: {names}. {f'The probe had ended before: {ended}. ' if ended else ''}"
        why += f"{rules} are judged without."
        yield FAMILY.finding("T512", "warn", why, subject="never run", severity="low", remedies=_budget(ended))


def _known_before(evidence: Evidence) -> Iterator[Finding]:
    """What the plan knew that the budget cannot decide, one finding for the same rules."""
    messages: dict[tuple[str, ...], list[str]] = {}
    for note in evidence.plan.notes if evidence.plan else ():
        messages.setdefault(note.rules, []).append(note.message)
    for texts in messages.values():
        why, fix = f"Known before the load: {'; '.join(texts)}.", ("raise probe.budget",)
        yield FAMILY.finding("T512", "warn", why, severity="low", remedies=fix)


FAMILY = Check(
    question="T",
    title="Measurement validity",
    rules=(
        Rule("T501", "Cached prompts", t501_cached),
        Rule("T502", "Lengths as asked", t502_lengths),
        Rule("T503", "Concurrency reached", t503_concurrency),
        Rule("T504", "Client as the bottleneck", t504_client),
        Rule("T505", "Rate limit", t505_rate_limit),
        Rule("T506", "Faster than physics", t506_physics),
        Rule("T507", "Buffered stream", t507_buffered),
        Rule("T508", "Foreign traffic", t508_foreign),
        Rule("T509", "Steady state", t509_steady),
        Rule("T510", "Estimated tokens", t510_estimated),
        Rule("T511", "Speculation on synthetic text", t511_speculation),
        Rule("T512", "Stopped early", t512_stopped),
    ),
)
