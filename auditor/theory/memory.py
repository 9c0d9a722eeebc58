"""Memory of one device: usable, what the engine may take, weights, overhead, and what is left for the KV pool."""

from collections.abc import Callable
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.overhead import documented, llamacpp, sglang, vllm, vllm_cpu
from auditor.theory.overhead.share import Share
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes
from auditor.units import GIB

__all__ = ["Memory", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes per device. `pool` = budget - weights - overhead, with the range that the overhead's own gives it.

    `pool` at or below 0: the weights do not fit. `notes` say what is assumed and what widens the range.

    The overhead inside the budget is `activations` + `graphs` + `other` (communicators, libraries, device context).
    `beyond` is what the engine takes outside its budget once the pool is sized, and `free` what nobody takes: weights,
    activations, graphs, other, pool, beyond and free add up to `usable` where the weights fit.
    """

    usable: float
    budget: float
    weights: float
    overhead: float
    overhead_low: float
    overhead_high: float
    pool: float
    pool_low: float
    pool_high: float
    notes: tuple[str, ...] = ()
    activations: float = 0.0
    graphs: float = 0.0
    other: float = 0.0
    beyond: float = 0.0
    free: float = 0.0


def memory(geometry: Geometry, settings: Settings, device: Device) -> Memory:
    """Memory of one device of the instance under the engine's own rule.

    Of a pipeline it is the device with most weights; of data-parallel ranks each is alike; of replicas this is one.
    """
    usable, unsure, notes = _usable(device)
    weights = per_device_bytes(geometry, settings)
    share = _RULES.get(settings.engine, documented.trtllm)(geometry, settings, device, usable, weights)
    taken = share.overhead
    pinned = _pinned(settings, share)
    pool = share.budget - weights - taken.likely if pinned is None else pinned
    budget = share.budget if pinned is None else weights + taken.likely + pinned
    beyond = max(0.0, min(share.beyond.likely, usable - budget))
    return Memory(
        usable=usable,
        budget=budget,
        weights=weights,
        overhead=taken.likely,
        overhead_low=max(0.0, taken.low),
        overhead_high=taken.high,
        pool=pool,
        pool_low=share.budget - weights - taken.high - unsure if pinned is None else pinned,
        pool_high=share.budget - weights - taken.low if pinned is None else pinned,
        notes=notes + share.notes,
        activations=share.activations.likely,
        graphs=share.graphs.likely,
        other=share.other.likely,
        beyond=beyond,
        free=max(0.0, usable - budget - beyond),
    )


def _pinned(settings: Settings, share: Share) -> float | None:
    """The pool that a flag sets outright (vLLM's --kv-cache-memory-bytes skips the budget), or the engine's rule."""
    return share.pool if settings.kv_pool_bytes is None else float(settings.kv_pool_bytes)


def _usable(device: Device) -> tuple[float, float, tuple[str, ...]]:
    """Usable bytes, how much less it may be, and notes.

    Nominal memory proves no fit: ECC, firmware and drivers take up to 9 % of it (T4), so it may as well be none.
    """
    if device.usable_bytes is not None:
        return float(device.usable_bytes), 0.0, ()
    if device.vendor == "apple":
        return _wired(device)
    if device.kind == "unified":
        note = f"the share of {device.name}'s memory that the GPU may use is set in firmware and not known here"
    else:
        note = f"what the driver of {device.name} leaves usable is not known: nominal memory is used, so no fit is sure"
    return float(device.memory_bytes), float(device.memory_bytes), (note,)


def _wired(device: Device) -> tuple[float, float, tuple[str, ...]]:
    """What macOS wires for the GPU: two thirds of the memory up to 32 GiB, three quarters above.

    recommendedMaxWorkingSetSize as llama.cpp logs it: 5,461 MiB of 8 GiB (github.com/WisdomShell/codeshell-vscode
    issue 42), 49,152 of 64 (llama.cpp discussion 2182). `sysctl iogpu.wired_limit_mb` raises it.
    """
    share = 2 / 3 if device.memory_bytes <= 32 * GIB else 3 / 4
    note = (
        f"macOS wires at most {share:.0%} of the memory for the GPU: sysctl iogpu.wired_limit_mb raises that, "
        "gpu_memory_gib tells it here"
    )
    return device.memory_bytes * share, 0.0, (note,)


# -------------------------------------------------------------------------------------------------------------- engines


def _vllm(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> Share:
    del weights
    return vllm_cpu.share(settings, usable) if device.kind == "cpu" else vllm.share(geometry, settings, device, usable)


def _sglang(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> Share:
    del weights
    return sglang.share(geometry, settings, device, usable)


def _llamacpp(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> Share:
    del weights
    return llamacpp.share(geometry, settings, device, usable)


_Rule = Callable[[Geometry, Settings, Device, float, float], Share]
_RULES: dict[str, _Rule] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "trtllm": documented.trtllm,
    "lmdeploy": documented.lmdeploy,
}
