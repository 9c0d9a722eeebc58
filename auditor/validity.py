"""Measurement validity: could the measurement have faked a verdict? Judged before the checks, belongs to no question.

Each rule names the outcomes that it could have faked (`voids`: "W110:pass", "K305:fail") and voids only those. What
makes a service look better than it is voids passes; what makes it look worse voids failures. A rule never hides a
failure that is real all the same: a queue that grows under a healthy client, a stream buffered on the users' own path.

| rule | what could have gone wrong | voids |
|---|---|---|
| T501 | prompts came from a cache | passes |
| T502 | replies were shorter than asked | passes |
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

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.measurement import Measurement, Sample
from auditor.theory import judging
from auditor.theory.physics import beaten
from auditor.theory.statistics import effective_size, median, steady_start

__all__ = ["FAMILY", "judge"]

CACHED = 0.05  # of the prompt tokens, beyond declared prefixes
SHORT = 0.95  # of the tokens asked for
REACHED = 0.9  # of the concurrency
MOSTLY = 0.8  # of the time while requests are still to be sent
LAG = 0.005  # seconds of the client's own delay that no verdict notices
BUSY = 0.9  # of one core
TURNOVERS = 5  # completions a slot before a load counts as steady
COARSE = 10  # tokens an event

LATENCY = ("W110", "W111", "W112", "W114")
LOADED = (*LATENCY, "W113", "W120", "K304", "K305", "K306", "K307")


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """All T findings. Evidence without measurements gives none: there is nothing that could be invalid."""
    if not evidence.measurements:
        return ()
    return tuple(finding for rule in FAMILY.rules for finding in rule.judge(evidence))


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
        share = _cached_share(evidence, m)
        if share is None:
            yield FAMILY.skip("T501", "cached tokens in usage, or prefix-cache counters on the metrics page", **rest)
            continue
        rest["measured"] = Number.of("prompt tokens cached, undeclared", share, "share", "measured", len(m.samples))
        if share <= CACHED:
            yield _fine(
                "T501", f"{share:.1%} of the prompt tokens came from a cache that the profile does not declare.", **rest
            )
            continue
        why = f"{share:.0%} of the prompt tokens came from a cache: real prompts, all different, would take longer."
        fix = ("declare shared_prefix where the traffic has one, or measure with caches cleared",)
        yield _doubt("T501", why, _voids(LOADED, "pass"), "a load whose prompts no cache holds", remedies=fix, **rest)


def _cached_share(evidence: Evidence, m: Measurement) -> float | None:
    template = (evidence.served.template_tokens if evidence.served else 0) + 32  # and one block of rounding
    shapes = dict(enumerate(m.load.shapes))
    told = [s for s in m.judged if s.good and s.cached_tokens is not None and s.prompt_tokens]
    if told:
        extra = sum(max(0, (s.cached_tokens or 0) - _prefix(shapes, s) - template) for s in told)
        return extra / sum(s.prompt_tokens or 0 for s in told)
    hits, queries = m.moved("prefix_hits"), m.moved("prefix_queries")
    if hits is None or not queries:
        return None
    asked = sum(s.prompt_tokens for s in m.load.shapes) or 1
    declared = sum(s.prefix_tokens for s in m.load.shapes) / asked
    return max(0.0, hits / queries - declared - template * len(m.load.shapes) / asked)


def _prefix(shapes: Mapping[int, Any], sample: Sample) -> int:
    return shapes[sample.index].prefix_tokens if sample.index in shapes else 0


def t502_short(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        told = [s for s in m.judged if s.good and s.output_tokens is not None]
        if not told:
            yield FAMILY.skip("T502", "good replies with their token counts", **rest)
            continue
        got, asked = sum(s.output_tokens or 0 for s in told), sum(s.asked_output_tokens for s in told)
        share = got / max(1, asked)
        rest["measured"] = Number.of("output tokens got of those asked", share, "share", "measured", len(told))
        if share >= SHORT:
            yield _fine("T502", f"Replies had {share:.1%} of the tokens asked for.", **rest)
            continue
        why = f"Replies had {got} of {asked} tokens: shorter replies hold less cache for less time and end sooner."
        fix = ("let the engine honour min_tokens or ignore_eos for the probe, or shorten output_tokens to the truth",)
        yield _doubt("T502", why, _voids(LOADED, "pass"), "replies of the declared length", remedies=fix, **rest)


def t503_concurrency(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        asked = max(m.load.concurrency, evidence.target or 0)
        peak = m.client.peak_inflight
        part = _time_near(m, REACHED * asked)
        rest["measured"] = Number.of("most in flight", peak, "requests", "measured")
        rest["required"] = Number.of("target", asked, "requests", "declared")
        rest["numbers"] = (Number.of(f"time at {REACHED:.0%} of the target or more", part, "share", "measured"),)
        if peak >= REACHED * asked and part >= MOSTLY:
            yield _fine("T503", f"{peak} requests were in flight, {asked} were asked.", **rest)
            continue
        why = f"At most {peak} of {asked} requests were in flight, {part:.0%} of the time near the target."
        fix = ("raise probe.budget, or lift what limits connections on the way (proxy, ulimit)",)
        yield _doubt("T503", why, _voids(LOADED, "pass"), "a load at the declared concurrency", remedies=fix, **rest)


def _time_near(m: Measurement, level: float) -> float:
    """The share of the time with at least `level` in flight, warm-up included, until the last request was sent."""
    first, last = (edge([s.start for s in m.samples]) for edge in (min, max))
    spans = [(s.start, s.start + (s.closed or s.e2e or s.ttft or 0.0)) for s in (*m.warmup, *m.samples)]
    inside = [(max(a, first), min(b, last)) for a, b in spans if a < last and b > first]
    return judging.time_at(inside, level) / (last - first) if last > first else float(len(spans) >= level)


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
        why = f"{b.what.capitalize()} took {b.seconds:.3g} s, and the declared hardware needs {b.limit:.3g} s at least."
        if theory[2].confidence == "C":
            yield FAMILY.finding("T506", "warn", f"{why} Its figures are provisional.", **rest)
            continue
        rules = ("W110", "W112", "W114", "H202", "H203") if b.phase == "prefill" else ("W111", "W112", "H202", "H203")
        yield _doubt("T506", why, _voids(rules, "pass"), "inputs that the measurement does not contradict", **rest)
    if not found:
        known = "" if accepted is not None else " (decode left out: speculation of unknown yield)"
        yield _fine("T506", f"Nothing was faster than the declared hardware allows{known}.")


def t507_buffered(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        seen = [s.buffered for s in m.judged if s.buffered is not None]
        refused = sum(s.error == "not_streamed" for s in m.judged)
        sizes = [_tokens_an_event(s) for s in m.judged if s.good and len(s.arrivals) > 1]
        rest["numbers"] = (Number.of("replies at once", sum(seen), "requests", "measured", len(seen)),)
        if refused or (seen and sum(seen) > len(seen) / 2):
            count = refused or sum(seen)
            why = f"{count} of {len(m.judged)} replies came all at once: gaps and TPS cannot be seen on this path."
            rules = ("W111", "K307", "H207", "H203")
            fix = ("probe the path without the buffering proxy too, to see what the engine does",)
            yield _doubt(
                "T507", why, _voids(rules, "pass"), "a stream that arrives as it is made", remedies=fix, **rest
            )
        elif sizes and median(sizes) >= COARSE:
            why = f"An event carries {median(sizes):.0f} tokens: first tokens and gaps are seen that coarsely."
            yield FAMILY.finding("T507", "warn", why, **rest)
        elif seen or sizes:
            yield _fine("T507", "Tokens arrive as they are made.", **rest)
        else:
            yield FAMILY.skip("T507", "replies of ten tokens or more", **rest)


def _tokens_an_event(sample: Sample) -> float:
    return max(1, (sample.output_tokens or 1) - sample.first_tokens) / (len(sample.arrivals) - 1)


def t511_speculation(evidence: Evidence) -> Iterable[Finding]:
    if not evidence.speculates:
        yield _fine("T511", "No speculative decoding.")
    elif evidence.profile.traffic.prompts:
        yield _fine("T511", "Speculation ran on the traffic's own prompts.")
    else:
        why = "Speculative decoding guessed synthetic text, whose acceptance rate is not that of real traffic."
        fix = ("give the traffic's own prompts in traffic.prompts",)
        voids = _voids(("W111", "W112"), "pass")
        where = evidence.where("traffic.prompts")
        yield _doubt("T511", why, voids, "a load of the traffic's own prompts", remedies=fix, where=where)


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
        why = f"The client itself lagged {(lag or 0.0) * 1e3:.1f} ms and used {cpu or 0.0:.0%} of a core: part of the "
        why += "measured time is its own."
        voids = _voids((*LATENCY, "W120", "K305", "K307"), "fail")
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
        voids = (*_voids((*LATENCY, "W113", "W120"), "fail"), *_voids(("K304", "K305", "K306", "K307"), "pass"))
        fix = ("lift the quota of the probe's key, or set probe.budget and the target within it",)
        yield _doubt("T505", why, voids, "a key without a quota", remedies=fix, **rest)


def t508_foreign(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        ours = len(m.samples) + len(m.warmup)
        moved, running = m.moved("requests"), [v for _, v in m.gauge("running")]
        if moved is None and not running:
            yield FAMILY.skip("T508", "the server's own request counters", **rest)
            continue
        extra = max(0.0, (moved or 0.0) - ours)
        lost = sum(not s.good for s in m.samples)  # requests that ended here may still run there
        most = max(running, default=0.0) - lost
        rest["measured"] = Number.of("requests the server counted", moved, "requests", "measured")
        rest["required"] = Number.of("requests sent", ours, "requests", "measured")
        if extra <= max(2, 0.05 * ours) and most <= max(m.load.concurrency + 1, 1.05 * m.load.concurrency):
            yield _fine("T508", "The server counted no requests but these.", **rest)
            continue
        why = f"The server counted {extra:.0f} requests more than were sent, {most:.0f} running at once with "
        why += f"{m.load.concurrency} in flight here: others used it."
        fix = ("audit a replica that takes no other traffic, or at a quiet hour",)
        yield _doubt("T508", why, _voids(LOADED, "fail"), "a load without other users", remedies=fix, **rest)


# ---------------------------------------------------------------------------------------------------------- either way


def t509_steady(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in _loads(evidence):
        points = [(s.start, s.ttft) for s in m.judged if s.good and s.ttft is not None]
        if len(points) < 3:
            yield FAMILY.skip("T509", "good requests", **rest)
            continue
        yield _steady(evidence, m, points, rest)


def _steady(evidence: Evidence, m: Measurement, points: list[tuple[float, float]], rest: dict[str, Any]) -> Finding:
    times, wanted = [ttft for _, ttft in points], TURNOVERS * m.load.concurrency
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
    moving = judging.growth(points, evidence.profile.probe.confidence)
    if moving is not None and steady_start(times) >= len(times) and (moving.grows or moving.falls):
        word, status = ("grows", "pass") if moving.grows else ("falls", "fail")
        why = f"TTFT {word} from {moving.first:.3g} to {moving.last:.3g} s and never settles: the load is not steady."
        fix = ("raise probe.budget",)
        return _doubt("T509", why, _voids(LATENCY, status), "a longer load", remedies=fix, **rest)
    if worth < len(points) / 2:
        why = f"Neighbouring requests fare alike: {len(points)} are worth {worth:.0f} independent ones (counted so)."
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
        voids = (*_voids(("W111",), "pass"), *_voids(("W111",), "fail"))
        fix = ("let the endpoint honour stream_options.include_usage",)
        yield _doubt("T510", why, voids, "usage in the replies", remedies=fix, **rest)


def t512_stopped(evidence: Evidence) -> Iterable[Finding]:
    stopped = [m for m in evidence.measurements if m.stopped]
    for m in stopped:
        sent, planned = len(m.judged), len(m.load.shapes)
        why = f"Load {m.load.id} ended after {sent} of {planned} requests: {m.stopped}."
        rest: dict[str, Any] = {"subject": m.load.id, "where": evidence.where("probe.budget")}
        if m.load.purpose == "slo":
            missing = f"the other {planned - sent} requests"
            yield _doubt("T512", why, _voids(LOADED, "pass"), missing, **rest)
        else:
            yield FAMILY.finding("T512", "warn", why, severity="low", **rest)
    notes = evidence.plan.notes if evidence.plan else ()
    for note in notes:
        rest = {"where": evidence.where("probe.budget"), "remedies": ("raise probe.budget",)}
        yield FAMILY.finding("T512", "warn", f"Known before the load: {note.message}.", severity="low", **rest)
    if not stopped and not notes:
        yield _fine("T512", "Every planned load ran to its end.")


FAMILY = Check(
    question="T",
    title="Measurement validity",
    rules=(
        Rule("T501", "Cached prompts", t501_cached),
        Rule("T502", "Short replies", t502_short),
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
