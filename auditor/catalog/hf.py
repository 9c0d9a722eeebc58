"""Model geometry from a Hugging Face config.json. What is not known is refused with what is missing, never guessed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.catalog import safetensors
from auditor.catalog.architectures import FAMILIES, Family
from auditor.catalog.parameters import Counts, count
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Experts, Geometry, LayerKind, Layers

__all__ = ["geometry", "read"]

_MOST_CONFIG = 16 << 20
_LARGEST = 1 << 31
_TEXT_KEYS = ("text_config", "llm_config", "language_config")
_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_OPTIONAL = (
    *("max_position_embeddings", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern"),
    *("max_window_layers", "attention_chunk_size", "q_lora_rank", "intermediate_size_mlp", "moe_intermediate_size"),
    *("n_routed_experts", "num_local_experts", "num_experts", "num_experts_per_tok", "experts_per_token"),
    *("n_shared_experts", "shared_expert_intermediate_size", "first_k_dense_replace", "num_nextn_predict_layers"),
)
_LISTS = ("layer_types", "mlp_only_layers")
_MOST_LAYERS = 10_000
_UNSUPPORTED = {  # a key that marks memory this arithmetic does not know, and what it is
    "index_topk": "a sparse-attention indexer with its own cache",
    "linear_num_key_heads": "linear-attention layers with recurrent state",
    "linear_attn_config": "linear-attention layers with recurrent state",
    "mamba_d_state": "Mamba layers with recurrent state",
    "ssm_state_size": "Mamba layers with recurrent state",
    "state_size": "Mamba layers with recurrent state",
    "conv_L_cache": "short-convolution layers with recurrent state",
    "cross_attention_layers": "cross-attention layers",
    "num_kv_shared_layers": "layers that share keys and values",
    "global_head_dim": "layers with differing head sizes",
    "compress_ratios": "compressed attention layers",
}


def read(path: str | Path) -> Geometry:
    """Geometry of a model folder or its config.json, with true weight bytes where index or tensor headers tell them.

    Raises UsageError: not found, not JSON, or an architecture that is not known.
    """
    place = Path(path).expanduser()
    config_file = place / "config.json" if place.is_dir() else place
    if not config_file.is_file():
        raise UsageError(f"{config_file}: no such file (a model folder needs its config.json)")
    try:
        if config_file.stat().st_size > _MOST_CONFIG:
            raise UsageError(f"{config_file}: larger than any config.json, is this the right file?")
        config = json.loads(config_file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{config_file}: not a readable config.json ({error})") from error
    if not isinstance(config, dict):
        raise UsageError(f"{config_file}: not a config.json (a JSON object is needed)")
    folder = config_file.resolve().parent
    config = _with_quantization_file(config, folder / "hf_quant_config.json")
    try:
        return geometry(config, folder.name, safetensors.weight_bytes(folder), source=str(config_file))
    except UsageError as error:
        raise UsageError(str(error) if str(folder) in str(error) else f"{config_file}: {error}") from error


def _with_quantization_file(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """ModelOpt checkpoints may keep their method in a file of its own (hf_quant_config.json)."""
    if "quantization_config" in config or not path.is_file() or path.stat().st_size > _MOST_CONFIG:
        return config
    try:
        found = json.loads(path.read_bytes())["quantization"]["quant_algo"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable quantisation file ({error})") from error
    return {**config, "quantization_config": {"quant_method": "modelopt", "quant_algo": found}}


def geometry(config: Mapping[str, Any], name: str, weight_bytes: int | None = None, source: str = "") -> Geometry:
    """Geometry from config facts. Raises UsageError that says which architecture or key is missing or unknown."""
    architecture = _architecture(config, name)
    family = FAMILIES[architecture]
    text = _text(config, family)
    _refuse_unknown_memory(text, name)
    facts = _complete(text, name)
    counts = count(family, facts)
    embedding = facts["vocab_size"] * facts["hidden_size"]
    tied = bool(facts.get("tie_word_embeddings", family.tied))
    vision = "vision_config" in config
    method = _quantization(config, text)
    notes = ("the vision encoder's weights and activations are not counted",) if vision and not weight_bytes else ()
    return Geometry(
        name=name,
        architecture=architecture,
        layers=_layers(family, facts, name),
        hidden_size=facts["hidden_size"],
        vocab_size=facts["vocab_size"],
        attention_heads=facts["num_attention_heads"],
        parameters=counts.stack + embedding * (1 if tied else 2),
        active_parameters=counts.active,
        embedding_parameters=embedding,
        tied_embeddings=tied,
        experts=_experts(counts),
        max_position=facts.get("max_position_embeddings"),
        dtype=str(facts.get("torch_dtype") or facts.get("dtype") or "bfloat16"),
        quantization=method,
        weight_bytes=weight_bytes,
        vision=vision,
        source=source,
        notes=notes,
        extra=_extra(counts, facts),
    )


def _architecture(config: Mapping[str, Any], name: str) -> str:
    listed = config.get("architectures")
    if not isinstance(listed, list) or not listed or not isinstance(listed[0], str):
        raise UsageError(f"{name}: config.json names no architecture (architectures: [...])")
    if config.get("is_encoder_decoder"):
        raise UsageError(f"{name}: {listed[0]} is an encoder-decoder; only decoder-only models are computed")
    if listed[0] not in FAMILIES:
        raise UsageError(
            f"{name}: architecture {listed[0]} is not known, so its layers, cache and weights cannot be computed; "
            f"known are {', '.join(sorted(FAMILIES))}"
        )
    return listed[0]


def _text(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The language model's own facts: the nested text config over defaults, with what the outer one adds."""
    inner = next((config[key] for key in _TEXT_KEYS if isinstance(config.get(key), dict)), None)
    if inner is None:
        return {**family.defaults, **{key: value for key, value in config.items() if value is not None}}
    outer = {key: config[key] for key in ("tie_word_embeddings", "torch_dtype", "dtype") if config.get(key) is not None}
    return {**family.defaults, **outer, **{key: value for key, value in inner.items() if value is not None}}


def _refuse_unknown_memory(text: Mapping[str, Any], name: str) -> None:
    for key, what in _UNSUPPORTED.items():
        if text.get(key):
            raise UsageError(f"{name}: config.json has {key}: {what}, which this arithmetic does not cover")


def _complete(text: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Facts with derived defaults filled in (head size, KV heads), every size a sane whole number."""
    facts = dict(text)
    required = (*_REQUIRED, *(_LATENT if facts.get("kv_lora_rank") else ()))
    lacking = [key for key in required if key not in facts]
    if lacking:
        raise UsageError(f"{name}: config.json lacks {', '.join(lacking)}")
    facts.setdefault("num_key_value_heads", facts["num_attention_heads"])
    heads = _whole(facts, "num_attention_heads", name)
    facts.setdefault("head_dim", _whole(facts, "hidden_size", name) // heads)
    for key in (*required, "num_key_value_heads", "head_dim", *(key for key in _OPTIONAL if facts.get(key))):
        _whole(facts, key, name)
    if facts["num_hidden_layers"] > _MOST_LAYERS:
        raise UsageError(
            f"{name}: config.json has num_hidden_layers: {facts['num_hidden_layers']}, more than any model"
        )
    for key in _LISTS:
        if not isinstance(facts.get(key) or [], list):
            raise UsageError(f"{name}: config.json has {key}: {facts[key]!r}, a list is needed")
    return facts


def _whole(facts: Mapping[str, Any], key: str, name: str) -> int:
    value = facts[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _LARGEST:
        raise UsageError(f"{name}: config.json has {key}: {value!r}, a positive whole number is needed")
    return value


def _layers(family: Family, facts: Mapping[str, Any], name: str) -> tuple[Layers, ...]:
    kinds = _kinds(family, facts, name)
    latent = facts["kv_lora_rank"] + facts["qk_rope_head_dim"] if facts.get("kv_lora_rank") else None
    size = facts["head_dim"]
    shape: dict[str, Any] = (
        {
            "kv_heads": 1,
            "qk_head_dim": facts["qk_nope_head_dim"] + facts["qk_rope_head_dim"],
            "v_head_dim": facts["v_head_dim"],
            "latent_dim": latent,
        }
        if latent
        else {"kv_heads": facts["num_key_value_heads"], "qk_head_dim": size, "v_head_dim": size}
    )
    return tuple(
        Layers(kind=kind, count=kinds.count((kind, window)), window=window, **shape)
        for kind, window in dict.fromkeys(kinds)
    )


def _kinds(family: Family, facts: Mapping[str, Any], name: str) -> list[tuple[LayerKind, int | None]]:
    """Kind and window of every layer."""
    layers: int = facts["num_hidden_layers"]
    if facts.get("kv_lora_rank"):
        return [("mla", None)] * layers
    window = facts.get("sliding_window")
    if facts.get("layer_types") and family.window != "none":
        named = [_named_kind(kind, facts, name) for kind in facts["layer_types"][:layers]]
        if len(named) < layers:
            raise UsageError(f"{name}: config.json has {layers} layers but {len(named)} layer_types")
        return named
    full: tuple[LayerKind, int | None] = ("full", None)
    sliding: tuple[LayerKind, int | None] = ("sliding", window)
    if family.window == "chunked":
        chunk = facts.get("attention_chunk_size")
        return [full if (i + 1) % 4 == 0 or not chunk else ("chunked", chunk) for i in range(layers)]
    if not window or family.window == "none":
        return [full] * layers
    if family.window == "all":
        return [sliding] * layers
    if family.window == "alternate":
        return [full if i % 2 else sliding for i in range(layers)]
    if family.window == "pattern":
        every = facts.get("sliding_window_pattern") or facts.get("_sliding_window_pattern") or 6
        return [sliding if (i + 1) % every else full for i in range(layers)]
    first = facts.get("max_window_layers", layers) if facts.get("use_sliding_window") else layers
    return [full if i < first else sliding for i in range(layers)]


def _named_kind(kind: object, facts: Mapping[str, Any], name: str) -> tuple[LayerKind, int | None]:
    if kind == "full_attention":
        return "full", None
    if kind == "sliding_attention" and facts.get("sliding_window"):
        return "sliding", facts["sliding_window"]
    if kind == "chunked_attention" and facts.get("attention_chunk_size"):
        return "chunked", facts["attention_chunk_size"]
    raise UsageError(f"{name}: layer type {kind!r} is not known, or its window is missing")


def _experts(counts: Counts) -> Experts | None:
    if not counts.expert_layers:
        return None
    return Experts(
        count=counts.experts,
        per_token=counts.per_token,
        layers=counts.expert_layers,
        parameters=counts.expert,
    )


def _extra(counts: Counts, facts: Mapping[str, Any]) -> dict[str, int]:
    """What weights and roofline need beyond the common fields; see `auditor.theory.weights` for their meaning."""
    extra = {
        "attention_parameters": counts.attention,
        "unquantized_parameters": counts.unquantized,
        "replicated_parameters": counts.replicated,
    }
    if counts.next_token:
        extra["next_token_parameters"] = counts.next_token
        extra["next_token_layers"] = facts["num_nextn_predict_layers"]
    if facts.get("kv_lora_rank"):
        extra["kv_lora_rank"] = facts["kv_lora_rank"]
    return extra


def _quantization(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    """The checkpoint's method in one word: fp8, nvfp4, mxfp4, awq, gptq, int8, int4, bnb-4bit, bnb-8bit."""
    settings = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(settings, dict):
        return None
    method = str(settings.get("quant_method", "")).lower()
    if method in {"compressed-tensors", "compressed_tensors"}:
        return _compressed(settings)
    if method.startswith("modelopt"):
        algorithm = str(settings.get("quant_algo", "")).lower()
        return algorithm if algorithm in {"fp8", "nvfp4"} else ("nvfp4" if "fp4" in algorithm + method else "fp8")
    if method in {"bitsandbytes", "bnb"}:
        return "bnb-4bit" if settings.get("load_in_4bit") else "bnb-8bit"
    if method in {"gptq", "awq", "auto-round", "autoround"}:
        family = "awq" if method == "awq" else "gptq"
        return family if settings.get("bits", 4) == 4 else "int8"
    return {"fbgemm_fp8": "fp8"}.get(method, method or None)


def _compressed(settings: Mapping[str, Any]) -> str | None:
    """compressed-tensors: the first group's weights tell bits and type."""
    groups = settings.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    kind = f"{weights.get('type')}{weights.get('num_bits')}"
    return {"float8": "fp8", "int8": "int8", "int4": "int4", "float4": "nvfp4"}.get(kind)
