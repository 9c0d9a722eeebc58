"""The work of one prefill or one decode step: FLOPs and bytes per device, before any efficiency.

Prefill reads a prompt with matrix-matrix products, decode adds one token a sequence with matrix-vector products that
read all weights and the whole KV cache (Pope et al., arXiv 2211.05102, section 2; Kaplan et al., arXiv 2001.08361,
table 1 for 2 FLOPs a parameter and token).
"""

from auditor.theory.device import Device
from auditor.theory.kv.cells import attention_parallel, layer_bytes
from auditor.theory.kv.geometry import Geometry, Layers, Recurrent
from auditor.theory.kv.state import conv_bytes, matrix_bytes
from auditor.theory.settings import Settings
from auditor.theory.weights import streamed_bytes

__all__ = [
    "decode_attention_flops",
    "decode_flops",
    "decode_kv_bytes",
    "decode_linear_flops",
    "fastest",
    "linear_devices",
    "prefill_attention_flops",
    "prefill_flops",
    "prefill_linear_flops",
    "rate",
    "streamed",
]

_WEIGHT_ONLY = ("awq", "gptq", "marlin", "w4a16", "w8a16", "bitsandbytes", "bnb", "nf4", "int4", "autoround")
_PLAIN = ("bf16", "fp16", "fp32")
# FLOPs of a state's element and token: decay, outer product and readout; a delta rule also reads what it overwrites
# (Dao and Gu, arXiv 2405.21060, section 3; Yang et al., arXiv 2412.06464, equation 10).
_SCAN, _DELTA_SCAN = 5.0, 7.0
_INDEX_HEADS = 64  # of DeepSeek-V3.2's indexer, where the config names none (index_n_heads)
_ALL = 1e12  # tokens that touch every expert


# -------------------------------------------------------------------------------------------------------------- prefill


def prefill_flops(geometry: Geometry, tokens: float) -> float:
    """FLOPs of one prompt over all devices: linear layers and attention."""
    return prefill_linear_flops(geometry, tokens) + prefill_attention_flops(geometry, tokens)


def prefill_linear_flops(geometry: Geometry, tokens: float) -> float:
    """2 P_a N + 2 E and the scans of recurrent layers; the head sees only the last token."""
    linear = 2.0 * geometry.active_parameters * tokens + 2.0 * geometry.embedding_parameters
    return linear + _scan_flops(geometry) * tokens


def prefill_attention_flops(geometry: Geometry, tokens: float) -> float:
    """Scores and values of causal attention: 2 h (d_qk + d_v) for each pair of tokens that see each other.

    Sparse attention sees at most its indexer's top k, and the indexer scores every pair.
    """
    scores = sum(
        2.0 * layers * geometry.attention_heads * (group.qk_head_dim + group.v_head_dim) * _pairs(group, reach, tokens)
        for group in geometry.layers
        for layers, reach in _reaches(geometry, group)
    )
    return scores + _compressed_scores(geometry, tokens) + _index_flops(geometry) * tokens * (tokens + 1) / 2


def _compressed_scores(geometry: Geometry, tokens: float) -> float:
    """Scores against the entries of compressed layers, beside their windows'."""
    each = 4.0 * geometry.attention_heads
    return sum(
        each * group.count * group.qk_head_dim * _entry_pairs(geometry, group, tokens)
        for group in geometry.layers
        if group.kind == "compressed"
    )


def _entry_pairs(geometry: Geometry, group: Layers, tokens: float) -> float:
    """Pairs of a token and an entry before it, of which each stands for `compression` tokens."""
    most, ratio = _most_entries(geometry, group), group.compression
    if most is None or tokens <= most * ratio:
        return tokens * tokens / 2 / ratio
    return most * most * ratio / 2 + (tokens - most * ratio) * most


def _most_entries(geometry: Geometry, group: Layers) -> int | None:
    """The most entries that a token attends to: those that the indexer of its ratio chooses; None: all."""
    indexer = geometry.indexer
    return indexer.topk if indexer is not None and indexer.compression == group.compression else None


def _entries(geometry: Geometry, group: Layers, context: float) -> float:
    """Entries that a sequence at `context` attends to; none of layers that do not compress."""
    if group.kind != "compressed":
        return 0.0
    most = _most_entries(geometry, group)
    return min(context / group.compression, most) if most is not None else context / group.compression


def _pairs(group: Layers, reach: int | None, tokens: float) -> float:
    """Pairs of a token and a key it sees: N (N+1) / 2, capped by the reach, or within chunks."""
    if reach is None or tokens <= reach:
        return tokens * (tokens + 1) / 2
    if group.kind == "chunked":
        whole, rest = divmod(tokens, reach)
        return whole * reach * (reach + 1) / 2 + rest * (rest + 1) / 2
    return reach * (reach + 1) / 2 + (tokens - reach) * reach


def _reaches(geometry: Geometry, group: Layers) -> tuple[tuple[int, int | None], ...]:
    """Layers of the group with the most keys that a token attends to in them; None where it sees all.

    With an indexer every latent layer is sparse, some by another layer's choice; of grouped heads only those that have
    one (MiniMax-M3).
    """
    layers, indexer = group.count + group.readers, geometry.indexer
    if group.window is not None or indexer is None:
        return ((layers, group.window),)
    sparse = layers if group.latent_dim is not None else min(layers, indexer.count)
    return ((sparse, indexer.topk), (layers - sparse, None))


def _index_flops(geometry: Geometry) -> float:
    """FLOPs of the sparse-attention indexer for one pair of tokens, all layers: every head's product with the key, or
    with the key's share that is one token's.
    """
    indexer = geometry.indexer
    if indexer is None:
        return 0.0
    heads = geometry.extra.get("index_heads", _INDEX_HEADS)
    return 2.0 * indexer.count * heads * indexer.width / indexer.compression


def _scan_flops(geometry: Geometry) -> float:
    """FLOPs of all recurrent layers' states for one token: convolution and matrix."""
    return sum(layer.count * _layer_scan(layer) for layer in geometry.recurrent)


def _layer_scan(layer: Recurrent) -> float:
    channels = layer.heads * layer.head_dim + 2 * layer.groups * layer.state_size
    each = _DELTA_SCAN if layer.kind == "linear" else _SCAN
    return 2.0 * channels * layer.conv_kernel + each * layer.heads * layer.head_dim * layer.state_size


# --------------------------------------------------------------------------------------------------------------- decode


def decode_flops(geometry: Geometry, batch: float, context: float, longest: float | None = None) -> float:
    """FLOPs of one step over all devices; with `longest` as in `decode_kv_bytes`."""
    return decode_linear_flops(geometry, batch) + decode_attention_flops(geometry, batch, context, longest)


def decode_linear_flops(geometry: Geometry, batch: float) -> float:
    """2 (P_a + E) a token, and the scans of recurrent layers."""
    each = 2.0 * geometry.active_parameters + 2.0 * geometry.embedding_parameters
    return batch * (each + _scan_flops(geometry))


def decode_attention_flops(geometry: Geometry, batch: float, context: float, longest: float | None = None) -> float:
    """Scores and values; MLA scores against the latent itself (absorbed projections, DeepSeek-V2)."""
    rank = geometry.extra.get("kv_lora_rank", 0)
    attention = _index_flops(geometry) * context
    for group in geometry.layers:
        absorbed = group.kind == "mla"
        width = (group.latent_dim or 0) + rank if absorbed else group.qk_head_dim + group.v_head_dim
        attention += 2.0 * geometry.attention_heads * width * _seen(geometry, group, context, longest)
    return batch * attention


def decode_kv_bytes(
    geometry: Geometry, settings: Settings, batch: float, context: float, longest: float | None = None
) -> float:
    """Bytes of keys, values and recurrent state that one device moves in one step: its layers, its heads, its share of
    the batch and, under context parallelism, of the tokens.

    A recurrent layer reads its state and writes it back. A sparse-attention indexer reads all of its keys. Compressed
    layers read their window and entries, those with an indexer the entries that it chose. With the context of the
    `longest` sequence only what is certain counts (`_seen`).
    """
    cached = sum(_read_bytes(geometry, group, settings, context, longest) for group in geometry.layers)
    if geometry.indexer is not None:
        cached += geometry.indexer.count * geometry.indexer.token_bytes * context / geometry.indexer.compression
    state = sum(
        layer.count * (conv_bytes(layer, settings) + 2 * matrix_bytes(layer, settings)) for layer in geometry.recurrent
    )
    each = cached / settings.decode_context_parallel + state
    return batch / settings.data_parallel * each / settings.pipeline_parallel


def _read_bytes(geometry: Geometry, group: Layers, settings: Settings, context: float, longest: float | None) -> float:
    """Bytes of a group's cache that one sequence reads in one step: a compressed layer's window and entries."""
    return layer_bytes(group, settings) * group.compression * _seen(geometry, group, context, longest)


def _seen(geometry: Geometry, group: Layers, context: float, longest: float | None = None) -> float:
    """Keys and entries that a sequence at `context` attends to, summed over the group's layers.

    In chunks it sees from one key to a whole chunk, by where it stands: a whole one is reckoned with, and with
    `longest` none where that sequence is beyond its first chunk.
    """
    seen = (group.count + group.readers) * _entries(geometry, group, context)
    for layers, reach in _reaches(geometry, group):
        if reach is not None and longest is not None and group.kind == "chunked" and longest > reach:
            continue
        seen += layers * (context if reach is None else min(context, reach))
    return seen


def streamed(geometry: Geometry, settings: Settings) -> tuple[float, float]:
    """Bytes of weights that one device reads in a step: all but routed experts, and every routed expert together."""
    least = streamed_bytes(geometry, settings, 1, limit=True)
    if geometry.experts is None:
        return least, 0.0
    share = geometry.experts.per_token / geometry.experts.count
    if share >= 1:
        return 0.0, least
    experts = (streamed_bytes(geometry, settings, _ALL, limit=False) - least) / (1 - share)
    return least - share * experts, experts


# ---------------------------------------------------------------------------------------------------------------- rates


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
