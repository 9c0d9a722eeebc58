"""Findings as machines take them: how much each weighs at the gate, where it points, its name and its text.

What all machine formats share, so that none of them says something else than the exit code. Strings of unknown origin
are harmless lines here already; each format adds the escapes of its own syntax.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from auditor.evidence import Finding, Location, Report
from auditor.fingerprints import fingerprints, ordinals
from auditor.report import words

__all__ = ["VERDICT", "WAIVER", "Issue", "Level", "issues", "passing", "path", "worth_telling"]

Level = Literal["error", "warning", "note", "pass", "skip"]

WAIVER = "waiver"
"""The rule of what is said of waivers themselves."""

VERDICT = "verdict"
"""The rule of a verdict that stops a pipeline although no finding does: cut short, or nothing was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One finding with what machines need of it.

    `level` error keeps the gate shut, warning and note do not. `name` is the same in every run and differs from all
    others; `details` are labelled lines that say the rest. `place` is None where no file is known.
    """

    finding: Finding
    level: Level
    fingerprint: str
    name: str
    place: Location | None
    summary: str
    details: tuple[tuple[str, str], ...]

    @property
    def page(self) -> str | None:
        """The rule to give to `audit explain`; None where there is no page."""
        return words.clean(self.finding.rule, 20) if self.finding.rule not in (WAIVER, VERDICT) else None

    @property
    def text(self) -> str:
        """The summary and all details, a line each."""
        return "\n".join([self.summary, *(f"{label}: {text}" for label, text in self.details)])


def passing(report: Report) -> bool:
    """Whether a pipeline goes on: the exit code is 0."""
    return report.exit_code == 0


def issues(report: Report) -> tuple[Issue, ...]:
    """Every finding, worst first, and what is to be said of waivers that do not hold or are not needed.

    One at least is an error exactly where the exit code is not 0.
    """
    everything = (*report.findings, *_on_waivers(report))
    if not passing(report) and not any(_level(report, finding) == "error" for finding in everything):
        everything = (*everything, _on_verdict(report))
    marks = zip(everything, fingerprints(report.name, everything), ordinals(everything), strict=True)
    ordered = sorted(marks, key=lambda mark: words.sort_key(mark[0]))
    return tuple(_issue(report, finding, mark, number) for finding, mark, number in ordered)


def worth_telling(report: Report) -> tuple[Issue, ...]:
    """The issues that somebody should look at, worst first: what passed or could not look without harm is left out."""
    return tuple(issue for issue in issues(report) if issue.level in ("error", "warning", "note"))


def path(place: Location) -> str:
    """A place's file with slashes, as pipelines name files: relative to where the audit ran."""
    return words.clean(place.file, 1000).replace("\\", "/").removeprefix("./") or "profile"


def _issue(report: Report, finding: Finding, fingerprint: str, number: int) -> Issue:
    return Issue(
        finding=finding,
        level=_level(report, finding),
        fingerprint=fingerprint,
        name=words.heading(finding) + (f" ({number + 1})" if number else ""),
        place=_place(report, finding),
        summary=words.clean(finding.why) or words.heading(finding),
        details=tuple(_details(finding, report.evidence.profile.probe.confidence)),
    )


def _level(report: Report, finding: Finding) -> Level:
    """How much a finding weighs, as the verdict took it: a waived failure warns, a deciding rule may not stay open."""
    if finding.status == "pass" or (finding.status == "skip" and not finding.deciding):
        return finding.status
    if finding.rule == WAIVER and finding.status == "fail":
        return "warning" if passing(report) else "error"
    if finding.deciding and finding.status == "fail" and finding.waived is None:
        return "error"
    if finding.deciding and finding.status in ("inconclusive", "skip"):
        return "warning" if passing(report) else "error"
    return "note" if finding.severity == "low" or finding.waived is not None else "warning"


def _place(report: Report, finding: Finding) -> Location | None:
    """Where a finding points; the head of the profile where it points nowhere."""
    if finding.where is not None:
        return finding.where
    first = min(report.evidence.lines.values(), key=lambda at: (at.line, at.column), default=None)
    return Location(first.file, 1) if first is not None else None


def _details(finding: Finding, confidence: float) -> Iterator[tuple[str, str]]:
    """What a card tells beside its reason, as labelled lines."""
    if finding.measured is not None:
        yield finding.measured.provenance, words.number(finding.measured, confidence, provenance=False)
    if finding.required is not None:
        yield "required", words.number(finding.required, confidence)
    if finding.missing:
        yield "missing", words.clean(finding.missing)
    if finding.voided_by:
        yield "voided by", words.clean(", ".join(finding.voided_by))
    if finding.voids:
        yield "voids", words.clean(words.voids(finding))
    if waiver := words.waiver(finding):
        yield "waived", waiver
    yield from (("change", words.clean(remedy)) for remedy in finding.remedies)


def _on_verdict(report: Report) -> Finding:
    missing = report.interrupted or next((q.headline for q in report.questions if q.status == "inconclusive"), None)
    return Finding(
        rule=VERDICT,
        status="inconclusive",
        title=report.verdict,
        why=report.verdict_line,
        deciding=True,
        severity="high",
        missing=missing,
    )


def _on_waivers(report: Report) -> Iterator[Finding]:
    where = report.evidence.where("waivers")
    said: tuple[tuple[Sequence[str], Literal["fail", "warn"], str], ...] = (
        (report.expired_waivers, "fail", "expired"),
        (report.unused_waivers, "warn", "not needed"),
    )
    for lines, status, title in said:
        for line in lines:
            subject = line.split(maxsplit=1)[0].rstrip(":,") if line.strip() else None
            yield Finding(rule=WAIVER, status=status, title=title, why=line, subject=subject, where=where)
