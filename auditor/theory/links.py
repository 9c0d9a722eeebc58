"""Time to move activations between devices: what parallelism costs beside each device's own work.

`Device.interconnect` is the data sheet's text ("NVLink4 900; PCIe5"): GB/s of a device in both directions together. A
bridge joins pairs; more devices talk over the bus.
"""

import math
import re
from dataclasses import dataclass

from auditor.theory.device import Device

__all__ = ["Link", "all_reduce", "all_to_all", "link", "send"]

_FABRIC = re.compile(r"(?:NVLink\S*|IF|ICI|HCCS|UB|NeuronLink\S*|Xe Link)( bridge)? (\d+(?:\.\d+)?)")
_NAMED = re.compile(r"NVLink|IF|Xe Link|NeuronLink|ICI")
_ETHERNET = re.compile(r"(?:(\d+)x)?(\d+)GbE")
_BUS = re.compile(r"PCIe(\d)(?: x(\d+))?")
_LANE = {"3": 0.985e9, "4": 1.97e9, "5": 3.94e9, "6": 7.56e9}  # bytes/s each way after encoding (PCI-SIG)
_FABRIC_UNKNOWN = 300e9  # a fabric whose speed the sheet does not give
# One-shot all-reduces over a switch take 3 us for 2 devices and 6 for 8 beyond their neighbours' own time; on the bus a
# ring takes 2 (n - 1) hops of 16 us: 70B models over 2, 4 and 8 A100 PCIe without NVLink decode at 15.3, 17.6 and 14.3
# tok/s (github sh1ng/llm-perf-bench).
_SWITCH, _SWITCH_DOUBLING = 2.0e-6, 1.3e-6
_HOP = 16e-6
_NETWORK_HOP = 12e-6
# Share of a fabric's speed that all-reduces reach: a quarter up to a few MB, two thirds for large ones (64 MB over 2, 4
# and 8 H100 in 245, 316 and 346 us: ai-dynamo/aiconfigurator, systems/data/h100_sxm nccl tables); of a bus, two thirds.
_SMALL, _LARGE, _LARGE_BYTES = 0.27, 0.67, 32e6
_BUS_SHARE = 0.65


@dataclass(frozen=True, slots=True)
class Link:
    """What joins devices: bytes/s of one device each way, seconds of a hop, and whether a switch joins all at once."""

    bandwidth: float
    hop: float
    switched: bool


def link(device: Device, devices: int) -> Link:
    """The link between this many of a device; a device whose sheet names none is taken to sit on PCIe 4 x16."""
    text = device.interconnect or ""
    fabric = _FABRIC.search(text)
    if fabric and (not fabric[1] or devices <= 2):
        return Link(float(fabric[2]) / 2 * 1e9, _SWITCH, True)
    if _NAMED.search(text) and not fabric:
        return Link(_FABRIC_UNKNOWN / 2, _SWITCH, True)
    if ethernet := _ETHERNET.search(text):
        return Link(int(ethernet[1] or 1) * int(ethernet[2]) / 8 * 1e9, _NETWORK_HOP, False)
    bus = _BUS.search(text)
    lanes = int(bus[2] or 16) if bus else 16
    slow = 1.5 if "no P2P" in text else 1.0  # copies go through the host's memory
    return Link(_LANE[bus[1] if bus else "4"] * lanes / slow, _HOP * slow, False)


def all_reduce(device: Device, devices: int, size: float) -> float:
    """Seconds of one all-reduce of `size` bytes: 2 (n - 1) / n of them cross each device's link (Patarasuk and Yuan,
    J. Parallel Distrib. Comput. 69, 2009), after a latency.
    """
    if devices <= 1:
        return 0.0
    joint = link(device, devices)
    wait = joint.hop + _SWITCH_DOUBLING * math.log2(devices) if joint.switched else 2 * (devices - 1) * joint.hop
    return wait + 2 * (devices - 1) / devices * size / _speed(joint, size)


def all_to_all(device: Device, devices: int, size: float) -> float:
    """Seconds in which every device sends `size` bytes, spread over the others."""
    if devices <= 1:
        return 0.0
    joint = link(device, devices)
    wait = joint.hop * (1 if joint.switched else devices - 1)
    return wait + (devices - 1) / devices * size / _speed(joint, size)


def send(device: Device, size: float) -> float:
    """Seconds to hand `size` bytes to the next device."""
    joint = link(device, 2)
    return joint.hop + size / _speed(joint, size)


def _speed(joint: Link, size: float) -> float:
    if not joint.switched:
        return joint.bandwidth * _BUS_SHARE
    return joint.bandwidth * (_SMALL + (_LARGE - _SMALL) * min(1.0, size / _LARGE_BYTES))
