"""What a listener is told while something is measured, to show it to a person."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Event", "Listener"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth showing while requests run: stage, load_start, request, load_end or note."""

    kind: str
    text: str = ""
    done: int = 0
    total: int = 0
    load: str | None = None


Listener = Callable[[Event], None]
