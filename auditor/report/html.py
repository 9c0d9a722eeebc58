"""The report as one HTML file that needs nothing else: no script, no font, no image, no network.

Everything a server, a dashboard or a profile said passes `clean` and is escaped, wherever the template puts it; the
page's own policy forbids scripts and requests, should anything slip through. The same report gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from auditor.evidence import Finding, QuestionResult, Report
from auditor.report import svg, tables, words
from auditor.report.picture import Picture, Table
from auditor.report.pictures.gallery import gallery

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["render"]

_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class _Card:
    """A finding as the page shows it."""

    status: str
    word: str
    heading: str
    why: str
    facts: Sequence[tuple[str, str]]
    remedies: Sequence[str]
    numbers: Sequence[str]
    kind: str


@dataclass(frozen=True, slots=True)
class _Question:
    """A question with its pictures."""

    letter: str
    title: str
    status: str
    word: str
    headline: str
    answers: Sequence[str]
    pictures: Sequence[Picture]


@dataclass(frozen=True, slots=True)
class _Fold:
    """What is folded away: a title, a table, lines."""

    title: str
    table: Table | None = None
    lines: Sequence[str] = ()


def render(report: Report) -> str:
    """The report as an HTML page."""
    pictures = gallery(report)
    return _template().render(
        report=report,
        context=words.context(report),
        notes=words.asides(report),
        questions=[_question(q, pictures) for q in report.questions],
        others=[p for p in pictures if p.question not in {q.question for q in report.questions}],
        counts=words.counts(report.findings),
        cards=[_card(f, report.evidence.profile.probe.confidence) for f in words.shown(report)],
        undecided=_missing(report, deciding=True),
        waivers=_waivers(report),
        folds=[fold for fold in _folds(report) if fold.table or fold.lines],
        environment=tables.environment(report),
        width=svg.WIDTH,
    )


@cache
def _template() -> "Template":
    """Loaded when first needed: `audit --help` pays nothing for it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def harmless(value: Any) -> Any:
        return value if isinstance(value, Markup | int | float) else words.clean(value, _LONGEST)

    environment = Environment(
        loader=PackageLoader("auditor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = lambda picture: Markup(picture.drawing)  # escaped where it was drawn
    return environment.get_template("report.html")


# ------------------------------------------------------------------------------------------------------------ findings


def _question(result: QuestionResult, pictures: Sequence[Picture]) -> _Question:
    status = result.status if result.asked else "skip"
    return _Question(
        letter=words.clip(result.question, 2),
        title=words.clean(result.title, 80),
        status=status,
        word=words.STATUS_WORDS[status] if result.asked else "not asked",
        headline=words.clean(result.headline, 400).removeprefix("not asked: "),
        answers=[words.clean(answer, 400) for answer in result.answers],
        pictures=[p for p in pictures if p.question == result.question],
    )


def _card(finding: Finding, confidence: float) -> _Card:
    kind = "deciding" if finding.deciding else "advisory"
    voided = bool(finding.voided_by)  # the T finding, shown first, says the rest
    return _Card(
        status=words.weight(finding),
        word=words.STATUS_WORDS[words.weight(finding)],
        heading=words.heading(finding),
        why=words.clean(finding.why),
        facts=_facts(finding, confidence),
        remedies=() if voided else [words.clean(remedy) for remedy in finding.remedies],
        numbers=() if voided else [words.number(item, confidence) for item in finding.numbers],
        kind=f"{kind}, {finding.severity} severity, {finding.confidence} confidence",
    )


def _facts(finding: Finding, confidence: float) -> list[tuple[str, str]]:
    found: list[tuple[str, str | None]] = []
    if finding.measured:
        told = words.number(finding.measured, confidence, provenance=False)
        found.append((finding.measured.provenance, told))
    if finding.required:
        found.append(("required", words.number(finding.required, confidence)))
    if finding.voided_by:
        found.append(("voided by", ", ".join(finding.voided_by)))
    else:
        found += [
            ("where", str(finding.where) if finding.where else None),
            ("missing", finding.missing),
            ("voids", words.voids(finding)),
            ("waived", words.waiver(finding)),
        ]
    return [(label, text) for label, text in found if text]


def _missing(report: Report, *, deciding: bool) -> list[str]:
    groups = words.skipped_by_reason(report).items()
    return [f"{words.headings(found)}: {why}" for (kind, why), found in groups if kind is deciding]


def _waivers(report: Report) -> list[str]:
    expired = [f"Expired waiver: {words.clean(item)}" for item in report.expired_waivers]
    return [*expired, *(f"Unused waiver: {words.clean(item)}" for item in report.unused_waivers)]


# --------------------------------------------------------------------------------------------------------------- folds


def _folds(report: Report) -> list[_Fold]:
    evidence = report.evidence
    passed = [f for f in sorted(report.findings, key=words.sort_key) if f.status == "pass"]
    return [
        _Fold(f"Passed ({len(passed)})", _passed(passed)),
        _Fold("Skipped", lines=_missing(report, deciding=False)),
        _Fold("Loads in numbers", tables.numbers(evidence)),
        _Fold("Against the baseline", tables.changes(evidence)),
        _Fold("Server beside client, load by load", tables.counterparts(evidence)),
        _Fold("Server beside client, number by number", tables.agreements(evidence)),
        _Fold("Products of both phases: GEMM against GEMV", tables.phases(evidence)),
        _Fold("Plan", tables.plan(evidence)),
        _Fold("Settings", tables.settings(evidence)),
    ]


def _passed(found: Sequence[Finding]) -> Table:
    rows = tuple(
        (words.heading(f), words.clean(f.why, 300), words.number(f.measured) if f.measured else "") for f in found
    )
    return Table(head=("Rule", "Why", "Measured"), rows=rows)
