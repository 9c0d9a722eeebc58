"""The option that chooses a preset."""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from auditor.loading import Loaded

__all__ = ["Preset", "PresetName", "preset_of"]


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
