"""The parts of a phase's time, predicted from model and device or read from a ladder: names with seconds.

Empty where an input is missing (None, or no tokens) or a ladder does not tell.
"""

from auditor.theory.device import Device
from auditor.theory.fit import NOISY, DecodeFit, PrefillFit
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import decode_limit, predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.units import percent

__all__ = ["measured_decode", "measured_prefill", "predicted_decode", "predicted_prefill", "unreadable"]

_Theory = tuple[Geometry, Settings, Device]
_STREAMED = 0.9  # of the bandwidth that reading the weights reaches
_HEAVY = 1.6  # times the weights' own time from which the constant part of a step is mostly overhead


def predicted_prefill(theory: _Theory | None, prompt: float) -> dict[str, float]:
    """Of one prompt step of an idle engine: the whole prompt, or as much of it as a step takes."""
    if theory is None or prompt <= 0:
        return {}
    tokens = min(round(prompt), theory[1].max_num_batched_tokens or round(prompt))
    found = predict_prefill(*theory, max(1, tokens)).idle
    return {"compute": found.compute_s, "weights": found.weights_s + found.kv_s, "overhead": found.overhead_s}


def measured_prefill(found: PrefillFit | None, prompt: float) -> dict[str, float]:
    """Of one idle prompt, by the ladder."""
    if found is None or found.noisy or prompt <= 0:
        return {}
    return {
        "compute": found.per_token * prompt + found.per_token_squared * prompt**2,
        "weights or overhead": found.t0,
    }


def predicted_decode(theory: _Theory | None, batch: int | None, context: float) -> dict[str, float]:
    """Of one decode step."""
    if theory is None or batch is None or context <= 0:
        return {}
    found = predict_decode(*theory, batch, round(context))
    return {"weights": found.weights_s, "kv": found.kv_s, "compute": found.compute_s, "overhead": found.overhead_s}


def measured_decode(
    found: DecodeFit | None, theory: _Theory | None, batch: int | None, context: float
) -> dict[str, float]:
    """Of one decode step A + q B + k B C, by the ladder.

    A is weights and overhead, which the weights' own time tells apart; k the cache; q compute.
    """
    if found is None or found.noisy or not found.identifiable or batch is None or context <= 0:
        return {}
    name = "weights or overhead"
    if theory is not None:
        weights = decode_limit(*theory, 1, 1).weights_s / _STREAMED
        name = "overhead" if found.base > _HEAVY * weights else "weights"
    cached = found.per_cached_token * batch * context
    return {name: found.base, "compute": found.per_sequence * batch, "kv": cached}


def unreadable(found: PrefillFit | DecodeFit | None) -> str | None:
    """Why a ladder that ran does not tell the parts of its phase apart; None where it does, or did not run."""
    if found is None:
        return None
    if found.noisy:
        return (
            f"not identifiable from this ladder: its times scatter by {percent(found.residual)} around any law, and "
            f"up to {percent(NOISY)} can be read"
        )
    if isinstance(found, DecodeFit) and not found.identifiable:
        return f"not identifiable from this ladder: {found.lacking}"
    return None
