"""The histogram bounds of both engines, as their metrics pages show them."""

from auditor.emulator.counters import Buckets
from auditor.emulator.spec import Spec

__all__ = ["buckets"]

_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
         80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_SG_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_SG_ITL = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
           0.8, 1, 2, 4, 6, 8)  # fmt: skip
_SG_QUEUE = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100,
             200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000)  # fmt: skip
_SG_LENGTH = (100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000,
              17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000,
              600000, 800000, 1000000, 1100000)  # fmt: skip

SGLANG_BUCKETS = Buckets(
    ttft=_SG_TTFT,
    itl=_SG_ITL,
    request=(*_SG_TTFT, 600, 1200, 1800, 2400),
    queue=_SG_QUEUE,
    length=_SG_LENGTH,
)


def buckets(spec: Spec) -> Buckets:
    """The histogram bounds of a flavour; vLLM's length bounds (1, 2, 5, 10 ...) end at the context length."""
    if spec.flavour == "sglang":
        return SGLANG_BUCKETS
    lengths = [mantissa * 10**power for power in range(9) for mantissa in (1, 2, 5)]
    fitting = tuple(float(length) for length in lengths if length <= spec.max_model_len)
    return Buckets(ttft=_TTFT, itl=_ITL, request=_REQUEST, queue=_REQUEST, length=fitting)
