"""Monitoring, what the queries do: they name the right series, and still mislead.

Rules of question M, which `monitoring` asks. They look at `Coverage.flaws`, which are read from the syntax trees of the
queries.

| rule | looks at | decides |
|---|---|---|
| M410 | names that the page has under another prefix | no |
| M413 | data-parallel ranks, told apart or put together | no |
| M414 M415 | sums over shares, and over ranks that show the same | no |
| M416 M417 | averages: as the only TTFT, and since the engine started | M417 where a concept rests on it |
| M418 | titles beside what is drawn | no |
| M419 | prompt tokens added to generated ones | no |
| M420 M421 | GPU memory as the only memory; units, totals and fixed limits | no |
| M426 | what the engine has no metric of | no |
| M427 M428 | a gauge as the only TPS, one pool of several | no |
"""

from collections.abc import Callable, Iterator
from typing import Any

from auditor import panels
from auditor.evidence import Check, Evidence, Finding, Rule, Severity, Status
from auditor.watch import Coverage, Flaw
from checks.monitoring_terms import (
    ASKED,
    UNREAD,
    covered,
    flavour,
    listed,
    panel,
    panel_remedies,
    ranks,
    title,
    where,
)

__all__ = ["RULES"]

_PAGE = "the engine's own metrics page"
_MOST = 3  # queries that a finding spells out


# ------------------------------------------------------------------------------------------------------------ in common


def _found(coverage: Coverage, *kinds: str) -> tuple[Flaw, ...]:
    return tuple(flaw for flaw in coverage.flaws if flaw.kind in kinds)


def _blind(rule: str, evidence: Evidence) -> Finding | None:
    """The skip of a rule that has no query to look at."""
    if evidence.coverage is None or not evidence.coverage.files:
        return _PART.skip(rule, UNREAD)
    return None


def _flawed(rule: str, evidence: Evidence, flaws: tuple[Flaw, ...], status: Status = "warn", **rest: Any) -> Finding:
    """One finding on all the queries that have the flaw, with what to write instead."""
    instead = dict.fromkeys(f"{flaw.where}: write {flaw.instead}" for flaw in flaws if flaw.instead)
    notes = dict.fromkeys(f"{flaw.note} ({flaw.where})" for flaw in flaws)
    rest = {"where": where(evidence), "remedies": tuple(instead)[:_MOST]} | rest
    return _PART.finding(rule, status, f"{listed(notes, 2)}.", **rest)


def _simple(rule: str, kind: str, fine: str, severity: Severity = "medium") -> Callable[[Evidence], Iterator[Finding]]:
    """A rule that warns of one kind of flaw wherever it is."""

    def judge(evidence: Evidence) -> Iterator[Finding]:
        blind = _blind(rule, evidence)
        if blind is not None or evidence.coverage is None:
            yield blind or _PART.skip(rule, UNREAD)
            return
        flaws = _found(evidence.coverage, kind)
        yield _flawed(rule, evidence, flaws, severity=severity) if flaws else _PART.finding(rule, "pass", fine)

    return judge


# ----------------------------------------------------------------------------------------------------- names and ranks


def m410_prefix(evidence: Evidence) -> Iterator[Finding]:
    """What a Prometheus stores is the truth; a page may spell its names in another way for another reader."""
    pages = [page for page in evidence.served.pages if page.exporter is None] if evidence.served else []
    stored = evidence.watch.names if evidence.watch is not None else ()
    if evidence.coverage is None or not evidence.coverage.files or not (pages or stored):
        yield _PART.skip("M410", UNREAD if evidence.coverage is None or not evidence.coverage.files else _PAGE)
        return
    flaws = _found(evidence.coverage, "renamed_prefix")
    if not flaws:
        where_they_are = "as Prometheus stores it" if stored else "as the engine's page names it"
        yield _PART.finding("M410", "pass", f"Every series is named {where_they_are}.")
        return
    renamed = [flaw for flaw in flaws if flaw.instead]
    first = tuple(dict.fromkeys(f"write {flaw.instead} instead of {flaw.names[0]}" for flaw in renamed))[:_MOST]
    if stored:
        yield _flawed("M410", evidence, flaws, "fail", severity="high", remedies=first)
        return
    path = (
        f"the page that was read is {pages[0].url}: let Prometheus scrape it, or keep what renames the series in front"
    )
    told = "give monitoring.prometheus: only what it stores tells which spelling is right"
    yield _flawed("M410", evidence, flaws, "warn", remedies=(*first, path, told) if renamed else (told,))


def m413_ranks(evidence: Evidence) -> Iterator[Finding]:
    blind, several = _blind("M413", evidence), ranks(evidence)
    if blind is not None or evidence.coverage is None:
        yield blind or _PART.skip("M413", UNREAD)
        return
    if several is None:
        yield _PART.skip("M413", f"{_PAGE}, or deployment.data_parallel")
        return
    bare = [query for query in panels.queries(evidence.coverage) if query.bare and query.concepts]
    if several == 1 or not bare:
        why = (
            "Only one engine writes the series."
            if several == 1
            else "Every query says how several ranks are put together."
        )
        yield _PART.finding("M413", "pass", why)
        return
    yield _PART.finding(
        "M413",
        "warn",
        f"{several} ranks write the same series, and {listed((q.where for q in bare), 2)} puts them neither together "
        "nor apart.",
        severity="low",
        where=where(evidence),
        remedies=("sum counters and requests, take the max of shares, or draw them by (pod, engine) with that legend",),
    )


def m414_shares(evidence: Evidence) -> Iterator[Finding]:
    """With one engine a sum is the share itself, until the day a second one starts."""
    alone = ranks(evidence) == 1 and evidence.profile.deployment.replicas <= 1
    fine = "No query adds up shares."
    yield from _simple("M414", "summed_ratio", fine, "low" if alone else "medium")(evidence)


def m415_duplicates(evidence: Evidence) -> Iterator[Finding]:
    if evidence.served is None or not any(page.exporter is None for page in evidence.served.pages):
        yield _PART.skip("M415", _PAGE)
        return
    yield from _simple("M415", "summed_ranks", "No query counts ranks that show the same more than once.")(evidence)


# ------------------------------------------------------------------------------------------------------- what is drawn


m416_average = _simple("M416", "average_only", "TTFT is not left to an average.")


def m417_lifetime(evidence: Evidence) -> Iterator[Finding]:
    """It decides where a concept rests on such queries alone: their panels hardly move, whatever happens."""
    blind = _blind("M417", evidence)
    if blind is not None or evidence.coverage is None:
        yield blind or _PART.skip("M417", UNREAD)
        return
    flaws = _found(evidence.coverage, "lifetime")
    if not flaws:
        yield _PART.finding("M417", "pass", "Every histogram is taken over a window.")
        return
    concepts = dict.fromkeys(panels.asked(flaw.concept) or "other" for flaw in flaws)
    for concept in concepts:
        those = tuple(flaw for flaw in flaws if (panels.asked(flaw.concept) or "other") == concept)
        alone = concept in ASKED and panels.rests_on(evidence.coverage, those, concept)
        severity = "high" if alone else "low"
        yield _flawed("M417", evidence, those, "fail", deciding=alone, severity=severity, subject=concept)


m418_title = _simple("M418", "title", "No title says what its queries are not.")


def m419_mixed(evidence: Evidence) -> Iterator[Finding]:
    blind = _blind("M419", evidence)
    if blind is not None or evidence.coverage is None:
        yield blind or _PART.skip("M419", UNREAD)
        return
    flaws = _found(evidence.coverage, "mixed_tokens")
    if flaws and panels.rests_on(evidence.coverage, flaws, "tps"):
        yield _flawed("M419", evidence, flaws)
        return
    beside = "Prompt and generated tokens are added up, and another panel shows the generated ones alone."
    yield _PART.finding("M419", "pass", beside if flaws else "No query adds prompt tokens to generated ones.")


# -------------------------------------------------------------------------------------------------------------- memory


def m420_gpu_only(evidence: Evidence) -> Iterator[Finding]:
    if panel(evidence, "memory") is None and evidence.metric_names:
        yield _PART.skip("M420", f"a KV gauge of {title(evidence)} to draw (M426)")
        return
    fine = "GPU memory is not all that is shown of memory."
    yield from _simple("M420", "gpu_memory_only", fine)(evidence)


m421_unit = _simple("M421", "unit", "No unit, total or limit of memory is at odds with its series.", "low")


def m428_pools(evidence: Evidence) -> Iterator[Finding]:
    """Only a model with several kinds of layers fills several pools: on others their gauges stay at 0."""
    geometry, coverage = evidence.geometry, evidence.coverage
    if coverage is None or not coverage.files or geometry is None:
        yield _PART.skip("M428", UNREAD if geometry is not None else "the model's geometry (deployment.model)")
        return
    kinds = {(layers.kind, layers.window) for layers in geometry.layers}
    flaws = _found(coverage, "one_pool")
    if len(kinds) + bool(geometry.recurrent) > 1 and flaws:
        yield _flawed("M428", evidence, flaws)
        return
    why = "every pool that the page shows is drawn" if flaws == () else "the model has layers of one kind, and one pool"
    yield _PART.finding("M428", "pass", f"{why[:1].upper()}{why[1:]}.")


m427_gauge = _simple("M427", "sampled_gauge", "TPS is not left to a gauge.")


# ----------------------------------------------------------------------------------------------- what the engine cannot


def m426_cannot(evidence: Evidence) -> Iterator[Finding]:
    """What the engine in use has no metric of, in this version: panels cannot help there."""
    if flavour(evidence) in ("generic", "auto") or not evidence.metric_names:
        yield _PART.skip("M426", "which engine serves (endpoint.engine)")
        return
    lacking = [concept for concept in ASKED if panel(evidence, concept) is None]
    for concept in lacking:
        item = covered(evidence.coverage, concept) if evidence.coverage is not None else None
        beside = item.names if item is not None and item.rung != "proxy" else ()
        told = f"; {listed(beside)} shows it from beside" if beside else ""
        yield _PART.finding(
            "M426",
            "pass" if beside else "warn",
            f"{title(evidence)} has no metric of {ASKED[concept]}{told}.",
            subject=concept,
            where=evidence.where("endpoint.engine"),
            remedies=() if beside else panel_remedies(evidence, concept),
        )
    if not lacking:
        yield _PART.finding("M426", "pass", f"{title(evidence)} has metrics of TTFT, TPS and memory.")


RULES = (
    Rule("M410", "Names under another prefix", m410_prefix),
    Rule("M413", "Ranks told apart or put together", m413_ranks),
    Rule("M414", "Shares that are added up", m414_shares),
    Rule("M415", "Ranks that show the same, added up", m415_duplicates),
    Rule("M416", "TTFT as an average only", m416_average),
    Rule("M417", "Averages since the engine started", m417_lifetime),
    Rule("M418", "Titles that claim something else", m418_title),
    Rule("M419", "Prompt and generated tokens added up", m419_mixed),
    Rule("M420", "GPU memory as the only memory", m420_gpu_only),
    Rule("M421", "Units, totals and fixed limits", m421_unit),
    Rule("M426", "What the engine cannot show", m426_cannot),
    Rule("M427", "TPS as a gauge only", m427_gauge),
    Rule("M428", "One pool of several", m428_pools),
)
_PART = Check(question="M", title="Monitoring", rules=RULES)
