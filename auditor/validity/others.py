"""Who else was there: a gateway that limits the rate, users of the service beside the audit."""

from collections.abc import Iterable
from operator import attrgetter

from auditor import slo
from auditor.evidence import Evidence, Finding, Number
from auditor.units import count
from auditor.validity.findings import LOADED, doubt, each_load, fine, skip, voids

__all__ = ["t505_rate_limit", "t508_foreign"]

SLIGHT = 0.2  # requests of others for one of ours that explain no preemption


def t505_rate_limit(evidence: Evidence) -> Iterable[Finding]:
    """Only what a gateway refuses by quota; an engine that refuses because its queue is full has failed."""
    for m, rest in each_load(evidence):
        limited = [s for s in m.judged if s.rate_limited]
        if not limited:
            yield fine("T505", "No gateway limited the rate.", **rest)
            continue
        waits = [s.retry_after for s in limited if s.retry_after is not None]
        wait = f", which asks to wait {max(waits):.0f} s" if waits else ""
        said = next((f" ({s.detail})" for s in limited if s.detail), "")
        why = f"A gateway's quota refused {len(limited)} of {len(m.judged)} requests{wait}{said}; no engine saw them."
        rest["measured"] = Number.of("refused by quota", len(limited), "requests", "measured", len(m.judged))
        doubtful = slo.doubtful(evidence, lambda _: slo.instead(None, attrgetter("rate_limited")))
        errors = ("W113",) if "fail" not in slo.error_outcomes(evidence, attrgetter("rate_limited")) else ()
        void = voids((*doubtful, *errors, "W120"), "fail") + voids(("K304", "K305", "K306", "K307"), "pass")
        fix = ("lift the quota of the probe's key, or set probe.budget and the target within it",)
        yield doubt("T505", why, void, "a key without a quota", remedies=fix, **rest)


def t508_foreign(evidence: Evidence) -> Iterable[Finding]:
    for m, rest in each_load(evidence):
        ours, asked = len(m.samples) + len(m.warmup), max(m.load.concurrency, m.client.peak_inflight)
        moved, running = m.moved("requests"), [v for _, v in m.gauge("running")]
        if moved is None and not running:
            yield skip("T508", "the server's own request counters", **rest)
            continue
        extra = max(0.0, (moved or 0.0) - ours)
        seen = max([*running, *(m.present if moved is None else ())], default=0.0)
        most = seen - sum(not s.good for s in m.samples)  # requests that ended here may still run there
        rest["measured"] = Number.of("requests the server counted", moved, "requests", "measured")
        rest["required"] = Number.of("requests sent", ours, "requests", "measured")
        rest["numbers"] = (Number.of("most at the server at once", seen, "requests", "measured"),)
        if extra <= max(2, 0.05 * ours) and most <= max(asked + 1, 1.05 * asked):
            sure = "high" if moved is not None else "medium"
            yield fine("T508", _alone(moved is not None, seen, asked), confidence=sure, **rest)
            continue
        counted = f"counted {extra:.0f} requests more than were sent" if moved is not None else "counts no requests"
        why = f"The server {counted}, {seen:.0f} were there at once with {asked} in flight here: others used it."
        fix = ("audit a replica that takes no other traffic, or at a quiet hour",)
        slight = moved is not None and extra <= SLIGHT * ours and most <= (1 + SLIGHT) * asked
        void = voids((r for r in LOADED if r != "K304" or not slight), "fail")
        yield doubt("T508", why, void, "a load without other users", remedies=fix, **rest)


def _alone(counted: bool, most: float, asked: int) -> str:
    if counted:
        return "The server counted no requests but these."
    why = f"Never more than {count(most, 'request')} ran or waited at the server with {asked} in flight here. "
    return f"{why}It does not count finished requests: those of others between two readings would not show."
