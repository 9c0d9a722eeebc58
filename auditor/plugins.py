"""The checks that are installed: this project's four questions and any third party's, through one entry-point group."""

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from auditor.errors import UsageError
from auditor.evidence import Check

__all__ = ["API", "GROUP", "load_checks"]

API = 1
"""The version of the check interface that this program speaks."""

GROUP = "auditor.checks"

_OWN = "WHKM"
_RESERVED = "T"


def load_checks(found: Iterable[EntryPoint] | None = None) -> tuple[Check, ...]:
    """Every installed check: this project's questions first in their order, then others by letter.

    Raises UsageError naming the package whose check cannot be imported, is none, speaks another version of the
    interface, or uses rule ids that are taken.
    """
    points = sorted(entry_points(group=GROUP) if found is None else found, key=lambda p: (p.name, p.value))
    checks = [(_origin(point), _load(point)) for point in points]
    _refuse_doubles(checks)
    return tuple(sorted((check for _, check in checks), key=_order))


def _order(check: Check) -> tuple[int, str]:
    return (_OWN.find(check.question) if check.question in _OWN else len(_OWN), check.question)


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else point.value
    return f"check '{point.name}' of {package}"


def _load(point: EntryPoint) -> Check:
    origin = _origin(point)
    try:
        check = point.load()
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{origin} cannot be loaded: {reason}; repair or uninstall it") from error
    if not isinstance(check, Check):
        raise UsageError(f"{origin}: {point.value} is no Check but {type(check).__name__}; repair or uninstall it")
    if check.api != API:
        advice = "upgrade serving-audit" if check.api > API else "upgrade the check"
        raise UsageError(f"{origin} speaks version {check.api} of the check interface, this program {API}; {advice}")
    if not re.fullmatch(r"[A-Z]", check.question) or check.question == _RESERVED:
        raise UsageError(f"{origin}: its question must be one upper-case letter, not {_RESERVED}")
    for rule in check.rules:
        if not re.fullmatch(rf"{check.question}\d{{3}}", rule.id):
            raise UsageError(f"{origin}: rule id {rule.id} is not {check.question} and three digits")
    return check


def _refuse_doubles(checks: list[tuple[str, Check]]) -> None:
    owners: dict[str, str] = {}
    for origin, check in checks:
        for rule in check.rules:
            if rule.id in owners:
                raise UsageError(f"{origin}: rule {rule.id} belongs to {owners[rule.id]} already")
            owners[rule.id] = origin
