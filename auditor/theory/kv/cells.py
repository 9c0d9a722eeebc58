"""Bytes that one token's keys and values take, and the pool that an engine makes of them."""

from dataclasses import dataclass

from auditor.theory.kv.compressed import entry_bytes
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = [
    "KvPool",
    "all_bytes_per_token",
    "attention_parallel",
    "bytes_per_token",
    "draft_layers",
    "kv_heads",
    "layer_bytes",
    "stage_layers",
]

# DeepSeek's packed latents, bytes of one token: 512 one-byte values, 4 fp32 scales and 64 two-byte rotary values; half
# a byte a value with 8-bit scales and rotary values (vllm/v1/attention/backends/mla/flashmla_sparse.py).
_PACKED_LATENTS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
# Formats with an fp32 scale for each token, head and side (get_kv_quant_mode in vllm/v1/kv_cache_interface.py).
_SCALED = "_per_token_head"
_SCALES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """The KV cache of one data-parallel rank, per device.

    `tokens` is the figure that the engine itself reports (vLLM kv_cache_size_tokens, SGLang max_total_num_tokens,
    llama.cpp cells over all slots). `blocks` and `block_size` are None where the engine has no blocks. `bytes` is what
    the pool takes on one device, `bytes_per_token` what one more token of a long request costs there with no rounding
    (every layer counted, sliding windows as if open). `rule` says how it was derived, in words.
    `sliding_tokens` are those that sliding layers keep where they have a pool of their own (SGLang, llama.cpp).
    `state_slots` are the recurrent states that stand beside the tokens and `state_bytes` what they take, a part of
    `bytes` (SGLang, llama.cpp; vLLM keeps states in blocks). `refusal` says why the engine does not start with this
    pool; None where it does, or its engine has no such rule here.
    """

    tokens: int
    blocks: int | None
    block_size: int | None
    bytes: float
    bytes_per_token: float
    rule: str
    sliding_tokens: int | None = None
    state_slots: int | None = None
    state_bytes: float = 0.0
    refusal: str | None = None


def attention_parallel(settings: Settings) -> int:
    """Devices that share one request's attention: TP, or TP / DP where data-parallel ranks live inside the TP group.

    SGLang's DP attention runs DP ranks on the TP devices themselves (python/sglang/srt/layers/dp_attention.py:
    attn_tp_size = tp_size // dp_size); it is told from plain data parallelism by the number of devices.
    """
    ranks = settings.tensor_parallel * settings.data_parallel * settings.pipeline_parallel
    if settings.data_parallel > 1 and ranks > settings.devices:
        return max(1, settings.tensor_parallel // settings.data_parallel)
    return settings.tensor_parallel


def kv_heads(group: Layers, settings: Settings) -> int:
    """KV heads on one device: h / TP, and never below one: beyond h devices the heads are replicated."""
    return max(1, group.kv_heads // attention_parallel(settings))


def draft_layers(geometry: Geometry, settings: Settings) -> int:
    """Full layers that drafts keep beside the target's, like those: as the settings say, else one where tokens are
    drafted; none where a draft model has layers of its own (`Settings.draft`).

    None for Gemma-4's assistant, whose layers only read the target's cache (vllm/model_executor/models/gemma4_mtp.py,
    SGLang's srt/models/gemma4_mtp.py).
    """
    if settings.draft_layers is not None or settings.draft:
        return settings.draft_layers or 0
    return int(settings.speculative_tokens > 0 and not geometry.architecture.startswith("Gemma4"))


def layer_bytes(group: Layers, settings: Settings) -> float:
    """Bytes that one token takes in one layer of the group, on one device.

    heads x (d_k + d_v) x b for MHA, GQA and MQA; (kv_lora_rank + qk_rope_head_dim) x b for MLA, whose latent is neither
    doubled nor divided by TP (DeepSeek-V2, arXiv 2405.04434, section 2.1; vLLM MLAAttentionSpec). Of a compressed layer
    the share of an entry; its window does not grow.
    """
    scales = _SCALES if settings.kv_cache_dtype.endswith(_SCALED) else 0
    if group.latent_dim is not None and group.window is not None:  # DeepSeek-V4's
        return entry_bytes(settings) / group.compression
    if group.latent_dim is not None:
        packed = _PACKED_LATENTS.get(settings.kv_cache_dtype)
        return packed or group.latent_dim * settings.kv_bytes + scales
    return kv_heads(group, settings) * ((group.qk_head_dim + group.v_head_dim) * settings.kv_bytes + scales)


def stage_layers(group: Layers, settings: Settings) -> int:
    """Layers of the group on the pipeline stage that holds most."""
    return -(-group.count // settings.pipeline_parallel)


def bytes_per_token(group: Layers, settings: Settings) -> float:
    """Bytes that one token takes in all layers of the group that one device holds."""
    return stage_layers(group, settings) * layer_bytes(group, settings)


def all_bytes_per_token(geometry: Geometry, settings: Settings) -> float:
    """Bytes that one token takes in every layer that one device holds, the keys of sparse attention's indexer too."""
    indexer = geometry.indexer
    keys = -(-indexer.count // settings.pipeline_parallel) * indexer.token_bytes / indexer.compression if indexer else 0
    return sum(bytes_per_token(group, settings) for group in geometry.layers) + keys
