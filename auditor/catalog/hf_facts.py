"""Config facts of a language model under one set of names, each a number that a model can have.

Hugging Face configuration classes name the same thing differently (n_embd, d_model, hidden_size), leave out what equals
a default of their class, and hold the language model in a nested config. `facts` returns them under Llama's names, with
every other key as it stands.
"""

from collections.abc import Callable, Mapping
from typing import Any

from auditor.catalog.architectures import FAMILIES, Family
from auditor.catalog.wrappers import TEXT_MODELS, WRAPPERS
from auditor.errors import UsageError

__all__ = ["MOST_LAYERS", "decoder", "facts", "text_config", "whole"]

MOST_LAYERS = 2_000
_LARGEST = 1 << 31
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_FROM_OUTER = ("tie_word_embeddings", "torch_dtype", "dtype")

# Llama's name: other classes' (transformers configuration_*.py, attribute_map; vllm/transformers_utils/configs).
_NAMES = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "num_attention_groups"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "block_ff_dim"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length"),
    "num_experts": ("moe_num_experts",),
    "num_experts_per_tok": (
        *("num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
    ),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "first_k_dense_replace": ("num_dense_layers", "moe_layer_start_index"),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers",),
}
_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
# Sizes that are checked where they are given, and may be null, 0 or absent.
_SIZES = (
    *("intermediate_size", "num_key_value_heads", "head_dim", "v_head_dim", "max_position_embeddings"),
    *("sliding_window", "sliding_window_size", "attention_chunk_size", "max_window_layers", "no_rope_layer_interval"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "index_head_dim", "index_topk"),
    *("index_topk_freq", "index_skip_topk_offset", "num_kv_shared_layers"),
    *("global_head_dim", "num_global_key_value_heads", "swa_head_dim", "swa_v_head_dim", "swa_num_key_value_heads"),
    *("swa_num_attention_heads", "global_attn_every_n_layers", "full_attention_interval"),
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    *("linear_conv_kernel_dim", "linear_num_heads", "linear_head_dim", "short_conv_kernel_size"),
    *("ssm_state_size", "state_size", "conv_kernel", "n_groups", "mamba_num_heads", "mamba_head_dim"),
    *("mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_n_heads", "mamba_d_head", "mamba_n_groups"),
    *("mamba_d_ssm", "n_mamba_heads", "mamba_headdim", "mamba_ngroups", "conv_L_cache", "conv_dim"),
    *("attn_layer_period", "attn_layer_offset", "attention_head_dim", "dense_intermediate_size"),
    *("intermediate_size_mlp", "moe_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim"),
    *("moe_shared_expert_intermediate_size", "shared_intermediate_size", "moe_latent_size", "expert_layer_period"),
    *("expert_layer_offset", "n_routed_experts", "num_local_experts", "num_experts", "num_experts_per_tok"),
    *("n_shared_experts", "first_k_dense_replace", "num_nextn_predict_layers", "hidden_size_per_layer_input"),
    *("vocab_size_per_layer_input", "expert_ffn_hidden_size", "routed_expert_hidden_size", "index_n_heads"),
    *("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval", "zero_expert_num", "num_mem_blocks"),
    *("adapter_rank", "mamba_dt_rank", "time_step_rank", "laurel_rank", "altup_num_inputs", "mamba_chunk_size"),
    *("o_lora_rank", "o_groups", "hc_mult", "num_hash_layers", "expansion_ratio"),
)
_LISTS = (
    *("layer_types", "layers_block_type", "mlp_only_layers", "mlp_layer_types", "hybrid_layer_pattern"),
    *("block_configs", "no_rope_layers", "attn_type_list", "full_attn_idxs", "attn_layer_indices"),
    *("hybrid_layer_ids", "sliding_windows", "indexer_types", "moe_layers", "compress_ratios"),
)
# Facts in an object of their own.
_GROUPS = ("attention_other_setting", "linear_attn_config", "sparse_attention_config")


def decoder(config: Mapping[str, Any], name: str) -> tuple[str, str]:
    """The architecture that a config names and that of the language model in it (the same where it wraps none).

    Raises UsageError: none named, not known, or no decoder that generates text.
    """
    listed = config.get("architectures")
    if not isinstance(listed, list) or not listed or not isinstance(listed[0], str):
        raise UsageError(f"{name}: config.json names no architecture (architectures: [...])")
    outer: str = listed[0]
    if config.get("is_encoder_decoder"):
        raise UsageError(f"{name}: {outer} is an encoder-decoder; only decoder-only models are computed")
    if outer in FAMILIES:
        return outer, outer
    if outer in WRAPPERS:
        inner = text_config(config)
        return outer, _wrapped(outer, {} if inner is config else inner, name)
    raise UsageError(f"{name}: {_unknown(outer)}")


def _wrapped(outer: str, inner: Mapping[str, Any], name: str) -> str:
    listed = inner.get("architectures")
    said = listed[0] if isinstance(listed, list) and listed else None
    kind = inner.get("model_type")
    for known in (said, TEXT_MODELS.get(kind) if isinstance(kind, str) else None):
        if isinstance(known, str) and known in FAMILIES:
            return known
    if isinstance(said, str) or not WRAPPERS[outer]:
        raise UsageError(f"{name}: {outer} holds a language model that is not known ({said or kind or 'not named'})")
    return WRAPPERS[outer]


def _unknown(architecture: str) -> str:
    """Why an architecture is refused: what it is, where its name tells."""
    kinds = (
        (("DeepseekV4",), "a kind of compressed attention whose caches this arithmetic does not cover"),
        (("Mamba", "Rwkv", "RWKV"), "a model without attention: its memory does not grow with the context"),
        (("Eagle", "MTP", "Medusa", "Speculator", "Draft", "DFlash", "DSpark"), "a draft model: give its target"),
        (("Mllama", "Whisper", "T5", "Bart"), "a model with cross-attention; only decoder-only models are computed"),
        (("ForSequenceClassification", "ForTokenClassification", "ForMaskedLM", "Reward", "Bert"), "no text generator"),
    )
    for words, what in kinds:
        if any(word in architecture for word in words):
            return f"architecture {architecture} is {what}"
    if architecture.endswith("Model"):
        return f"architecture {architecture} is an encoder or embedding model, not a text generator"
    return (
        f"architecture {architecture} is not known, so its layers, cache and weights cannot be computed "
        f"({len(FAMILIES) + len(WRAPPERS)} are: `audit catalog` lists models of theirs)"
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's own config: the nested one (Qwen Omni nests it twice), else the whole."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict) and inner:
            return text_config(inner) if key == "thinker_config" else inner
    return config


def facts(config: Mapping[str, Any], architecture: str, name: str) -> dict[str, Any]:
    """Facts of the language model `architecture` under Llama's names, over its class's defaults, nulls left out.

    Raises UsageError that names the key: missing, or no number that a model can have.
    """
    family = FAMILIES[architecture]
    inner = text_config(config)
    outer = {} if inner is config else {key: config[key] for key in _FROM_OUTER if config.get(key) is not None}
    found = _renamed({**outer, **inner}, family)
    adjust = _ADJUST.get(architecture)
    if adjust:
        adjust(found)
        found = {key: value for key, value in found.items() if value is not None}
    if family.positions:
        whole(found, "max_position_embeddings", name)
    return _complete(found, name)


def _renamed(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Llama's names over defaults; an explicit null takes a default away."""
    found = dict(config)
    for target, others in _NAMES.items():
        if found.get(target) is None:
            other = next((key for key in others if found.get(key) is not None), None)
            if other is not None:
                found[target] = found[other]
    merged = {**family.defaults, **found}
    sizes = {key: _one(merged[key]) for key in _SIZES if key in merged}
    return {key: value for key, value in {**merged, **sizes}.items() if value is not None}


def _one(value: Any) -> Any:
    """A size that is written once for every layer, as itself; "auto" is none."""
    if value == "auto":
        return None
    if isinstance(value, list) and 0 < len(value) <= MOST_LAYERS and all(item == value[0] for item in value):
        return value[0]
    return value


def _complete(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Derived defaults filled in (head size, KV heads), every size a sane whole number."""
    _check_forms(found, name)
    latent = bool(found.get("kv_lora_rank"))
    lacking = [key for key in (*_REQUIRED, *(_LATENT if latent else ())) if key not in found]
    if "intermediate_size" not in found and not _has_experts(found) and not found.get("block_configs"):
        lacking.append("intermediate_size")
    if lacking:
        raise UsageError(f"{name}: config.json lacks {', '.join(lacking)}")
    for key in (*_REQUIRED, *(_LATENT if latent else ())):
        found[key] = whole(found, key, name)
    for key in _SIZES:
        value = found.get(key)
        if not value and not isinstance(value, int):
            found.pop(key, None)
        elif value and not (key == "intermediate_size" and not _has_experts(found) and _widths(value, name)):
            found[key] = whole(found, key, name)
    for key in ("num_hidden_layers", "num_nextn_predict_layers"):
        if found.get(key, 0) > MOST_LAYERS:
            raise UsageError(f"{name}: config.json has {key}: {found[key]}, more than any model")
    heads = found["num_attention_heads"]
    if not found.get("num_key_value_heads"):
        found["num_key_value_heads"] = heads
    if not found.get("head_dim"):
        found["head_dim"] = found["hidden_size"] // heads
    whole(found, "head_dim", name)
    # Models that have experts in every layer leave the width of a dense MLP out.
    found.setdefault("intermediate_size", found.get("moe_intermediate_size", 0))
    return found


def _check_forms(found: dict[str, Any], name: str) -> None:
    """Lists hold an entry a layer or fewer, groups of facts are objects, whatever the config makes of them."""
    sparse = found.pop("moe_layers_enum", None)
    if isinstance(sparse, str) and sparse:  # Step-3.5 writes numbers of layers as one text
        found["moe_layers"] = [
            int(number) if number.strip().isdecimal() else -1 for number in sparse[:10_000].split(",")
        ]
    every = found.get("moe_layer_freq")
    for key in (*_LISTS, *(["moe_layer_freq"] if every is not None and not isinstance(every, int) else [])):
        value = found.get(key)
        if value is not None and (not isinstance(value, list) or len(value) > MOST_LAYERS):
            raise UsageError(f"{name}: config.json has {key}: {_short(value)}, a list (one entry a layer) is needed")
    last = found.get("moe_layer_end_index")
    if not isinstance(last, int) or last < 0:  # -1: the last layer
        found.pop("moe_layer_end_index", None)
    for key in _GROUPS:
        group = found.get(key, {})
        if not isinstance(group, dict):
            raise UsageError(f"{name}: config.json has {key}: {_short(group)}, an object is needed")
        for fact in group:
            if fact.startswith("num_") or fact.endswith(("_dim", "_size", "_heads")):
                whole(group, fact, name)


def _widths(value: Any, name: str) -> bool:
    """Whether the MLP has a width of its own in each layer (Gemma 3n), all of them checked."""
    if not isinstance(value, list) or len(value) > MOST_LAYERS:
        return False
    return all(whole({"intermediate_size": width}, "intermediate_size", name) for width in value)


def _has_experts(found: Mapping[str, Any]) -> bool:
    return any(found.get(key) for key in ("n_routed_experts", "num_local_experts", "num_experts"))


def whole(found: Mapping[str, Any], key: str, name: str) -> int:
    """The value of a key as a positive whole number. Raises UsageError that names it, also where it is missing."""
    value = found.get(key)
    if value is None:
        raise UsageError(f"{name}: config.json lacks {key}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
        raise UsageError(f"{name}: config.json has {key}: {_short(found[key])}, a positive whole number is needed")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _chatglm(found: dict[str, Any]) -> None:
    found["vocab_size"] = found.get("padded_vocab_size", found.get("vocab_size"))
    found.setdefault("head_dim", found.get("kv_channels"))
    found.setdefault("attention_bias", found.get("add_qkv_bias"))
    if found.get("multi_query_attention"):
        found["num_key_value_heads"] = found.get("multi_query_group_num", 1)


def _falcon(found: dict[str, Any]) -> None:
    """One KV head for multi_query unless the new decoder architecture (num_kv_heads) is on."""
    if not found.get("new_decoder_architecture"):
        found["num_key_value_heads"] = 1 if found.get("multi_query", True) else found.get("num_attention_heads")
    found.setdefault("intermediate_size", _times(found.get("hidden_size"), 4))


def _four_wide(found: dict[str, Any]) -> None:
    """GPT-2, GPT-J, BLOOM: an MLP of four times the hidden size unless it says otherwise."""
    found.setdefault("intermediate_size", _times(found.get("hidden_size"), 4))


def _mpt(found: dict[str, Any]) -> None:
    ratio = found.get("expansion_ratio", 4)
    found.setdefault("intermediate_size", _times(found.get("hidden_size"), ratio if isinstance(ratio, int) else 4))


def _bigcode(found: dict[str, Any]) -> None:
    _four_wide(found)
    if found.get("multi_query", True):
        found["num_key_value_heads"] = 1


def _qwen1(found: dict[str, Any]) -> None:
    """Qwen 1 writes the gate's and the up projection's widths in one."""
    found.setdefault("head_dim", found.get("kv_channels"))
    if isinstance(found.get("intermediate_size"), int):
        found["intermediate_size"] = found["intermediate_size"] // 2


def _dbrx(found: dict[str, Any]) -> None:
    attention, mlp = found.get("attn_config"), found.get("ffn_config")
    if isinstance(attention, dict):
        found["num_key_value_heads"] = attention.get("kv_n_heads", found.get("num_attention_heads"))
    if isinstance(mlp, dict):
        found["intermediate_size"] = mlp.get("ffn_hidden_size")
        found["num_experts"], found["num_experts_per_tok"] = mlp.get("moe_num_experts"), mlp.get("moe_top_k")


def _lfm2(found: dict[str, Any]) -> None:
    """Lfm2MLP: two thirds of the block's width, times its multiplier, rounded up (modeling_lfm2.py)."""
    width, step = found.get("intermediate_size"), found.get("block_multiple_of", 256)
    if found.get("block_auto_adjust_ff_dim", True) and isinstance(width, int) and isinstance(step, int) and step > 0:
        scale = found.get("block_ffn_dim_multiplier", 1.0)
        width = int((scale if isinstance(scale, int | float) and 0 < scale < 100 else 1.0) * int(2 * width / 3))
        found["intermediate_size"] = step * -(-width // step)
    if "tie_embedding" in found:
        found["tie_word_embeddings"] = found["tie_embedding"]


def _nemotron_h(found: dict[str, Any]) -> None:
    """The pattern tells how many layers there are; its attention heads may be named apart."""
    layers = found.get("layers_block_type") or found.get("hybrid_override_pattern") or found.get("block_configs")
    if isinstance(layers, list | str) and layers:
        found["num_hidden_layers"] = len(layers)
    found.setdefault("head_dim", found.get("attention_head_dim"))


def _zamba2(found: dict[str, Any]) -> None:
    """The shared attention reads hidden state and embedding side by side: heads are twice as wide."""
    heads, hidden = found.get("num_attention_heads"), found.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        found["head_dim"] = found.get("attention_head_dim") or 2 * hidden // heads
    _four_wide(found)


def _ernie(found: dict[str, Any]) -> None:
    """ERNIE-VL writes experts as [text, vision]; text passes through the first."""
    for key in ("num_experts", "moe_intermediate_size", "n_shared_experts"):
        value = found.get(key)
        if isinstance(value, list) and len(value) == 2:
            found[key] = value[0]


def _grok(found: dict[str, Any]) -> None:
    """Grok 2 has a dense MLP beside the experts of each layer (residual_moe), as Gemma 4 has."""
    if found.get("residual_moe"):
        found["enable_moe_block"] = True


def _longcat(found: dict[str, Any]) -> None:
    """Two attention sublayers in each of num_layers blocks."""
    if isinstance(found.get("num_layers"), int):
        found["num_hidden_layers"] = 2 * found["num_layers"]
    found.setdefault("moe_intermediate_size", found.get("expert_ffn_hidden_size"))


def _times(value: Any, factor: int) -> Any:
    return value * factor if isinstance(value, int) else value


_ADJUST: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "BloomForCausalLM": _four_wide,
    "ChatGLMForConditionalGeneration": _chatglm,
    "ChatGLMModel": _chatglm,
    "DbrxForCausalLM": _dbrx,
    "Ernie4_5_MoeForCausalLM": _ernie,
    "FalconForCausalLM": _falcon,
    "GPT2LMHeadModel": _four_wide,
    "GPTBigCodeForCausalLM": _bigcode,
    "GPTJForCausalLM": _four_wide,
    "Grok1ForCausalLM": _grok,
    "Lfm2ForCausalLM": _lfm2,
    "Lfm2MoeForCausalLM": lambda found: found.update(
        {"tie_word_embeddings": found["tie_embedding"]} if "tie_embedding" in found else {}
    ),
    "LongcatFlashForCausalLM": _longcat,
    "MPTForCausalLM": _mpt,
    "MptForCausalLM": _mpt,
    "NemotronHForCausalLM": _nemotron_h,
    "NemotronHPuzzleForCausalLM": _nemotron_h,
    "QWenLMHeadModel": _qwen1,
    "Zamba2ForCausalLM": _zamba2,
}
