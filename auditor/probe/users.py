"""Who sends what: the requests of a load as users send them, one after the other. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from auditor.loads import Load, Shape, due, talks
from auditor.probe.talk import Talk

__all__ = ["Item", "Items", "User", "queue"]


@dataclass(frozen=True, slots=True)
class Item:
    """One request to send; `due` is when, in seconds from the load's beginning, in an open loop."""

    warm: bool
    index: int
    shape: Shape
    due: float | None


Items = tuple[Item, ...]
"""What one user sends one after the other: a request, or the turns of a conversation."""


@dataclass(slots=True)
class User:
    """What one user sends and has said; `request` is the first, where it was made beforehand."""

    items: Items
    request: bytes = b""
    talk: Talk = field(default_factory=Talk)


def queue(load: Load) -> Iterator[Items]:
    """What the users of a load send, in the order in which they begin."""
    for turns in talks(load):
        yield tuple(Item(turn.warm, turn.index, turn.shape, due(load, turn)) for turn in turns)
