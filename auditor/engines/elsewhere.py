"""A deployment's settings on another accelerator."""

from dataclasses import replace

from auditor.engines.formats import compute_dtype
from auditor.engines.generations import compute_capability
from auditor.theory.device import Device
from auditor.theory.settings import Settings

__all__ = ["moved"]


def moved(settings: Settings, device: Device) -> Settings:
    """The same settings on another device: its own units, vendor and generation; limits stay as they are."""
    dtype = compute_dtype(settings.quantization, settings.plain_dtype, frozenset(device.flops))
    vendor = "cpu" if device.kind == "cpu" else device.vendor
    return replace(settings, compute_dtype=dtype, vendor=vendor, capability=compute_capability(device))
