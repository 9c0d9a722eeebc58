"""An accelerator as serving arithmetic needs it. Data only; `catalog` fills it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator.

    `usable_bytes` is what the driver reports (None: unknown, then nothing may pass a fit on `memory_bytes` alone);
    `bandwidth` in bytes/s; `flops` are dense peaks in FLOP/s by compute dtype ("bf16", "fp16", "fp8", "int8", "fp4",
    ...); `confidence` A seen twice, B once, C recalled or in dispute: figures of C are provisional wherever shown.
    `confidence` is that of the least certain figure, `figures` that of each one that differs ("memory", "bandwidth",
    "flops").
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

    def certainty(self, figure: str) -> str:
        """The confidence of one figure."""
        return self.figures.get(figure, self.confidence)
