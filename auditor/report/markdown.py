"""The report as markdown for a review: verdict, four questions, worst findings first; the rest folded away.

Every string that is not ours is escaped: markup, mentions, issue numbers, links and formulas of a hostile server come
out as the characters they are.
"""

import re
from collections.abc import Iterable, Sequence

from auditor.evidence import Evidence, Finding, QuestionResult, Report
from auditor.report import tables, words
from auditor.report.picture import Picture, Table
from auditor.report.pictures.gallery import gallery

__all__ = ["escape", "render"]

_MARKUP = re.compile(r"([\\`*_{}\[\]|~$!])")
_BREAK = "&#8203;"
_URGENT = ("fail", "inconclusive")
_MOST = 5  # findings on the first screen


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
    return _table(("Question", "Verdict", "Why"), rows)


def _answers(report: Report) -> list[str]:
    answers = [
        f"- **{escape(q.question, 10)}**: {' '.join(escape(answer, 300) for answer in q.answers)}"
        for q in report.questions
        if q.answers
    ]
    return ["", "The answers:", "", *answers] if answers else []


def _worst(report: Report) -> list[str]:
    """The findings that decide and the next worst, a line each: what was seen, what is asked, what to change first."""
    cards = [f for f in words.shown(report) if words.weight(f) in _URGENT and not f.voided_by] or words.shown(report)
    lines = [f"- {_brief(finding)}" for finding in cards[:_MOST]]
    more = len(words.shown(report)) - len(lines)
    return [*lines, *([f"- and {more} more below"] if more > 0 else [])]


def _brief(finding: Finding) -> str:
    status = words.STATUS_WORDS[words.weight(finding)]
    parts = [f"**{status} {escape(words.heading(finding))}**: {escape(finding.why, 300)}"]
    if finding.remedies:
        parts.append(f"*Change*: {escape(finding.remedies[0], 200)}.")
    elif finding.missing:
        parts.append(f"*Missing*: {escape(finding.missing, 200)}.")
    return " ".join([*parts, *([f"({escape(finding.where)})"] if finding.where else [])])


def _cards(report: Report) -> list[str]:
    confidence = report.evidence.profile.probe.confidence
    return [line for finding in words.shown(report) for line in _card(finding, confidence)][1:]


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
    return [
        *_folded(f"Passed ({len(passed)})", [_line(f) for f in passed]),
        *_folded("Skipped", _missing(report, deciding=False)),
    ]


def _undecided(report: Report) -> list[str]:
    found = _missing(report, deciding=True)
    return ["", "Undecided:", "", *found] if found else []


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


# -------------------------------------------------------------------------------------------------------------- tables


def _shown(table: Table | None) -> list[str]:
    """A table of plain words, escaped; an indented label keeps its indent."""
    if not table:
        return []
    return _table(table.head, [(_label(first), *map(_cell, rest)) for first, *rest in table.rows])


def _cell(text: str) -> str:
    return escape(text, 400)


def _label(text: str) -> str:
    inner = text.lstrip(" ")
    return "&emsp;" * ((len(text) - len(inner)) // 2) + _cell(inner)


def _notes(notes: Iterable[str]) -> list[str]:
    listed = [f"- {escape(note)}" for note in notes]
    return ["", *listed] if listed else []


def _numbers(evidence: Evidence) -> list[str]:
    table = tables.numbers(evidence)
    return [*_shown(table), *(["", "Failed requests:", *_notes(table.notes)] if table.notes else [])]


def _products(evidence: Evidence) -> list[str]:
    table = tables.phases(evidence)
    return [*_shown(table), "", *map(escape, table.notes)] if table is not None else []


def _pictures(found: Sequence[Picture]) -> list[str]:
    """Pictures as characters: reviews show no SVG."""
    return [line for picture in found for line in _picture(picture)][1:]


def _picture(picture: Picture) -> list[str]:
    """A fence of four, and no backtick within: what others named cannot close it."""
    drawn = ["````text", *(line.replace("`", "'") for line in picture.lines), "````"] if picture.lines else []
    return ["", f"**{escape(picture.title)}**", "", escape(picture.summary, 900), "", *drawn]


def _beside(evidence: Evidence) -> list[str]:
    table, told = tables.counterparts(evidence), tables.agreements(evidence)
    lines = [*table.notes, "", *_shown(table)] if table else []
    return [*lines, *(["", *_shown(told)] if told else [])]


def _changes(evidence: Evidence) -> list[str]:
    table = tables.changes(evidence)
    return [*map(escape, table.notes), "", *_shown(table)] if table else []


def _plan(evidence: Evidence) -> list[str]:
    table = tables.plan(evidence)
    return [*_shown(table), *_notes(table.notes)]


def _environment(report: Report) -> list[str]:
    lines = [f"- **{label}**: {escape(text)}" for label, text in tables.environment(report)]
    found = tables.settings(report.evidence)
    return [*lines, *(["", *_shown(found)] if found else [])]


def render(report: Report) -> str:
    """The report as GitHub-flavoured markdown; one screen first, the rest folded."""
    lines = [f"# {escape(report.verdict_line)}", "", escape(" | ".join(words.context(report))), ""]
    for label, text in words.asides(report):
        lines += [f"{label}: {escape(text)}", ""]
    lines += [*_questions(report), "", f"{words.counts(report.findings)}{_more(report)}.", *_waivers(report)]
    lines += [*(["", *worst] if (worst := _worst(report)) else []), *_undecided(report), *_answers(report)]
    lines += _folded(f"Findings in full ({len(words.shown(report))})", _cards(report))
    lines += _rest(report)
    drawn = gallery(report)
    for question in report.questions:
        pictures = [p for p in drawn if p.question == question.question]
        lines += _folded(f"{_title(question)} in pictures", _pictures(pictures))
    lines += _folded("Loads in numbers", _numbers(report.evidence))
    lines += _folded("Against the baseline", _changes(report.evidence))
    lines += _folded("Products of both phases: GEMM against GEMV", _products(report.evidence))
    lines += _folded("Server beside client", _beside(report.evidence))
    lines += _folded("Plan", _plan(report.evidence))
    lines += _folded("Environment", _environment(report))
    return "\n".join(lines) + "\n"


def _title(question: QuestionResult) -> str:
    """Bare words: a summary is HTML, in which markdown's escapes would show."""
    return " ".join(re.sub(r"[^\w.,:() -]", " ", words.clean(f"{question.question} {question.title}", 120)).split())
