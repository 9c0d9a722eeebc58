"""The places in which a value can be found (profile, launch line, server, defaults), and what was chosen so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from auditor.engines.flavour import NOTHING, Flavour
from auditor.engines.launch import Launch
from auditor.measurement import Served
from auditor.profile import Profile

__all__ = ["Places"]


@dataclass(slots=True)
class Places:
    """Where to look, by precedence declared > launch > served > default; `chosen` and `sources` fill as one looks."""

    profile: Profile
    launch: Launch | None
    served: Served | None
    flavour: Flavour
    version: str | None
    defaults: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    chosen: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, *candidates: tuple[Any, str]) -> Any:
        """Choose the first candidate that says something; None where none does."""
        for value, source in candidates:
            if value is not None and value != "auto":
                self.chosen[name], self.sources[name] = value, source
                return value
        return None

    def declared(self, name: str) -> tuple[Any, str]:
        """A field of the profile's `deployment`."""
        return getattr(self.profile.deployment, name, None), "declared"

    def launched(self, name: str) -> tuple[Any, str]:
        """A field that a launch flag set."""
        if self.launch is None or name not in self.launch.fields:
            return None, ""
        return self.launch.fields[name], f"launch {self.launch.flag_of[name]}"

    def told(self, name: str) -> tuple[Any, str]:
        """A field that the server told."""
        if self.served is None:
            return None, ""
        return getattr(self.served, name, None), f"served {self.served.sources.get(name, '')}".strip()

    def default(self, name: str) -> tuple[Any, str]:
        """The engine's own default."""
        return self.defaults.get(name), " ".join(["default of", self.flavour.title, *([self.version or ""])]).strip()

    def found(self, name: str) -> Any:
        """Choose a field that all four places call by the same name."""
        return self.take(name, *self.said(name), self.default(name))

    def said(self, name: str) -> tuple[tuple[Any, str], ...]:
        """What profile, launch line and server say of a field, in this order."""
        return self.declared(name), self.launched(name), self.told(name)

    def first(self, name: str) -> Any:
        """What is said of a field first; None where nobody says anything. Chooses nothing."""
        return next((value for value, _ in self.said(name) if value is not None and value != "auto"), None)
