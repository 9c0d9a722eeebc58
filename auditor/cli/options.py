"""The options that several commands share, and how their values are read."""

import datetime
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.complete import profile_names
from auditor.cli.exits import INCONCLUSIVE
from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.units import Unit

__all__ = [
    "Baseline",
    "FailOn",
    "MinEffect",
    "Offline",
    "OnInconclusive",
    "Only",
    "Output",
    "Policy",
    "ProfileName",
    "RunFolder",
    "Severity",
    "Today",
    "Wait",
    "amount",
    "date",
    "effect",
    "letters",
    "policy_exit",
    "positive",
]

_EFFECT = "10%"  # the least slowdown that counts where nobody says


class Policy(StrEnum):
    """What an INCONCLUSIVE audit means for the exit code."""

    inconclusive = "inconclusive"
    warn = "warn"
    passed = "pass"
    fail = "fail"


class Severity(StrEnum):
    """How grave a failed finding must be to fail the audit."""

    high = "high"
    medium = "medium"
    low = "low"


ProfileName = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE", help="A profile file, or the name of a shipped one.", autocompletion=profile_names
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `audit run --save` wrote.")]
Output = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT=PATH",
        help="Write a report: terminal, markdown, html, json, junit, sarif, github, gitlab, csv or prometheus. "
        "PATH - is stdout. May be repeated.",
        show_default=False,
    ),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="W,H,K,M", help="Judge only these questions.", show_default=False),
]
Offline = Annotated[bool, typer.Option("--offline", help="Judge by files and arithmetic alone; send nothing.")]
OnInconclusive = Annotated[
    Policy | None,
    typer.Option(
        "--on-inconclusive",
        metavar="POLICY",
        help="What an INCONCLUSIVE audit exits with: inconclusive 4, warn or pass 0, fail 1.",
    ),
]
FailOn = Annotated[
    Severity | None,
    typer.Option(
        "--fail-on",
        metavar="SEVERITY",
        help="Fail on findings of this severity and above: high, medium, low (all); others that fail only warn.",
    ),
]
Baseline = Annotated[
    list[Path] | None,
    typer.Option(
        "--baseline",
        metavar="DIR",
        help="Fail where the run is slower than this saved one. May be repeated.",
        show_default=False,
    ),
]
MinEffect = Annotated[
    str | None,
    typer.Option("--min-effect", metavar="SHARE", help="The least slowdown against a baseline that counts; 10%."),
]
Today = Annotated[
    str | None,
    typer.Option("--today", metavar="DATE", help="Judge waivers as of this ISO date.", show_default=False),
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait-ready", "--wait", metavar="DURATION", help="How long a server may take to answer while it still starts."
    ),
]


def amount(flag: str, text: str, unit: "Unit") -> float:
    """What a flag says in a unit, such as 90s of a duration; raises UsageError for anything else.

    The number of a flag comes as text: where a unit takes bare numbers, it is read as one.
    """
    value: object = text
    if unit.numbers:
        with suppress(ValueError):
            value = float(text)
    try:
        return float(unit.parse(value))
    except ValueError as error:
        raise UsageError(f"{flag} {text[:60]}: {error}") from None


def positive(flag: str, text: str, unit: "Unit") -> float:
    """As `amount`, and more than 0."""
    if (found := amount(flag, text, unit)) <= 0:
        raise UsageError(f"{flag} {text[:60]}: more than 0 is needed")
    return found


def effect(given: str | None, *, against: bool) -> float:
    """The least slowdown that counts, as a share; raises UsageError for anything else, or with nothing to be slower
    than.
    """
    from auditor.units import SHARE

    if given is not None and not against:
        raise UsageError("--min-effect: says what counts against a baseline; name it with --baseline")
    return positive("--min-effect", given if given is not None else _EFFECT, SHARE)


def policy_exit(code: int, policy: Policy | None) -> int:
    """The exit code of an answer that may be open, by `--on-inconclusive`."""
    from auditor.verdict import OPEN_EXIT

    return code if code != INCONCLUSIVE or policy is None else OPEN_EXIT[policy]


def date(text: str | None) -> str | None:
    """An ISO date as given; raises UsageError for anything else."""
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise UsageError(f"--today {text}: needs a date such as 2026-01-31") from None


def letters(text: str | None) -> tuple[str, ...] | None:
    """The question letters of `--only W,K`; raises UsageError for a letter that no check answers."""
    if text is None:
        return None
    from auditor.plugins import load_checks

    known = [check.question for check in load_checks()]
    wanted = [part.strip().upper() for part in text.split(",") if part.strip()]
    unknown = [letter for letter in wanted if letter not in known]
    if unknown or not wanted:
        raise UsageError(f"--only {text}: no such question; choose from {', '.join(known)}")
    return tuple(letter for letter in known if letter in wanted)
