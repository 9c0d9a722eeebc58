"""The option that chooses a preset."""

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Preset", "PresetName"]


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
