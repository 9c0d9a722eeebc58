"""What the caller of an audit chose, and what a saved run remembers of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["Options", "as_then", "choices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller chose: which questions, on or off the network, where to save, what INCONCLUSIVE exits with, how
    grave a failure must be to count, and which saved runs the new one is held against from which slowdown on.
    `passive` is the window in seconds that Prometheus is asked for, instead of sending anything to the service.

    None is "not chosen": a saved run is then judged as it was when it ran.
    """

    only: tuple[str, ...] | None = None
    offline: bool = False
    save: Path | None = None
    on_inconclusive: str | None = None
    fail_on: str | None = None
    today: str | None = None
    baseline: tuple[Path, ...] = ()
    min_effect: float = 0.1
    passive: float | None = None


def choices(options: Options) -> dict[str, object]:
    """What a saved run must remember to be judged again as it was."""
    return {"only": options.only, "on_inconclusive": options.on_inconclusive, "fail_on": options.fail_on}


def as_then(options: Options, saved: Mapping[str, Any]) -> Options:
    """The options, with what was chosen when the run was made where nothing is chosen now."""
    only = saved.get("only")
    return replace(
        options,
        only=options.only or (tuple(map(str, only)) if isinstance(only, list | tuple) else None),
        on_inconclusive=options.on_inconclusive or _word(saved, "on_inconclusive"),
        fail_on=options.fail_on or _word(saved, "fail_on"),
    )


def _word(saved: Mapping[str, Any], name: str) -> str | None:
    value = saved.get(name)
    return value if isinstance(value, str) else None
