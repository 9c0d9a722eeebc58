"""An accelerator as serving arithmetic needs it. Data only; `catalog` fills it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["THIS_CPU", "Device"]

THIS_CPU = "this-cpu"
"""The key of the machine that audits: its figures are measured on the spot, the catalogue has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator.

    `usable_bytes` is what the driver reports (None: unknown, then nothing may pass a fit on `memory_bytes` alone);
    `bandwidth` in bytes/s; `flops` are dense peaks in FLOP/s by compute dtype ("bf16", "fp16", "fp8", "int8", "fp4",
    ...); `confidence` A seen twice, B once, C recalled or in dispute: figures of C are provisional wherever shown.
    `confidence` is that of the least certain figure, `figures` that of each one that differs ("memory", "bandwidth",
    "flops"). `caches` are those that weights may stay in from one step to the next, as (bytes, bytes/s), the smallest
    and fastest first; none for accelerators, whose weights exceed them by far.
    """

    key: str
    name: str
    vendor: str
    kind: str
    memory_bytes: int
    usable_bytes: int | None
    bandwidth: float
    flops: Mapping[str, float]
    interconnect: str | None = None
    confidence: str = "C"
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    figures: Mapping[str, str] = field(default_factory=dict)
    caches: tuple[tuple[int, float], ...] = ()

    def certainty(self, figure: str) -> str:
        """The confidence of one figure."""
        return self.figures.get(figure, self.confidence)

    @property
    def here(self) -> bool:
        """Whether this is the machine that audits, measured by itself."""
        return self.key == THIS_CPU

    def reading(self, size: float) -> float:
        """The least seconds in which `size` bytes are read once, as often as wanted.

        Whatever a cache cannot hold must come from beyond it each time: the longest of (size - caches below) / speed.
        """
        below, least = 0, 0.0
        for holds, speed in (*self.caches, (0, self.bandwidth)):
            least = max(least, (size - below) / speed) if speed else least
            below = holds
        return least

    def at(self, size: float) -> "Device":
        """The same device with the bandwidth that reading `size` bytes, as often as wanted, can reach."""
        seconds = self.reading(size) if self.caches else 0.0
        return replace(self, bandwidth=size / seconds, caches=()) if seconds > 0 else self
