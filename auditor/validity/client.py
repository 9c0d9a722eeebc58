"""The client itself: did it reach the load, and is part of what it measured its own delay?"""

from collections.abc import Iterable
from functools import partial

from auditor import slo
from auditor.evidence import Evidence, Finding, Number
from auditor.units import count, percent, quantity
from auditor.validity.findings import LOADED, doubt, each_load, fine, skip, voids

__all__ = ["t503_concurrency", "t504_client"]

REACHED = 0.9  # of the concurrency
MOSTLY = 0.8  # of the time while requests are still to be sent
LAG = 0.005  # seconds of the client's own delay that no verdict notices
BUSY = 0.9  # of one core


def t503_concurrency(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
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


def t504_client(evidence: Evidence) -> Iterable[Finding]:
    limits = [o.limit for metric in ("ttft", "first_answer") for o in evidence.profile.objectives(metric)]
    allowed = max(LAG, 0.01 * min(limits, default=0.0))
    for m, rest in each_load(evidence):
        lag, cpu = m.client.loop_lag_p99, m.client.cpu_share
        if lag is None and cpu is None:
            yield skip("T504", "the client's own lag", **rest)
            continue
        rest["measured"] = Number.of("client lag p99", lag, "s", "measured")
        rest["required"] = Number.of("client lag allowed", allowed, "s", "computed")
        rest["numbers"] = (Number.of("client CPU, share of a core", cpu, "share", "measured"),)
        if (lag or 0.0) <= allowed and (cpu or 0.0) <= BUSY:
            yield fine("T504", "The client kept up.", **rest)
            continue
        seen = (f"lagged {quantity(lag, 's')}" if lag else "", f"used {percent(cpu)} of a core" if cpu else "")
        why = f"The client itself {' and '.join(filter(None, seen))}: part of the measured time is its own."
        doubtful = slo.doubtful(evidence, partial(slo.later, lag=m.client.loop_lag_max))
        felt = ("K307",) if m.gauge("waiting") else ("K305", "K307")  # a queue that the server counts is no lag
        void = voids((*doubtful, "W120", *felt), "fail")
        fix = ("run the audit from a machine with a free core, near the service",)
        yield doubt("T504", why, void, "a client with a free core", remedies=fix, **rest)
