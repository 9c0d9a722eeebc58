"""Time of a prompt and of a decode step: the physical limit, which nothing beats, and what engines reach.

A limit charges only the bytes that must cross the memory bus and the FLOPs that must be done, at full peak, and lets
them overlap (Williams, Waterman and Patterson, CACM 52(4), 2009). A prediction adds what priors say is lost.
"""

from dataclasses import dataclass
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.priors import DecodeLaw, decode_law, prefill_law
from auditor.theory.settings import Settings
from auditor.theory.weights import streamed_bytes
from auditor.theory.work import decode_flops, decode_kv_bytes, fastest, linear_devices, prefill_flops, rate

__all__ = ["Limit", "Prediction", "decode_limit", "predict_decode", "predict_prefill", "prefill_limit"]

Bound = Literal["weights", "kv", "compute", "overhead", "mixed"]
_DOMINATES = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The least seconds that physics allows, and why: FLOPs and bytes per device, their ratio and the device's ridge.

    `bound` is compute, or whichever of weights and kv moves more bytes.
    """

    seconds: float
    bound: Bound
    flops: float
    bytes: float
    intensity: float
    ridge: float
    weights_s: float
    kv_s: float
    compute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Expected seconds with an 80 % band, split into what costs them; `bound` is mixed where no part is 1.3 x the next.

    `source` names the measurements behind the band.
    """

    seconds: float
    low: float
    high: float
    bound: Bound
    weights_s: float
    kv_s: float
    compute_s: float
    overhead_s: float
    source: str = ""


# --------------------------------------------------------------------------------------------------------------- limits


def decode_limit(geometry: Geometry, settings: Settings, device: Device, batch: float, context: float) -> Limit:
    """Least time of one step: max((W_stream + KV) / BW, FLOPs / PEAK) per device, with only k experts a layer read."""
    weights = streamed_bytes(geometry, settings, batch, limit=True)
    kv = decode_kv_bytes(geometry, settings, batch, context)
    flops = decode_flops(geometry, batch, context) / linear_devices(settings)
    return _limit(device, settings, flops, weights, kv)


def prefill_limit(geometry: Geometry, settings: Settings, device: Device, prompt_tokens: float) -> Limit:
    """Least time of one prompt alone: its FLOPs at peak or one reading of the weights, whichever is longer."""
    weights = streamed_bytes(geometry, settings, prompt_tokens, limit=True)
    devices = settings.tensor_parallel * settings.pipeline_parallel
    return _limit(device, settings, prefill_flops(geometry, prompt_tokens) / devices, weights, 0.0)


def _limit(device: Device, settings: Settings, flops: float, weights: float, kv: float) -> Limit:
    peak = fastest(device, settings)
    compute_s = flops / peak if peak else 0.0
    weights_s, kv_s = weights / device.bandwidth, kv / device.bandwidth
    bound: Bound = "compute" if compute_s > weights_s + kv_s else ("kv" if kv_s > weights_s else "weights")
    return Limit(
        seconds=max(compute_s, weights_s + kv_s),
        bound=bound,
        flops=flops,
        bytes=weights + kv,
        intensity=flops / max(1.0, weights + kv),
        ridge=peak / device.bandwidth,
        weights_s=weights_s,
        kv_s=kv_s,
        compute_s=compute_s,
    )


# ---------------------------------------------------------------------------------------------------------- predictions


def predict_decode(  # noqa: PLR0917 (the six arguments of the law, in the order of its formula)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    batch: float,
    context: float,
    prompt_per_output: float = 0.0,
) -> Prediction:
    """Expected time of one step (TPOT) of `batch` sequences at `context` tokens each.

    t = W / (BW e_w) + KV / (BW e_kv) + interleaved prompt FLOPs / (PEAK e_p) + layers x c: the step law fitted to
    served models, per device; `prompt_per_output` prompt tokens are prefilled in the same steps for each output token
    (continuous batching at steady state: the traffic's prompt / output ratio; 0 for decode alone).
    """
    law = decode_law(geometry, settings, device)
    weights = streamed_bytes(geometry, settings, batch, limit=False) / (device.bandwidth * law.weights)
    kv = decode_kv_bytes(geometry, settings, batch, context) / (device.bandwidth * law.kv)
    prompt_flops = 2.0 * geometry.active_parameters * batch * prompt_per_output
    own_flops = decode_flops(geometry, batch, context)
    peak = rate(device, settings.compute_dtype)
    devices = linear_devices(settings)
    compute = prompt_flops / (devices * peak * law.prompts) if peak else 0.0
    # Above the ridge a step's own products cost more than reading the weights for them.
    excess = own_flops / (devices * peak * max(law.prompts, 0.5)) - weights - kv if peak else 0.0
    compute += max(0.0, excess)
    stages = settings.pipeline_parallel
    # A token passes all stages one after the other; a batch of at least as many sequences keeps all of them busy.
    alone = stages / min(stages, max(1.0, batch))
    weights, kv, compute = weights * stages, kv * alone, compute * alone
    overhead = geometry.layer_count * _per_layer(law, settings)
    limit = decode_limit(geometry, settings, device, batch, context)
    return _prediction(limit, (weights, kv, compute, overhead), law.low, law.high, law.source)


def _per_layer(law: DecodeLaw, settings: Settings) -> float:
    return law.per_layer + (law.per_layer_parallel if settings.tensor_parallel > 1 else 0.0)


def predict_prefill(geometry: Geometry, settings: Settings, device: Device, prompt_tokens: float) -> Prediction:
    """Expected time of one prompt alone (TTFT less the network): FLOPs at the share of the peak that its class reaches.

    Under load TTFT also waits for other prompts and cannot be predicted from outside; judge it by measurement.
    """
    law = prefill_law(geometry, settings, device)
    peak = _prefill_rate(device, settings)
    devices = settings.tensor_parallel
    compute = prefill_flops(geometry, prompt_tokens) / (devices * peak * law.use) if peak else 0.0
    weights = streamed_bytes(geometry, settings, prompt_tokens, limit=False) * settings.pipeline_parallel
    stream = max(0.0, weights / (device.bandwidth * 0.9) - compute)
    overhead = geometry.layer_count * law.per_layer
    limit = prefill_limit(geometry, settings, device, prompt_tokens)
    return _prediction(limit, (stream, 0.0, compute, overhead), law.low, law.high, law.source)


def _prefill_rate(device: Device, settings: Settings) -> float:
    """llama.cpp's priors are shares of the 16-bit rate (fp32 on Apple), whatever its weights are packed in."""
    if settings.engine != "llamacpp":
        return rate(device, settings.compute_dtype)
    return device.flops.get("fp32", rate(device, "fp16")) if device.vendor == "apple" else rate(device, "fp16")


def _prediction(
    limit: Limit, parts: tuple[float, float, float, float], low: float, high: float, source: str
) -> Prediction:
    """Put the parts together, never below the limit."""
    weights, kv, compute, overhead = parts
    seconds = max(sum(parts), limit.seconds)
    return Prediction(
        seconds=seconds,
        low=max(seconds * low, limit.seconds),
        high=seconds * high,
        bound=_bound(parts),
        weights_s=weights,
        kv_s=kv,
        compute_s=compute,
        overhead_s=overhead,
        source=source,
    )


def _bound(parts: tuple[float, float, float, float]) -> Bound:
    names: tuple[Bound, ...] = ("weights", "kv", "compute", "overhead")
    (largest, name), (second, _) = sorted(zip(parts, names, strict=True), reverse=True)[:2]
    return name if largest >= _DOMINATES * second else "mixed"
