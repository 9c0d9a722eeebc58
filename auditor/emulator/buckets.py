"""The histogram bounds of both engines, as the metrics pages of their versions show them."""

from auditor.catalog import metrics as catalogue
from auditor.emulator.counters import Buckets
from auditor.emulator.spec import Spec

__all__ = ["buckets"]

_SG_LENGTH = (100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000,
              17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000,
              600000, 800000, 1000000, 1100000)  # fmt: skip


def buckets(spec: Spec) -> Buckets:
    """The bounds of the emulated version: times from the catalogue, lengths by the engine's own rule.

    vLLM's length bounds (1, 2, 5, 10 ...) end at the context length.
    """
    if spec.flavour == "sglang":
        length: tuple[float, ...] = _SG_LENGTH
    else:
        lengths = [mantissa * 10**power for power in range(9) for mantissa in (1, 2, 5)]
        length = tuple(float(bound) for bound in lengths if bound <= spec.max_model_len)
    return Buckets(
        ttft=_bounds(spec, "ttft"),
        itl=_bounds(spec, "tpot"),
        request=_bounds(spec, "e2e"),
        queue=_bounds(spec, "queue_time"),
        length=length,
    )


def _bounds(spec: Spec, concept: str) -> tuple[float, ...]:
    """The default bounds of the histogram that carries the concept in this version, else in the newest."""
    known = [m for m in catalogue.metrics(spec.flavour) if m.concept == concept and m.buckets]
    shown = (catalogue.buckets(m, spec.version) for m in known if catalogue.valid(m, spec.version))
    return next(shown, known[0].buckets)
