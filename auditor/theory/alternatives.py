"""What-ifs: the same engine with one lever moved, for remedies that show what they would bring."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from auditor.theory.device import Device
from auditor.theory.judging import largest
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.llamacpp import STEP_CELLS
from auditor.theory.roofline import predict_decode, predict_prefill
from auditor.theory.settings import Settings
from auditor.theory.widths import bits_of
from auditor.units import count, quantity

__all__ = ["Alternative", "alternatives", "fewer_slots", "further", "gains", "next_up", "what_ifs"]

# What an engine takes of the memory by default, in its newest version: vLLM's gpu_memory_utilization, SGLang's
# mem_fraction_static on large devices, TensorRT-LLM's free_gpu_memory_fraction.
_USUAL_FRACTION = {"vllm": 0.92, "sglang": 0.88, "trtllm": 0.9}
_MOST_FRACTION = 0.95  # beyond which what an engine does not count (its context, graphs) has no room
_PACKED = {word: bits_of(word) or 16.0 for word in ("fp8", "awq")}  # bits of a weight
_NO_LOADER = ("trtllm", "lmdeploy")  # which have no flag that packs 16-bit weights as they load them
# An 8-bit cache by engine: what settings call it, and the flag's value.
_CACHES = {"sglang": ("fp8_e4m3", "fp8_e4m3"), "lmdeploy": ("int8", "8"), "llamacpp": ("q8_0", "q8_0")}
_SMALL_BATCH = 2048  # vLLM's smallest default of max_num_batched_tokens (vllm/engine/arg_utils.py)
_Q4_K_M = 4.89  # bits of a weight (llama.cpp tools/quantize/README.md, Llama-3.1-8B)
_Q8_0 = 34 / 32  # bytes per value of llama.cpp's q8_0 (ggml-common.h: 32 values and a 2-byte scale)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One lever: the profile field that moves, its new value as the engine's flag takes it, and the settings then.

    `device` is another accelerator, where that is the lever; `also` are fields and values that move with it.
    """

    field: str
    value: str
    settings: Settings
    device: Device | None = None
    also: tuple[tuple[str, str], ...] = ()


def alternatives(
    settings: Settings, device: Device | None = None, geometry: Geometry | None = None
) -> tuple[Alternative, ...]:
    """The levers that this engine and device still have: all the memory that the engine usually takes, fp8 weights, an
    8-bit KV cache, twice the tensor parallelism; of a `geometry` with latents, attention by requests.

    Values are those that the engine's flag takes. `checkpoint` is no flag: other weights are to be loaded. Whether the
    model's quality bears them is for its owner to judge.
    """
    found: list[Alternative] = []
    usual = _USUAL_FRACTION.get(settings.engine)
    if usual is not None and not settings.pins_pool and (settings.memory_fraction or usual) < usual - 0.01:
        more = replace(settings, memory_fraction=usual)
        found.append(Alternative("gpu_memory_utilization", f"{usual:g}", more))
    if settings.weight_bits > 9 and settings.engine != "llamacpp" and device is not None and "fp8" in device.flops:
        fp8 = replace(settings, weight_bits=_PACKED["fp8"], compute_dtype="fp8", quantization="fp8")
        field = "checkpoint" if settings.engine in _NO_LOADER else "quantization"
        found.append(Alternative(field, "fp8", fp8))
    if settings.kv_bytes > 1.1:
        found.append(_packed_cache(settings))
    if settings.engine != "llamacpp" and not (device is not None and device.here):  # a machine has itself once
        found.append(_wider(settings))
    if geometry is not None and geometry.experts is not None and settings.tensor_parallel > 1:
        found += _by_requests(settings, geometry)
    return tuple(found)


def _packed_cache(settings: Settings) -> Alternative:
    """An 8-bit cache, in the engine's own word: SGLang takes no plain fp8 (srt/server_args.py), LMDeploy's
    --quant-policy bits (lmdeploy/cli/utils.py), llama.cpp a flag for keys and one for values.
    """
    word, value = _CACHES.get(settings.engine, ("fp8", "fp8"))
    size = _Q8_0 if settings.engine == "llamacpp" else 1.0
    packed = replace(settings, kv_bytes=size, kv_cache_dtype=word, key_bytes=None, value_bytes=None)
    also = (("kv_cache_dtype_v", value),) if settings.engine == "llamacpp" else ()
    return Alternative("kv_cache_dtype", value, packed, also=also)


def _wider(settings: Settings) -> Alternative:
    """Twice the tensor parallelism; experts that are spread over all devices stay so."""
    wide = replace(settings, tensor_parallel=settings.tensor_parallel * 2, devices=settings.devices * 2)
    if settings.expert_parallel > 1 and settings.engine == "vllm":
        wide = replace(wide, expert_parallel=settings.expert_parallel * 2)
    return Alternative("tensor_parallel", str(wide.tensor_parallel), wide)


def _by_requests(settings: Settings, geometry: Geometry) -> Iterator[Alternative]:
    """Each device keeps the latents of its own requests, where tensor parallelism copies those of all: vLLM's ranks
    with experts over all devices, SGLang's DP attention.
    """
    latents = any(group.kind == "mla" for group in geometry.layers)
    if not latents or settings.data_parallel > 1 or settings.decode_context_parallel > 1:
        return
    ranks = settings.tensor_parallel
    if settings.engine == "vllm":
        apart = replace(settings, tensor_parallel=1, data_parallel=ranks, expert_parallel=ranks)
        also: tuple[tuple[str, str], ...] = (("tensor_parallel", "1"), ("expert_parallel", ""))
    elif settings.engine == "sglang":
        apart, also = replace(settings, data_parallel=ranks), (("dp_attention", ""),)
    else:
        return
    yield Alternative("data_parallel", str(ranks), apart, also=also)


def further(
    settings: Settings, target: float | None, longest: float, larger: tuple[Device, Settings] | None = None
) -> tuple[Alternative, ...]:
    """The levers beyond `alternatives` that move what fits, some of them at the cost of speed or money.

    More of the memory than is usual, 4-bit weights, a batch limit at the target, smaller steps, no speculation, the
    hybrid cache manager, llama.cpp's slots and context cut to the target and its `longest` request, and the `larger`
    accelerator with the settings there.
    """
    found = [*_more_memory(settings), *_batch(settings, target), *_off(settings)]
    if settings.weight_bits > 6 and settings.engine != "llamacpp":
        awq = replace(settings, weight_bits=_PACKED["awq"], quantization="awq", compute_dtype=settings.plain_dtype)
        found.append(Alternative("checkpoint", "awq", awq))
    if settings.weight_bits > 6 and settings.engine == "llamacpp":
        file = replace(settings, weight_bits=_Q4_K_M, quantization="q4_k_m", compute_dtype=settings.plain_dtype)
        found.append(Alternative("checkpoint", "q4_k_m", file))
    if settings.engine == "llamacpp" and target is not None and longest >= 1:
        found += _slots(settings, target, longest)
    if larger is not None:
        found.append(Alternative("accelerator", larger[0].key, larger[1], larger[0]))
    return tuple(found)


def _more_memory(settings: Settings) -> Iterator[Alternative]:
    """vLLM counts its activations inside its share, so that it may be large; SGLang's live in what it leaves."""
    usual = _USUAL_FRACTION.get(settings.engine)
    now = settings.memory_fraction or usual
    if settings.engine != "vllm" or now is None or settings.pins_pool or now >= _MOST_FRACTION - 0.005:
        return
    more = replace(settings, memory_fraction=_MOST_FRACTION)
    yield Alternative("gpu_memory_utilization", f"{_MOST_FRACTION:g}", more)


def _batch(settings: Settings, target: float | None) -> Iterator[Alternative]:
    """A batch limit at the target (more requests may run, or less memory waits for them), and smaller steps."""
    ranks = settings.data_parallel
    asked = math.ceil(target / ranks) if target is not None else None
    if settings.max_num_seqs and asked and asked != settings.max_num_seqs and settings.engine != "llamacpp":
        yield Alternative("max_num_seqs", str(asked), replace(settings, max_num_seqs=asked))
    if (settings.max_num_batched_tokens or 0) > _SMALL_BATCH:
        small = replace(settings, max_num_batched_tokens=_SMALL_BATCH)
        yield Alternative("max_num_batched_tokens", str(_SMALL_BATCH), small)


def _off(settings: Settings) -> Iterator[Alternative]:
    if settings.speculative_tokens > 0 or settings.draft_layers:
        yield Alternative("speculative", "off", replace(settings, speculative_tokens=0, draft_layers=None))
    if not settings.hybrid_kv_manager:
        yield Alternative("hybrid_kv_manager", "on", replace(settings, hybrid_kv_manager=True))
    if settings.full_swa_cache:
        yield Alternative("full_swa_cache", "off", replace(settings, full_swa_cache=False))


def _slots(settings: Settings, target: float, longest: float) -> Iterator[Alternative]:
    """llama.cpp: a slot for each request, each with the context of the longest one."""
    slots, context = math.ceil(target), math.ceil(longest / STEP_CELLS) * STEP_CELLS
    if (settings.slots, settings.max_model_len) == (slots, context) and not settings.kv_unified:
        return
    yield Alternative("context", str(slots * context), _cells(settings, slots, context), also=(("slots", str(slots)),))


def fewer_slots(
    settings: Settings, target: float | None, longest: float, limit: int, holds: Callable[[Settings], bool]
) -> Alternative | None:
    """llama.cpp: as many slots, up to the target (None: those there are), as memory `holds`, each with the context of
    the longest request; without a target the longest context below `limit` for the slots there are.
    """
    if target is not None:
        each = math.ceil(longest / STEP_CELLS) * STEP_CELLS
        slots = largest(lambda n: n == 0 or holds(_cells(settings, n, each)), math.ceil(target))
        if slots < 1 or (settings.slots, settings.max_model_len) == (slots, each):
            return None
        cut = _cells(settings, slots, each)
        return Alternative("context", str(slots * each), cut, also=(("slots", str(slots)),))
    fitting = largest(lambda n: n == 0 or holds(replace(settings, max_model_len=n * STEP_CELLS)), limit // STEP_CELLS)
    each = fitting * STEP_CELLS
    if each < longest:
        return None
    shared = 1 if settings.kv_unified else settings.slots or 1
    return Alternative("context", str(each * shared), replace(settings, max_model_len=each))


def _cells(settings: Settings, slots: int, each: int) -> Settings:
    return replace(settings, slots=slots, max_num_seqs=slots, max_model_len=each, kv_unified=False)


def next_up(device: Device, candidates: Sequence[Device], together: int = 1) -> Device | None:
    """The smallest of the vendor's accelerators with at least a tenth more memory and no less of anything else.

    Where several work `together`, none whose fast link is that to its own CPU (GH200).
    """
    if device.usable_bytes is None:
        return None
    known = [
        (other.usable_bytes, other.key, other)
        for other in candidates
        if other.vendor == device.vendor
        and other.kind == device.kind
        and other.confidence != "C"
        and not (together > 1 and (other.interconnect or "").startswith("NVLink-C2C"))
        and other.usable_bytes is not None
        and other.usable_bytes >= 1.1 * device.usable_bytes
        and other.bandwidth >= device.bandwidth
        and all(other.flops.get(kind, 0.0) >= 0.95 * device.flops.get(kind, 0.0) for kind in ("bf16", "fp8"))
    ]
    return min(known, key=lambda one: one[:2])[2] if known else None


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
