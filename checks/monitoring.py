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
| M407 | concepts that no alert watches, alerts that can never fire | no |
| M408 | histogram bounds around the TTFT SLO | no |
| M409 | memory activity taken for memory in use | no |
| M430 M431 | the engine's page, and what a panel draws of it, beside the client's numbers | no |
"""

from collections.abc import Iterator, Mapping

from auditor.evidence import Check, Coverage, CoverageItem, Evidence, Finding, Location, Number, Rule, Status
from auditor.profile import Objective
from checks import monitoring_truth

__all__ = ["CHECK"]

ASKED = {"ttft": "TTFT", "tps": "TPS", "memory": "memory"}
PROVEN = ("valid", "on_page", "parses", "returns_data", "alerted")
UNREAD = "the coverage of dashboards and rules"
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
}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "trtllm": "TensorRT-LLM"}


# ------------------------------------------------------------------------------------------------------ what is in use


def _engine(evidence: Evidence) -> str:
    if evidence.served is not None:
        return evidence.served.engine
    return evidence.settings.engine if evidence.settings is not None else evidence.profile.endpoint.engine


def _title(evidence: Evidence) -> str:
    """The engine and version as people write them ("vLLM 0.18.0")."""
    served, declared = evidence.served, evidence.profile.deployment.engine_version
    version = (served.engine_version if served else None) or declared
    name = TITLES.get(_engine(evidence), "this engine")
    return f"{name} {version}" if version and name != "this engine" else name


def _item(coverage: Coverage, concept: str) -> CoverageItem:
    found = (item for item in coverage.items if item.concept == concept)
    return next(found, CoverageItem(concept=concept, rung="missing"))


def _where(evidence: Evidence) -> Location | None:
    return evidence.where("monitoring.dashboards") or evidence.where("monitoring")


def _list(words: tuple[str, ...], most: int = 3) -> str:
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" (and {rest} more)" if rest > 0 else "")


# ------------------------------------------------------------------------------------------------------------ remedies


def _query(concept: str, names: Mapping[str, tuple[str, ...]]) -> str | None:
    """The query that shows a concept on the engine and version in use; None where the engine cannot."""
    if concept == "ttft" and names.get("ttft"):
        return _quantile(names["ttft"][0])
    if concept == "tps":
        if names.get("generation_tokens"):
            return f"sum(rate({names['generation_tokens'][0]}[5m]))"
        return _quantile(names["tpot"][0]) if names.get("tpot") else None
    if concept == "memory" and names.get("kv_usage"):
        return f"max({names['kv_usage'][0]})"
    return None


def _quantile(name: str) -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate({name}_bucket[5m])))"


def _remedies(evidence: Evidence, concept: str) -> tuple[str, ...]:
    names = evidence.metric_names
    query = _query(concept, names)
    if query:
        return (f"add a panel with {query} (for {_title(evidence)})",)
    if concept == "memory":
        exporters = names.get("exporter_memory", ())
        example = f", and draw {_list(exporters, 2)}" if exporters else ""
        return (f"{_title(evidence)} shows no KV usage: run a GPU exporter (DCGM, nvidia_gpu_exporter){example}",)
    gateways = names.get("gateway_ttft", ())
    example = f" and draw {_quantile(gateways[0])}" if concept == "ttft" and gateways else ""
    return (f"{_title(evidence)} has no metric of it: put a gateway that measures it in front{example}",)


# ------------------------------------------------------------------------------------------------- M401, M402 and M403


def m401_ttft(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M401", "ttft", evidence)


def m402_tps(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M402", "tps", evidence)


def m403_memory(evidence: Evidence) -> Iterator[Finding]:
    return _covered("M403", "memory", evidence)


def _covered(rule: str, concept: str, evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None:
        yield CHECK.skip(rule, UNREAD, deciding=True)
        return
    item = _item(evidence.coverage, concept)
    status, why = _rung(item, evidence.coverage, concept, _title(evidence))
    yield CHECK.finding(
        rule,
        status,
        why,
        deciding=True,
        severity="high" if status == "fail" else "medium",
        confidence="high" if item.rung in PROVEN[1:] or status == "fail" else "medium",
        where=_where(evidence),
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
        return "fail", f"Every panel of {name} draws a series that is not there: {item.note or _list(item.dead)}."
    shown = f"{_list(item.names, 1)} on {_list(item.where, 1)}" if item.where else _list(item.names, 1)
    if item.rung == "proxy":
        return "warn", f"{name} is shown only by a proxy: {shown}."
    if item.rung not in PROVEN:
        doubt = f" ({item.note})" if item.note else ""
        return "warn", f"{name} is declared: {shown}, but neither a page nor a version confirms the name{doubt}."
    proof = f"valid in {engine}" if item.rung == "valid" else "present on the metrics page"
    return "pass", f"{name} is shown by {shown}, {proof}."


def _better(evidence: Evidence, item: CoverageItem, status: Status) -> tuple[str, ...]:
    if status == "warn" and item.rung != "proxy":
        return ("say deployment.engine_version, or let the audit read the metrics pages (endpoint.metrics, exporters)",)
    return _remedies(evidence, item.concept)


# ---------------------------------------------------------------------------------------------------------- dead names


def m404_dead(evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None:
        yield CHECK.skip("M404", UNREAD)
        return
    buried = [item for item in evidence.coverage.items if item.dead]
    for item in buried:
        only = item.concept in ASKED and not item.names
        beside = f"; {_list(item.names)} still shows it" if item.names else ""
        yield CHECK.finding(
            "M404",
            "fail" if only else "warn",
            f"{item.note or _list(item.dead) + ' is not a metric of ' + _title(evidence)}{beside}.",
            deciding=only,
            severity="high" if only else "low",
            subject=item.concept,
            where=_where(evidence),
            remedies=_remedies(evidence, item.concept)
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
    engine = _engine(evidence)
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
    lacking = [concept for concept in ASKED if _query(concept, offered) is None]
    if "memory" in lacking and (offered.get("gpu_memory") or offered.get("kv_used")):
        lacking.remove("memory")
    names = " and ".join(ASKED[concept] for concept in lacking)
    return CHECK.finding(
        "M405",
        "warn" if lacking else "pass",
        f"The metrics page has no series of {names}." if lacking else "The metrics page has TTFT, TPS and memory.",
        where=evidence.where("endpoint.metrics"),
        remedies=tuple(remedy for concept in lacking for remedy in _remedies(evidence, concept)),
    )


# ---------------------------------------------------------------------------------------------------------- unreadable


def m406_unreadable(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None:
        yield CHECK.skip("M406", UNREAD)
        return
    problems = (
        ("file", coverage.unreadable, "export the dashboard as JSON, rendered, with its library panels in it"),
        ("query", coverage.invalid_queries, "correct the PromQL: Prometheus refuses it, so the panel stays empty"),
    )
    for subject, listed, remedy in problems:
        if listed:
            why = f"Not counted as covered: {_list(listed)}."
            rest = {"subject": subject, "where": _where(evidence), "remedies": (remedy,)}
            yield CHECK.finding("M406", "warn", why, **rest)
    if not (coverage.unreadable or coverage.invalid_queries):
        yield CHECK.finding("M406", "pass", f"All of {len(coverage.files)} file(s) read, every query is PromQL.")


# -------------------------------------------------------------------------------------------------------------- alerts


def m407_alerts(evidence: Evidence) -> Iterator[Finding]:
    coverage = evidence.coverage
    if coverage is None:
        yield CHECK.skip("M407", UNREAD)
        return
    unwatched = [concept for concept in ASKED if not _item(coverage, concept).alerts]
    silent = [note for item in coverage.items for note in item.note.split("; ") if "can never fire" in note]
    names = " and ".join(ASKED[concept] for concept in unwatched)
    faults = ([f"no alert watches {names}"] if unwatched else []) + silent
    yield CHECK.finding(
        "M407",
        "warn" if faults else "pass",
        f"{'; '.join(faults) or 'Alerts watch TTFT, TPS and memory'}.",
        severity="medium" if len(unwatched) == len(ASKED) or silent else "low",
        where=evidence.where("monitoring.rules") or evidence.where("monitoring"),
        remedies=tuple(_alert_remedies(evidence, unwatched)),
    )


def _alert_remedies(evidence: Evidence, unwatched: list[str]) -> Iterator[str]:
    limit = min((objective.limit for objective in evidence.profile.objectives("ttft")), default=2.0)
    when = {"ttft": f"> {limit:g}", "tps": "falling below what the SLO needs while requests run", "memory": "> 0.95"}
    for concept in unwatched:
        query = _query(concept, evidence.metric_names)
        if query:
            yield f"add an alert on {query} {when[concept]}"


# ------------------------------------------------------------------------------------------------------------- buckets


def m408_buckets(evidence: Evidence) -> Iterator[Finding]:
    bounds = sorted(_item(evidence.coverage, "ttft").buckets) if evidence.coverage else []
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
    if _engine(evidence) == "sglang":
        lever = f"start SGLang with --bucket-time-to-first-token and {limit:g} among its bounds"
    return CHECK.finding(
        "M408",
        "pass" if told else "warn",
        why,
        severity="low" if high is not None else "medium",
        subject=objective.subject,
        where=evidence.where(objective.path),
        required=Number(name="TTFT", value=limit, unit="s", provenance="declared"),
        remedies=() if told else (lever,),
    )


# ------------------------------------------------------------------------------------------------------------ activity


def m409_activity(evidence: Evidence) -> Iterator[Finding]:
    if evidence.coverage is None:
        yield CHECK.skip("M409", UNREAD)
        return
    activity, memory = _item(evidence.coverage, "memory_activity"), _item(evidence.coverage, "memory")
    if not activity.names or memory.names:
        yield CHECK.finding("M409", "pass", "No panel relies on memory activity to show memory in use.")
        return
    yield CHECK.finding(
        "M409",
        "fail",
        f"{_list(activity.names)} says how busy the memory is, not how full, and no panel says how full.",
        severity="high",
        where=_where(evidence),
        remedies=_remedies(evidence, "memory"),
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
        *monitoring_truth.RULES,
    ),
)
