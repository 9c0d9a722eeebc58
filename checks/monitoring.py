"""Monitoring: do the panels cover TTFT, TPS and memory together, with metrics that exist and alerts that can fire?

Panels are judged as a set and by what their queries compute. A query that names a metric proves little: the name must
be valid for the engine's version or stand on its page, else the answer is only "declared".

| rule | looks at | decides |
|---|---|---|
| M401 | is TTFT covered? | yes |
| M402 | is TPS covered (tokens per second, or time per token)? | yes |
| M403 | is memory covered (KV cache or GPU memory in use)? | yes |
| M404 | names that the engine does not have (any more) | where nothing else carries the concept |
| M405 | the engine's own metrics page | where it is off |
| M406 | files and queries that cannot be read | no |
| M407 | concepts that no alert watches | no |
| M408 | histogram bounds around the TTFT SLO | no |
| M409 | memory activity taken for memory in use | no |
| M410 to M429 | what queries do that mislead, and what a live Prometheus says of them | M417 alone, M423 |
| M430 M431 | the engine's page, and what a panel draws of it, beside the client's numbers | no |
"""

from collections.abc import Iterator, Mapping

from auditor import panels
from auditor.evidence import Check, Coverage, CoverageItem, Evidence, Finding, Number, Rule, Status
from auditor.profile import Objective
from checks import monitoring_live, monitoring_queries, monitoring_truth
from checks.monitoring_terms import (
    ASKED,
    UNREAD,
    another_model,
    covered,
    flavour,
    listed,
    panel,
    panel_remedies,
    title,
    where,
)

__all__ = ["CHECK"]

PROVEN = ("valid", "on_page", "parses", "returns_data", "alerted")
FINE = 0.1  # of the SLO: a bucket this narrow around it tells pass from fail
MEANING = {
    "ttft": "time to first token",
    "tps": "generated tokens per second, or the time per output token",
    "memory": "KV cache or GPU memory in use",
}
TURN_ON = {
    "vllm": "start vLLM without --disable-log-stats",
    "sglang": "start SGLang with --enable-metrics",
    "llamacpp": "start llama-server with --metrics",
    "trtllm": "set return_perf_metrics: true in trtllm-serve's extra options; its page is /prometheus/metrics",
    "lmdeploy": "start LMDeploy without --disable-metrics",
}

# ------------------------------------------------------------------------------------------------- M401, M402 and M403


def m401_ttft(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M401", "ttft", evidence)


def m402_tps(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M402", "tps", evidence)


def m403_memory(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M403", "memory", evidence)


_NAME_THEM = "name what you have: monitoring.dashboards, monitoring.rules or monitoring.grafana"


def _covered(rule: str, concept: str, evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None:
        yield CHECK.skip(rule, UNREAD, deciding=True)
        return
    item = covered(evidence.coverage, concept)
    status, why = _rung(item, evidence.coverage, concept, title(evidence))
    if status == "pass" and (other := another_model(evidence, concept)):
        status, why = "fail", f"Every panel of {ASKED[concept]} asks for another model: {other}."
    yield CHECK.finding(
        rule,
        status,
        why,
        deciding=True,
        severity="high" if status == "fail" else "medium",
        confidence="high" if item.rung in PROVEN[1:] or status == "fail" else "medium",
        where=where(evidence),
        remedies=() if status == "pass" else _better(evidence, item, status),
    )


def _rung(item: CoverageItem, coverage: Coverage, concept: str, engine: str) -> tuple[Status, str]:
    """The rung reached, as a status and a sentence."""
    name, what = ASKED[concept], MEANING[concept]
    if not coverage.files:
        return "fail", f"No dashboards are given, so nothing shows {name} ({what})."
    if item.rung == "missing":
        blind = f"; {len(coverage.unreadable)} things in the files could not be read" if coverage.unreadable else ""
        return "fail", f"No panel shows {name} ({what}){blind}."
    if not item.names:
        return "fail", f"Every panel of {name} draws a series that is not there: {item.note or listed(item.dead)}."
    shown = f"{listed(item.names, 1)} on {listed(item.where, 1)}" if item.where else listed(item.names, 1)
    if set(item.names) <= set(item.silent):
        return "fail", f"{name} has panels, and Prometheus answers none of them with data: {shown}."
    if item.rung == "proxy":
        return "warn", f"{name} is shown only by a proxy: {shown}."
    if item.one_reader:
        return "warn", f"{name} is shown by {shown}, which not every Prometheus stores: {item.note}."
    if item.rung not in PROVEN:
        doubt = f" ({item.note})" if item.note else ""
        return "warn", f"{name} is declared: {shown}, but neither a page nor a version confirms the name{doubt}."
    proof = {"valid": f"valid in {engine}", "returns_data": "and Prometheus returns data"}.get(item.rung)
    proof = proof or "present on the metrics page"
    return "pass", f"{name} is shown by {shown}, {proof}."


def _better(evidence: Evidence, item: CoverageItem, status: Status) -> tuple[str, ...]:
    if item.one_reader:
        return ("give monitoring.prometheus: only what it stores tells which spelling is right",)
    if status == "warn" and item.rung != "proxy":
        return ("say deployment.engine_version, or let the audit read the metrics pages (endpoint.metrics, exporters)",)
    if item.names and set(item.names) <= set(item.silent):
        return (_why_silent(evidence, item),)
    given = evidence.coverage is not None and evidence.coverage.files
    return (() if given else (_NAME_THEM, _printed(evidence))) + panel_remedies(evidence, item.concept)


def _why_silent(evidence: Evidence, item: CoverageItem) -> str:
    flaws = evidence.coverage.flaws if evidence.coverage else ()
    if any(flaw.kind == "renamed_prefix" and panels.asked(flaw.concept) == item.concept for flaw in flaws):
        return f"M410 says how Prometheus names these series; {_printed(evidence)}"
    if evidence.watch is not None and evidence.watch.targets and not any(t.serves for t in evidence.watch.targets):
        return "M423 says that Prometheus does not scrape the service: audit explain M423"
    return "M425 says what leaves the panels empty: audit explain M425"


def _printed(evidence: Evidence) -> str:
    """The command that writes panels and alerts to begin with."""
    pages = [page.url for page in evidence.served.pages if page.exporter is None] if evidence.served else []
    series = f"--metrics {pages[0]}" if pages else f"--engine {flavour(evidence)}"
    watched = evidence.profile.monitoring.prometheus
    stored = f" --prometheus {watched}" if watched else ""
    return f"audit coverage {series}{stored} --fix prints panels and alerts to begin with"


# ---------------------------------------------------------------------------------------------------------- dead names


def m404_dead(evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None or not evidence.coverage.files:
        yield CHECK.skip("M404", UNREAD)
        return
    buried = [item for item in evidence.coverage.items if item.dead]
    for item in buried:
        only = item.concept in ASKED and not item.names
        beside = f"; {listed(item.names)} still shows it" if item.names else ""
        yield CHECK.finding(
            "M404",
            "fail" if only else "warn",
            f"{item.note or listed(item.dead) + ' is not a metric of ' + title(evidence)}{beside}.",
            deciding=only,
            severity="high" if only else "low",
            subject=item.concept,
            where=where(evidence),
            remedies=panel_remedies(evidence, item.concept)
            if item.concept in ASKED
            else ("take the panel or alert out, or name a series that the page has",),
        )
    if not buried:
        yield CHECK.finding("M404", "pass", "No query names a series that the engine is known not to have.")


# ------------------------------------------------------------------------------------------------ the engine's own page


def m405_page(evidence: Evidence) -> Iterator[Finding]:
    served, coverage = evidence.served, evidence.coverage
    if served is None or coverage is None:
        yield CHECK.skip("M405", "the endpoint's metrics page")
        return
    own = [page for page in served.pages if page.exporter is None]
    if own and coverage.offered:
        yield _offer(evidence, coverage.offered)
        return
    engine = flavour(evidence)
    known = engine in TURN_ON and evidence.profile.endpoint.metrics is not None
    yield CHECK.finding(
        "M405",
        "fail" if known else "warn",
        f"{own[0].url} has no series of an engine." if own else "The endpoint answers no metrics page.",
        deciding=known,
        severity="high" if known else "medium",
        where=evidence.where("endpoint.metrics"),
        remedies=(TURN_ON.get(engine, "say where the page is (endpoint.metrics: URL), one for each replica"),),
    )


def _offer(evidence: Evidence, offered: Mapping[str, tuple[str, ...]]) -> Finding:
    """Which of the three the pages can show at all; GPU memory and used KV tokens count as memory."""
    lacking = [concept for concept in ASKED if panels.query(concept, offered) is None]
    if "memory" in lacking and (offered.get("gpu_memory") or offered.get("kv_used")):
        lacking.remove("memory")
    names = " and ".join(ASKED[concept] for concept in lacking)
    return CHECK.finding(
        "M405",
        "warn" if lacking else "pass",
        f"The metrics page has no series of {names}." if lacking else "The metrics page has TTFT, TPS and memory.",
        where=evidence.where("endpoint.metrics"),
        remedies=tuple(remedy for concept in lacking for remedy in panel_remedies(evidence, concept)),
    )


# ---------------------------------------------------------------------------------------------------------- unreadable


def m406_unreadable(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None or not coverage.files:
        yield CHECK.skip("M406", UNREAD)
        return
    problems = (
        (
            "file",
            coverage.unreadable,
            "export a dashboard as JSON, rendered, with its library panels; name no empty files",
        ),
        ("query", coverage.invalid_queries, "correct the PromQL: Prometheus refuses it, so the panel stays empty"),
    )
    for subject, found, remedy in problems:
        if found:
            why = f"Not counted as covered: {listed(found)}."
            rest = {"subject": subject, "where": where(evidence), "remedies": (remedy,)}
            yield CHECK.finding("M406", "warn", why, **rest)
    if not (coverage.unreadable or coverage.invalid_queries):
        yield CHECK.finding("M406", "pass", f"All of {len(coverage.files)} file(s) read, every query is PromQL.")


# -------------------------------------------------------------------------------------------------------------- alerts


def m407_alerts(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None:
        yield CHECK.skip("M407", UNREAD)
        return
    unwatched = [concept for concept in ASKED if not covered(coverage, concept).alerts]
    names = " and ".join(ASKED[concept] for concept in unwatched)
    yield CHECK.finding(
        "M407",
        "warn" if unwatched else "pass",
        f"No alert watches {names}." if unwatched else "Alerts watch TTFT, TPS and memory.",
        severity="medium" if len(unwatched) == len(ASKED) else "low",
        where=evidence.where("monitoring.rules") or evidence.where("monitoring"),
        remedies=tuple(_alert_remedies(evidence, unwatched)),
    )


def _alert_remedies(evidence: Evidence, unwatched: list[str]) -> Iterator[str]:
    limit = min((objective.limit for objective in evidence.profile.objectives("ttft")), default=2.0)
    when = {"ttft": f"> {limit:g}", "tps": "falling below what the SLO needs while requests run", "memory": "> 0.95"}
    for concept in unwatched:
        query = panel(evidence, concept)
        if query:
            yield f"add an alert on {query} {when[concept]}"


# ------------------------------------------------------------------------------------------------------------- buckets


def m408_buckets(evidence: Evidence) -> Iterator[Finding]:
    bounds = sorted(covered(evidence.coverage, "ttft").buckets) if evidence.coverage else []
    for objective in evidence.profile.objectives("ttft"):
        if bounds:
            yield _around(evidence, objective, bounds)
        else:
            yield CHECK.skip("M408", "the bounds of the TTFT histogram on the panels", subject=objective.subject)


def _around(evidence: Evidence, objective: Objective, bounds: list[float]) -> Finding:
    """The bucket that the SLO lies in; a quantile is known no better than its bucket."""
    limit = objective.limit
    low = max((bound for bound in bounds if bound <= limit * (1 + 1e-6)), default=0.0)
    high = min((bound for bound in bounds if bound >= limit * (1 - 1e-6)), default=None)
    told = high is not None and high - low <= FINE * limit
    if high is None:
        why = f"The SLO of {limit:g} s lies above the highest bound, {bounds[-1]:g} s: the panel never shows more."
    elif told:
        why = f"The SLO of {limit:g} s lies on a bound of the histogram, or nearly."
    else:
        why = f"The SLO of {limit:g} s lies between the bounds {low:g} s and {high:g} s: the panel cannot tell there."
    lever = f"set the SLO on a bound ({low:g} s or {high or bounds[-1]:g} s), or judge it by measured requests"
    if flavour(evidence) == "sglang":
        lever = f"start SGLang with --bucket-time-to-first-token and {limit:g} among its bounds"
    return CHECK.finding(
        "M408",
        "pass" if told else "warn" if high is not None else "fail",
        why,
        severity="low" if high is not None else "medium",
        subject=objective.subject,
        where=evidence.where(objective.path),
        required=Number(name="TTFT", value=limit, unit="s", provenance="declared"),
        remedies=() if told else (lever,),
    )


# ------------------------------------------------------------------------------------------------------------ activity


def m409_activity(evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None or not evidence.coverage.files:
        yield CHECK.skip("M409", UNREAD)
        return
    activity, memory = covered(evidence.coverage, "memory_activity"), covered(evidence.coverage, "memory")
    if not activity.names or memory.names:
        yield CHECK.finding("M409", "pass", "No panel relies on memory activity to show memory in use.")
        return
    yield CHECK.finding(
        "M409",
        "fail",
        f"{listed(activity.names)} says how busy the memory is, not how full, and no panel says how full.",
        severity="high",
        where=where(evidence),
        remedies=panel_remedies(evidence, "memory"),
    )


CHECK = Check(
    question="M",
    title="Monitoring",
    rules=(
        Rule("M401", "TTFT on the panels", m401_ttft),
        Rule("M402", "TPS on the panels", m402_tps),
        Rule("M403", "Memory on the panels", m403_memory),
        Rule("M404", "Names that the engine does not have", m404_dead),
        Rule("M405", "The engine's own metrics page", m405_page),
        Rule("M406", "Files and queries that cannot be read", m406_unreadable),
        Rule("M407", "Concepts that no alert watches", m407_alerts),
        Rule("M408", "Histogram bounds around the TTFT SLO", m408_buckets),
        Rule("M409", "Memory activity taken for memory in use", m409_activity),
        *sorted((*monitoring_live.RULES, *monitoring_queries.RULES), key=lambda rule: rule.id),
        *monitoring_truth.RULES,
    ),
)
