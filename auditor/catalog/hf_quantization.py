"""How a checkpoint is quantised, from its config's quantization_config: the method in one word, and part by part.

Sources: compressed-tensors (config_groups, targets, ignore), NVIDIA ModelOpt (quant_algo, quantized_layers, ignore or
exclude_modules; hf_quant_config.json), transformers' own methods (quant_method with modules_to_not_convert), AutoRound
and GPTQ (bits), as vllm/model_executor/layers/quantization reads them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Quantization", "quantization"]

_PARTS = ("attention", "recurrent", "dense", "shared", "experts", "head")
# The part that a module's name belongs to, by the first pattern that matches; None: norms, routers, single projections
# of attention that say nothing of the rest, and what is no language model.
_NAMED: tuple[tuple[str, str | None], ...] = (
    (r"norm|bias|index|router|visual|vision|audio|embed|projector|mtp|eh_proj|conv1d|(mlp|moe|ffn)\.gate$", None),
    (r"(kv_[ab]|[^q]k|[^q]v|fused_qkv_a)_proj|shared_expert_gate", None),
    (r"shared_?experts?", "shared"),
    (r"experts", "experts"),
    (r"linear_attn|mamba|mixer\.(in|out)_proj|\.conv\.", "recurrent"),
    (r"self_attn|attention|\.attn\b|mixer\.[qo]_proj", "attention"),
    (r"mlp|feed_forward|\.ffn", "dense"),
    (r"lm_head|^head$|output$", "head"),
)
_NAMED_PATTERNS = tuple((re.compile(pattern), part) for pattern, part in _NAMED)
_LAYER = re.compile(r"(?:layers|h|blocks)\.(\d+)(?:\D|$)")
_DIGITS = re.compile(r"\d+")
_MOST_NAMES = 100_000


class Quantization(NamedTuple):
    """`method`: the format of most weights in one word (None: not quantised). `formats` by part, as Geometry has them.
    `kv_format`: what the checkpoint says of the KV cache ("fp8", "nvfp4"), None where it says nothing. `repacked`: by
    ModelOpt.
    """

    method: str | None
    formats: dict[str, str]
    kv_format: str | None
    repacked: bool = False


def quantization(config: Mapping[str, Any], text: Mapping[str, Any], sizes: Mapping[str, int]) -> Quantization:
    """What quantization_config (or the older compression_config) says of a model.

    `text` is the nested language config; `sizes` tells in how many layers each part is (parts as in Geometry.formats).
    """
    settings = next(
        (
            found[key]
            for found in (config, text)
            for key in ("quantization_config", "compression_config")
            if isinstance(found.get(key), dict)
        ),
        None,
    )
    if not settings:
        return Quantization(None, {}, None)
    formats = _formats(settings, sizes)
    if formats.get("experts") == "fp8" and str(text.get("expert_dtype")) == "fp4":  # DeepSeek-V4
        formats["experts"] = "mxfp4"
    main = formats.get("experts" if sizes.get("experts") else "dense", "none")
    method = main if main != "none" else next((word for word in formats.values() if word != "none"), None)
    return Quantization(method, formats, _kv_format(settings), _by_modelopt(settings))


def _formats(settings: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, str]:
    method = str(settings.get("quant_method", "")).lower().replace("_", "-")
    named = _by_name(settings)
    if named:
        rest = "fp8" if method == "fp8" else "none"  # fp8 checkpoints whose experts alone were quantised further
        return {part: named.get(part, "none" if part == "head" else rest) for part in _PARTS}
    word = _word(method, settings)
    if word is None:
        return {}
    if method in ("mxfp4", "gpt-oss-mxfp4"):
        return {part: word if part == "experts" else "none" for part in _PARTS}
    kept = _left_out(_excluded(settings), sizes)
    if method != "compressed-tensors" and not method.startswith("modelopt") and settings.get("lm_head") is not True:
        kept = kept | {"head"}
    return {part: "none" if part in kept else word for part in _PARTS}


def _word(method: str, settings: Mapping[str, Any]) -> str | None:
    """The one format of everything that is quantised."""
    algorithm = str(settings.get("quant_algo") or "").lower()
    if method == "compressed-tensors":
        return _group_word(next(iter(_groups(settings)), None), str(settings.get("format", "")))
    if method.startswith("modelopt") or (not method and algorithm):
        if "mxfp8" in algorithm or "mxfp4" in algorithm:
            return "mxfp8" if "mxfp8" in algorithm else "mxfp4"
        return "nvfp4" if "fp4" in algorithm + method else ("int4" if "w4a16" in algorithm else "fp8")
    return _plain_word(method, settings)


def _plain_word(method: str, settings: Mapping[str, Any]) -> str | None:
    bits = settings.get("bits", settings.get("w_bit", 4))
    if method in ("bitsandbytes", "bnb"):
        return "bnb-4bit" if settings.get("load_in_4bit") else "bnb-8bit"
    if method in ("gptq", "awq", "auto-round", "autoround", "intel/auto-round", "gptq-marlin", "awq-marlin"):
        word = "awq" if method.startswith("awq") else "gptq"
        return "int8" if bits == 8 else _with_group(word, settings.get("group_size", settings.get("q_group_size")))
    if method == "quark":
        return _quark(settings)
    same = {"fbgemm-fp8": "fp8", "finegrained-fp8": "fp8", "deepseek-v4-fp8": "fp8", "gpt-oss-mxfp4": "mxfp4"}
    return same.get(method, method or None)


def _groups(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def _group_word(group: Mapping[str, Any] | None, form: str) -> str | None:
    """The format of one group of compressed-tensors: type and bits of its weights."""
    weights = group.get("weights") if group else None
    if not isinstance(weights, dict):
        return None
    if "mxfp4" in f"{form} {group.get('format') if group else ''}":
        return "mxfp4"
    kind = f"{weights.get('type')}{weights.get('num_bits')}"
    word = {"float8": "fp8", "int8": "int8", "int4": "int4", "float4": "nvfp4"}.get(kind)
    return _with_group(word, weights.get("group_size")) if word == "int4" else word


def _with_group(word: str, size: object) -> str:
    """The word of a format whose scales serve another number of values than 128 ("int4-g32")."""
    return f"{word}-g{size}" if isinstance(size, int) and size > 0 and size != 128 else word


def _quark(settings: Mapping[str, Any]) -> str | None:
    """AMD Quark: the data type of weights in its global configuration."""
    found = settings.get("global_quant_config")
    weight = found.get("weight") if isinstance(found, dict) else None
    if isinstance(weight, list):
        weight = weight[0] if weight else None
    kind = str(weight.get("dtype", "")) if isinstance(weight, dict) else ""
    return next((word for mark, word in (("fp4", "mxfp4"), ("fp8", "fp8"), ("int4", "int4")) if mark in kind), "int8")


def _by_name(settings: Mapping[str, Any]) -> dict[str, str]:
    """Formats of parts whose modules are listed one by one: ModelOpt's quantized_layers, or several groups."""
    listed = settings.get("quantized_layers")
    groups: list[tuple[str | None, Any]] = []
    if isinstance(listed, dict):
        modules: dict[str, list[Any]] = {}
        for module, said in listed.items():
            algorithm = said.get("quant_algo") if isinstance(said, dict) else None
            if isinstance(algorithm, str):
                modules.setdefault(algorithm, []).append(module)
        groups = [(_word("modelopt", {"quant_algo": algorithm}), names) for algorithm, names in modules.items()]
    elif len(_groups(settings)) > 1:
        form = str(settings.get("format", ""))
        groups = [(_group_word(group, form), group.get("targets")) for group in _groups(settings)]
    return {part: word for word, names in groups if word and isinstance(names, list) for part in _parts(names)}


def _excluded(settings: Mapping[str, Any]) -> list[Any]:
    """Names and patterns of what is not quantised, by the key that each method has for them."""
    keys = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules")
    return [name for key in keys if isinstance(settings.get(key), list) for name in settings[key]]


def _parts(names: Sequence[Any]) -> dict[str, set[str]]:
    """The parts that names or patterns speak of, and in which layers ("*": in all)."""
    found: dict[str, set[str]] = {}
    alike: dict[str, str | None] = {}
    for name in names[:_MOST_NAMES]:
        if not isinstance(name, str) or ("experts" in found and ".experts." in name and "shared" not in name):
            continue  # checkpoints list thousands of experts: one tells of all
        shape = _DIGITS.sub("0", name)
        if shape not in alike:
            alike[shape] = _part(shape)
        part = alike[shape]
        if part:
            number = None if name.startswith("re:") else _LAYER.search(name)
            found.setdefault(part, set()).add(number.group(1) if number else "*")
    return found


def _part(name: str) -> str | None:
    plain = name.replace("\\", "").lower().rstrip("*.$ ")
    return next((part for pattern, part in _NAMED_PATTERNS if pattern.search(plain)), None)


def _left_out(names: Sequence[Any], sizes: Mapping[str, int]) -> set[str]:
    """Parts that are not quantised: excluded by a pattern for all layers, or in at least half of their own."""
    return {
        part
        for part, layers in _parts(names).items()
        if "*" in layers or part == "experts" or 2 * len(layers) >= max(2, sizes.get(part, 0))
    }


def _by_modelopt(settings: Mapping[str, Any]) -> bool:
    producer = settings.get("producer")
    named = str(producer.get("name")) if isinstance(producer, dict) else ""
    return "modelopt" in f"{settings.get('quant_method')} {named}".lower()


def _kv_format(settings: Mapping[str, Any]) -> str | None:
    """ModelOpt's kv_cache_quant_algo, or a scheme of 8 or 4 bits (vllm/utils/torch_utils.py,
    get_kv_cache_quant_algo_string).
    """
    said = settings.get("kv_cache_scheme") or settings.get("kv_cache_quant_algo")
    if isinstance(said, dict):
        said = f"fp{said.get('num_bits')}" if said.get("type") == "float" else None
    word = str(said or "").lower()
    return "nvfp4" if "fp4" in word else ("fp8" if "fp8" in word else None)
