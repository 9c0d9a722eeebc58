"""The report as GitLab's code quality report: a JSON array with an entry for each finding to look at.

Fields and severities after docs.gitlab.com/ci/testing/code_quality, "Code quality report format".
"""

from typing import Any

from auditor.evidence import Report
from auditor.report import words
from auditor.report.issues import Issue, path, worth_telling
from auditor.report.json import dumps

__all__ = ["render"]

_SEVERITIES = {
    "error": {"high": "blocker", "medium": "critical", "low": "major"},
    "warning": {"high": "major", "medium": "minor", "low": "minor"},
    "note": {"high": "info", "medium": "info", "low": "info"},
}


def render(report: Report) -> str:
    """The report as a JSON array; an empty one where there is nothing to look at."""
    entries = [_entry(report, issue) for issue in worth_telling(report)]
    return dumps(entries)


def _entry(report: Report, issue: Issue) -> dict[str, Any]:
    waiver = words.waiver(issue.finding)
    text = f"{issue.name}: {issue.summary}" + (f" (waived {waiver})" if waiver else "")
    place = issue.place
    return {
        "description": text,
        "check_name": words.clean(issue.finding.rule, 40) or "unnamed",
        "fingerprint": issue.fingerprint,
        "severity": _SEVERITIES[issue.level][issue.finding.severity],
        "location": {
            "path": path(place) if place is not None else words.clean(report.name, 160) or "profile",
            "lines": {"begin": max(1, place.line) if place is not None else 1},
        },
    }
