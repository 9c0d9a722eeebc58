"""Memory of one device: usable, what the engine may take, weights, overhead, and what is left for the KV pool."""

from collections.abc import Callable
from dataclasses import dataclass

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes

__all__ = ["Memory", "memory"]

_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes per device. `pool` = budget - weights - overhead, with the band that the overhead's own band gives it.

    `pool` at or below 0: the weights do not fit. `notes` say what is assumed and what widens the band.
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


@dataclass(frozen=True, slots=True)
class _Share:
    """What an engine may take, and the overhead inside it: low, likely, high."""

    budget: float
    low: float
    likely: float
    high: float
    notes: tuple[str, ...] = ()


def memory(geometry: Geometry, settings: Settings, device: Device) -> Memory:
    """Memory of one device of the instance under the engine's own rule, with the overhead's band of its era."""
    usable, unsure, notes = _usable(device)
    weights = per_device_bytes(geometry, settings)
    share = _RULES.get(settings.engine, _fraction_of_free)(geometry, settings, device, usable, weights)
    wide = _GIB * 14 if geometry.vision else 0.0
    if geometry.vision:
        notes += ("a vision encoder's profiling run takes 1 to 15 GiB: the band is that wide",)
    return Memory(
        usable=usable,
        budget=share.budget,
        weights=weights,
        overhead=share.likely,
        overhead_low=share.low,
        overhead_high=share.high + wide,
        pool=share.budget - weights - share.likely,
        pool_low=share.budget - weights - share.high - wide - unsure,
        pool_high=share.budget - weights - share.low,
        notes=notes + share.notes,
    )


def _usable(device: Device) -> tuple[float, float, tuple[str, ...]]:
    """Usable bytes, how much less it may be, and notes.

    Nominal memory proves no fit: ECC, firmware and drivers take up to 9 % of it (T4), so it may as well be none.
    """
    if device.usable_bytes is not None:
        return float(device.usable_bytes), 0.0, ()
    if device.vendor == "apple":
        # iogpu.wired_limit_mb's default: two thirds of the memory up to 32 GiB, three quarters above (llama.cpp
        # discussion 2182).
        share = 2 / 3 if device.memory_bytes <= 32 * _GIB else 3 / 4
        return device.memory_bytes * share, 0.0, (f"macOS wires at most {share:.0%} of the memory for the GPU",)
    if device.kind == "unified":
        note = f"the share of {device.name}'s memory that the GPU may use is set in firmware and not known here"
        return float(device.memory_bytes), float(device.memory_bytes), (note,)
    note = f"what the driver of {device.name} leaves usable is not known: its nominal memory is used, so no fit is sure"
    return float(device.memory_bytes), float(device.memory_bytes), (note,)


# -------------------------------------------------------------------------------------------------------------- engines


@dataclass(frozen=True, slots=True)
class _Era:
    """vLLM's overhead in one span of versions: copies of the sampler's fp32 logits at the activation peak, GiB outside
    PyTorch on one and on several devices, GiB more for mixtures of experts, the fit's mean error.
    """

    copies: float
    alone: float
    several: float
    experts: float
    error: float


# Fitted to start-up logs on H200, B200 and MI300X (vLLM 0.11 to 0.19).
_NVIDIA_BEFORE_017 = _Era(10.1, 0.0, 0.6, 0.4, 0.22)
_NVIDIA = _Era(3.7, 0.3, 2.4, 0.6, 0.43)
_AMD = _Era(7.4, 2.1, 3.3, 1.5, 0.61)
_GRAPHS = (0.3, 0.9, 1.6)  # GiB of CUDA-graph memory, subtracted before the pool from 0.20 on


def _vllm(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> _Share:
    """utilisation x usable; the activation peak is the sampler's logits, copies x max_num_seqs x vocab x 4 bytes."""
    del weights
    version = _version(settings.engine_version)
    default = 0.92 if version >= (0, 20) else 0.90
    era = _AMD if device.vendor == "amd" else (_NVIDIA if version >= (0, 17) else _NVIDIA_BEFORE_017)
    sequences = settings.max_num_seqs or (1024 if usable >= 70 * _GIB and "a100" not in device.key else 256)
    fixed = era.alone if settings.devices <= 1 else era.several
    fixed += era.experts if geometry.experts else 0.0
    logits = era.copies * sequences * geometry.vocab_size * 4
    low, likely, high = _GRAPHS if version >= (0, 20) and not settings.enforce_eager else (0.0, 0.0, 0.0)
    notes: tuple[str, ...] = ()
    spread = 3 * era.error
    if settings.engine_version is None:
        notes += ("the engine's version is not known: its newest overhead is assumed",)
        spread += 1.0
    if version < (0, 8):
        notes += ("before vLLM 0.8 prompts were profiled whole: 2 to 9.4 GiB of activations on an 8B",)
        spread += 4.0
    if device.vendor not in {"nvidia", "amd"}:
        notes += (f"vLLM's overhead on {device.vendor} devices is not known: NVIDIA's is assumed",)
        spread += 2.0
    return _Share(
        budget=(settings.memory_fraction or default) * usable,
        low=max(0.0, logits + (fixed + low - spread) * _GIB),
        likely=logits + (fixed + likely) * _GIB,
        high=logits + (fixed + high + spread) * _GIB,
        notes=notes,
    )


def _sglang(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> _Share:
    """pool = available after weights - available before x (1 - mem_fraction_static) (profile_max_num_token).

    Available before is usable less the context and communication buffers, so that they cost the fraction's share.
    """
    del geometry, device, weights
    fraction = settings.memory_fraction
    notes = () if fraction else ("mem_fraction_static is not known: 0.88 is assumed",)
    fraction = fraction or 0.88
    low, likely, high = (0.3, 0.8, 1.5) if settings.devices <= 1 else (0.8, 1.8, 3.5)
    return _Share(
        budget=fraction * usable,
        low=fraction * low * _GIB,
        likely=fraction * likely * _GIB,
        high=fraction * high * _GIB,
        notes=notes,
    )


def _llamacpp(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> _Share:
    """All usable memory less the context and the compute buffer, a few MiB in a server that keeps one row of logits a
    sequence; older ones keep n_ubatch rows in fp32 (llama-context.cpp, graph_reserve), which sets the band's end.
    """
    del device, weights
    logits = (settings.ubatch or 512) * geometry.vocab_size * 4.0
    return _Share(budget=usable, low=0.1 * _GIB, likely=0.5 * _GIB, high=logits + 1.5 * _GIB)


def _fraction_of_free(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> _Share:
    """TensorRT-LLM: free_gpu_memory_fraction of what is free once the engine is loaded; its rest counts as overhead.

    Published logs: 16.05 GiB of pool from 17.83 GiB free at 0.9. Engines with no rule of their own are treated alike.
    """
    del geometry, device
    fraction = settings.memory_fraction or 0.9
    notes = (f"the memory rule of {settings.engine} is taken from its documentation, not from running engines",)
    low, likely, high = (max(0.0, usable - weights - fixed * _GIB) for fixed in (0.5, 1.5, 4.0))
    free = usable - weights
    return _Share(usable, free - fraction * low, free - fraction * likely, free - fraction * high, notes)


def _version(text: str | None) -> tuple[int, int]:
    """Major and minor; unknown counts as the newest."""
    parts = (text or "").lstrip("v").split(".")
    numbers = [int(part) for part in parts[:2] if part.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (999, 0)


_Rule = Callable[[Geometry, Settings, Device, float, float], _Share]
_RULES: dict[str, _Rule] = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp}
