"""Accelerators by name: forgiving about spelling, refusing ambiguity. Figures and sources: accelerators.yaml."""

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from auditor.errors import UsageError
from auditor.theory.device import Device

__all__ = ["devices", "find", "names"]

_GIB = 1 << 30
_SILENT = re.compile(
    r"nvidia|geforce|tesla|amd|instinct|radeon|intel|habana|apple|google|aws|huawei|corporation|gpu|graphics"
    r"|accelerator|oam|edition|pcie[345]|hbm\d\w?|gddr\d"
)
_MEMORY = re.compile(r"(\d+)gb")


def devices() -> tuple[Device, ...]:
    """All accelerators, in the catalogue's order; a chip sold with several memories is one device for each."""
    return tuple(device for device, _ in _catalogue())


def names() -> tuple[str, ...]:
    """Keys of all accelerators, in the catalogue's order."""
    return tuple(device.key for device, _ in _catalogue())


def find(name: str) -> Device:
    """The accelerator called `name`: its key, a data-sheet name, or what nvidia-smi prints.

    Case, spaces, hyphens and vendor words do not matter. Raises UsageError with the nearest names where it is unknown,
    and with the choices where it stands for parts that differ ("a100" is sold with 40 and 80 GB).
    """
    wanted = _words(name)
    found = _exact(wanted) or _by_memory(wanted) or _by_words(wanted)
    if not found:
        raise UsageError(_unknown(name, "".join(wanted)))
    if len(found) > 1:
        shown = ", ".join(device.key for device in found[:8]) + (", ..." if len(found) > 8 else "")
        raise UsageError(f"accelerator {name!r} is ambiguous, say which: {shown}")
    return found[0]


def _exact(wanted: tuple[str, ...]) -> list[Device]:
    """A key names one device; any other spelling may be shared."""
    squeezed = "".join(wanted)
    own = [device for device, _ in _catalogue() if "".join(_words(device.key)) == squeezed]
    return own or [device for device, spellings in _catalogue() if squeezed in map("".join, spellings)]


def _by_memory(wanted: tuple[str, ...]) -> list[Device]:
    """Match the name alone, then the memory where one is given: "GB10-128G" names no spelling, but one device."""
    name, sizes = _split(wanted)
    return [
        device
        for device, spellings in _catalogue()
        if name
        and any("".join(_split(words)[0]) == "".join(name) for words in spellings)
        and all(device.memory_bytes == size * _GIB for size in sizes)
    ]


def _by_words(wanted: tuple[str, ...]) -> list[Device]:
    if not _split(wanted)[0]:
        return []
    return [device for device, spellings in _catalogue() if any(set(wanted) <= set(words) for words in spellings)]


def _split(words: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Words of the name, and memory sizes in GiB."""
    sizes = [int(match[1]) for match in map(_MEMORY.fullmatch, words) if match]
    return [word for word in words if not _MEMORY.fullmatch(word)], sizes


def _words(text: str) -> tuple[str, ...]:
    """Lower-case words without vendor and packaging words; "80 GB", "80g" and "80gib" become "80gb"."""
    lowered = re.sub(r"\((?:r|tm)\)", " ", text.casefold())
    lowered = re.sub(r"(\d+)\s*g(?:i?b)?\b", r" \1gb ", lowered)
    lowered = re.sub(r"\bsxm\d\b", "sxm", lowered)
    words = re.findall(r"[a-z0-9.+]+", lowered)
    return tuple(word for word in words if not _SILENT.fullmatch(word))


def _unknown(name: str, squeezed: str) -> str:
    spelled = {"".join(words): device.key for device, spellings in _catalogue() for words in spellings}
    near = difflib.get_close_matches(squeezed, spelled, n=6, cutoff=0.6)
    keys = list(dict.fromkeys(spelled[text] for text in near))[:3]
    hint = f", did you mean {' or '.join(keys)}?" if keys else ""
    return f"unknown accelerator {name!r}{hint} (audit catalog accelerators lists all)"


@cache
def _catalogue() -> tuple[tuple[Device, tuple[tuple[str, ...], ...]], ...]:
    """Devices with their spellings as words."""
    text = (resources.files("auditor.catalog") / "accelerators.yaml").read_text("utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries: dict[str, Mapping[str, Any]] = yaml.load(text, Loader=loader)
    return tuple(pair for key, entry in entries.items() for pair in _devices(key, entry))


def _devices(key: str, entry: Mapping[str, Any]) -> list[tuple[Device, tuple[tuple[str, ...], ...]]]:
    memories = entry["memory_gib"]
    written = (key, entry["name"], *entry.get("aliases", ()))
    if not isinstance(memories, list):
        return [(_device(key, entry["name"], entry, memories), tuple(map(_words, written)))]
    return [
        (
            _device(f"{key}-{memory}gb", f"{entry['name']} {memory}GB", entry, memory),
            tuple(_words(f"{spelling} {memory}gb") for spelling in written),
        )
        for memory in memories
    ]


def _device(key: str, name: str, entry: Mapping[str, Any], memory: float) -> Device:
    usable = entry.get("usable_gib")
    return Device(
        key=key,
        name=name,
        vendor=entry["vendor"],
        kind=entry["kind"],
        memory_bytes=int(memory * _GIB),
        usable_bytes=int(usable * _GIB) if usable is not None else None,
        bandwidth=entry["bandwidth_gbs"] * 1e9,
        flops={dtype: rate * 1e12 for dtype, rate in entry["tflops"].items()},
        interconnect=entry.get("interconnect"),
        confidence=entry["confidence"],
        sources=tuple(entry["sources"]),
        notes=tuple(entry.get("notes", ())),
    )
