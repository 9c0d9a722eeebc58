"""`audit lint PROFILE...`: check profiles and the files they name."""

import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from auditor.cli.complete import profile_names
from auditor.cli.output import say

if TYPE_CHECKING:
    from auditor.loading import Loaded

__all__ = ["command"]

ProfileNames = Annotated[
    list[str],
    typer.Argument(metavar="PROFILE...", help="Profile files, or names of shipped ones.", autocompletion=profile_names),
]


def command(profiles: ProfileNames) -> None:
    """Check profiles and the files they name. Sends nothing.

    Problems go to stderr as file:line:column, all at once, and exit 2.

    \b
    audit lint prod.yaml
    audit lint profiles/*.yaml
    """
    from auditor.errors import Problem, ProfileError

    problems: list[Problem] = []
    for profile in profiles:
        try:
            _lint(profile)
        except ProfileError as error:
            problems += error.problems
    if problems:
        raise ProfileError(tuple(problems))


def _lint(profile: str) -> None:
    """Say what is to be said of one profile. Raises UsageError, ProfileError with all its problems."""
    from auditor.loading import load_monitoring, load_profile
    from auditor.loading.profile import shown
    from auditor.redact import Redactor

    loaded = load_profile(profile)
    _refuse_expired(loaded, datetime.date.today().isoformat())
    files, redactor = load_monitoring(loaded), Redactor(loaded.secrets)
    for line in (*loaded.warnings, *_unresolved(loaded), *_conflicts(loaded), *_waivers(loaded)):
        say(f"warning: {redactor.text(line)}")
    say(f"{shown(loaded.path)}: ok: {_summary(loaded, len(files))}")


def _refuse_expired(loaded: "Loaded", today: str) -> None:
    """Raise ProfileError for waivers past their last day: an audit would not heed them."""
    from auditor.errors import Problem, ProfileError

    problems = []
    for index, waiver in enumerate(loaded.profile.waivers):
        if waiver.expires < today:
            where = loaded.lines[f"waivers.{index}.expires"]
            text = f"waivers.{index}: the waiver of {waiver.rule} expired on {waiver.expires}; renew or remove it"
            problems.append(Problem(where.file, where.line, where.column, text))
    if problems:
        raise ProfileError(tuple(problems))


def _waivers(loaded: "Loaded") -> list[str]:
    """Waivers of rules that no installed check has."""
    from auditor.loading.problems import did_you_mean
    from auditor.plugins import load_checks

    rules = [rule.id for check in load_checks() for rule in check.rules] if loaded.profile.waivers else []
    return [
        f"{loaded.lines[f'waivers.{index}.rule']}: there is no rule {waiver.rule}{did_you_mean(waiver.rule, rules)}"
        for index, waiver in enumerate(loaded.profile.waivers)
        if waiver.rule not in rules
    ]


def _unresolved(loaded: "Loaded") -> list[str]:
    """Why arithmetic will have no model or no accelerator."""
    from auditor.loading import resolve_device, resolve_model
    from auditor.probe.machine import unmeasured

    return [
        f"{loaded.lines.get(path) or loaded.path}: {reason}"
        for path, reason in (
            ("deployment.model", resolve_model(loaded)[1]),
            ("deployment.accelerator", resolve_device(loaded, unmeasured)[1]),
        )
        if reason is not None
    ]


def _conflicts(loaded: "Loaded") -> list[str]:
    """Where the launch line says something else than a field, with both places."""
    from auditor.engines.settings import conflicts

    return [
        f"{c.field}: {c.first} ({c.first_where}) against {c.second} ({c.second_where})"
        for c in conflicts(loaded.profile, loaded.launch, None, loaded.lines)
    ]


def _summary(loaded: "Loaded", files: int) -> str:
    """What an audit of this profile will look at."""
    profile = loaded.profile
    traffic, goals = profile.traffic, [n for n in ("ttft", "first_answer", "tps", "e2e") if getattr(profile.slo, n)]
    target = f"{traffic.target_concurrency} in flight" if traffic.target_concurrency else None
    if traffic.request_rate is not None:
        target = f"{traffic.request_rate:g} requests/s"
    parts = [
        f"{profile.name} at {'the emulator' if profile.endpoint.url == 'emulator' else 'its endpoint'}",
        f"{len(traffic.classes)} traffic classes" if len(traffic.classes) != 1 else "1 traffic class",
        target or "no target load",
        f"SLOs for {', '.join(goals)}" if goals else "no SLO",
        f"{files} monitoring files" if profile.monitoring.required else "monitoring not asked",
    ]
    return ", ".join(parts)
