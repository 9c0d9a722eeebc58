"""When a load does harm: pure rules that end the probe for the sake of the endpoint and of its other users."""

from collections.abc import Sequence

from auditor.measurement import Sample, Snapshot
from auditor.profile import Guard
from auditor.theory.judging import rank
from auditor.units import percent

__all__ = ["guarded", "pressed"]

WINDOW = 20  # requests that a guard looks back on
NEAR_FULL = 0.95  # of the KV cache
LASTING = 3  # readings in a row of the metrics page


def guarded(guard: Guard, samples: Sequence[Sample]) -> str | None:
    """Why the latest requests, in the order in which they ended, must be the last ones; None while the guard holds.

    Times are judged at the median, a failed request being infinitely slow: one slow request harms nobody.
    """
    latest = samples[-WINDOW:]
    if len(latest) < WINDOW:
        return None
    for name, limit in (("ttft", guard.ttft), ("e2e", guard.e2e)):
        times = [float("inf") if not s.good else getattr(s, name) or 0.0 for s in latest]
        if limit is not None and rank(times, 0.5) > limit:
            return f"the guard: half of the last {WINDOW} requests have {name} above {limit:g} s"
    failed = sum(not s.good for s in latest)
    if guard.error_rate is not None and failed > guard.error_rate * WINDOW:
        return f"the guard: {failed} of the last {WINDOW} requests failed"
    return None


def pressed(snapshots: Sequence[Snapshot]) -> str | None:
    """Why a server that others use must be spared: its KV cache is full and requests wait, reading after reading."""
    latest = [s.values for s in snapshots if {"kv_usage", "waiting"} <= s.values.keys()][-LASTING:]
    if len(latest) < LASTING or not all(v["kv_usage"] >= NEAR_FULL and v["waiting"] > 0 for v in latest):
        return None
    full, waiting = latest[-1]["kv_usage"], latest[-1]["waiting"]
    return f"the KV cache is {percent(full)} full and {waiting:.0f} requests wait: others use this endpoint"
