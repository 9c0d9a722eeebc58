"""The SLOs judged from what a Prometheus saw of real traffic, for a service that must not be loaded.

An engine's histogram knows counts at its bounds: a limit inside a bucket leaves that bucket's requests open, and a pass
needs them all to miss. Requests that no histogram holds (refused, given up, lost in a restart, under way) are misses
where a pass is at stake. The traffic of a window is what users sent: a pass also needs slices with the target's load.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from auditor.evidence import Evidence, Number, Status
from auditor.profile import Objective
from auditor.theory import buckets
from auditor.theory.buckets import Beyond
from auditor.theory.dominance import Wait
from auditor.theory.statistics import Outcome
from auditor.units import count, percent, quantity
from auditor.watch import Observed, Slice

__all__ = ["BUSY", "busy", "doubtful", "errors", "lasting", "latency", "seen", "wait"]

Verdict = tuple[Status, str, dict[str, Any]]
BUSY = 0.9  # of the target's load, in the mean over a slice: that slice shows the target
OVER = 1.1  # times the target: more than it, beyond what a mean over a slice may be off
TOKENWISE = 1.05  # times as many times per token as first tokens: a histogram of tokens, not of requests
CONCEPTS = {"ttft": "ttft", "tps": "tpot", "e2e": "e2e"}
SEEN = 0.95  # of the window: as good as all of it
_FAILED, _MAYBE = ("errors", "refusals"), ("aborted", "unknown")


def seen(evidence: Evidence) -> Observed | None:
    """The window of a passive audit; None for any other."""
    return evidence.observed if evidence.observed is not None and evidence.observed.passive else None


def wait(evidence: Evidence, output_tokens: float) -> Wait | None:
    """What a request of the window waited for in the mean, at a reply length; None where classes share histograms."""
    window, classes = seen(evidence), evidence.profile.traffic.classes
    if window is None or len(classes) != 1:
        return None
    ttft, tpot = (window.histograms.get(name) for name in ("ttft", "tpot"))
    if ttft is None or tpot is None or not ttft.count or not tpot.count:
        return None
    return Wait(ttft.sum / ttft.count, tpot.sum / tpot.count, output_tokens, round(ttft.count))


def latency(evidence: Evidence, window: Observed, objective: Objective, name: str) -> Verdict:
    """One SLO on times, over the whole window and over its busy slices."""
    rest: dict[str, Any] = {"subject": objective.subject, "deciding": True, "where": evidence.where(objective.path)}
    concept = CONCEPTS.get(objective.metric)
    lacking = _lacking(window, objective, concept)
    if concept is None or lacking is not None:
        why = f"Not judged: {lacking or 'Prometheus'}."
        return "inconclusive", why, rest | {"missing": lacking, "severity": "high"}
    parts = busy(evidence, window)
    whole = _beyond(window.histograms[concept].buckets, _values(window), objective.seconds)
    effect = _effect(window.slices, concept, objective)
    rest |= {"severity": "high", "confidence": "medium", "measured": _number(window, concept, objective, name)}
    unit = "tok/s" if objective.metric == "tps" else "s"
    rest["required"] = Number(name=name, value=objective.limit, unit=unit, provenance="declared")
    status = _outcome(evidence, whole, objective.share, effect)
    limit = quantity(objective.limit, unit)
    why = f"{name} over {_long(window)} by the engine's own clock: {_span(whole)} of {count(whole.n, 'request')} miss "
    why += f"{limit} or failed, {percent(1 - objective.share)} may"
    if status == "pass":
        doubt = _doubt(evidence, window, parts, concept, objective)
        if doubt is not None:
            return "inconclusive", f"{why}: they would pass, but {doubt}.", rest | {"missing": doubt}
        return "pass", f"{why}: pass, also in the {_slices(parts)} at the target's load.", rest
    strange = (_strange(evidence, window) or _above(evidence, window, concept, objective)) if status == "fail" else None
    if strange is not None:
        return "inconclusive", f"{why}: they would fail, but {strange}.", rest | {"missing": strange}
    if status == "fail":
        return "fail", f"{why}: fail, and what the way to users adds comes on top.", rest
    missing = _open(whole, objective, effect, _outcome(evidence, whole, objective.share, 1.0))
    return "inconclusive", f"{why}: inconclusive, {missing}.", rest | {"missing": missing}


def errors(evidence: Evidence, window: Observed, objective: Objective, *, declared: bool) -> Verdict:
    """The share of requests that the engine refused or broke off; those given up by their users may be either."""
    rest: dict[str, Any] = {"subject": objective.cls, "where": evidence.where(objective.path), "severity": "high"}
    values, told = _values(window), [n for n in (*_FAILED, "aborted") if n in window.values]
    rest |= {"deciding": declared, "confidence": "medium"}
    if objective.cls is not None or not window.values.get("requests") or not told:
        lacks = (
            "requests of one class" if objective.cls else "the engine's counters of requests and of those that failed"
        )
        return "inconclusive" if declared else "skip", f"Not judged: {lacks}.", rest | {"missing": lacks}
    failed, maybe = (math.ceil(sum(values.get(name, 0.0) for name in names)) for names in (_FAILED, _MAYBE))
    all_of = Beyond(
        values["requests"] + values.get("refusals", 0.0) + math.ceil(values.get("unknown", 0.0)),
        failed,
        failed + maybe,
        0,
        0,
    )
    status = _outcome(evidence, all_of, objective.share, _error_effect(window))
    rest["required"] = Number(name="error rate", value=objective.limit, unit="share", provenance="declared")
    rest["measured"] = Number(
        name="error rate, at most",
        value=min(1.0, all_of.most / all_of.n),
        unit="share",
        provenance="served",
        n=round(all_of.n),
        note=f"{percent(all_of.least / all_of.n)} for certain",
    )
    why = f"Over {_long(window)} {_span(all_of)} of {count(all_of.n, 'request')} failed in the engine, "
    why += f"{percent(objective.limit)} may"
    asked = sum(part.values.get("requests", 0.0) > 0 for part in window.slices)
    doubt = _strange(evidence, window) or ((_down(window) or _too_few(asked)) if status == "pass" else None)
    if status != "inconclusive" and doubt:
        return "inconclusive", f"{why}: {status}, but {doubt}.", rest | {"missing": doubt}
    if status == "inconclusive":
        rest["missing"] = "a longer window, or counters that tell requests given up from those that broke off"
    return status, f"{why}: {status}.", rest | {"deciding": declared or status == "fail"}


# ------------------------------------------------------------------------------------------------------------- the load


def busy(evidence: Evidence, window: Observed) -> tuple[Slice, ...]:
    """The slices with the target's load: requests in flight in the mean, or first tokens a second for a rate."""
    traffic = evidence.profile.traffic
    if traffic.target_concurrency:
        at = BUSY * traffic.target_concurrency
        return tuple(s for s in window.slices if s.values.get("in_flight", 0.0) >= at)
    rate = BUSY * (traffic.request_rate or math.inf)
    return tuple(s for s in window.slices if "ttft" in s.histograms and s.histograms["ttft"].count / s.seconds >= rate)


def _doubt(
    evidence: Evidence, window: Observed, parts: Sequence[Slice], concept: str, objective: Objective
) -> str | None:
    """Why a window that meets an SLO may not show that the target would; None where nothing speaks against it."""
    timed = sum(concept in s.histograms and s.histograms[concept].count > 0 for s in window.slices)
    strange = doubtful(evidence, window) or _uncounted(window) or _too_few(timed)
    if strange is not None:
        return strange
    traffic = evidence.profile.traffic
    if not parts:
        most, target = window.values.get("in_flight"), traffic.target_concurrency
        if target and most is None:
            return "nothing shows how many requests were in flight"
        if target:
            return f"no slice held the target of {target}: at most {quantity(most, 'requests')} in flight in the mean"
        return "no slice had the target's rate of requests"
    total = buckets.added(s.histograms[concept].buckets for s in parts if concept in s.histograms)
    if not total:
        return "no request ended in the slices at the target's load"
    at_target = _beyond(total, _summed(parts), objective.seconds)
    effect = _effect(parts, concept, objective)
    if len(parts) < buckets.FEWEST:  # too few to tell: as in the whole window
        effect = max(effect, _effect(window.slices, concept, objective))
    if _outcome(evidence, at_target, objective.share, effect) != "pass":
        counted = f"{_span(at_target)} of {quantity(at_target.n, '')} miss{_worth(at_target, effect)}"
        return f"the {_slices(parts)} at the target's load do not show it: {counted}"
    return None


def _above(evidence: Evidence, window: Observed, concept: str, objective: Objective) -> str | None:
    """Whether an SLO is missed for certain only where users sent more than the target; None if it is without that."""
    target = evidence.profile.traffic.target_concurrency
    if not target or window.values.get("in_flight", 0.0) <= OVER * target:
        return None
    parts = [s for s in window.slices if s.values.get("in_flight", 0.0) <= OVER * target]
    total = buckets.added(s.histograms[concept].buckets for s in parts if concept in s.histograms)
    if total:
        found = _beyond(total, _summed(parts), objective.seconds)
        if _outcome(evidence, found, objective.share, _effect(parts, concept, objective)) == "fail":
            return None
    most = quantity(window.values["in_flight"], "")
    return f"not in the slices up to the target of {target}: users had up to {most} in flight; declare what they send"


def doubtful(evidence: Evidence, window: Observed) -> str | None:
    """Why what a window shows may not be what the service did; None where nothing speaks against it."""
    return _strange(evidence, window) or _down(window)


def _strange(evidence: Evidence, window: Observed) -> str | None:
    """Whether others than the declared replicas are in these numbers, or some are not."""
    instances, replicas = window.values.get("instances"), max(1, evidence.profile.deployment.replicas)
    if instances is None or instances == replicas:
        return None
    here = f"{count(instances, 'target')} of the engine at the end"
    return f"Prometheus has {here}, the profile {count(replicas, 'replica')}"


def _down(window: Observed) -> str | None:
    """Whether anything tells how long the targets did not answer; what may have come then is among the unknown."""
    return None if "up" in window.values else "nothing shows whether the targets answered all the time (up)"


def _too_few(slices: int) -> str | None:
    """Whether too few slices have requests to tell whether they fare by themselves or in crowds."""
    if slices >= buckets.FEWEST:
        return None
    return f"{count(slices, 'slice')} with requests cannot tell bad times from bad requests: take a longer window"


def _uncounted(window: Observed) -> str | None:
    if any(name in window.values for name in (*_FAILED, "aborted")):
        return None
    return "the engine counts no failed requests, which are in none of its times"


# --------------------------------------------------------------------------------------------------------------- counts


def _values(window: Observed) -> dict[str, float]:
    """What the window counted, with the requests under way at its end among those that nobody saw end."""
    values = dict(window.values)
    values["unknown"] = values.get("unknown", 0.0) + math.ceil(values.get("pending", 0.0))
    return values


def _summed(parts: Iterable[Slice]) -> dict[str, float]:
    names, listed = (*_FAILED, *_MAYBE), list(parts)
    return {name: sum(s.values.get(name, 0.0) for s in listed) for name in names}


def _beyond(table: buckets.Buckets, values: Mapping[str, float], limit: float) -> Beyond:
    """Requests beyond the limit, with those that no histogram holds: failed ones miss, those given up may have."""
    found = buckets.beyond(table, limit)
    failed, maybe = (math.ceil(sum(values.get(name, 0.0) for name in names)) for names in (_FAILED, _MAYBE))
    most = found.most + failed + maybe
    return Beyond(found.n + failed + maybe, found.least + failed, most, found.low, found.high)


def _outcome(evidence: Evidence, found: Beyond, share: float, effect: float) -> Outcome:
    return buckets.decide(found, share, evidence.profile.probe.confidence, effect)


def _effect(parts: Sequence[Slice], concept: str, objective: Objective) -> float:
    """How many requests of the window are worth one that fares by itself: bad hours come in crowds."""
    limit, timed = objective.seconds, [s for s in parts if concept in s.histograms and s.histograms[concept].buckets]
    lost = [_beyond(s.histograms[concept].buckets, s.values, limit) for s in timed]
    counted = buckets.design_effect([(each.n, each.most) for each in lost])
    return max(counted, buckets.scatter([s.histograms[concept].buckets for s in timed], limit))


def _error_effect(window: Observed) -> float:
    pairs = []
    for part in window.slices:
        bad = sum(part.values.get(name, 0.0) for name in (*_FAILED, "aborted"))
        pairs.append((part.values.get("requests", 0.0) + part.values.get("refusals", 0.0), bad))
    return buckets.design_effect(pairs)


def _lacking(window: Observed, objective: Objective, concept: str | None) -> str | None:
    """What a verdict on this objective lacks; None where its histogram has something to say."""
    if objective.cls is not None:
        return f"requests of class {objective.cls} alone, which no engine's histogram tells from the others"
    if concept is None:
        return f"a histogram of {objective.metric}: engines do not keep one"
    found, first = window.histograms.get(concept), window.histograms.get("ttft")
    if found is None or found.count <= 0 or len(found.buckets) < 2:
        return f"requests in the engine's histogram of {objective.metric} within the window"
    if concept == "tpot" and (first is None or found.count > TOKENWISE * first.count):
        return "times per token by request: this histogram holds each token's own, and slow requests drown in it"
    return None


def _open(found: Beyond, objective: Objective, effect: float, each: Outcome) -> str:
    """Why neither: the bucket, or the size of the window. `each` is the outcome, had each request fared by itself: what
    stays open then is open by the bucket.
    """
    if each == "inconclusive" and not found.exact and found.low < objective.seconds * (1 - 1e-6):
        bound = f"the limit lies inside a bucket, {_bound(objective, found)}"
        return f"{bound}: set the SLO or a bound of the histogram there, or measure requests"
    return f"{count(found.n, 'request')}{_worth(found, effect)} do not decide it: take a longer window"


def _worth(found: Beyond, effect: float) -> str:
    return f", worth {found.n / effect:.0f} that fare by themselves" if effect > 1.05 else ""


# ---------------------------------------------------------------------------------------------------------------- words


def _bound(objective: Objective, found: Beyond) -> str:
    low, high = found.low, found.high
    if objective.metric == "tps":
        low, high = (1 / high if high < math.inf else 0.0), (1 / low if low > 0 else math.inf)
        return f"{quantity(low, 'tok/s')} to {quantity(high, 'tok/s')}"
    return f"{quantity(low, 's')} to {quantity(high, 's')}"


def _number(window: Observed, concept: str, objective: Objective, name: str) -> Number:
    """The worse end of the bucket that holds the percentile, of the requests that the histogram holds."""
    table = window.histograms[concept].buckets
    low, high = buckets.holding(table, objective.share) or (0.0, math.inf)
    of = f"its bucket, of {count(table[-1][1], 'request')}"
    if objective.metric == "tps":
        value, other, words, unit = (
            (1 / high if high < math.inf else 0.0),
            (1 / low if low else math.inf),
            "at least",
            "tok/s",
        )
    elif high < math.inf:
        value, other, words, unit = high, low, "at most", "s"
    else:
        return Number(name=f"{name}, more than", value=low, unit="s", provenance="served", note=of)
    note = f"{quantity(min(value, other), unit)} to {quantity(max(value, other), unit)} is {of}"
    return Number(name=f"{name}, {words}", value=value, unit=unit, provenance="served", note=note)


def _span(found: Beyond) -> str:
    least, most = quantity(found.least, ""), quantity(found.most, "")
    return least if least == most else f"{least} to {most}"


def _long(window: Observed) -> str:
    seen, whole = sum(s.seconds for s in window.slices if s.histograms), window.window or 0.0
    return lasting(whole) if seen >= SEEN * whole else f"the {lasting(seen)} of {lasting(whole)} that are there,"


def lasting(seconds: float) -> str:
    """A span of time as people say it: 24 h, 15 min, 2 s."""
    size, unit = next(((n, u) for n, u in ((3600, "h"), (60, "min")) if seconds >= n), (1, "s"))
    return f"{seconds / size:.3g} {unit}"


def _slices(parts: Sequence[Slice]) -> str:
    return f"{count(len(parts), 'slice')} of {lasting(parts[0].seconds)}"
