"""Bytes of a model's weights: per device as the engine loads them, and read by one decode step.

`Geometry.tensors` says which matrices there are, `Geometry.formats` how the checkpoint stores their parts.
"""

import re
from collections.abc import Mapping
from typing import get_args

from auditor.theory.kv.geometry import Geometry
from auditor.theory.padding import beside, padded
from auditor.theory.settings import Settings
from auditor.theory.sharding import local
from auditor.theory.tensors import Part, Tensor
from auditor.theory.widths import bits_of, same_format

__all__ = ["per_device_bytes", "streamed_bytes"]

_PARTS: tuple[Part, ...] = get_args(Part)
_QUANTIZED: frozenset[Part] = frozenset({"attention", "recurrent", "dense", "shared", "experts"})
# Formats that cover embedding, head and all: those of GGUF files, and MLX's (mlx_lm.convert).
_WHOLE = re.compile(r"(?:ud-|i1-)?(?:i|t)?q\d.*|f16|f32|bf16|mlx.*|\d[-_ ]?bits?")
_ENDS: frozenset[Part] = frozenset({"embedding", "lookup", "head", "tower"})
_Held = dict[str, float]


def per_device_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of weights on the device that holds most.

    Tensor parallelism divides linear layers and the vocabulary and copies norms, routers and MLA's down projections;
    routed experts divide over all devices that share them; pipeline stages hold their layers, the outer ones also
    embedding or head. What the settings say outright is taken as it is.
    """
    if settings.weight_bytes is not None:
        return settings.weight_bytes
    held = _held(geometry, settings)
    more = beside(geometry, settings, _words(geometry, settings))
    stack = sum(held.values()) - sum(held[part] for part in _ENDS)
    first = held["embedding"] + held["lookup"] + held["tower"]
    last = held["embedding"] if geometry.tied_embeddings else held["head"]
    stages = _stages(geometry.layer_count, settings.pipeline_parallel)
    if len(stages) == 1:
        return stack + first + held["head"] + more
    return more + max(stages[0] * stack + first, *(share * stack for share in stages[1:-1]), stages[-1] * stack + last)


def streamed_bytes(geometry: Geometry, settings: Settings, batch: float, *, limit: bool) -> float:
    """Bytes of weights that one device reads in one decode step of `batch` sequences.

    Everything but tables of which a step reads only rows (lm_head is the embedding itself where tied), towers and
    multi-token-prediction layers. Of E routed experts, k a token, a step touches E (1 - (1 - k/E)^batch) if tokens
    choose independently. Real routing is correlated and touches fewer, so with `limit` only k are counted.
    """
    held = _held(geometry, settings)
    touched = 0.0
    if geometry.experts is not None:
        share = geometry.experts.per_token / geometry.experts.count
        touched = share if limit else 1 - (1 - share) ** max(1.0, batch)
    head = held["embedding"] if geometry.tied_embeddings else held["head"]
    rest = sum(held[part] for part in _PARTS if part not in _ENDS and part != "experts")
    return (rest + touched * held["experts"] + head) / settings.pipeline_parallel


def _stages(layers: int, stages: int) -> list[float]:
    """The share of the layers that each pipeline stage holds: what is left over goes to the last but one and before
    (vllm/distributed/utils.py, get_pp_indices).
    """
    if stages == 1 or layers < stages:
        return [1 / stages] * stages
    each, left = divmod(layers, stages)
    return [(each + (stages - 1 - left <= stage < stages - 1)) / layers for stage in range(stages)]


def _held(geometry: Geometry, settings: Settings) -> _Held:
    """Bytes by part of one device, as if it held every layer; "draft" are multi-token-prediction layers."""
    held: _Held = dict.fromkeys((*_PARTS, "draft"), 0.0)
    if not geometry.tensors:
        held["dense"] = _coarse(geometry, settings)
        return held
    words = _words(geometry, settings)
    value = _value_bytes(words, settings)
    for tensor in geometry.tensors:
        if not tensor.draft:
            held[tensor.part] += _bytes(tensor, geometry, settings, words, value)
        elif settings.speculative_tokens > 0 and tensor.part not in _ENDS:
            held["draft"] += _bytes(tensor, geometry, settings, words, value)
    if geometry.weight_bytes is not None and _as_stored(geometry, settings):
        _fit_file(held, geometry, value, settings)
    return held


def _coarse(geometry: Geometry, settings: Settings) -> float:
    """A model of which only the size is known, evenly divided."""
    known = geometry.weight_bytes is not None and _as_stored(geometry, settings)
    whole = float(geometry.weight_bytes or 0) if known else geometry.parameters * settings.weight_bits / 8
    return whole / settings.tensor_parallel


def _as_stored(geometry: Geometry, settings: Settings) -> bool:
    """Whether the weights are served as the file has them: a quantised file is, whatever word names its loader."""
    if settings.quantization is None or geometry.quantization is None:
        return settings.quantization == geometry.quantization
    return same_format(settings.quantization, geometry.quantization)


def _words(geometry: Geometry, settings: Settings) -> dict[str, str | None]:
    """The format of each part on the device; None: the model's own dtype."""
    plain: dict[str, str | None] = dict.fromkeys(_PARTS)
    method = settings.quantization
    if method is None:
        return plain
    stored = _as_stored(geometry, settings)
    word = (geometry.quantization if stored else None) or method
    if _WHOLE.fullmatch(word.lower()):
        return dict.fromkeys(_PARTS, word)
    if word == "mxfp4" and settings.engine == "llamacpp":
        return {**dict.fromkeys(_PARTS, "q8_0"), "experts": word}  # ggml-org/gpt-oss-20b-GGUF
    found = plain | dict.fromkeys(_QUANTIZED, word)
    if stored and geometry.formats:
        return found | {part: None if told == "none" else told for part, told in geometry.formats.items()}
    return found | dict.fromkeys(_left_by_recipes(geometry, f"{method} {word}"))


def _left_by_recipes(geometry: Geometry, words: str) -> tuple[str, ...]:
    """Parts that published checkpoints leave in 16 bit, where the checkpoint itself is not at hand, by the `words` of
    its loader and its format.

    vllm-project/llm-compressor, examples/quantization_w8a8_fp8: qwen3_next_example.py and qwen3_5_moe.py (linear
    attention), llama4_fp8_block_example.py (attention). NVIDIA's NVFP4 checkpoints leave linear attention and MLA
    (`ignore` of nvidia/Qwen3.5-397B-A17B-NVFP4 and nvidia/GLM-5.1-NVFP4), MXFP4 of gpt-oss all but experts
    (`modules_to_not_convert`).
    """
    word = words.lower()
    if "mxfp4" in word and geometry.experts:
        return tuple(part for part in _QUANTIZED if part != "experts")
    compressed = "compressed" in word or "fp8-dynamic" in word
    nvfp4 = "nvfp4" in word or "modelopt_fp4" in word
    latent = "kv_lora_rank" in geometry.extra
    attention = (compressed and geometry.architecture.startswith("Llama4")) or (nvfp4 and latent)
    return (*(("recurrent",) if compressed or nvfp4 else ()), *(("attention",) if attention else ()))


def _value_bytes(words: Mapping[str, str | None], settings: Settings) -> dict[str, float]:
    """Bytes of one value of each part; "plain" and "single" are those of the model's dtype and of fp32."""
    plain = settings.plain_bytes
    other = settings.weight_bits / 8
    found = {part: plain if word is None else (bits_of(word) or 8 * other) / 8 for part, word in words.items()}
    return found | {"plain": plain, "single": 4.0}


def _bytes(
    tensor: Tensor,
    geometry: Geometry,
    settings: Settings,
    words: Mapping[str, str | None],
    value: Mapping[str, float],
) -> float:
    """Bytes of a tensor on one device."""
    if tensor.part == "experts" and geometry.experts is not None:
        gated = geometry.experts.parameters > 2.5 * tensor.outputs * tensor.inputs
        count, outputs, inputs = padded(tensor, settings, words["experts"], gated=gated)
    else:
        count, outputs, inputs = local(tensor, settings)
    if tensor.stored is not None and (settings.quantization is None or _as_stored(geometry, settings)):
        return tensor.stored * count * outputs * inputs / tensor.parameters
    return count * outputs * inputs * _width(tensor, value)


def _width(tensor: Tensor, value: Mapping[str, float]) -> float:
    return value["single" if tensor.single else "plain" if tensor.plain else tensor.part]


def _fit_file(held: _Held, geometry: Geometry, value: Mapping[str, float], settings: Settings) -> None:
    """Scale to what the file holds. A vision model's surplus is its towers, where their shape is not known."""
    stored = float(geometry.weight_bytes or 0)
    counted = sum(
        tensor.parameters * _width(tensor, value) if tensor.stored is None else tensor.stored
        for tensor in geometry.tensors
    )
    if geometry.vision and not any(tensor.part == "tower" for tensor in geometry.tensors):
        held["tower"] += max(0.0, stored - counted) / settings.tensor_parallel
        return
    for part in held:
        held[part] *= stored / counted
