"""From findings to one verdict: measurement validity, waivers, questions, exit code. Once, for every format.

T findings void what they could have faked -> waivers cover known failures -> each question is its worst deciding
finding -> NOT READY if a question fails, else INCONCLUSIVE if one is, else READY
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from auditor.errors import UsageError
from auditor.evidence import Check, Evidence, Finding, QuestionResult, Report, Status, Verdict, Waived
from auditor.profile import Profile, Waiver
from auditor.units import count as noun_count

__all__ = ["OPEN_EXIT", "SCHEMA_VERSION", "decide"]

SCHEMA_VERSION = 1
"""The version of the report that `decide` makes."""

OPEN_EXIT: Mapping[str, int] = {"inconclusive": 4, "warn": 0, "pass": 0, "fail": 1}
"""What an answer that stays open exits with, by `--on-inconclusive`."""

_STATUSES: tuple[Status, ...] = ("fail", "inconclusive", "warn", "skip", "pass")
_SEVERITIES = ("high", "medium", "low")
_EXIT: Mapping[Verdict, int] = {"READY": 0, "NOT READY": 1, "INCONCLUSIVE": 4}
_INTERRUPTED_EXIT = 130
_PROFILE_EXIT = 2
_VALIDITY = "T"
_MOST_ANSWERS = 3  # lines a question; more is a table, not an answer


def decide(
    findings: Iterable[Finding],
    checks: Sequence[Check],
    profile: Profile,
    evidence: Evidence,
    *,
    today: str,
    only: Sequence[str] | None = None,
    on_inconclusive: str = "inconclusive",
    fail_on: str = "low",
    interrupted: str | None = None,
) -> Report:
    """The report of an audit.

    `today` (ISO date) decides which waivers have expired; `only` names the questions to judge; `on_inconclusive` says
    what an INCONCLUSIVE audit exits with; `fail_on` how severe a failure must be to count as one, lesser ones warn;
    `interrupted` why the run ended early (exit code 130). An expired waiver is an error: what would exit with 0 exits
    with 2. Raises UsageError for a question in `only` that no check answers.
    """
    scopes = _scopes(checks, profile, only)
    asked = {scope.question for scope in scopes if scope.asked}
    valid = _void([f for f in findings if f.rule[:1] in asked or f.rule.startswith(_VALIDITY)])
    waivers = _Waivers(profile.waivers, today)
    counted = [_counted(waivers.cover(finding), fail_on) for finding in valid]
    judged = sorted(map(_complete, counted), key=_worst_first)
    questions = tuple(_answered(_question(scope, judged), _answers(scope, checks, judged)) for scope in scopes)
    verdict = _verdict(questions)
    return Report(
        schema_version=SCHEMA_VERSION,
        tool_version=_tool_version(),
        name=profile.name,
        date=today,
        verdict=verdict,
        verdict_line=_verdict_line(verdict, profile, scopes, questions) + _asides(valid, counted, fail_on, waivers),
        exit_code=_exit_code(verdict, on_inconclusive, interrupted, expired=bool(waivers.expired())),
        questions=questions,
        findings=tuple(judged),
        evidence=evidence,
        unused_waivers=waivers.unused(valid, checks, asked),
        expired_waivers=waivers.expired(),
        interrupted=interrupted,
    )


def _tool_version() -> str:
    from auditor import __version__

    return __version__


def _worst_first(finding: Finding) -> tuple[object, ...]:
    """The order of findings: status (a waived failure is a warning), deciding first, severity, rule, subject."""
    return (
        _STATUSES.index(_effective(finding)),
        finding.waived is not None,
        not finding.deciding,
        _SEVERITIES.index(finding.severity),
        finding.rule,
        finding.subject or "",
        finding.title,
        finding.why,
    )


def _counted(finding: Finding, fail_on: str) -> Finding:
    """The finding, a failure below `fail_on` as a warning. What is open stays so: nobody knows how bad it is."""
    if finding.status != "fail" or finding.waived is not None or _reaches(finding, fail_on):
        return finding
    why = f"{finding.why} This fails; as its severity is {finding.severity}, it only warns (--fail-on {fail_on})."
    return replace(finding, status="warn", why=why)


def _reaches(finding: Finding, least: str) -> bool:
    return _SEVERITIES.index(finding.severity) <= _SEVERITIES.index(least)


def _effective(finding: Finding) -> Status:
    """The status with which a finding counts: a waived failure warns, a skipped deciding rule leaves it open."""
    if finding.status == "fail" and finding.waived is not None:
        return "warn"
    return "inconclusive" if finding.status == "skip" and finding.deciding else finding.status


def _complete(finding: Finding) -> Finding:
    """A finding that decides nothing for want of something says what is missing."""
    return replace(finding, missing=finding.why) if finding.missing is None and _is_open(finding) else finding


def _is_open(finding: Finding) -> bool:
    return finding.status == "inconclusive" or (finding.status == "skip" and finding.deciding)


# ------------------------------------------------------------------------------------------------------------ validity


def _void(findings: Sequence[Finding]) -> list[Finding]:
    """Turn each finding whose status a T finding could have faked into an inconclusive one.

    `voids` entries are "W110:pass" (a rule) or "K:fail" (a question); nothing but what they name is touched.
    """
    voids: dict[str, list[Finding]] = {}
    for doubt in sorted((f for f in findings if f.rule.startswith(_VALIDITY)), key=lambda f: (f.rule, f.subject or "")):
        if doubt.status not in ("pass", "skip"):
            for target in doubt.voids:
                voids.setdefault(target, []).append(doubt)
    return [_voided(finding, voids) for finding in findings]


def _voided(finding: Finding, voids: Mapping[str, Sequence[Finding]]) -> Finding:
    if finding.rule.startswith(_VALIDITY):
        return finding
    doubts = [d for name in (finding.rule, finding.rule[:1]) for d in voids.get(f"{name}:{finding.status}", ())]
    if not doubts:
        return finding
    return replace(
        finding,
        status="inconclusive",
        voided_by=tuple(dict.fromkeys(d.rule for d in doubts)),
        missing=finding.missing or "; ".join(dict.fromkeys(d.missing or d.why for d in doubts)),
    )


# ------------------------------------------------------------------------------------------------------------- waivers


class _Waivers:
    """The profile's waivers on one day."""

    def __init__(self, waivers: Sequence[Waiver], today: str) -> None:
        self._waivers = waivers
        self._today = today
        self._open = {w.rule: w for w in reversed(waivers) if w.expires >= today}

    def cover(self, finding: Finding) -> Finding:
        """The finding with its waiver if it failed and has one that still holds."""
        waiver = self._open.get(finding.rule)
        if waiver is None or finding.status != "fail":
            return finding
        return replace(finding, waived=Waived(reason=waiver.reason, expires=waiver.expires, owner=waiver.owner))

    def expired(self) -> tuple[str, ...]:
        """One line for each waiver past its last day; these cover nothing."""
        return tuple(
            f"{w.rule} expired on {w.expires}{f' (owner {w.owner})' if w.owner else ''}: {w.reason}"
            for w in self._waivers
            if w.expires < self._today
        )

    def unused(self, findings: Sequence[Finding], checks: Sequence[Check], asked: set[str]) -> tuple[str, ...]:
        """One line for each waiver that covers nothing: its rule passes, or there is no such rule.

        A rule that was not judged for certain (another question, inconclusive, skipped) may still need its waiver.
        """
        rules = {rule.id: check.question for check in checks for rule in check.rules}
        lines = []
        for waiver in self._open.values():
            statuses = {f.status for f in findings if f.rule == waiver.rule}
            if waiver.rule not in rules:
                near = difflib.get_close_matches(waiver.rule, rules, 1)
                lines.append(f"{waiver.rule}: there is no such rule{f', did you mean {near[0]}' if near else ''}")
            elif rules[waiver.rule] in asked and statuses <= {"pass", "warn"}:
                lines.append(f"{waiver.rule}: nothing to waive, the rule does not fail; remove the waiver")
        return tuple(sorted(lines))


# ----------------------------------------------------------------------------------------------------------- questions


@dataclass(frozen=True, slots=True)
class _Scope:
    """One question and whether it is asked; `why_not` where the profile left it out."""

    question: str
    title: str
    asked: bool
    why_not: str = ""


def _scopes(checks: Sequence[Check], profile: Profile, only: Sequence[str] | None) -> tuple[_Scope, ...]:
    """Every question once, in the order of the checks. `only` beats the profile."""
    titles: dict[str, str] = {}
    for check in checks:
        titles.setdefault(check.question, check.title)
    wanted = None if only is None else {letter.upper() for letter in only}
    if wanted is not None and (not wanted or wanted - titles.keys()):
        unknown = ", ".join(sorted(wanted - titles.keys())) or "none"
        raise UsageError(f"--only {unknown}: no such question; choose from {', '.join(titles)}")
    scopes = []
    for letter, title in titles.items():
        if wanted is not None:
            scopes.append(_Scope(letter, title, letter in wanted))
        elif letter == "M" and not profile.monitoring.required:
            scopes.append(_Scope(letter, title, False, "monitoring.required is false"))
        else:
            scopes.append(_Scope(letter, title, True))
    return tuple(scopes)


def _question(scope: _Scope, findings: Sequence[Finding]) -> QuestionResult:
    """A question is its worst deciding finding; with none it stays open."""
    if not scope.asked:
        reason = scope.why_not or "left out by --only"
        return QuestionResult(
            question=scope.question, title=scope.title, status="skip", asked=False, headline=f"not asked: {reason}"
        )
    deciding = [f for f in findings if f.rule.startswith(scope.question) and f.deciding]
    if not deciding:
        return QuestionResult(
            question=scope.question, title=scope.title, status="inconclusive", headline="nothing decided it"
        )
    status = min((_effective(f) for f in deciding), key=_STATUSES.index)
    decisive = [f for f in deciding if _effective(f) == status]
    return QuestionResult(
        question=scope.question,
        title=scope.title,
        status=status,
        decided_by=tuple(dict.fromkeys(f.rule for f in decisive)),
        headline=_headline(_telling(decisive) if status == "pass" else decisive[0], status, len(decisive)),
    )


def _telling(passed: Sequence[Finding]) -> Finding:
    """The passing finding that says most: the first with a figure and what it was held against, else the first."""
    return next((f for f in passed if f.measured and f.required), passed[0])


def _headline(finding: Finding, status: Status, count: int) -> str:
    """The worst finding in one sentence; what is missing where that is the point."""
    subject = f" [{finding.subject}]" if finding.subject else ""
    text = finding.why
    if status == "inconclusive" and finding.missing:
        text = finding.missing if finding.missing.startswith("no ") else f"missing: {finding.missing}"
    more = f" (and {noun_count(count - 1, 'more finding')})" if count > 1 and status != "pass" else ""
    return f"{finding.rule}{subject}: {text}{more}"


def _answered(question: QuestionResult, answers: Sequence[str]) -> QuestionResult:
    """The question with its answers, less what its headline says already."""
    return replace(question, answers=tuple(a for a in answers if a not in question.headline))


def _answers(scope: _Scope, checks: Sequence[Check], findings: Sequence[Finding]) -> tuple[str, ...]:
    """What the findings that a check names as answers say, in its order; what was skipped says nothing."""
    wanted = [name for c in checks if scope.asked and c.question == scope.question for name in c.answers]
    told = [f for f in findings if f.status != "skip" and f.rule.startswith(scope.question)]
    answers = [_answer(f) for name in wanted for f in told if name == f"{f.rule} {f.subject or ''}".rstrip()]
    return tuple(dict.fromkeys(answers))[:_MOST_ANSWERS]


def _answer(finding: Finding) -> str:
    return f"{finding.why} (in doubt: {', '.join(finding.voided_by)})" if finding.voided_by else finding.why


# ------------------------------------------------------------------------------------------------------------- verdict


def _verdict(questions: Sequence[QuestionResult]) -> Verdict:
    statuses = {q.status for q in questions if q.asked}
    if "fail" in statuses:
        return "NOT READY"
    return "INCONCLUSIVE" if "inconclusive" in statuses or not statuses else "READY"


def _verdict_line(
    verdict: Verdict, profile: Profile, scopes: Sequence[_Scope], questions: Sequence[QuestionResult]
) -> str:
    """`NOT READY: chat-prod: W pass, H warn (H203), K fail (K302), M not asked (monitoring.required is false)`."""
    parts = []
    for scope, question in zip(scopes, questions, strict=True):
        if question.asked:
            rules = f" ({', '.join(question.decided_by)})" if question.decided_by and question.status != "pass" else ""
            parts.append(f"{question.question} {question.status}{rules}")
        elif scope.why_not:
            parts.append(f"{question.question} not asked ({scope.why_not})")
    left_out = [q.question for q, s in zip(questions, scopes, strict=True) if not q.asked and not s.why_not]
    only = f"; judged only {', '.join(q.question for q in questions if q.asked)}" if left_out else ""
    return f"{verdict}: {profile.name}: {', '.join(parts)}{only}"


def _asides(valid: Sequence[Finding], counted: Sequence[Finding], fail_on: str, waivers: _Waivers) -> str:
    """What else the exit code rests on: failures that only warn, waivers that have expired."""
    spared = sum(a.status != b.status for a, b in zip(valid, counted, strict=True))
    parts = []
    if spared:
        parts.append(
            f"; {noun_count(spared, 'failure')} less severe than {fail_on} only warn{'s' if spared == 1 else ''}"
        )
    if expired := len(waivers.expired()):
        parts.append(f"; {noun_count(expired, 'waiver')} expired, renew or remove {'it' if expired == 1 else 'them'}")
    return "".join(parts)


def _exit_code(verdict: Verdict, on_inconclusive: str, interrupted: str | None, *, expired: bool) -> int:
    if interrupted is not None:
        return _INTERRUPTED_EXIT
    code = OPEN_EXIT[on_inconclusive] if verdict == "INCONCLUSIVE" else _EXIT[verdict]
    return code or (_PROFILE_EXIT if expired else 0)
