"""What real engines reach of a device's peaks: priors with their spread, by class of hardware and engine.

Quartiles and fits over published measurements (NVIDIA's and vendors' engine benchmarks, aiconfigurator's silicon
samples, llama.cpp's benchmark threads, XiongjieDai/GPU-Benchmarks-on-LLM-Inference). Peaks are dense.
"""

from dataclasses import dataclass
from typing import Literal

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["DecodeLaw", "PrefillLaw", "decode_band", "decode_law", "prefill_band", "prefill_law"]

Class = Literal["hopper", "blackwell", "datacentre", "geforce", "apple", "gb10", "other"]


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """A step is weights / (BW weights) + KV / (BW kv) + prompts' FLOPs / (PEAK prompts) + layers x overhead seconds.

    `low` and `high` scale the prediction to its 80 % band.
    """

    weights: float
    kv: float
    prompts: float
    per_layer: float
    per_layer_parallel: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class PrefillLaw:
    """A prompt is layers x `per_layer` + FLOPs / (PEAK use), with `low` and `high` as above."""

    use: float
    per_layer: float
    low: float
    high: float
    source: str


def device_class(device: Device) -> Class:
    """The class whose measurements speak for a device."""
    key = device.key
    if device.vendor == "apple":
        return "apple"
    if key.startswith("gb10"):
        return "gb10"
    if device.vendor != "nvidia":
        return "other"
    if key.startswith(("h100", "h200", "h800", "h20", "gh200")):
        return "hopper"
    if key.startswith(("b100", "b200", "b300", "gb200", "gb300")):
        return "blackwell"
    return "geforce" if key.startswith("rtx-") and "a" not in key.split("-")[1][:1] else "datacentre"


# --------------------------------------------------------------------------------------------------------------- decode

_SERVED_DENSE = DecodeLaw(0.90, 0.77, 0.63, 64e-6, 6e-6, 0.80, 1.25, "served dense models on H100, H200 and B200")
_SERVED_MOE = DecodeLaw(0.98, 0.44, 0.10, 48e-6, 27e-6, 0.65, 1.55, "served MoE models on H100, H200 and B200")
# Bandwidth use of llama.cpp at batch 1: quartiles .60 .73 .80, .39 .51 .70, .53 .68 .77, .73 .76 .80.
_LLAMACPP: dict[Class, tuple[float, float, float]] = {
    "geforce": (0.50, 0.73, 0.86),
    "datacentre": (0.32, 0.51, 0.80),
    "hopper": (0.32, 0.51, 0.80),
    "blackwell": (0.32, 0.51, 0.80),
    "apple": (0.45, 0.68, 0.84),
    "gb10": (0.62, 0.76, 0.85),
    "other": (0.30, 0.60, 0.85),
}


def decode_law(geometry: Geometry, settings: Settings, device: Device) -> DecodeLaw:
    """The step law that speaks for this model, engine and device."""
    kind = device_class(device)
    moe = geometry.experts is not None
    if settings.engine == "llamacpp":
        low, likely, high = _LLAMACPP[kind]
        wide = 1.5 if moe else 1.0
        source = f"llama.cpp on {kind} devices, batch 1"
        return DecodeLaw(likely, likely, 0.3, 0.0, 0.0, likely / high / wide, likely / low * wide, source)
    law = _SERVED_MOE if moe else _SERVED_DENSE
    if kind in {"hopper", "blackwell"}:
        return law if not settings.enforce_eager else _wider(law, 1.0, 2.5, "without graph capture")
    return _wider(law, 0.8, 1.6, f"carried over to {device.name}, where few were measured")


def _wider(law: DecodeLaw, low: float, high: float, why: str) -> DecodeLaw:
    return DecodeLaw(
        law.weights,
        law.kv,
        law.prompts,
        law.per_layer,
        law.per_layer_parallel,
        law.low * low,
        law.high * high,
        f"{law.source}, {why}",
    )


# -------------------------------------------------------------------------------------------------------------- prefill

# Share of the peak that a long prompt's matrix products reach under 1, 2, 4 and 8-way tensor parallelism, from single
# prompts of 1k and 8k tokens through a 70B model (their difference removes the fixed part, 0.6 ms a layer).
_USE: dict[tuple[Class, str], tuple[float, float, float, float]] = {
    ("hopper", "fp8"): (0.51, 0.46, 0.38, 0.31),
    ("blackwell", "fp8"): (0.44, 0.365, 0.28, 0.18),
    ("blackwell", "fp4"): (0.34, 0.265, 0.18, 0.106),
}
_USE_PLAIN = (0.63, 0.57, 0.47, 0.38)
_SERVED_PER_LAYER = 0.6e-3
_LLAMACPP_PREFILL: dict[Class, tuple[float, float, float]] = {
    "geforce": (0.20, 0.41, 0.85),
    "datacentre": (0.15, 0.26, 0.38),
    "hopper": (0.15, 0.26, 0.38),
    "blackwell": (0.15, 0.26, 0.38),
    "apple": (0.45, 0.66, 0.78),
    "gb10": (0.18, 0.25, 0.40),
    "other": (0.10, 0.25, 0.60),
}


def prefill_law(geometry: Geometry, settings: Settings, device: Device) -> PrefillLaw:
    """The prompt law that speaks for this model, engine and device."""
    kind = device_class(device)
    moe = geometry.experts is not None
    if settings.engine == "llamacpp":
        low, likely, high = _LLAMACPP_PREFILL[kind]
        likely, wide = (likely / 2, 2.0) if moe else (likely, 1.0)
        return PrefillLaw(likely, 0.1e-3, likely / high / wide, likely / low * wide, f"llama.cpp on {kind} devices")
    dtype = settings.compute_dtype
    step = min(3, max(0, settings.tensor_parallel.bit_length() - 1))
    use = _USE.get((kind, dtype), _USE_PLAIN if dtype not in {"fp8", "fp4", "int8"} else _USE["hopper", "fp8"])[step]
    if moe:
        return PrefillLaw(use / 3, _SERVED_PER_LAYER, 0.45, 2.2, "served MoE models, few measured")
    if kind in {"hopper", "blackwell"}:
        return PrefillLaw(use, _SERVED_PER_LAYER, 0.65, 1.6, f"single prompts through a 70B model on {kind}")
    third = 0.67 if device.vendor == "amd" else 1.0
    return PrefillLaw(use * third, _SERVED_PER_LAYER, 0.55, 2.0, f"carried over to {device.name}")


# ---------------------------------------------------------------------------------------------------- efficiency bands

_SERVED_BANDWIDTH: dict[Class, tuple[tuple[float, float], ...]] = {
    "hopper": ((0.63, 0.74), (0.56, 0.60), (0.37, 0.46), (0.25, 0.31)),
    "blackwell": ((0.44, 0.62), (0.31, 0.47), (0.20, 0.33), (0.11, 0.20)),
}
_SERVED_BANDWIDTH_OTHER = ((0.44, 0.73), (0.47, 0.60), (0.29, 0.48), (0.13, 0.35))
_MOE_SMALL, _MOE_LARGE = (0.12, 0.34), (0.38, 0.61)
_LLAMACPP_BANDWIDTH: dict[Class, tuple[float, float]] = {
    "geforce": (0.60, 0.80),
    "apple": (0.53, 0.77),
    "gb10": (0.73, 0.80),
}
_LLAMACPP_FLOPS: dict[Class, tuple[float, float]] = {
    "geforce": (0.26, 0.67),
    "apple": (0.57, 0.70),
    "gb10": (0.25, 0.26),
}


def decode_band(
    geometry: Geometry | None, settings: Settings, device: Device, batch: float
) -> tuple[float, float, str]:
    """Quartiles of the share of bandwidth that decode reached at small batches (8 and fewer; MoE also from 16)."""
    kind = device_class(device)
    if settings.engine == "llamacpp":
        low, high = _LLAMACPP_BANDWIDTH.get(kind, (0.39, 0.70))
        return low, high, f"llama.cpp, {kind}"
    if geometry is not None and geometry.experts is not None:
        low, high = _MOE_SMALL if batch <= 8 else _MOE_LARGE
        return low, high, "served MoE models"
    step = min(3, max(0, settings.tensor_parallel.bit_length() - 1))
    low, high = _SERVED_BANDWIDTH.get(kind, _SERVED_BANDWIDTH_OTHER)[step]
    return low, high, f"served dense models, {kind}, TP {settings.tensor_parallel}"


def prefill_band(settings: Settings, device: Device) -> tuple[float, float, str]:
    """Quartiles of the share of the compute peak that prefill reached."""
    kind = device_class(device)
    if settings.engine == "llamacpp":
        low, high = _LLAMACPP_FLOPS.get(kind, (0.19, 0.31))
        return low, high, f"llama.cpp, {kind}"
    third = 0.67 if device.vendor == "amd" else 1.0
    if settings.compute_dtype == "fp4":
        return 0.25, 0.29, "fp4 on Blackwell, saturated"
    if settings.compute_dtype in {"fp8", "int8"}:
        return 0.30 * third, 0.43 * third, "fp8 on Hopper, saturated"
    return 0.40 * third, 0.71 * third, "16-bit GEMM alone reaches 0.65 to 0.76, whole prompts less"
