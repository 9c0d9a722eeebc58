"""What-ifs: the same engine with one lever moved, for remedies that show what they would bring."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.units import count, quantity

__all__ = ["Alternative", "alternatives", "gains", "what_ifs"]

# What an engine takes of the memory by default, in its newest version: vLLM's gpu_memory_utilization, SGLang's
# mem_fraction_static on large devices, TensorRT-LLM's free_gpu_memory_fraction.
_USUAL_FRACTION = {"vllm": 0.92, "sglang": 0.88, "trtllm": 0.9}
_Q8_0 = 34 / 32  # bytes per value of llama.cpp's q8_0 (ggml-common.h: 32 values and a 2-byte scale)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One lever: the profile field that moves, its new value as the engine's flag takes it, and the settings then."""

    field: str
    value: str
    settings: Settings


def alternatives(settings: Settings, device: Device | None = None) -> tuple[Alternative, ...]:
    """The levers that this engine and device still have: all the memory that the engine usually takes, fp8 weights, an
    8-bit KV cache, twice the tensor parallelism.

    Whether the model's quality bears them is for its owner to judge.
    """
    found: list[Alternative] = []
    llamacpp = settings.engine == "llamacpp"
    usual = _USUAL_FRACTION.get(settings.engine)
    if usual is not None and not settings.pins_pool and (settings.memory_fraction or usual) < usual - 0.01:
        more = replace(settings, memory_fraction=usual)
        found.append(Alternative("gpu_memory_utilization", f"{usual:g}", more))
    if settings.weight_bits > 8 and not llamacpp and device is not None and "fp8" in device.flops:
        fp8 = replace(settings, weight_bits=8.0, compute_dtype="fp8", quantization="fp8")
        found.append(Alternative("quantization", "fp8", fp8))
    if settings.kv_bytes > 1.1:
        kind, size = ("q8_0", _Q8_0) if llamacpp else ("fp8", 1.0)
        found.append(Alternative("kv_cache_dtype", kind, replace(settings, kv_bytes=size, kv_cache_dtype=kind)))
    if not llamacpp:
        wide = replace(settings, tensor_parallel=settings.tensor_parallel * 2, devices=settings.devices * 2)
        found.append(Alternative("tensor_parallel", str(wide.tensor_parallel), wide))
    return tuple(found)


def gains(
    settings: Settings, device: Device | None, seconds: Callable[[Settings], float]
) -> Iterator[tuple[Alternative, float, float]]:
    """The levers that save at least 5 % of a time, with the time as it is and as it would be."""
    now = seconds(settings)
    for lever in alternatives(settings, device):
        then = seconds(lever.settings)
        if then < 0.95 * now:
            yield lever, now, then


def what_ifs(
    geometry: Geometry, settings: Settings, device: Device, batch: int, prompt: int, *, prefill: bool
) -> Iterator[tuple[Alternative, str]]:
    """The levers that shorten an idle prompt (`prefill`) or a decode step, and both times in words."""

    def seconds(changed: Settings) -> float:
        if prefill:
            return predict_prefill(geometry, changed, device, prompt).seconds
        return predict_decode(geometry, changed, device, batch, prompt).seconds

    what = f"a {prompt}-token prompt alone" if prefill else f"a step of {count(batch, 'stream')}"
    for lever, now, then in gains(settings, device, seconds):
        yield lever, f"{what} {quantity(then, 's')} instead of {quantity(now, 's')} (computed)"
