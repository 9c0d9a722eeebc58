"""The accelerator of a row, as people write it -> a device of the catalogue, or one known by its memory alone."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from auditor.catalog import accelerators
from auditor.errors import UsageError
from auditor.loading import Here
from auditor.loading.problems import one_line
from auditor.theory.device import Device

__all__ = ["device", "device_source"]

_GIB = 1 << 30
_VENDORS = (
    (r"nvidia|cuda|rtx|gtx|tesla|quadro|titan|[ahbv]\d{2,3}s?\b|\b[kmp]\d{2,3}\b|\b\d0[5-9]0(?:\b|ti)", "nvidia"),
    (r"\bamd\b|\bmi\d|radeon|\brx ?\d|rocm", "amd"),
    (r"intel|\barc|gaudi", "intel"),
    (r"apple|\bm\d\b", "apple"),
    (r"\bcpu\b|xeon|epyc", "cpu"),
)


def device(values: Mapping[str, Any], here: Here | None) -> tuple[Device | None, str]:
    """The accelerator, and what is wrong with it. One that the catalogue does not know serves by its memory alone."""
    memory, written = values.get("gpu_memory_gib"), values.get("accelerator")
    if written is None:
        missing = "accelerator: none is named; name one, or give gpu_memory_gib"
        return (None, missing) if memory is None else (_unknown("unknown", memory), "")
    found = here() if here is not None and accelerators.is_this_cpu(written) else _accelerator(written)
    if isinstance(found, Device):
        return (found if memory is None else replace(found, usable_bytes=int(memory * _GIB))), ""
    named = re.search(r"(\d{1,3}) ?g(?:i?b)?\b", written.casefold())  # "80G-class", "RTX2080Ti-22G"
    if memory is None and named is None:
        if _unknown(written, 0.0).kind == "cpu" and not accelerators.is_this_cpu(written):
            return None, f"accelerator: {one_line(written)} has the memory of its host: give gpu_memory_gib"
        return None, f"{found}; or give gpu_memory_gib"
    note = f"accelerator {one_line(written)} is not known: only its memory is used"
    if memory is None and named is not None:
        return replace(_unknown(written, float(named[1])), usable_bytes=None), note
    return _unknown(written, memory or 0.0), note


@lru_cache(maxsize=4096)
def _accelerator(written: str) -> Device | UsageError:
    """The catalogue's device; of several names ("A40/48G", "L40S/A40", "A100-40G?") the first that is known, and of
    words written together ("ArcB70") each.
    """
    try:
        return accelerators.find(written)
    except UsageError as error:
        first = UsageError(f"accelerator: {error}")
    parts = re.split(r"[/?]", written)[: written.count("/") + written.count("?")]
    for part in (re.sub(r"(?<=[a-z])(?=[A-Z])", " ", written), *parts):
        try:
            if re.search(r"[A-Za-z]", part):
                return accelerators.find(part)
        except UsageError:
            continue
    return first


def _unknown(written: str, memory: float) -> Device:
    """A device of which only the memory is known; its vendor by the words of its name."""
    word = written.casefold()
    vendor = next((name for pattern, name in _VENDORS if re.search(pattern, word)), "unknown")
    return Device(
        key=one_line(word),
        name=one_line(written),
        vendor=vendor,
        kind="cpu" if vendor == "cpu" else "gpu",
        memory_bytes=int(memory * _GIB),
        usable_bytes=int(memory * _GIB),
        bandwidth=0.0,
        flops={},
        notes=("not in the catalogue: no speed is known of it",),
    )


def device_source(values: Mapping[str, Any], found: Device | None) -> str:
    """Where the figures of the device come from."""
    if "gpu_memory_gib" in values:
        return "declared"
    return "measured here" if found is not None and found.here else "catalogue"
