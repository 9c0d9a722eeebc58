"""The tables behind a report in plain words: loads, both phases' products, both sides' accounts, plan, environment.

Pure; shared by the formats that show tables. Words are harmless (`harmless.clean`), each format escapes them its way.
"""

from auditor.compared import Change
from auditor.evidence import Evidence, Report
from auditor.loads import Load
from auditor.report import products, truth, words
from auditor.report.beside import Beside, beside
from auditor.report.figures import Figures, figures, latency, prompt_and_output, rate, tokens_of
from auditor.report.harmless import clean
from auditor.report.picture import Table

__all__ = ["agreements", "changes", "counterparts", "environment", "numbers", "phases", "plan", "settings"]


# ---------------------------------------------------------------------------------------------------------------- loads


def numbers(evidence: Evidence) -> Table:
    """A row a load; the notes name the failed requests."""
    head = (
        *("Load", "In flight", "Requests", "TTFT p50", "TTFT p95", "TPS p50", "TPS p05", "E2E p95", "Total TPS"),
        "Stopped",
    )
    items = [figures(m) for m in evidence.measurements]
    errors = [
        f"{clean(i.load, 60)}: {clean(', '.join(f'{n} x {error}' for error, n in i.errors.items()))}"
        for i in items
        if i.errors
    ]
    return Table(head=head, rows=tuple(map(_load, items)), notes=tuple(errors))


def _load(item: Figures) -> tuple[str, ...]:
    return (
        clean(item.load, 60),
        str(item.concurrency) if item.rate is None else f"{item.rate:.3g} a second",
        f"{item.requests} ({item.failed} failed)" if item.failed else str(item.requests),
        *(latency(item.ttft[name]) if name in item.ttft else "" for name in ("p50", "p95")),
        *(rate(item.tps[name]) if name in item.tps else "" for name in ("p50", "p05")),
        latency(item.e2e["p95"]) if "p95" in item.e2e else "",
        words.quantity(item.output_rate, "tokens/s") if item.output_rate is not None and item.tps else "",
        clean(_ended(item), 160),
    )


def _ended(item: Figures) -> str:
    """Why a load ended early, and how many requests the auditor cut off then."""
    return "; ".join(filter(None, (item.stopped, f"{item.cancelled} cut off" if item.cancelled else "")))


def phases(evidence: Evidence) -> Table | None:
    """Both phases as matrix products, at the target load's mean lengths; indented labels belong to the one before."""
    found = products.of_evidence(evidence)
    if found is None:
        return None
    (head, titles), *rows = products.rows(found)
    text = products.summary(found)
    return Table(
        head=(head, *titles),
        rows=tuple((label, *cells) for label, cells in rows),
        notes=(f"{text[:1].upper()}{text[1:]}",),
    )


# ----------------------------------------------------------------------------------------------------------- both sides


def counterparts(evidence: Evidence) -> Table:
    """The server's own account of each load beside the client's, where it gives one."""
    found = [(m.load.id, beside(m)) for m in evidence.measurements]
    head = (
        *("Load", "Requests here", "By the server", "TTFT mean, server", "TTFT mean, here", "Difference"),
        *("TPOT mean, server", "TPOT mean, here", "KV usage, most", "Preemptions", "Running, most", "Waiting, most"),
    )
    note = "Both sides count the warm-up. Usage, running and waiting are the highest readings while the load ran."
    return Table(
        head=head, rows=tuple(_counterpart(name, item) for name, item in found if item is not None), notes=(note,)
    )


def _counterpart(name: str, item: Beside) -> tuple[str, ...]:
    gap, share = item.ttft_difference, item.ttft_difference_share
    sign = "" if gap is None else "+" if gap >= 0 else "-"
    difference = words.quantity(abs(gap), "s") if gap is not None else ""
    part = f" ({sign}{words.quantity(abs(share), 'share')})" if share is not None else ""
    figures_with_units = (
        (item.server_requests, ""),
        (item.server_ttft, "s"),
        (item.client_ttft, "s"),
        (item.server_tpot, "s"),
        (item.client_tpot, "s"),
        (item.kv_usage, "share"),
        (item.preemptions, ""),
        (item.running, ""),
        (item.waiting, ""),
    )
    cells = [words.quantity(value, unit) if value is not None else "" for value, unit in figures_with_units]
    return (clean(name, 60), str(item.requests), *cells[:3], f"{sign}{difference}{part}", *cells[3:])


def agreements(evidence: Evidence) -> Table:
    """Each quantity as the server counted it beside the client's, and where a difference lies."""
    return Table(head=truth.HEAD, rows=tuple(tuple(row) for row in truth.rows(evidence)))


# ------------------------------------------------------------------------------------------------------------- baseline


def changes(evidence: Evidence) -> Table:
    """How each metric moved against the baseline, where there is one."""
    found = evidence.compared
    head = ("Metric", "Before", "Now", "Change", "Outcome")
    if found is None:
        return Table(head=head, rows=())
    rows = ((clean(c.name, 80), _told(c, c.old), _told(c, c.new), clean(c.words, 80), c.status) for c in found.changes)
    return Table(head=head, rows=tuple(rows), notes=(clean(found.verdict_line, 900),))


def _told(change: Change, value: float | None) -> str:
    return "failed" if value is None else words.quantity(value, change.unit)


# ---------------------------------------------------------------------------------------------------------------- plan


def plan(evidence: Evidence) -> Table:
    """A row a planned load; the notes say what the budget does not allow."""
    head = ("Load", "Purpose", "In flight", "Requests", "Median prompt / output", "Tokens", "Why")
    if evidence.plan is None:
        return Table(head=head, rows=())
    kept = [_planned(load, f"{load.purpose}, in reserve") for load in evidence.plan.reserve]
    notes = tuple(f"{clean(note.message)} ({clean(', '.join(note.rules))})" for note in evidence.plan.notes)
    return Table(head=head, rows=(*map(_planned, evidence.plan.loads), *kept), notes=notes)


def _planned(load: Load, purpose: str = "") -> tuple[str, ...]:
    prompt, output = prompt_and_output(load)
    return (
        clean(load.id, 60),
        purpose or load.purpose,
        f"~{load.concurrency}" if load.arrivals else str(load.concurrency),
        str(len(load.shapes)),
        f"{prompt} / {output}",
        f"{tokens_of(load):,}",
        clean(load.why, 200),
    )


# ---------------------------------------------------------------------------------------------------------- environment


def environment(report: Report) -> list[tuple[str, str]]:
    """What was audited, with what, and what was noted on the way, as (label, words)."""
    evidence, served = report.evidence, report.evidence.served
    facts = [
        ("audit", f"serving-audit {report.tool_version}, {report.date}, seed {evidence.profile.probe.seed}"),
        ("endpoint", evidence.profile.endpoint.url),
        ("engine", f"{served.engine} {served.engine_version or ''} ({served.api} API)" if served else None),
        ("model", (served.model if served else None) or evidence.profile.deployment.model),
        ("accelerator", f"{evidence.device.name} ({', '.join(evidence.device.sources)})" if evidence.device else None),
    ]
    facts += [("note", problem) for problem in evidence.problems]
    facts += [("warning", warning) for warning in (served.warnings if served else ())]
    return [(label, clean(text)) for label, text in facts if text]


def settings(evidence: Evidence) -> Table:
    """The settings that arithmetic used, and where each comes from."""
    rows = (
        (clean(name, 60), clean(getattr(evidence.settings, name, None), 80), clean(source, 120))
        for name, source in sorted(evidence.setting_sources.items())
    )
    return Table(head=("Setting", "Value", "From"), rows=tuple(rows))
