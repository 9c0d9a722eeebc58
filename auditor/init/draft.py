"""What is known of a deployment before there is a profile: each value with a note on where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from auditor.profile import Lengths

__all__ = ["LENGTHS_MISSING", "Draft", "Said", "merged"]

LENGTHS_MISSING = "traffic.classes: "
"""How a note begins that says why the lengths of the traffic are assumed."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value of the profile and the comment that stands behind it."""

    value: Any
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A profile in the making.

    `endpoint`, `deployment`, `traffic` and `monitoring` hold fields of those sections by name; `goals` says by SLO
    metric what was observed of it. `prompt` and `output` are the lengths of the traffic where they were observed.
    `sources` names what was read, `notes` what the reader has to look after, `context` the longest request in tokens.
    `secrets` are values that must not be written anywhere.
    """

    name: str | None = None
    endpoint: Mapping[str, Said] = field(default_factory=dict)
    deployment: Mapping[str, Said] = field(default_factory=dict)
    traffic: Mapping[str, Said] = field(default_factory=dict)
    monitoring: Mapping[str, Said] = field(default_factory=dict)
    goals: Mapping[str, str] = field(default_factory=dict)
    prompt: Said | None = None
    output: Said | None = None
    context: int | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def lengths(self) -> tuple[Lengths, Lengths] | None:
        """The observed lengths of prompts and replies; None without both."""
        return (self.prompt.value, self.output.value) if self.prompt and self.output else None


def merged(first: Draft, second: Draft) -> Draft:
    """Both drafts in one; what `first` says wins, and nobody misses lengths that the other has."""
    seen = first if first.lengths else second
    notes = dict.fromkeys((*first.notes, *second.notes))
    return Draft(
        name=first.name or second.name,
        endpoint={**second.endpoint, **first.endpoint},
        deployment={**second.deployment, **first.deployment},
        traffic={**second.traffic, **first.traffic},
        monitoring={**second.monitoring, **first.monitoring},
        goals={**second.goals, **first.goals},
        prompt=seen.prompt,
        output=seen.output,
        context=first.context or second.context,
        sources=(*first.sources, *second.sources),
        notes=tuple(note for note in notes if not (seen.lengths and note.startswith(LENGTHS_MISSING))),
        secrets=(*first.secrets, *second.secrets),
    )
