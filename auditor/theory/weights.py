"""Bytes of a model's weights: stored, per device, and read by one decode step.

`Geometry.extra` may hold, beyond the common fields (all whole model): attention_parameters, unquantized_parameters
(norms, routers, biases: 16 bit even in quantised checkpoints), replicated_parameters (copied to every device under
tensor parallelism), next_token_parameters and next_token_layers (MTP layers stored in the file, loaded only for
speculation), and, from a file's own tensor table, embedding_bytes, head_bytes and expert_bytes.
"""

import re
from dataclasses import dataclass, replace

from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["per_device_bytes", "streamed_bytes", "total_bytes"]

_GGUF = re.compile(r"i?q\d.*|f16|f32|bf16")
_EXPERTS_ONLY = ("mxfp4",)  # gpt-oss keeps attention and routers in 16 bit (its modules_to_not_convert)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Bytes of the whole model. `dense` is the layer stack without routed experts, `attention` a part of it,
    `copied` the part of it that every device keeps; `rest` is loaded but read by no decode step (vision, MTP).
    """

    embedding: float
    head: float
    dense: float
    attention: float
    copied: float
    experts: float
    rest: float = 0.0


def total_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of one copy of the weights as loaded: from the model's file where it told them, else from parameters."""
    parts = _parts(geometry, settings)
    return parts.embedding + parts.head + parts.dense + parts.experts + parts.rest


def per_device_bytes(geometry: Geometry, settings: Settings) -> float:
    """Bytes of weights on the device that holds most.

    Tensor parallelism divides linear layers and the vocabulary and copies norms and routers; routed experts divide over
    all devices that share them; pipeline stages hold their layers, the outer ones also embedding or head. What the
    settings say outright is taken as it is.
    """
    if settings.weight_bytes is not None:
        return settings.weight_bytes
    parts = _parts(geometry, settings)
    tensor, stages = settings.tensor_parallel, settings.pipeline_parallel
    ends = parts.embedding + parts.head if stages == 1 else max(parts.embedding, parts.head)
    return (_stack(parts, settings) + parts.experts / _expert_split(settings)) / stages + (ends + parts.rest) / tensor


def streamed_bytes(geometry: Geometry, settings: Settings, batch: float, *, limit: bool) -> float:
    """Bytes of weights that one device reads in one decode step of `batch` sequences.

    Everything but the input embedding, of which a step reads only rows; lm_head (the embedding itself where tied) stays
    at 16 bit in fp8 and fp4 checkpoints. Of E routed experts, k a token, a step touches E (1 - (1 - k/E)^batch) if
    tokens choose independently. Real routing is correlated and touches fewer, so with `limit` only k are counted.
    """
    parts = _parts(geometry, settings)
    head = parts.head if not geometry.tied_embeddings else parts.embedding
    touched = 0.0
    if geometry.experts is not None:
        share = geometry.experts.per_token / geometry.experts.count
        touched = share if limit else 1 - (1 - share) ** max(1.0, batch)
    stages = settings.pipeline_parallel
    experts = touched * parts.experts / _expert_split(settings)
    return (_stack(parts, settings) + experts + head / settings.tensor_parallel) / stages


def _stack(parts: _Parts, settings: Settings) -> float:
    """The dense part of all layers on one device; DP attention keeps whole copies of attention on each rank."""
    shared = parts.dense - parts.attention - parts.copied
    return parts.copied + shared / settings.tensor_parallel + parts.attention / attention_parallel(settings)


def _expert_split(settings: Settings) -> int:
    """Devices that share the routed experts of a layer. vLLM spreads them over its data-parallel ranks too
    (fused_moe/config.py: FusedMoEParallelConfig).
    """
    shared = settings.tensor_parallel * (settings.data_parallel if settings.engine == "vllm" else 1)
    return max(shared, settings.expert_parallel)


def _parts(geometry: Geometry, settings: Settings) -> _Parts:
    computed = _computed(geometry, settings)
    if geometry.weight_bytes is None or not _as_stored(geometry, settings):
        return _with_next_token(computed, geometry, settings)
    return _from_file(computed, geometry, settings)


def _as_stored(geometry: Geometry, settings: Settings) -> bool:
    """Whether the weights are served as the file has them: a quantised file is, whatever word names its loader."""
    return (settings.quantization is None) == (geometry.quantization is None)


def _computed(geometry: Geometry, settings: Settings) -> _Parts:
    """Parameters by part times bits. Embeddings, head, norms and routers keep 16 bit unless the format is GGUF's."""
    plain = 4.0 if settings.compute_dtype == "fp32" else 2.0
    method = (settings.quantization or "").lower()
    packed = settings.weight_bits / 8
    whole = packed if _GGUF.fullmatch(method) else plain
    linear = plain if method in _EXPERTS_ONLY and geometry.experts else packed
    embedding = geometry.embedding_parameters
    matrices = 1 if geometry.tied_embeddings else 2
    routed = _routed_parameters(geometry)
    dense = geometry.parameters - matrices * embedding - routed
    small = min(dense, geometry.extra.get("unquantized_parameters", 0))
    attention = geometry.extra.get("attention_parameters", 0) * linear
    dense_bytes = (dense - small) * linear + small * plain
    return _Parts(
        embedding=embedding * whole,
        head=0.0 if geometry.tied_embeddings else embedding * whole,
        dense=dense_bytes,
        attention=min(attention, dense_bytes),
        copied=min(geometry.extra.get("replicated_parameters", 0) * plain, dense_bytes - min(attention, dense_bytes)),
        experts=routed * packed,
    )


def _routed_parameters(geometry: Geometry) -> int:
    experts = geometry.experts
    return experts.count * experts.layers * experts.parameters if experts else 0


def _next_token_bytes(parts: _Parts, geometry: Geometry) -> float:
    """MTP layers at the stack's mean width."""
    stack = geometry.parameters - geometry.embedding_parameters * (1 if geometry.tied_embeddings else 2)
    return geometry.extra.get("next_token_parameters", 0) * (parts.dense + parts.experts) / max(1, stack)


def _with_next_token(parts: _Parts, geometry: Geometry, settings: Settings) -> _Parts:
    if settings.speculative_tokens <= 0:
        return parts
    return replace(parts, rest=parts.rest + _next_token_bytes(parts, geometry))


def _from_file(computed: _Parts, geometry: Geometry, settings: Settings) -> _Parts:
    """Scale the computed parts to what the file holds; what it holds beyond the language model is `rest`."""
    stored = float(geometry.weight_bytes or 0)
    extra = geometry.extra
    if "embedding_bytes" in extra:
        head = float(extra.get("head_bytes", 0))
        experts = float(extra.get("expert_bytes", 0))
        dense = stored - extra["embedding_bytes"] - head - experts
        scale = dense / computed.dense if computed.dense else 1.0
        return _Parts(
            embedding=float(extra["embedding_bytes"]),
            head=head,
            dense=dense,
            attention=computed.attention * scale,
            copied=computed.copied * scale,
            experts=experts,
        )
    # MTP layers are in the file, and loaded only where they are used.
    draft = _next_token_bytes(computed, geometry)
    loaded = stored * (1 - draft / (_sum(computed) + draft)) if settings.speculative_tokens <= 0 else stored
    ends = computed.embedding + computed.head
    if geometry.vision:
        return replace(computed, rest=max(0.0, loaded - _sum(computed)))
    scale = (loaded - ends) / max(1.0, _sum(computed) - ends)
    return replace(
        computed,
        dense=computed.dense * scale,
        attention=computed.attention * scale,
        copied=computed.copied * scale,
        experts=computed.experts * scale,
    )


def _sum(parts: _Parts) -> float:
    return parts.embedding + parts.head + parts.dense + parts.experts
