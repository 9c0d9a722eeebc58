"""Declared traffic beside what users really sent, by the engine's own histograms of lengths.

Rule W107 of question W, which `workload_shape` asks.
"""

import math
from collections.abc import Iterable
from typing import Any

from auditor.evidence import Check, Evidence, Finding, Number, Rule
from auditor.measurement import Histogram
from auditor.profile import TrafficClass
from auditor.theory import buckets, judging
from auditor.theory.shape import Curve, at, mean
from auditor.units import count
from auditor.watch import FEWEST_OF_USERS
from checks import passive

__all__ = ["RULES"]

SLACK = 1.5  # times: within this a declared length is as observed; costs follow lengths about linearly
SIDES = {"prompt_tokens": ("prompt_len", "prompts"), "output_tokens": ("output_len", "replies")}


def w107_observed(evidence: Evidence) -> Iterable[Finding]:
    """Shorter lengths than users send make every other rule look better than it is; longer ones cost money."""
    classes, observed = evidence.profile.traffic.classes, evidence.observed
    if not classes or observed is None:
        lacks = "histograms of prompt and output lengths (the engine's page, or monitoring.prometheus)"
        yield _PART.skip("W107", lacks if classes else "traffic.classes")
        return
    for field, (concept, words) in SIDES.items():
        rest: dict[str, Any] = {"subject": words, "where": evidence.where("traffic.classes")}
        found = observed.histograms.get(concept)
        if found is None or found.count < FEWEST_OF_USERS:
            seen = f"{count(found.count if found else 0, 'request')} in the engine's histogram of {words}"
            yield _PART.skip("W107", f"{FEWEST_OF_USERS} requests of users ({seen})", **rest)
            continue
        yield _compared(field, words, classes, found, f"{_since(observed.window)}, {observed.source}", rest)


def _compared(  # noqa: PLR0917
    field: str, words: str, classes: tuple[TrafficClass, ...], found: Histogram, source: str, rest: dict[str, Any]
) -> Finding:
    """One side's mean, median and p95, each against the bucket that holds the observed one."""
    curves = [(c.share, getattr(c, field).curve) for c in classes]
    declared = {"mean": _mean(curves), "p50": _quantile(curves, 0.5), "p95": _quantile(curves, 0.95)}
    spans = {"mean": (found.sum / found.count, found.sum / found.count)}
    spans |= {name: span for name, q in (("p50", 0.5), ("p95", 0.95)) if (span := buckets.holding(found.buckets, q))}
    rest["numbers"] = tuple(n for name, span in spans.items() for n in _numbers(words, name, span, declared[name]))
    short = [n for n, (low, _) in spans.items() if declared[n] * SLACK < low]
    long = [n for n, (_, high) in spans.items() if declared[n] > high * SLACK]
    if not short and not long:
        why = f"Declared {words} are as long as those of {count(found.count, 'request')} of users ({source})."
        return _PART.finding("W107", "pass", why, **rest)
    side, names = ("shorter", short) if short else ("longer", long)
    parts = ", ".join(f"{n} {declared[n]:,.0f} against {_span(spans[n])}" for n in names)
    why = f"Declared {words} are {side} than what users sent, in tokens: {parts} ({source})."
    why += (
        " What is measured with them is too good." if short else " The service may do with less than this audit asks."
    )
    remedies = (f"declare traffic.classes' {field} from the histogram, or one class for each kind of request",)
    return _PART.finding("W107", "warn", why, severity="high" if short else "low", remedies=remedies, **rest)


def _mean(curves: Iterable[tuple[float, Curve]]) -> float:
    """The mean length over classes by their shares."""
    listed = list(curves)
    return sum(share * mean(curve) for share, curve in listed) / (sum(share for share, _ in listed) or 1.0)


def _quantile(curves: Iterable[tuple[float, Curve]], share: float) -> int:
    """The length that `share` of the requests of all classes do not exceed."""
    listed = list(curves)
    total = sum(weight for weight, _ in listed) or 1.0
    top = max(at(curve, 1) for _, curve in listed)

    def beyond(tokens: int) -> bool:
        over = sum(weight * judging.share_over(curve, tokens) for weight, curve in listed) / total
        return over > 1 - share + 1e-9

    return judging.largest(beyond, top) + 1 if beyond(0) else 0


def _numbers(words: str, name: str, span: tuple[float, float], declared: float) -> tuple[Number, Number]:
    low, high = span
    seen = Number(
        name=f"{words}, {name} observed, at most" if low < high < math.inf else f"{words}, {name} observed",
        value=high if high < math.inf else low,
        unit="tokens",
        provenance="served",
        note=f"more than {low:,.0f}" if low < high else "",
    )
    return seen, Number.of(f"{words}, {name} declared", declared, "tokens", "declared")


def _span(span: tuple[float, float]) -> str:
    low, high = span
    if low == high:
        return f"{low:,.0f}"
    return f"{low:,.0f} to {high:,.0f}" if high < math.inf else f"more than {low:,.0f}"


def _since(window: float | None) -> str:
    return "since the engine started" if window is None else f"over {passive.lasting(window)}"


RULES = (Rule("W107", "Declared against observed lengths", w107_observed),)
_PART = Check(question="W", title="", rules=RULES)
