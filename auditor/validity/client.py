"""The client itself: did it send what was asked when it was asked, and is part of what it measured its own delay?"""

from collections.abc import Iterable
from functools import partial

from auditor import slo
from auditor.evidence import Evidence, Finding, Number
from auditor.measurement import Measurement, Sample
from auditor.theory.judging import rank
from auditor.units import count, percent, quantity
from auditor.validity.findings import LOADED, doubt, each_load, fine, skip, voids

__all__ = ["t503_concurrency", "t504_client", "t513_floor", "t514_schedule"]

REACHED = 0.9  # of the concurrency
MOSTLY = 0.8  # of the time while requests are still to be sent
LAG = 0.005  # seconds of the client's own delay that no verdict notices
NOTICED = 0.01  # of the tightest limit on a first token: likewise
BUSY = 0.9  # of one core
STARVED = 0.02  # of the reads: more of them late, and times of first tokens are those of later ones
OFF_RATE = 0.02  # of the asked rate
SMOOTHS = 0.1  # of the tightest limit on a first token: requests sent later than that are another load
SHIFTS = 0.05  # of the time that requests stay: likewise


def t503_concurrency(evidence: Evidence) -> Iterable[Finding]:
    """Of closed loops: how many are in flight in an open one is the service's doing."""
    for m, rest in each_load(evidence):
        if m.load.arrivals:
            continue
        asked = max(m.load.concurrency, evidence.target or 0)
        peak = m.client.peak_inflight
        part = m.time_near(REACHED * asked)
        rest["measured"] = Number.of("most in flight", peak, "requests", "measured")
        rest["required"] = Number.of("target", asked, "requests", "declared")
        rest["numbers"] = (Number.of(f"time at {percent(REACHED)} of the target or more", part, "share", "measured"),)
        if peak >= REACHED * asked and part >= MOSTLY:
            yield fine("T503", f"{count(peak, 'request')} in flight, {asked} asked.", **rest)
            continue
        why = f"At most {peak} of {count(asked, 'request')} were in flight, {percent(part)} of the time near that."
        fix = "raise probe.budget, or lift what limits connections on the way (proxy, ulimit)"
        if evidence.profile.traffic.request_rate and asked > m.load.concurrency:
            fix = f"declare traffic.target_concurrency: {asked}, which the rate takes at the measured times"
        yield doubt("T503", why, voids(LOADED, "pass"), "a load at the declared concurrency", remedies=(fix,), **rest)


def _allowed(evidence: Evidence, part: float = NOTICED) -> float:
    """Seconds of the client's own delay that no verdict notices: a part of the tightest limit on a first token."""
    limits = [o.limit for metric in ("ttft", "first_answer") for o in evidence.profile.objectives(metric)]
    return max(LAG, part * min(limits, default=0.0))


def t504_client(evidence: Evidence) -> Iterable[Finding]:
    allowed = _allowed(evidence)
    for m, rest in each_load(evidence):
        lag, cpu = m.client.loop_lag_p99, m.client.cpu_share
        if lag is None and cpu is None:
            yield skip("T504", "the client's own lag", **rest)
            continue
        rest["measured"] = Number.of("client lag p99", lag, "s", "measured")
        rest["required"] = Number.of("client lag allowed", allowed, "s", "computed")
        rest["numbers"] = (Number.of("client CPU, share of a core", cpu, "share", "measured"),)
        starved = (m.client.late_reads or 0.0) > STARVED
        if not starved and (lag or 0.0) <= allowed and (cpu or 0.0) <= BUSY:
            yield fine("T504", "The client kept up.", **rest)
            continue
        seen = (f"lagged {quantity(lag, 's')}" if lag else "", f"used {percent(cpu)} of a core" if cpu else "")
        busy = f"The client itself {' and '.join(filter(None, seen))}"
        if m.client.clock == "kernel" and not starved:
            why = f"{busy}, but the kernel timed what came: none of it is in the measured times."
            yield fine("T504", why, **rest)
            continue
        why = f"{busy}: part of the measured time is its own."
        if starved:
            why += f" It read {percent(m.client.late_reads or 0.0)} of what came too late to tell tokens apart."
        doubtful = slo.doubtful(evidence, partial(slo.later, lag=m.client.loop_lag_max))
        fix = ("run the audit from a machine with a free core, near the service",)
        void = voids((*doubtful, "W120", *_felt(m)), "fail")
        void += voids(("W111", "K307"), "pass") * starved  # a first token that looks late leaves a short rest
        yield doubt("T504", why, void, "a client with a free core", remedies=fix, **rest)


def _felt(m: Measurement) -> tuple[str, ...]:
    """What K sees through the client; a queue that the server counts is no lag."""
    return ("K307",) if m.gauge("waiting") else ("K305", "K307")


def t513_floor(evidence: Evidence) -> Iterable[Finding]:
    """What the client measures on a server that answers at once is its own, whatever the service does."""
    allowed = _allowed(evidence)
    known = [(m, floor) for m in evidence.loads("slo") if m.samples and (floor := m.client.floor) is not None]
    if not known:
        yield skip("T513", "a self-check of the client against a server that answers at once")
        return
    m, floor = max(known, key=lambda pair: pair[1].ttft_p99)
    where = evidence.where("slo.ttft")
    told = {
        "measured": Number.of("TTFT of a server that answers at once, p99", floor.ttft_p99, "s", "measured"),
        "required": Number.of("client delay allowed", allowed, "s", "computed"),
        "numbers": (
            Number.of("the same, median", floor.ttft_p50, "s", "measured"),
            Number.of("client CPU an event", floor.cpu_per_event, "s", "measured"),
        ),
        "where": where,
    }
    if floor.ttft_p99 <= allowed:
        yield fine("T513", f"The client adds {quantity(floor.ttft_p99, 's')} at most to a first token.", **told)
        return
    why = f"The client adds up to {quantity(floor.ttft_p99, 's')} to a first token on this machine, "
    why += f"more than the {quantity(allowed, 's')} that the limits allow."
    doubtful = slo.doubtful(evidence, partial(slo.later, lag=floor.ttft_p99, tick=0.0))
    fix = ("run the audit from a quieter machine, near the service",)
    void = voids((*doubtful, *_felt(m)), "fail")
    yield doubt("T513", why, void, "a client that adds less", remedies=fix, **told)


def t514_schedule(evidence: Evidence) -> Iterable[Finding]:
    """Of open loops: requests that were sent late waited for the client, and much later they came as a smoother load.

    Latencies count from the intended time. Where requests are served in turn, none ends sooner because others came
    later: a little lateness makes a service look worse, never better.
    """
    allowed = _allowed(evidence)
    for m, rest in each_load(evidence):
        if not m.load.arrivals:
            continue
        sent = [(s.start, s.late) for s in (*m.warmup, *m.samples) if s.late is not None]
        if len(sent) < 2:
            yield skip("T514", "when requests were to be sent", **rest)
            continue
        late, off = rank([late for _, late in sent], 0.99), _off_rate([(start, wait) for start, wait in sent])
        rest["measured"] = Number.of("sent late, p99", late, "s", "measured", len(sent))
        rest["required"] = Number.of("lateness allowed", allowed, "s", "computed")
        rest["numbers"] = (
            Number.of("requests asked a second", m.load.rate, "/s", "computed"),
            Number.of("time to send them beyond the schedule's", off, "share", "measured"),
        )
        if late <= allowed and abs(off) <= OFF_RATE:
            yield fine("T514", f"Requests went out on time, {quantity(late, 's')} late at p99.", **rest)
            continue
        why = f"Requests went out up to {quantity(late, 's')} late (p99), over {percent(abs(off))} "
        why += f"{'more' if off > 0 else 'less'} time than asked: the client, not the service, shaped this load."
        fix = ("run the audit from a machine with free cores, near the service, or ask for fewer requests",)
        smooth = abs(off) > OFF_RATE or late > min(_allowed(evidence, SMOOTHS), SHIFTS * (m.stay or 0.0))
        void = voids(LOADED, "pass") * smooth + voids(slo.doubtful(evidence, _on_time), "fail")
        yield doubt("T514", why, void, "a load that is sent on time", remedies=fix, **rest)


def _off_rate(sent: list[tuple[float, float]]) -> float:
    """How much longer than its schedule the sending took, as a share, over (start, seconds late)."""
    starts, intended = [start for start, _ in sent], [start - late for start, late in sent]
    planned = max(intended) - min(intended)
    return (max(starts) - min(starts)) / planned - 1 if planned > 0 else 0.0


def _on_time(rule: str) -> slo.Favour:
    """Each time as if its request had been sent when it was to be; TPS does not count from then."""

    def sooner(sample: Sample, seconds: float) -> float:
        return seconds if rule == "W111" else seconds - (sample.late or 0.0)

    return sooner
