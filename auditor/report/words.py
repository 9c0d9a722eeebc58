"""The wording that every human-readable format shares: numbers with units, findings in order, harmless text.

Nothing here trusts a string: engine replies, dashboards and model names end up in reports.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from auditor import units
from auditor.evidence import Finding, Number, Report
from auditor.report.harmless import clean, clip
from auditor.watch import Observed

__all__ = [
    "ORDER",
    "STATUS_WORDS",
    "asides",
    "clean",
    "clip",
    "context",
    "counts",
    "heading",
    "headings",
    "number",
    "passed",
    "quantity",
    "shown",
    "skipped",
    "skipped_by_reason",
    "sort_key",
    "unsent",
    "voids",
    "waiver",
    "weight",
]

ORDER = ("fail", "inconclusive", "warn", "waived", "pass", "skip")
STATUS_WORDS = {
    "fail": "FAIL",
    "inconclusive": "INCONCLUSIVE",
    "warn": "warn",
    "waived": "waived",
    "pass": "pass",
    "skip": "not judged",
}

_SEVERITIES = ("high", "medium", "low")


# ------------------------------------------------------------------------------------------------------------- numbers


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit as people read it (`auditor.units.quantity`); a unit of unknown origin does no harm."""
    return units.quantity(value, unit if unit in units.NAMED else clean(unit, 40))


def _range(low: float | None, high: float | None, unit: str) -> str:
    """`1.2 to 1.5 s`; the unit stands once where both ends have the same."""
    first = quantity(low, unit) if low is not None else "unbounded"
    last = quantity(high, unit) if high is not None else "unbounded"
    value, _, suffix = first.partition(" ")
    return f"{value if suffix and last.endswith(f' {suffix}') else first} to {last}"


def number(item: Number, confidence: float | None = None, *, provenance: bool = True) -> str:
    """A number with its interval, how many requests it rests on, where it comes from, and its note."""
    facts = []
    if item.low is not None or item.high is not None:
        level = f"{units.plain(confidence * 100, 4)} % " if confidence and item.n is not None else ""
        facts.append(f"{level}interval {_range(item.low, item.high, item.unit)}")
    if item.n is not None:
        facts.append(f"n={item.n}")
    if provenance:
        facts.append(item.provenance)
    if item.note:
        facts.append(clean(item.note, 200))
    known = f"{clean(item.name, 80)} {quantity(item.value, item.unit)}".lstrip()
    return f"{known} ({'; '.join(facts)})" if facts else known


# ------------------------------------------------------------------------------------------------------------ findings


def weight(finding: Finding) -> str:
    """The status with which a finding counts: a waived failure counts as "waived", between warnings and passes."""
    return "waived" if finding.waived is not None and finding.status == "fail" else finding.status


def sort_key(finding: Finding) -> tuple[object, ...]:
    """Worst first: by how it counts, what voids before what it voids, then deciding, severity, rule and subject."""
    return (
        ORDER.index(weight(finding)),
        bool(finding.voided_by),
        not finding.deciding,
        _SEVERITIES.index(finding.severity),
        finding.rule,
        finding.subject or "",
    )


def shown(report: Report) -> list[Finding]:
    """The findings that get a card (failed, inconclusive, warned, waived), worst first."""
    return sorted((f for f in report.findings if f.status in ("fail", "inconclusive", "warn")), key=sort_key)


def skipped(report: Report) -> list[Finding]:
    """The rules that could not look; first the deciding ones, which leave their question open."""
    return sorted((f for f in report.findings if f.status == "skip"), key=sort_key)


def skipped_by_reason(report: Report) -> dict[tuple[bool, str], list[Finding]]:
    """The rules that could not look, grouped by (deciding, what is missing) in the order of `skipped`."""
    groups: dict[tuple[bool, str], list[Finding]] = {}
    for finding in skipped(report):
        groups.setdefault((finding.deciding, clean(finding.missing or finding.why, 200)), []).append(finding)
    return groups


def passed(report: Report) -> list[str]:
    """The rules that passed: `K304`, and `K305 [slo]` where the rule found something elsewhere."""
    elsewhere = {f.rule for f in report.findings if f.status not in ("pass", "skip")}
    found = (f for f in sorted(report.findings, key=lambda f: f.rule) if f.status == "pass")
    return list(dict.fromkeys(clean(f.rule, 20) + (_part(f) if f.rule in elsewhere else "") for f in found))


def headings(findings: Sequence[Finding]) -> str:
    """One finding's heading, or the rule ids of several."""
    if len(findings) == 1:
        return heading(findings[0])
    return ", ".join(dict.fromkeys(clean(finding.rule, 20) for finding in findings))


def heading(finding: Finding) -> str:
    """`W110 TTFT SLO [rag p95]`."""
    return f"{clean(finding.rule, 20)} {clean(finding.title, 160)}{_part(finding)}"


def _part(finding: Finding) -> str:
    return f" [{clean(finding.subject, 60)}]" if finding.subject else ""


def waiver(finding: Finding) -> str | None:
    """Why a finding is waived, until when and by whom; None where it is not."""
    if finding.waived is None:
        return None
    owner = f" by {clean(finding.waived.owner, 60)}" if finding.waived.owner else ""
    return f"until {clean(finding.waived.expires, 20)}{owner}: {clean(finding.waived.reason)}"


def voids(finding: Finding) -> str:
    """What a finding makes untrustworthy: `passes of W110, K305; failures of W113`; empty where it voids nothing."""
    groups: dict[str, list[str]] = {}
    for entry in finding.voids:
        rule, _, outcome = entry.partition(":")
        groups.setdefault({"pass": "passes", "fail": "failures"}.get(outcome, "verdicts"), []).append(clean(rule, 40))
    return "; ".join(f"{outcomes} of {', '.join(rules)}" for outcomes, rules in groups.items())


_COUNTED = {
    "fail": "failed",
    "inconclusive": "inconclusive",
    "warn": "warned",
    "waived": "waived",
    "pass": "passed",
    "undecided": "undecided",
    "skip": "skipped",
}


def counts(findings: Iterable[Finding]) -> str:
    """`2 failed, 1 warned, 1 waived, 14 passed, 1 undecided, 3 skipped`; what does not occur is left out.

    Undecided is a deciding rule that could not look: it leaves its question open, as others do not.
    """
    found = Counter("undecided" if f.status == "skip" and f.deciding else weight(f) for f in findings)
    return ", ".join(f"{found[kind]} {word}" for kind, word in _COUNTED.items() if found[kind]) or "no rule was judged"


# ------------------------------------------------------------------------------------------------------------- context


def context(report: Report) -> list[str]:
    """What was audited, in short parts: engine, model, hardware, target, address, date."""
    evidence, profile = report.evidence, report.evidence.profile
    served, emulated = evidence.served, profile.endpoint.url == "emulator"
    parts = [
        " ".join(filter(None, (served.engine, served.engine_version))) if served else None,
        (served and served.model) or profile.deployment.model,
        _hardware(report, emulated),
        f"{profile.traffic.target_concurrency} requests in flight" if profile.traffic.target_concurrency else None,
        None if emulated else profile.endpoint.url,
        "offline" if evidence.offline else None,
        _passive(evidence.observed),
        report.date,
    ]
    return [clean(part, 100) for part in parts if part]


def asides(report: Report) -> list[tuple[str, str]]:
    """What a reader must know beside the verdict, as (label, words)."""
    nearest = report.evidence.nearest
    found = (
        ("No load", unsent(report)),
        ("Nearest pass", nearest.sentence if nearest is not None else None),
        ("Stopped early", report.interrupted),
    )
    return [(label, clean(text)) for label, text in found if text]


def _passive(observed: Observed | None) -> str | None:
    """That nothing was sent, and how far back was looked instead."""
    if observed is None or not observed.passive:
        return None
    window = observed.window or 0.0
    length = f"{units.plain(window / 60)} min" if window < 3600 else f"{units.plain(window / 3600)} h"
    return f"passive, {length} of {observed.source}"


def unsent(report: Report) -> str | None:
    """Why no load was sent although the endpoint was looked at; None where one was, or none was to be."""
    evidence = report.evidence
    if evidence.offline or evidence.plan is None or evidence.plan.loads or not evidence.plan.notes:
        return None
    return clean(evidence.plan.notes[-1].message, 300)


def _hardware(report: Report, emulated: bool) -> str | None:
    """`6 replicas of 4 x H100 SXM5 80GB`; says so where an emulator only plays it."""
    evidence, deployment = report.evidence, report.evidence.profile.deployment
    if evidence.device is None:
        return "emulated" if emulated else None
    devices = evidence.settings.devices if evidence.settings else deployment.count
    replicas = f"{deployment.replicas} replicas of " if deployment.replicas > 1 else ""
    return f"{replicas}{devices} x {evidence.device.name}{', emulated' if emulated else ''}"
