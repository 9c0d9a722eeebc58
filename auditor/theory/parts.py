"""The parts of a phase's time, predicted from model and device or read from a ladder alone: names with seconds.

Empty where an input is missing (None, or no tokens) or a ladder does not tell. `classify` reads ladders against what is
known of model and device; here nothing is.
"""

from auditor.theory.device import Device
from auditor.theory.idle import Idle
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.theory.step_costs import StepCosts
from auditor.units import percent

__all__ = ["measured_decode", "measured_prefill", "predicted_decode", "predicted_prefill", "scattered", "unreadable"]

_Theory = tuple[Geometry, Settings, Device]
_CONSTANT = "weights or overhead"


def predicted_prefill(theory: _Theory | None, prompt: float) -> dict[str, float]:
    """Of one prompt step of an idle engine: the whole prompt, or as much of it as a step takes."""
    if theory is None or prompt <= 0:
        return {}
    tokens = min(round(prompt), theory[1].max_num_batched_tokens or round(prompt))
    found = predict_prefill(*theory, max(1, tokens)).own
    return {"compute": found.compute_s, "weights": found.weights_s + found.kv_s, "overhead": found.overhead_s}


def measured_prefill(found: Idle | None, prompt: float) -> dict[str, float]:
    """Of one idle prompt: what the shortest takes too, and what grows with the prompt."""
    if found is None or prompt <= 0 or found.noise is not None:
        return {}
    return {"compute": max(0.0, found.reckoned(prompt) - found.fixed), _CONSTANT: found.fixed}


def predicted_decode(theory: _Theory | None, batch: int | None, context: float) -> dict[str, float]:
    """Of one decode step."""
    if theory is None or batch is None or context <= 0:
        return {}
    found = predict_decode(*theory, batch, round(context))
    return {"weights": found.weights_s, "kv": found.kv_s, "compute": found.compute_s, "overhead": found.overhead_s}


def measured_decode(found: StepCosts | None, batch: int | None, context: float) -> dict[str, float]:
    """Of one decode step: what the smallest batch takes too, what grows with the batch, and the cache."""
    if found is None or batch is None or context <= 0 or unreadable(found) is not None:
        return {}
    constant = found.levels[0][1]
    return {
        _CONSTANT: constant,
        "compute": max(0.0, found.level(batch) - constant),
        "kv": found.cost.point * batch * context,
    }


def scattered(noise: float) -> str:
    """That a ladder's times scatter too widely."""
    return f"not identifiable from this ladder: its times scatter by {percent(noise)} around any law"


def unreadable(found: StepCosts | None) -> str | None:
    """Why a decode ladder that ran does not tell the parts of a step apart; None where it does, or did not run."""
    if found is None:
        return None
    if found.noise is not None:
        return scattered(found.noise)
    if len(found.levels) < 2:
        return "not identifiable from this ladder: one batch was measured"
    if not found.crossed:
        return "not identifiable from this ladder: no batch was measured at two contexts"
    return None
