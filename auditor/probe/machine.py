"""This machine's CPU as an accelerator: bandwidth measured on the spot, peaks worked out from its instruction sets.

For engines that run on the CPU of the machine that audits; nothing else can be measured from here. Linux tells what is
needed under /proc and /sys.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from auditor.catalog.instruction_sets import per_cycle
from auditor.errors import UsageError
from auditor.probe import bandwidth
from auditor.theory.device import THIS_CPU, Device
from auditor.units import count, percent, plain, quantity

__all__ = ["Facts", "Speeds", "described", "facts", "measured", "unmeasured"]

# How far above its base clock a core may run where the system does not tell, as in virtual machines: with all cores
# busy 1.3 to 1.55 times (Intel ARK and AMD data sheets of the Xeon Scalable and EPYC series).
_BOOST = 1.6
_ARM_CLOCK = 3.8e9  # more than any server part of Arm's runs at
_MIB = 1 << 20
_LEAST, _MOST = 64 * _MIB, 1 << 30  # a core's buffer for reading memory itself
_SMALL = 4 * _MIB  # where there is hardly any memory left
# Other programs that run meanwhile take some of memory's bandwidth too: 46 GB/s became 34 to 43 with five times as many
# programs as cores. A limit must not be lower than what an engine reaches once they have ended.
_ALONE, _TAKEN = 0.9, 1.5
_NO_LIMIT = 1 << 60  # what control groups write where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the system tells of its CPU. `cpus` are those this process may use, `cores` how many have units of their
    own; `clock` is the highest in Hz, `boost` whether it is a guess above the base clock; `caches` the bytes of all L2
    and all last-level caches together, None where not told. Bytes: `memory` in all, `usable` within the control group's
    limit, `free` now.
    """

    name: str
    vendor: str
    cpus: tuple[int, ...]
    cores: int
    flags: frozenset[str]
    clock: float
    boost: bool
    caches: tuple[int, int] | None
    memory: int
    usable: int
    free: int


@dataclass(frozen=True, slots=True)
class Speeds:
    """Bytes/s of all cores together: from the second-level caches, the last-level ones, and memory. A cache that was
    not measured is as fast as what lies beyond. `share` is what of the time the cores had for it.
    """

    second: float
    last: float
    memory: float
    share: float = 1.0

    @property
    def disturbed(self) -> bool:
        """Whether other programs ran meanwhile."""
        return self.share < _ALONE


@cache
def measured() -> Device:
    """The device of this machine, measured once a process in about five seconds.

    Raises UsageError where the system does not tell what is needed.
    """
    found = facts()
    return described(found, _speeds(found))


def unmeasured() -> Device:
    """The device of this machine without its speeds. Raises UsageError where `measured` would."""
    return described(facts(), Speeds(0.0, 0.0, 0.0))


def described(found: Facts, speeds: Speeds) -> Device:
    """The device that these facts and speeds make. Peaks are sure not to be too low, but may be far too high."""
    cycle = per_cycle(found.flags)
    flops = {dtype: rate * found.cores * found.clock for dtype, rate in cycle.items()}
    second, last = found.caches or (0, 0)
    inner, outer, far = (
        speed * (_TAKEN if speeds.disturbed else 1.0) for speed in (speeds.second, speeds.last, speeds.memory)
    )
    beyond = max(far, 0.0 if found.caches else max(inner, outer))
    tiers = ((second, max(inner, outer, beyond)), (second + last, max(outer, beyond)))
    caches = tuple((size, _rounded(speed)) for size, speed in tiers if size and speed > beyond)
    return Device(
        key=THIS_CPU,
        name=f"this CPU ({found.name}, {count(len(found.cpus), 'CPU')})",
        vendor=found.vendor,
        kind="cpu",
        memory_bytes=found.memory,
        usable_bytes=found.usable,
        bandwidth=_rounded(beyond),
        flops=flops,
        confidence="C",
        figures={"memory": "A", "bandwidth": "B", "flops": "C"},
        sources=("measured here", "peak FLOP/s computed from the instruction set"),
        notes=tuple(_notes(found, cycle, speeds)),
        caches=caches,
    )


def _rounded(speed: float) -> float:
    """Three digits: the next measurement differs in the third."""
    return float(f"{speed:.3g}")


def _notes(found: Facts, cycle: Mapping[str, float], speeds: Speeds) -> list[str]:
    guess = f", a guess: {_BOOST:g} times its base clock" if found.boost else ""
    clock = f"{count(found.cores, 'core')} at {plain(found.clock / 1e9)} GHz{guess}"
    each = ", ".join(f"{plain(rate)} {dtype}" for dtype, rate in cycle.items())
    notes = [f"peaks are {clock}, times FLOPs a cycle ({each})", f"{quantity(found.free, 'bytes')} of memory are free"]
    if speeds.disturbed:
        more = f"speeds are {_TAKEN:g} times what was measured, for what other programs may have taken of them"
        notes.append(f"{more}: the cores had {percent(speeds.share)} of the time")
    if found.caches is None:
        notes.append("the system does not tell its caches: their speed stands for the memory's")
    if len(found.cpus) < (os.cpu_count() or 0):
        notes.append(f"measured on {len(found.cpus)} of {os.cpu_count()} CPUs, all that this process may use")
    return notes


def _speeds(found: Facts) -> Speeds:
    """Buffers of half the second-level caches; of four times those, where the last-level ones hold twice as much (other
    machines on the same chip may leave less of them than is told); of twice the last-level ones, as far as a quarter of
    the free memory goes, at the beginning and at the end: what such machines take of it changes within seconds.
    """
    workers, (second, last) = len(found.cpus), found.caches or (_MIB, 0)
    beyond = max(_LEAST, 2 * (second + last) // workers)
    far = min(beyond, _MOST, max(_SMALL, found.free // 4 // workers))
    near = min(last // workers // 2, 4 * second // workers)
    with bandwidth.readers(found.cpus) as started:
        first = bandwidth.fastest(started, far)
        inner = bandwidth.fastest(started, max(1 << 16, second // workers // 2))
        outer = bandwidth.fastest(started, near) if near > 2 * second // workers else bandwidth.Speed(0.0)
        memory = max(first, bandwidth.fastest(started, far), key=lambda speed: speed.rate)
    return Speeds(inner.rate, outer.rate, memory.rate, min(inner.share, outer.share, memory.share))


# ------------------------------------------------------------------------------------------------- what the system says


def facts(root: Path = Path("/")) -> Facts:
    """What the system under `root` tells. Raises UsageError where it does not tell what is needed."""
    try:
        text = (root / "proc/cpuinfo").read_text("utf-8", "replace")
        memory = _memory((root / "proc/meminfo").read_text("utf-8", "replace"))
    except OSError as error:
        raise UsageError(
            f"{THIS_CPU}: only Linux tells what is needed ({error.filename} cannot be read); name a part of the "
            "catalogue (audit catalog accelerators)"
        ) from None
    blocks = [dict(_pairs(block)) for block in re.split(r"\n\s*\n", text.strip())]
    flags = frozenset((blocks[0].get("flags") or blocks[0].get("features") or "").split())
    if not per_cycle(flags):
        raise UsageError(f"{THIS_CPU}: its instruction set is not known; name a part of the catalogue")
    cpus = _usable_cpus(len(blocks))
    clock, boost = _clock(root, cpus, blocks, arm="asimd" in flags)
    limit = min((_limit(root / path) for path in _LIMITS), default=_NO_LIMIT)
    return Facts(
        name=_name(blocks[0]),
        vendor=_VENDORS.get(blocks[0].get("vendor_id", ""), "arm" if "asimd" in flags else "unknown"),
        cpus=cpus,
        cores=_cores(blocks, cpus),
        flags=flags,
        clock=clock,
        boost=boost,
        caches=_caches(root, cpus),
        memory=memory["MemTotal"],
        usable=min(memory["MemTotal"], limit),
        free=min(memory.get("MemAvailable", memory["MemTotal"]), limit),
    )


_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


def _pairs(block: str) -> list[tuple[str, str]]:
    split = (line.partition(":") for line in block.splitlines())
    return [(name.strip().lower(), value.strip()) for name, _, value in split]


def _memory(text: str) -> dict[str, int]:
    return {match[1]: int(match[2]) << 10 for match in re.finditer(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def _name(block: Mapping[str, str]) -> str:
    return " ".join(re.sub(r"\(R\)|\(TM\)|CPU", "", block.get("model name") or "Arm").split())


def _usable_cpus(listed: int) -> tuple[int, ...]:
    with suppress(AttributeError):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(listed))


def _cores(blocks: Sequence[Mapping[str, str]], cpus: Sequence[int]) -> int:
    """Cores with units of their own among the CPUs: threads of one core share them."""
    told = [b for b in blocks if b.get("processor", "").isdecimal() and int(b["processor"]) in cpus]
    apart = {(b.get("physical id", "0"), b["core id"]) for b in told if "core id" in b}
    return len(apart) or len(cpus)


def _clock(root: Path, cpus: Sequence[int], blocks: Sequence[Mapping[str, str]], *, arm: bool) -> tuple[float, bool]:
    """The highest clock in Hz, and whether it is a guess."""
    folder = root / "sys/devices/system/cpu"
    most = max((_limit(folder / f"cpu{cpu}/cpufreq/cpuinfo_max_freq", 0) for cpu in cpus), default=0)
    if most:
        return most * 1e3, False
    base = [float(b["cpu mhz"]) * 1e6 for b in blocks if re.fullmatch(r"[\d.]+", b.get("cpu mhz", ""))]
    base += [float(match[1]) * 1e9 for b in blocks if (match := re.search(r"@ ([\d.]+)GHz", b.get("model name", "")))]
    if not base and not arm:
        raise UsageError(f"{THIS_CPU}: the system does not tell its clock; name a part of the catalogue")
    return (_BOOST * max(base), True) if base else (_ARM_CLOCK, True)


def _caches(root: Path, cpus: Sequence[int]) -> tuple[int, int] | None:
    """Bytes of all second-level and of all last-level caches of these CPUs; None where they are not told."""
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            with suppress(OSError, ValueError):
                level, shared = int(_text(index / "level")), _text(index / "shared_cpu_list")
                if _text(index / "type") != "Instruction":
                    found[level, shared] = _size(_text(index / "size"))
    levels = {level: sum(size for (at, _), size in found.items() if at == level) for level, _ in found}
    last = max(levels, default=0)
    return (levels[2], levels[last] if last > 2 else 0) if 2 in levels else None


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _text(path: Path) -> str:
    return path.read_text("ascii").strip()


def _limit(path: Path, otherwise: int = _NO_LIMIT) -> int:
    """The number in a file; `otherwise` where there is none ("max")."""
    try:
        return int(_text(path))
    except (OSError, ValueError):
        return otherwise
