"""Accelerators by name: forgiving about spelling, refusing ambiguity. Figures and sources: accelerators.yaml."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from auditor.errors import UsageError
from auditor.theory.device import THIS_CPU, Device
from auditor.units import GIB

__all__ = ["devices", "find", "is_this_cpu", "names"]

_SILENT = re.compile(
    r"nvidia|geforce|tesla|amd|instinct|radeon|intel|habana|apple|google|aws|huawei|corporation|gpu|graphics"
    r"|accelerator|oam|edition|pcie[345]|hbm\d\w?|gddr\d|nvl\d+"
)
# What names of cloud machines say of their number of devices or cores: a2-ultragpu-8g, g2-standard-8, v5p-16.
_COUNTS = re.compile(r"(?<=gpu)-\dg\b|-standard-\d+\b|\bstandard_|(?<=\bv\d[ep])-\d+\b|(?<=litepod)-\d+\b")
_ANOTHER = frozenset({"ti", "super", "xt", "xtx", "gre"})  # make another part of a name: a 4070 is no 4070 Ti
_SEVERAL = re.compile(r"\s*\d+\s*[x*]\s*(.*)", re.IGNORECASE | re.DOTALL)
_MEMORY = re.compile(r"(\d+)gb")
_FIGURES = {"memory_gib": "memory", "bandwidth_gbs": "bandwidth", "tflops": "flops"}
_DOUBT = "ABC"


def devices() -> tuple[Device, ...]:
    """All accelerators, in the catalogue's order; a chip sold with several memories is one device for each."""
    return tuple(entry.device for entry in _catalogue())


def names() -> tuple[str, ...]:
    """Keys of all accelerators, in the catalogue's order."""
    return tuple(entry.device.key for entry in _catalogue())


def find(name: str, *, any_memory: bool = False) -> Device:
    """The accelerator called `name`: its key, a data-sheet name, what nvidia-smi prints, or a cloud's machine type.

    Case, spaces, hyphens and vendor words do not matter. With `any_memory` parts that differ in nothing but their
    memory count as one, and the smallest stands for all. Raises UsageError with the nearest names where it is unknown,
    and with the choices where it stands for parts that differ ("a100" is sold with 40 and 80 GB).
    """
    if is_this_cpu(name):
        raise UsageError(f"accelerator {name!r} is the machine that audits, which is measured, not looked up")
    wanted = _words(name)
    found = _stem(name) or _exact(wanted) or _by_memory(wanted) or _by_words(wanted)
    if any_memory and len({(device.bandwidth, tuple(device.flops.items())) for device in found}) == 1:
        found = sorted(found, key=lambda device: device.memory_bytes)[:1]
    if not found:
        raise UsageError(_unknown(name, "".join(wanted)))
    if len(found) > 1:
        shown = ", ".join(device.key for device in found[:8]) + (", ..." if len(found) > 8 else "")
        raise UsageError(f"accelerator {name!r} is ambiguous, say which: {shown}")
    return found[0]


def is_this_cpu(name: str) -> bool:
    """Whether `name` means the CPU of the machine that audits ("this-cpu", "this CPU")."""
    return "-".join(re.findall(r"[a-z0-9]+", name.casefold())) == THIS_CPU


@dataclass(frozen=True, slots=True)
class _Entry:
    """A device with its spellings as words; `stem` is its entry's key, which devices of several memories share."""

    device: Device
    stem: str
    spellings: tuple[tuple[str, ...], ...]


def _stem(name: str) -> list[Device]:
    """An entry's own key, written out, names its devices alone: "apple-m1-max" is the part with most cores."""
    return [entry.device for entry in _catalogue() if entry.stem == name.strip().casefold()]


def _exact(wanted: tuple[str, ...]) -> list[Device]:
    """A key names one device; any other spelling may be shared."""
    squeezed = "".join(wanted)
    own = [entry.device for entry in _catalogue() if "".join(_words(entry.device.key)) == squeezed]
    return own or [entry.device for entry in _catalogue() if squeezed in map("".join, entry.spellings)]


def _by_memory(wanted: tuple[str, ...]) -> list[Device]:
    """Match the name alone, then the memory where one is given: "GB10-128G" names no spelling, but one device."""
    name, sizes = _split(wanted)
    return [
        entry.device
        for entry in _catalogue()
        if name
        and any("".join(_split(words)[0]) == "".join(name) for words in entry.spellings)
        and all(entry.device.memory_bytes == size * GIB for size in sizes)
    ]


def _by_words(wanted: tuple[str, ...]) -> list[Device]:
    """Match a spelling that says more ("AGX Thor"), but for words that make it another part."""
    if not _split(wanted)[0]:
        return []
    given = set(wanted)
    return [
        entry.device
        for entry in _catalogue()
        if any(given <= set(words) and not _ANOTHER & (set(words) - given) for words in entry.spellings)
    ]


def _split(words: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Words of the name, and memory sizes in GiB."""
    sizes = [int(match[1]) for match in map(_MEMORY.fullmatch, words) if match]
    return [word for word in words if not _MEMORY.fullmatch(word)], sizes


def _words(text: str) -> tuple[str, ...]:
    """Lower-case words without vendor and packaging words; "80 GB", "80g" and "80gib" become "80gb", "32 cores" and
    "32c" become "32core", "4070ti" two words, sizes of machine types and names of Macs go.
    """
    lowered = re.sub(r"\((?:r|tm)\)", " ", text.casefold())
    lowered = re.sub(r"\.(?:\d*xlarge|metal)\b|\bmac ?(?:book ?(?:pro|air)?|studio|mini|pro)\b", " ", lowered)
    lowered = _COUNTS.sub(" ", lowered)
    lowered = re.sub(r"(\d+)\s*g(?:i?b)?\b", r" \1gb ", lowered)
    lowered = re.sub(r"\b(\d+)[\s-]*c(?:ores?)?\b", r" \1core ", lowered)
    lowered = re.sub(r"sxm\d\b", "sxm", lowered)
    lowered = re.sub(r"\b(\d{4})(ti|super|xtx?)\b", r"\1 \2", lowered)
    words = re.findall(r"[a-z0-9.+]+", lowered)
    return tuple(word for word in words if not _SILENT.fullmatch(word))


def _unknown(name: str, squeezed: str) -> str:
    if (several := _SEVERAL.fullmatch(name)) and (one := _one(several[1])):
        return f"accelerator {name!r} names several: name one, {one}, and their number apart (count)"
    spelled = {"".join(words): entry.device.key for entry in _catalogue() for words in entry.spellings}
    near = difflib.get_close_matches(squeezed, spelled, n=6, cutoff=0.6)
    keys = list(dict.fromkeys(spelled[text] for text in near))[:3]
    hint = f", did you mean {' or '.join(keys)}?" if keys else ""
    return f"unknown accelerator {name!r}{hint} (audit catalog accelerators lists all)"


def _one(name: str) -> str | None:
    """The key of what is named, if that is one accelerator."""
    try:
        return find(name, any_memory=True).key
    except UsageError:
        return None


@cache
def _catalogue() -> tuple[_Entry, ...]:
    text = (resources.files("auditor.catalog") / "accelerators.yaml").read_text("utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries: dict[str, Mapping[str, Any]] = yaml.load(text, Loader=loader)
    return tuple(one for key, entry in entries.items() for one in _entries(key, entry))


def _entries(key: str, entry: Mapping[str, Any]) -> list[_Entry]:
    memories = entry["memory_gib"]
    written = (key, entry["name"], *entry.get("aliases", ()))
    if not isinstance(memories, list):
        return [_Entry(_device(key, entry["name"], entry, memories), key, tuple(map(_words, written)))]
    return [
        _Entry(
            _device(f"{key}-{memory}gb", f"{entry['name']} {memory}GB", entry, memory),
            key,
            tuple(_words(f"{spelling} {memory}gb") for spelling in written),
        )
        for memory in memories
    ]


def _device(key: str, name: str, entry: Mapping[str, Any], memory: float) -> Device:
    usable = entry.get("usable_gib")
    figures = {_FIGURES[figure]: told for figure, told in entry.get("figures", {}).items()}
    return Device(
        key=key,
        name=name,
        vendor=entry["vendor"],
        kind=entry["kind"],
        memory_bytes=int(memory * GIB),
        usable_bytes=int(usable * GIB) if usable is not None else None,
        bandwidth=entry["bandwidth_gbs"] * 1e9,
        flops={dtype: rate * 1e12 for dtype, rate in entry["tflops"].items()},
        interconnect=entry.get("interconnect"),
        confidence=max((entry["confidence"], *figures.values()), key=_DOUBT.index),
        figures=dict.fromkeys(_FIGURES.values(), entry["confidence"]) | figures if figures else {},
        sources=tuple(entry["sources"]),
        notes=tuple(entry.get("notes", ())),
    )
