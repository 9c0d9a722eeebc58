"""The report as SARIF 2.1.0: results that point at the profile's line, for code scanning.

After the standard (docs.oasis-open.org/sarif/sarif/v2.1.0) and what GitHub's code scanning reads of it: a location for
every result, rules with help, fingerprints of our own, paths relative to where the audit ran. What passed or was
skipped without harm is no result.
"""

import re
from typing import Any
from urllib.parse import quote

from auditor.evidence import Location, Number, Report
from auditor.fingerprints import VERSION
from auditor.report import words
from auditor.report.issues import VERDICT, WAIVER, Issue, issues, passing, path, worth_telling
from auditor.report.json import dumps, plain

__all__ = ["render"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FINGERPRINT = f"servingAudit/v{VERSION}"
_EXPLAINED = {
    WAIVER: (
        "Waivers of the profile",
        "A waiver past its last day covers nothing: fix what it covered, or renew it. One that covers nothing can go.",
    ),
    VERDICT: (
        "Verdict",
        "The audit was cut short, or nothing decided a question: see what is missing and run it again.",
    ),
}


def render(report: Report) -> str:
    """The report as one SARIF log with one run."""
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return dumps(log)


def _run(report: Report) -> dict[str, Any]:
    found = issues(report)
    rules = {_rule(issue): words.clean(issue.finding.title, 160) for issue in reversed(found)}
    index = {rule: number for number, rule in enumerate(sorted(rules))}
    return {
        "tool": {
            "driver": {
                "name": "serving-audit",
                "version": words.clean(report.tool_version, 40),
                "rules": [_descriptor(rule, rules[rule]) for rule in index],
            }
        },
        "automationDetails": {"id": f"serving-audit/{words.clean(report.name, 160)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [_result(issue, index[_rule(issue)]) for issue in worth_telling(report)],
        "properties": {
            "verdict": report.verdict,
            "verdictLine": words.clean(report.verdict_line),
            "questions": {words.clean(q.question, 8): q.status if q.asked else "not asked" for q in report.questions},
        },
    }


def _rule(issue: Issue) -> str:
    return words.clean(issue.finding.rule, 40) or "unnamed"


def _descriptor(rule: str, title: str) -> dict[str, Any]:
    if rule in _EXPLAINED:
        title, text = _EXPLAINED[rule]
        marked = text
    else:
        text = f"audit explain {rule}"
        marked = f"`{text.replace('`', '')}` says what the rule judges and how to fix what it found."
    return {
        "id": rule,
        "shortDescription": {"text": title or rule},
        "fullDescription": {"text": title or rule},
        "help": {"text": text, "markdown": marked},
        "properties": {"tags": ["llm-serving"]},
    }


def _invocation(report: Report) -> dict[str, Any]:
    """Whether the audit ran to its end, its exit code, and what it noted on the way."""
    notes = [(problem, "note") for problem in report.evidence.problems]
    if report.interrupted:
        notes.append((report.interrupted, "error"))
    return {
        "executionSuccessful": report.interrupted is None,
        "exitCode": report.exit_code,
        "exitCodeDescription": f"{'goes on' if passing(report) else 'stops'}: {report.verdict}",
        "toolExecutionNotifications": [
            {"level": level, "message": {"text": _message(words.clean(text))}} for text, level in notes
        ],
    }


def _result(issue: Issue, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": _rule(issue),
        "ruleIndex": index,
        "level": issue.level,
        "message": {"text": _message(f"{issue.name}: {issue.text}")},
        "locations": [_location(issue.place)] if issue.place is not None else [],
        "partialFingerprints": {
            _FINGERPRINT: issue.fingerprint,
            "primaryLocationLineHash": f"{issue.fingerprint}:1",  # the only one that GitHub reads
        },
        "properties": _properties(issue),
    }
    if issue.finding.waived is not None:
        reason = words.waiver(issue.finding) or ""
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": reason}]
    return result


def _message(text: str) -> str:
    """Text in which square brackets are no links (section 3.11.6 of the standard)."""
    return re.sub(r"([\\\[\]])", r"\\\1", text)


def _location(place: Location) -> dict[str, Any]:
    region = {"startLine": max(1, place.line), "startColumn": max(1, place.column)}
    return {"physicalLocation": {"artifactLocation": _artifact(path(place)), "region": region}}


def _artifact(file: str) -> dict[str, str]:
    """A file as a URI reference: absolute ones by the scheme file, others under the checkout's root."""
    drive = re.match(r"[A-Za-z]:/", file)
    if drive or file.startswith("/"):
        return {"uri": f"file://{'/' if drive else ''}{quote(file, safe='/:')}"}
    return {"uri": quote(file, safe="/"), "uriBaseId": "%SRCROOT%"}


def _properties(issue: Issue) -> dict[str, Any]:
    finding = issue.finding
    facts = {
        "status": finding.status,
        "deciding": finding.deciding,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "subject": words.clean(finding.subject, 160) if finding.subject else None,
        "measured": _number(finding.measured),
        "required": _number(finding.required),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _number(number: Number | None) -> dict[str, Any] | None:
    if number is None:
        return None
    known = {name: value for name, value in plain(number).items() if value not in (None, "")}
    return {name: words.clean(value, 160) if isinstance(value, str) else value for name, value in known.items()}
