"""Classes of hardware and engine: whose measurements speak for a device."""

from typing import Literal

from auditor.theory.device import Device
from auditor.theory.settings import Settings

__all__ = ["Class", "bare", "device_class", "is_local", "launches", "tiled"]

Class = Literal["hopper", "blackwell", "hbm", "gddr", "geforce", "gb10", "apple", "amd", "cpu", "other"]

_NVIDIA: tuple[tuple[Class, tuple[str, ...]], ...] = (
    ("hopper", ("h100", "h200", "h800", "h20", "gh200")),
    ("blackwell", ("b100", "b200", "b300", "gb200", "gb300")),
    ("gb10", ("gb10",)),
    ("hbm", ("v100", "p100", "a30", "a100", "a800")),
    ("gddr", ("rtx-2000-", "rtx-3000-", "rtx-4000-", "rtx-4500-", "rtx-5000-")),  # workstation cards
    ("geforce", ("rtx-20", "rtx-30", "rtx-40", "rtx-50", "gtx-")),
)
_LOCAL: tuple[Class, ...] = ("apple", "geforce", "gb10", "cpu")


def device_class(device: Device) -> Class:
    """The class of a device: NVIDIA's by generation and memory, the rest by vendor."""
    if device.kind == "cpu":
        return "cpu"
    if device.vendor == "apple":
        return "apple"
    if device.vendor == "amd":
        return "amd"
    if device.vendor != "nvidia":
        return "other"
    return next((name for name, keys in _NVIDIA if device.key.startswith(keys)), "gddr")


def is_local(settings: Settings, device: Device) -> bool:
    """Whether the engine is llama.cpp, or one on hardware where only its kind was measured."""
    kind = device_class(device)
    return settings.engine == "llamacpp" or kind == "apple" or (settings.engine == "generic" and kind in _LOCAL)


def tiled(settings: Settings, device: Device) -> bool:
    """Whether products of few tokens run as tiles that they do not fill, and batches as captured graphs of the next
    size: served engines on accelerators. CPUs and llama.cpp multiply few tokens as vectors.
    """
    return not is_local(settings, device) and device_class(device) != "cpu"


def launches(device: Device) -> bool:
    """Whether kernels are launched ahead of the device that runs them, which hides the shorter of both. A CPU calls its
    kernels one after the other.
    """
    return device_class(device) != "cpu"


def bare(settings: Settings, device: Device) -> bool:
    """Whether kernels are all but a known rest of a step: llama.cpp on a CPU, whose threads go from one to the next."""
    return settings.engine == "llamacpp" and device_class(device) == "cpu"
