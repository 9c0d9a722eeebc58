"""`audit lint PROFILE`: check a profile and the files it names."""

from typing import TYPE_CHECKING

from auditor.cli.options import ProfileName
from auditor.cli.output import say

if TYPE_CHECKING:
    from auditor.loading import Loaded

__all__ = ["command"]


def command(profile: ProfileName) -> None:
    """Check a profile and the files it names, without sending anything.

    Problems go to stderr as file:line:column, all at once, and exit 2.

    \b
    audit lint prod.yaml
    """
    from auditor.loading import load_monitoring, load_profile
    from auditor.loading.profile import shown
    from auditor.redact import Redactor

    loaded = load_profile(profile)
    files, redactor = load_monitoring(loaded), Redactor(loaded.secrets)
    for line in (*loaded.warnings, *_unresolved(loaded), *_conflicts(loaded)):
        say(f"warning: {redactor.text(line)}")
    say(f"{shown(loaded.path)}: ok: {_summary(loaded, len(files))}")


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
