"""Fingerprints: one short name for "the same finding", in every format, from run to run."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

from auditor.evidence import Finding

__all__ = ["VERSION", "fingerprints", "ordinals"]

VERSION = "1"
"""Is part of every fingerprint: another recipe gives other ones, and pipelines see all findings as new once."""

_LENGTH = 32  # hexadecimal digits: 128 bits, as an MD5 has, which some readers take the field for


def fingerprints(name: str, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The fingerprint of each finding of the audit `name`, in their order.

    It is made of the audit's name, the rule and its subject. Status, numbers, wording and place differ from run to run
    and are no part of it; findings that share rule and subject are numbered by place and wording. With an empty `name`
    audits of two profiles can be compared.
    """
    numbers = ordinals(findings)
    return tuple(_digest(name, f.rule, f.subject, number) for f, number in zip(findings, numbers, strict=True))


def ordinals(findings: Sequence[Finding]) -> tuple[int, ...]:
    """The number of each finding among those that share its rule and subject, from 0, by place and wording."""
    seen: Counter[tuple[str, str | None]] = Counter()
    numbers: dict[int, int] = {}
    for index in sorted(range(len(findings)), key=lambda i: _place(findings[i])):
        same = findings[index].rule, findings[index].subject
        numbers[index] = seen[same]
        seen[same] += 1
    return tuple(numbers[index] for index in range(len(findings)))


def _place(finding: Finding) -> tuple[object, ...]:
    where = finding.where
    return (where.file, where.line, where.column, finding.why) if where else ("", 0, 0, finding.why)


def _digest(*parts: str | int | None) -> str:
    return hashlib.sha256(json.dumps([VERSION, *parts]).encode("ascii")).hexdigest()[:_LENGTH]
