"""Errors that a user can cause or meet, each one line: where, what, what to do.

AuditError
 + UsageError            exit 2   a flag, a path or a file is wrong
 |  + ProfileError       exit 2   the profile (or a file it names) has problems, listed all at once
 + NothingMeasured       exit 3   the endpoint could not be measured at all
 |  + PreflightFailed    exit 3   a check before the load failed
 + ToolError             exit 3   an invariant of this program broke: its numbers are not to be trusted
"""

from dataclasses import dataclass

_MOST_SHOWN = 100


class AuditError(Exception):
    """Base of every error shown to the user as one line without a traceback."""

    exit_code = 2


def unread(error: Exception) -> str:
    """Why a file could not be read or a text was no JSON, in words for people: Python's own name its functions."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "no UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


class UsageError(AuditError):
    """A flag, a path or a file that the user gave is wrong."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a user's file: `file:line:column: message`."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class ProfileError(UsageError):
    """The profile or a file it names has problems; all are listed, one a line, but no more than anybody reads."""

    def __init__(self, problems: "tuple[Problem, ...]") -> None:
        self.problems = problems
        rest = len(problems) - _MOST_SHOWN
        more = [f"{problems[0].file}: {rest} more problems are not shown"] if rest > 0 else []
        super().__init__("\n".join([*map(str, problems[:_MOST_SHOWN]), *more]))


class NothingMeasured(AuditError):
    """Nothing could be measured: the endpoint is down or refused every request."""

    exit_code = 3


class PreflightFailed(NothingMeasured):
    """A check made before any load failed; the message ends with the remedy."""


class ToolError(AuditError):
    """An invariant of the auditor itself broke (a negative latency, more in flight than asked)."""

    exit_code = 3
