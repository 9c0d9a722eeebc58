"""Efficiencies published for a class of hardware and engine: what a measured share of a peak is held against."""

from auditor.theory.classes import Class, device_class, is_local
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["decode_band", "prefill_band"]

# Quartiles over the published measurements that `priors` names, under 1, 2, 4 and 8-way tensor parallelism.
_SERVED_BANDWIDTH: dict[Class, tuple[tuple[float, float], ...]] = {
    "hopper": ((0.63, 0.74), (0.56, 0.60), (0.37, 0.46), (0.25, 0.31)),
    "blackwell": ((0.44, 0.62), (0.31, 0.47), (0.20, 0.33), (0.11, 0.20)),
}
_SERVED_BANDWIDTH_OTHER = ((0.44, 0.73), (0.47, 0.60), (0.29, 0.48), (0.13, 0.35))
_FEW, _MANY = 8, 16  # streams: up to and from which
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
) -> tuple[float, float, str] | None:
    """Quartiles of the share of bandwidth that decode reached at small batches (8 and fewer; served MoE also from 16);
    None for others, of which none are published.
    """
    routed = geometry is not None and geometry.experts is not None and not is_local(settings, device)
    if batch > _FEW and not (routed and batch >= _MANY):
        return None
    kind = device_class(device)
    if is_local(settings, device):
        low, high = _LLAMACPP_BANDWIDTH.get(kind, (0.39, 0.70))
        return low, high, f"llama.cpp, {kind}"
    if routed:
        low, high = _MOE_SMALL if batch <= _FEW else _MOE_LARGE
        return low, high, "served MoE models"
    step = min(3, max(0, settings.tensor_parallel.bit_length() - 1))
    low, high = _SERVED_BANDWIDTH.get(kind, _SERVED_BANDWIDTH_OTHER)[step]
    return low, high, f"served dense models, {kind}, TP {settings.tensor_parallel}"


def prefill_band(settings: Settings, device: Device) -> tuple[float, float, str]:
    """Quartiles of the share of the compute peak that prefill reached."""
    kind = device_class(device)
    if is_local(settings, device):
        low, high = _LLAMACPP_FLOPS.get(kind, (0.19, 0.31))
        return low, high, f"llama.cpp, {kind}"
    third = 0.67 if device.vendor == "amd" else 1.0
    if settings.compute_dtype == "fp4":
        return 0.25, 0.29, "fp4 on Blackwell, saturated"
    if settings.compute_dtype in {"fp8", "int8"}:
        return 0.30 * third, 0.43 * third, "fp8 on Hopper, saturated"
    return 0.40 * third, 0.71 * third, "16-bit GEMM alone reaches 0.65 to 0.76, whole prompts less"
