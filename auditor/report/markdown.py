"""The report as markdown for a review: verdict, four questions, worst findings first; the rest folded away.

Every string that is not ours is escaped: markup, mentions, issue numbers, links and formulas of a hostile server come
out as the characters they are.
"""

import re
from collections.abc import Iterable, Sequence

from auditor.evidence import Evidence, Finding, Report
from auditor.loads import Load
from auditor.report import products, steps, words
from auditor.report.beside import Beside, beside
from auditor.report.figures import Figures, figures, latency, prompt_and_output, rate, tokens_of

__all__ = ["escape", "render"]

_MARKUP = re.compile(r"([\\`*_{}\[\]|~$!])")
_BREAK = "&#8203;"


def escape(text: object, limit: int = 600) -> str:
    """`text` cleaned to one line and escaped so that GitHub and GitLab show it as written and link nothing."""
    flat = words.clean(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    flat = _MARKUP.sub(r"\\\1", flat)
    flat = flat.replace("://", ":&#47;&#47;").replace("www.", "www&#46;").replace("WWW.", "WWW&#46;")
    return re.sub(r"([@#])(?=\w)(?<!&#)", r"\1" + _BREAK, flat)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] * len(head)) + "|"]
    return lines + ["| " + " | ".join(cell or " " for cell in row) + " |" for row in rows]


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return ["", "<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]


# ------------------------------------------------------------------------------------------------------------ findings


def _questions(report: Report) -> list[str]:
    rows = [
        (
            escape(f"{q.question} {q.title}", 160),
            words.STATUS_WORDS[q.status] if q.asked else "not asked",
            escape(q.headline.removeprefix("not asked: "), 300),
        )
        for q in report.questions
    ]
    answers = [
        f"- **{escape(q.question, 10)}**: {' '.join(escape(answer, 300) for answer in q.answers)}"
        for q in report.questions
        if q.answers
    ]
    return [*_table(("Question", "Verdict", "Why"), rows), *(["", *answers] if answers else [])]


def _facts(finding: Finding, confidence: float) -> Iterable[tuple[str, str]]:
    if finding.measured:
        yield finding.measured.provenance, escape(words.number(finding.measured, confidence, provenance=False))
    if finding.required:
        yield "required", escape(words.number(finding.required, confidence))
    texts = {
        "where": finding.where,
        "why": finding.why,
        "missing": finding.missing,
        "voids": words.voids(finding),
        "waived": words.waiver(finding),
    }
    if finding.voided_by:  # the T finding, shown first, says the rest
        texts = {"why": finding.why, "voided by": ", ".join(finding.voided_by)}
    yield from ((label, escape(text)) for label, text in texts.items() if text)


def _card(finding: Finding, confidence: float) -> list[str]:
    kind = "deciding" if finding.deciding else "advisory"
    lines = ["", f"### {words.STATUS_WORDS[words.weight(finding)]} {escape(words.heading(finding))}", ""]
    lines += [f"- **{label}**: {text}" for label, text in _facts(finding, confidence)]
    if finding.voided_by:
        return lines
    if finding.remedies:
        lines += ["- **change**:", *(f"  - {escape(remedy)}" for remedy in finding.remedies)]
    numbers = [f"  - {escape(words.number(item, confidence))}" for item in finding.numbers]
    if numbers:
        lines += ["- **numbers**:", *numbers]
    return [*lines, f"- {kind}, {finding.severity} severity, {finding.confidence} confidence"]


def _line(finding: Finding) -> str:
    seen = f" *{escape(words.number(finding.measured))}*" if finding.measured else ""
    return f"- {escape(words.heading(finding))}: {escape(finding.why, 300)}{seen}"


def _rest(report: Report) -> list[str]:
    passed = [f for f in sorted(report.findings, key=words.sort_key) if f.status == "pass"]
    undecided, skipped = _missing(report, deciding=True), _missing(report, deciding=False)
    return [
        *(["", "### Undecided", "", *undecided] if undecided else []),
        *_folded(f"Passed ({len(passed)})", [_line(f) for f in passed]),
        *_folded("Skipped", skipped),
    ]


def _missing(report: Report, *, deciding: bool) -> list[str]:
    groups = words.skipped_by_reason(report).items()
    return [f"- {escape(words.headings(found))}: {escape(why)}" for (kind, why), found in groups if kind is deciding]


def _more(report: Report) -> str:
    """Where a reader finds what the worst finding's rule judges and cannot see."""
    cards = words.shown(report)
    return f"; more with: audit explain {escape(cards[0].rule, 20)}" if cards else ""


def _waivers(report: Report) -> list[str]:
    lines = [f"- expired waiver: {escape(w)}" for w in report.expired_waivers]
    lines += [f"- unused waiver: {escape(w)}" for w in report.unused_waivers]
    return ["", *lines] if lines else []


# ------------------------------------------------------------------------------------------- numbers, plan, environment


def _load_row(item: Figures) -> Sequence[str]:
    return (
        escape(item.load, 60),
        str(item.concurrency) if item.rate is None else f"{item.rate:.3g} a second",
        f"{item.requests} ({item.failed} failed)" if item.failed else str(item.requests),
        *(latency(item.ttft[name]) if name in item.ttft else "" for name in ("p50", "p95")),
        *(rate(item.tps[name]) if name in item.tps else "" for name in ("p50", "p05")),
        latency(item.e2e["p95"]) if "p95" in item.e2e else "",
        words.quantity(item.output_rate, "tokens/s") if item.output_rate is not None and item.tps else "",
        escape(_ended(item), 160),
    )


def _ended(item: Figures) -> str:
    """Why a load ended early, and how many requests the auditor cut off then."""
    return "; ".join(filter(None, (item.stopped, f"{item.cancelled} cut off" if item.cancelled else "")))


def _numbers(evidence: Evidence) -> list[str]:
    if not evidence.measurements:
        return []
    head = (
        "Load",
        "In flight",
        "Requests",
        "TTFT p50",
        "TTFT p95",
        "TPS p50",
        "TPS p05",
        "E2E p95",
        "Total TPS",
        "Stopped",
    )
    items = [figures(m) for m in evidence.measurements]
    lines = _table(head, [_load_row(item) for item in items])
    errors = [
        f"- {escape(i.load, 60)}: {escape(', '.join(f'{n} x {e}' for e, n in i.errors.items()))}"
        for i in items
        if i.errors
    ]
    return [*lines, *(["", "Failed requests:", "", *errors] if errors else [])]


def _products(evidence: Evidence) -> list[str]:
    """Both phases as matrix products, at the target load's mean lengths."""
    found = products.of_evidence(evidence)
    if found is None:
        return []
    (head, titles), *table = products.rows(found)
    shown = _table((head, *titles), [(label.replace("  ", "&emsp;"), *cells) for label, cells in table])
    text = products.summary(found)
    return [*shown, "", escape(f"{text[:1].upper()}{text[1:]}")]


def _steps(report: Report) -> list[str]:
    """Bars as the terminal draws them."""
    drawn = [line for block in steps.blocks(report) for line in block]
    return ["```text", *drawn, "```"] if drawn else []


def _beside_row(name: str, item: Beside) -> Sequence[str]:
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
    return (escape(name, 60), str(item.requests), *cells[:3], f"{sign}{difference}{part}", *cells[3:])


def _beside(evidence: Evidence) -> list[str]:
    """The server's own account of each load, where it gives one."""
    found = [(m.load.id, beside(m)) for m in evidence.measurements]
    head = (
        *("Load", "Requests here", "By the server", "TTFT mean, server", "TTFT mean, here", "Difference"),
        *("TPOT mean, server", "TPOT mean, here", "KV usage, most", "Preemptions", "Running, most", "Waiting, most"),
    )
    rows = [_beside_row(name, item) for name, item in found if item is not None]
    note = "Both sides count the warm-up. Usage, running and waiting are the highest readings while the load ran."
    return [note, "", *_table(head, rows)] if rows else []


def _plan_row(load: Load, purpose: str = "") -> Sequence[str]:
    prompt, output = prompt_and_output(load)
    size = f"{prompt} / {output}"
    return (
        escape(load.id, 60),
        purpose or load.purpose,
        f"~{load.concurrency}" if load.arrivals else str(load.concurrency),
        str(len(load.shapes)),
        size,
        f"{tokens_of(load):,}",
        escape(load.why, 200),
    )


def _plan(evidence: Evidence) -> list[str]:
    if evidence.plan is None:
        return []
    head = ("Load", "Purpose", "In flight", "Requests", "Median prompt / output", "Tokens", "Why")
    kept = [_plan_row(load, f"{load.purpose}, in reserve") for load in evidence.plan.reserve]
    lines = _table(head, [*map(_plan_row, evidence.plan.loads), *kept])
    notes = [f"- {escape(note.message)} ({escape(', '.join(note.rules))})" for note in evidence.plan.notes]
    return [*lines, *(["", *notes] if notes else [])]


def _environment(report: Report) -> list[str]:
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
    lines = [f"- **{label}**: {escape(text)}" for label, text in facts if text]
    settings = [
        (escape(name, 60), escape(getattr(evidence.settings, name, None), 80), escape(source, 120))
        for name, source in sorted(evidence.setting_sources.items())
    ]
    return [*lines, *(["", *_table(("Setting", "Value", "From"), settings)] if settings else [])]


def render(report: Report) -> str:
    """The report as GitHub-flavoured markdown; one screen first, the rest folded."""
    confidence = report.evidence.profile.probe.confidence
    lines = [f"# {escape(report.verdict_line)}", "", escape(" | ".join(words.context(report))), ""]
    if reason := words.unsent(report):
        lines += [f"No load: {escape(reason)}", ""]
    if (nearest := report.evidence.nearest) is not None:
        lines += [f"Nearest pass: {escape(nearest.sentence)}", ""]
    if report.interrupted:
        lines += [f"Stopped early: {escape(report.interrupted)}", ""]
    lines += [*_questions(report), "", f"{words.counts(report.findings)}{_more(report)}."]
    lines += _waivers(report)
    for finding in words.shown(report):
        lines += _card(finding, confidence)
    lines += _rest(report)
    lines += _folded("Numbers", _numbers(report.evidence))
    lines += _folded("Products of both phases: GEMM against GEMV", _products(report.evidence))
    lines += _folded("Where the time goes", _steps(report))
    lines += _folded("Server beside client", _beside(report.evidence))
    lines += _folded("Plan", _plan(report.evidence))
    lines += _folded("Environment", _environment(report))
    return "\n".join(lines) + "\n"
