"""What an engine takes of a device beside weights and KV cache, as ranges."""

from dataclasses import dataclass

from auditor.units import GIB

__all__ = ["NOTHING", "USUAL_FRACTION", "Band", "Share", "gib"]

USUAL_FRACTION = 0.92
"""vLLM's newest gpu_memory_utilization (vllm/config/cache.py), where the settings leave it open."""


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes: the least that is plausible, what is likely, the most that is plausible."""

    low: float
    likely: float
    high: float

    def __add__(self, other: "Band") -> "Band":
        return Band(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def scaled_by(self, factor: float) -> "Band":
        """The range times `factor`."""
        return Band(self.low * factor, self.likely * factor, self.high * factor)

    def middle(self, other: "Band") -> "Band":
        """Halfway to the other, with a range that covers both."""
        return Band(min(self.low, other.low), (self.likely + other.likely) / 2, max(self.high, other.high))

    def softened(self, factor: float) -> "Band":
        """The likely figure with a range `factor` times as wide."""
        low, high = self.likely - factor * (self.likely - self.low), self.likely + factor * (self.high - self.likely)
        return Band(low, self.likely, high)


NOTHING = Band(0.0, 0.0, 0.0)


def gib(low: float, likely: float, high: float) -> Band:
    """A range given in GiB."""
    return Band(low * GIB, likely * GIB, high * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What an engine does with one device's memory.

    `budget` is what weights, overhead and KV cache may take together. The overhead inside it is in three parts:
    `activations` of the largest step, `graphs` (captured kernel graphs, where the engine counts them), `other` (the
    device context where it is counted, communication buffers, what libraries keep). `beyond` is taken outside the
    budget once the pool is sized. `pool` is set where the engine's pool does not depend on what is left. `notes` say
    what is assumed and what widens the ranges.
    """

    budget: float
    activations: Band = NOTHING
    graphs: Band = NOTHING
    other: Band = NOTHING
    beyond: Band = NOTHING
    pool: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> Band:
        """All that the budget holds beside weights and KV cache."""
        return self.activations + self.graphs + self.other
