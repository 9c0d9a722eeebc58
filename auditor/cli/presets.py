"""The option that chooses a preset."""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from auditor.evidence import Report
    from auditor.loading import Loaded

__all__ = ["Preset", "PresetName", "beyond", "preset_of"]


class Preset(StrEnum):
    """By the occasion: `auditor.plan.presets` says what each may spend."""

    ci = "ci"
    launch = "launch"


PresetName = Annotated[
    Preset | None,
    typer.Option(
        "--preset",
        help="ci: at most 5 minutes, 600 requests, 2M tokens. launch: up to an hour, 20,000, 100M, 99 % sure.",
        show_default=False,
    ),
]


def preset_of(loaded: "Loaded", preset: Preset | None) -> "Loaded":
    """The profile that was read, spending what the preset allows."""
    from auditor.plan.presets import with_preset

    return loaded if preset is None else replace(loaded, profile=with_preset(loaded.profile, preset.value))


def beyond(preset: Preset | None, report: "Report") -> str | None:
    """A line for whoever is told to raise a budget that the preset holds down; None where nobody is."""
    texts = (text for f in report.findings for text in (*f.remedies, f.missing or ""))
    if preset is not Preset.ci or not any("probe.budget" in text for text in texts):
        return None
    return "note: --preset ci holds probe.budget down: without it the profile's own counts, or take --preset launch"
