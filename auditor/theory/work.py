"""The work of one prefill or one decode step: FLOPs and bytes per device, before any efficiency.

Prefill reads a prompt with matrix-matrix products, decode adds one token a sequence with matrix-vector products that
read all weights and the whole KV cache (Pope et al., arXiv 2211.05102, section 2; Kaplan et al., arXiv 2001.08361,
table 1 for 2 FLOPs a parameter and token).
"""

from auditor.theory.device import Device
from auditor.theory.kv.cells import attention_parallel, layer_bytes
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = [
    "decode_flops",
    "decode_kv_bytes",
    "fastest",
    "linear_devices",
    "prefill_attention_flops",
    "prefill_flops",
    "rate",
]

_WEIGHT_ONLY = ("awq", "gptq", "marlin", "w4a16", "w8a16", "bitsandbytes", "bnb", "nf4", "int4", "autoround")
_PLAIN = ("bf16", "fp16", "fp32")


def prefill_flops(geometry: Geometry, tokens: float) -> float:
    """FLOPs of one prompt over all devices: 2 P_a N + 2 E + attention; the head sees only the last token."""
    linear = 2.0 * geometry.active_parameters * tokens + 2.0 * geometry.embedding_parameters
    return linear + prefill_attention_flops(geometry, tokens)


def prefill_attention_flops(geometry: Geometry, tokens: float) -> float:
    """Scores and values of causal attention: 2 h (d_qk + d_v) for each pair of tokens that see each other."""
    return sum(
        2.0 * group.count * geometry.attention_heads * (group.qk_head_dim + group.v_head_dim) * _pairs(group, tokens)
        for group in geometry.layers
    )


def _pairs(group: Layers, tokens: float) -> float:
    """Pairs of a token and a key it sees: N (N+1) / 2, capped by the window, or within chunks."""
    window = group.window
    if window is None or tokens <= window:
        return tokens * (tokens + 1) / 2
    if group.kind == "chunked":
        whole, rest = divmod(tokens, window)
        return whole * window * (window + 1) / 2 + rest * (rest + 1) / 2
    return window * (window + 1) / 2 + (tokens - window) * window


def decode_flops(geometry: Geometry, batch: float, context: float) -> float:
    """FLOPs of one step over all devices. MLA scores against the latent itself (absorbed projections, DeepSeek-V2)."""
    rank = geometry.extra.get("kv_lora_rank", 0)
    attention = 0.0
    for group in geometry.layers:
        width = group.qk_head_dim + group.v_head_dim if group.latent_dim is None else group.latent_dim + rank
        attention += 2.0 * group.count * geometry.attention_heads * width * _seen(group, context)
    return batch * (2.0 * geometry.active_parameters + 2.0 * geometry.embedding_parameters + attention)


def decode_kv_bytes(geometry: Geometry, settings: Settings, batch: float, context: float) -> float:
    """Bytes of keys and values that one device reads in one step: its layers, its heads, its share of the batch."""
    each = sum(group.count * layer_bytes(group, settings) * _seen(group, context) for group in geometry.layers)
    ranks = settings.data_parallel
    return batch / ranks * each / settings.pipeline_parallel


def _seen(group: Layers, context: float) -> float:
    """Tokens of the past that a sequence at `context` attends to; within chunks half a chunk on average."""
    if group.window is None or context <= group.window:
        return context
    return group.window / 2 if group.kind == "chunked" else float(group.window)


def linear_devices(settings: Settings) -> int:
    """Devices that share one step's matrix products: all of the instance's ranks but whole copies of it."""
    if attention_parallel(settings) < settings.tensor_parallel:
        return settings.tensor_parallel * settings.pipeline_parallel
    return settings.tensor_parallel * settings.pipeline_parallel * settings.data_parallel


def rate(device: Device, dtype: str) -> float:
    """Dense peak of a compute dtype in FLOP/s; a dtype without units of its own runs at the 16-bit rate."""
    for name in (dtype, "bf16", "fp16", "fp32"):
        if name in device.flops:
            return device.flops[name]
    return max(device.flops.values(), default=0.0)


def fastest(device: Device, settings: Settings) -> float:
    """The highest rate at which this device could run these weights, whatever the kernel: what no run can beat.

    llama.cpp multiplies quantised weights as int8 and 16-bit ones with 16-bit accumulation (ggml-cuda/mmq.cu), so any
    of the device's units may serve it.
    """
    if settings.engine == "llamacpp":
        return max(device.flops.values(), default=0.0)
    names = {settings.compute_dtype} if settings.compute_dtype not in _PLAIN else {"bf16", "fp16"}
    method = (settings.quantization or "").lower()
    if settings.weight_bits < 16 and not any(word in method for word in _WEIGHT_ONLY):
        names |= {"fp8", "int8"} if settings.weight_bits > 5 else {"fp8", "int8", "fp4"}
    return max((device.flops[name] for name in names if name in device.flops), default=rate(device, "bf16"))
