"""Presets: how much an audit may spend and how sure it must be, by the occasion.

`ci` is a gate in a pipeline, `launch` the audit before a launch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from auditor.profile import Budget, Profile

__all__ = ["PRESETS", "Preset", "with_preset"]


@dataclass(frozen=True, slots=True)
class Preset:
    """What may be spent, and the confidence of every pass and fail."""

    budget: Budget
    confidence: float


PRESETS: Mapping[str, Preset] = {
    "ci": Preset(Budget(duration=300.0, requests=600, tokens=2_000_000), 0.95),
    "launch": Preset(Budget(duration=3600.0, requests=20_000, tokens=100_000_000), 0.99),
}


def with_preset(profile: Profile, name: str) -> Profile:
    """The profile as a preset wants it: `ci` spends no more than the profile allows, `launch` no less.

    The confidence is never below the profile's own. Raises KeyError for a name that is no preset.
    """
    preset, own = PRESETS[name], profile.probe.budget
    choose = min if name == "ci" else max
    spent = Budget(
        duration=choose(preset.budget.duration, own.duration),
        requests=choose(preset.budget.requests, own.requests),
        tokens=choose(preset.budget.tokens, own.tokens),
    )
    confidence = max(preset.confidence, profile.probe.confidence)
    return replace(profile, probe=replace(profile.probe, budget=spent, confidence=confidence))
