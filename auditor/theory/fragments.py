"""What padding weights on ROCm costs: the padding, and memory that PyTorch's allocator can no longer use.

vLLM pads rows that start on one memory channel, matrix by matrix as it goes through the loaded model: routed experts in
16 bit (layers/fused_moe/unquantized_fused_moe_method.py, VLLM_ROCM_MOE_PADDING) and fp8 linear layers whose scales are
per tensor or block (layers/quantization/utils/fp8_utils.py, _maybe_pad_fp8_weight). A padded copy goes where an
earlier, larger matrix was, and the rest of that segment stays reserved (c10/cuda/CUDACachingAllocator.cpp: the best fit
is split, and only whole free segments are given back). Until release 0.20 vLLM reports all of it as model weights,
because on ROCm it asks the device instead of the allocator (platforms/rocm.py, get_current_memory_usage).
"""

from collections.abc import Mapping
from functools import lru_cache

from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.settings import Settings
from auditor.theory.sharding import local
from auditor.theory.tensors import Part, Tensor

__all__ = ["fragments"]

_SINCE_WITHOUT = (0, 21, 0)
_PADDING = 256  # bytes added to a row
_CHANNELS = 512  # rows of a multiple of this are padded
_OWN_SEGMENT = 10 << 20  # kMinLargeAlloc: from here on a tensor has a segment of its own
_ROUNDED = 2 << 20  # kRoundLarge
_SMALLEST = 1 << 20  # kSmallSize: less than this is not split off
_Steps = tuple[tuple[float, float], ...]


def fragments(geometry: Geometry, settings: Settings, words: Mapping[str, str | None]) -> float:
    """Bytes on one device beyond the unpadded weights; 0 off ROCm, where no padding is done, and since 0.21."""
    if settings.vendor != "amd" or settings.engine != "vllm" or release(settings.engine_version) >= _SINCE_WITHOUT:
        return 0.0
    method = (settings.quantization or "").lower()
    if words.get("experts") is None and geometry.experts is not None:
        steps, layers = _layer(geometry, settings, ("experts",), 2)
    elif "fp8" in method and words.get("attention") is not None:
        steps, layers = _layer(geometry, settings, ("attention", "dense"), 1)
    else:
        return 0.0
    return _lost(steps, layers) / settings.pipeline_parallel


def _layer(geometry: Geometry, settings: Settings, parts: tuple[Part, ...], width: int) -> tuple[_Steps, int]:
    """Bytes before and after padding of a layer's fused matrices in the order of its modules, and how many layers."""
    steps: list[tuple[float, float]] = []
    layers = 0
    for part in parts:
        held = [tensor for tensor in geometry.tensors if tensor.part == part and tensor.inputs > 1 and not tensor.draft]
        down = [tensor for tensor in held if tensor.split == "inputs"]
        number = geometry.experts.layers if part == "experts" and geometry.experts else _number(down)
        for side in ([tensor for tensor in held if tensor.split == "outputs"], down):
            if side and number:
                steps.append(_sizes(side, number, width, settings))
        layers = max(layers, number)
    return tuple(steps), layers


def _number(down: list[Tensor]) -> int:
    return sum(tensor.count for tensor in down)


def _sizes(side: list[Tensor], layers: int, width: int, settings: Settings) -> tuple[float, float]:
    before = after = 0.0
    for tensor in side:
        count, outputs, inputs = local(tensor, settings)
        row = inputs * width
        rows = count * outputs / layers
        before += rows * row
        after += rows * (row + (_PADDING if row % _CHANNELS == 0 else 0))
    return before, after


@lru_cache(maxsize=1024)
def _lost(steps: _Steps, layers: int) -> float:
    """Reserved bytes at the end less those at the start, over all layers."""
    grown, holes, whole = 0.0, list[float](), list[float]()
    for before, after in steps * layers:
        if after == before or before < _OWN_SEGMENT:
            grown += after - before
            continue
        fitting = [size for size in (*holes, *whole) if size >= after]
        if fitting:
            best = min(fitting)
            (holes if best in holes else whole).remove(best)
            if best - after > _SMALLEST:
                holes.append(best - after)
        else:
            grown += -(-after // _ROUNDED) * _ROUNDED
        grown -= sum(whole)  # torch.cuda.empty_cache(), before the unpadded matrix is dropped
        whole = [before]
    return grown - sum(whole)
