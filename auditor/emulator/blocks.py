"""The paged KV pool: token slots in pages, and a prefix cache of whole units of prompt tokens.

    used + idle + free = capacity

`used` slots belong to sequences (shared units counted once), `idle` ones to cached units that nobody uses and that
are evicted, least recently used first, when room is needed.
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from math import ceil

__all__ = ["Pool", "Sequence", "unit_keys"]


@dataclass(slots=True)
class Sequence:
    """The slots of one request: cached units that it shares, in prompt order, and slots of its own."""

    keys: list[int] = field(default_factory=list)
    own: int = 0


def unit_keys(tokens: Sequence_[object], unit: int) -> list[int]:
    """One key for each whole unit of the prompt; a key stands for the unit and everything before it."""
    keys: list[int] = []
    parent = 0
    for start in range(0, len(tokens) - unit + 1, unit):
        parent = hash((parent, tuple(tokens[start : start + unit])))
        keys.append(parent)
    return keys


class Pool:
    """`capacity` token slots, given out in pages of `page`; prompts are cached in units of `unit` slots.

    `needs` are the slots that a sequence of so many tokens takes, where that is more or less than its whole pages.
    """

    def __init__(self, capacity: int, page: int, unit: int, needs: Callable[[int], int] | None = None) -> None:
        self.capacity = capacity
        self.page = page
        self.unit = unit
        self._needs = needs
        self._own = 0
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Slots that sequences hold."""
        return self._own + self.unit * len(self._users)

    @property
    def idle(self) -> int:
        """Slots of cached units that no sequence uses."""
        return self.unit * len(self._idle)

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return self.capacity - self.used - self.idle

    @property
    def available(self) -> int:
        """Slots that can be given out: free ones and idle cached ones."""
        return self.capacity - self.used

    def pages(self, tokens: int) -> int:
        """Slots of a sequence of so many tokens: whole pages of them, unless the pool says otherwise."""
        return self._needs(tokens) if self._needs else ceil(tokens / self.page) * self.page

    def hits(self, keys: Sequence_[int]) -> int:
        """How many leading units are cached."""
        count = 0
        for key in keys:
            if key not in self._users and key not in self._idle:
                break
            count += 1
        return count

    def unused(self, keys: Sequence_[int]) -> int:
        """How many of these cached units no sequence uses."""
        return sum(key in self._idle for key in keys)

    def share(self, sequence: Sequence, keys: Sequence_[int]) -> None:
        """Let an empty sequence start with cached units."""
        for key in keys:
            self._idle.pop(key, None)
            self._users[key] = self._users.get(key, 0) + 1
        sequence.keys.extend(keys)

    def wanted(self, sequence: Sequence, tokens: int) -> int:
        """Slots missing for the sequence to hold `tokens` tokens."""
        return max(0, self.pages(tokens) - len(sequence.keys) * self.unit - sequence.own)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for `tokens` tokens in all; False, and nothing changed, where the pool has no room."""
        wanted = self.wanted(sequence, tokens)
        if wanted > self.available:
            return False
        while self.free < wanted:
            self._idle.popitem(last=False)
        sequence.own += wanted
        self._own += wanted
        return True

    def publish(self, sequence: Sequence, keys: Sequence_[int]) -> None:
        """Turn computed units of the sequence's own slots into cached ones; duplicates of cached units are freed."""
        for key in keys:
            sequence.keys.append(key)
            sequence.own -= self.unit
            self._own -= self.unit
            self._idle.pop(key, None)
            self._users[key] = self._users.get(key, 0) + 1

    def release(self, sequence: Sequence) -> None:
        """Give everything back; units stay cached, the last ones of the prompt are evicted first."""
        for key in reversed(sequence.keys):
            users = self._users[key] - 1
            if users:
                self._users[key] = users
            else:
                del self._users[key]
                self._idle[key] = None
        self._own -= sequence.own
        sequence.keys.clear()
        sequence.own = 0
