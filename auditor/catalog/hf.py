"""Model geometry from a Hugging Face config.json. What is not known is refused with what is missing, never guessed."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from auditor.catalog import safetensors
from auditor.catalog.architectures import FAMILIES, Family
from auditor.catalog.hf_facts import decoder, facts, text_config
from auditor.catalog.hf_layers import Mixer, indexer, layers, mixers
from auditor.catalog.hf_quantization import quantization
from auditor.catalog.hf_state import recurrent
from auditor.catalog.images import images, step_values
from auditor.catalog.parameters import Counts, count
from auditor.catalog.rotary import rotary
from auditor.catalog.stored import with_files
from auditor.catalog.towers import towers
from auditor.errors import UsageError, unread
from auditor.theory.kv.geometry import Geometry
from auditor.theory.tensors import Tensor

__all__ = ["geometry", "read"]

T = TypeVar("T")
_Facts = Mapping[str, Any]

_MOST_CONFIG = 16 << 20
_MOST_BYTES = 16  # of a parameter in an index of tensors; encoders that are not counted lie in its sum
_LARGEST, _MOST_NUMBERS = 1 << 20, 64  # of an encoder's sizes, and of those in one list
_MALFORMED = (TypeError, KeyError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError, RecursionError)
# A key that marks memory of some kind, what it is, and the families whose readers know it.
_MARKS: Mapping[str, tuple[str, Any]] = {
    "index_topk": ("a sparse-attention indexer with its own cache", lambda family: family.indexer == "dsa"),
    "sparse_attention_config": ("sparse attention with its own cache", lambda family: family.indexer == "blocks"),
    "linear_num_key_heads": ("linear-attention layers with recurrent state", lambda family: family.state == "gdn"),
    "linear_attn_config": ("linear-attention layers with recurrent state", lambda family: family.state == "kda"),
    "mamba_d_state": ("Mamba layers with recurrent state", lambda family: family.state.startswith("mamba")),
    "ssm_state_size": ("Mamba layers with recurrent state", lambda family: family.state.startswith("mamba")),
    "state_size": ("Mamba layers with recurrent state", lambda family: family.state.startswith("mamba")),
    "conv_L_cache": ("short-convolution layers with recurrent state", lambda family: family.state == "short_conv"),
    "cross_attention_layers": ("cross-attention layers", lambda _: False),
    "use_cla": ("layers that share keys and values", lambda _: False),
    "num_kv_shared_layers": ("layers that share keys and values", lambda family: family.shared),
    "global_head_dim": ("layers with differing head sizes", lambda family: family.shared),
    "compress_ratios": ("compressed attention layers", lambda family: family.compressed),
    "num_key_value_heads_per_layer": ("layers with differing KV heads", lambda _: False),
}


def read(path: str | Path) -> Geometry:
    """Geometry of a model folder or its config.json, with true weight bytes where index or tensor headers tell them.

    Raises UsageError: not found, not JSON, or an architecture that is not known.
    """
    place = Path(path).expanduser()
    config_file = place / "config.json" if place.is_dir() else place
    if config_file.exists() and not config_file.is_file():
        raise UsageError(f"{config_file}: not a plain file")
    if not config_file.is_file():
        raise UsageError(f"{config_file}: no such file (a model folder needs its config.json)")
    try:
        if config_file.stat().st_size > _MOST_CONFIG:
            raise UsageError(f"{config_file}: larger than any config.json, is this the right file?")
        config = json.loads(config_file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{config_file}: not a readable config.json ({unread(error)})") from error
    if not isinstance(config, dict):
        raise UsageError(f"{config_file}: not a config.json (a JSON object is needed)")
    folder, name = config_file.resolve().parent, config_file.stem
    stored, sizes = None, None
    try:
        if config_file.name == "config.json":
            config = _with_quantization_file(config, folder / "hf_quant_config.json")
            name, sizes = folder.name, safetensors.tensor_sizes(folder)
            stored = sum(sizes.values()) if sizes else safetensors.index_bytes(folder)
        found = geometry(config, name, stored, source=str(config_file))
        if stored and not sizes:
            _check_total(found, stored, folder)
        if sizes:
            layers_told = facts(config, decoder(config, name)[1], name)["num_hidden_layers"]
            found = with_files(found, sizes, layers_told)
        return found
    except UsageError as error:
        raise UsageError(str(error) if str(folder) in str(error) else f"{config_file}: {error}") from error


def _check_total(found: Geometry, stored: int, folder: Path) -> None:
    """Refuse an index whose sum leaves a parameter less than a bit, or more than any format and encoder take."""
    if not found.parameters <= 8 * stored <= 8 * _MOST_BYTES * found.parameters:
        raise UsageError(
            f"{folder}: its index of tensors tells total_size {stored:,} bytes, which {found.parameters:,} parameters "
            "cannot have; download the index again, or leave it out"
        )


def _with_quantization_file(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """ModelOpt checkpoints may keep their method in a file of its own (hf_quant_config.json)."""
    if config.get("quantization_config") or not path.is_file() or path.stat().st_size > _MOST_CONFIG:
        return config
    try:
        found = json.loads(path.read_bytes())["quantization"]
        if not isinstance(found.get("quant_algo"), str | None):
            raise ValueError("quant_algo is no word")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable quantisation file ({error})") from error
    return {**config, "quantization_config": {"quant_method": "modelopt", **found}}


def geometry(config: Mapping[str, Any], name: str, weight_bytes: int | None = None, source: str = "") -> Geometry:
    """Geometry from config facts. Raises UsageError that says which architecture or key is missing or unknown."""
    try:
        return _geometry(config, name, weight_bytes, source)
    except _MALFORMED as error:  # a fact of a form that no published config has
        raise UsageError(
            f"{name}: config.json is not of the form that its architecture has ({error!r:.100})"
        ) from error


def _geometry(config: Mapping[str, Any], name: str, weight_bytes: int | None, source: str) -> Geometry:
    architecture, inner = decoder(config, name)
    family, text = FAMILIES[inner], text_config(config)
    _refuse(family, config, text, name)
    found = facts(config, inner, name)
    kinds = mixers(family, found, name)
    attention, states = layers(family, found, kinds, name), recurrent(family, found, kinds, name)
    if not attention:
        raise UsageError(f"{name}: config.json has no attention layer, so nothing of it grows with a request's tokens")
    probe = indexer(family, found, kinds, name)
    counts = count(family, found, attention, states, probe)
    plain, no_tower = _plain_facts(config), tuple[Tensor, ...]()
    encoders = _told(towers, plain, found, no_tower)
    tied = bool(found.get("tie_word_embeddings", family.tied))
    vision = architecture != inner or "vision_config" in config
    quantized = quantization(config, text, _sizes(kinds, counts))
    notes = _notes(vision, bool(encoders or weight_bytes))
    return Geometry(
        name=name,
        architecture=architecture,
        layers=attention,
        hidden_size=found["hidden_size"],
        vocab_size=found["vocab_size"],
        attention_heads=found["num_attention_heads"],
        parameters=counts.parameters,
        active_parameters=counts.active,
        embedding_parameters=found["vocab_size"] * found["hidden_size"],
        tied_embeddings=tied,
        experts=counts.experts,
        max_position=found.get("max_position_embeddings"),
        dtype=str(found.get("torch_dtype") or found.get("dtype") or "bfloat16"),
        quantization=quantized.method,
        weight_bytes=weight_bytes,
        vision=vision,
        source=source,
        notes=notes,
        recurrent=states,
        indexer=probe,
        tensors=(*counts.tensors, *encoders),
        extra=_extra(counts, found, _told(step_values, plain, found, 0))
        | rotary(family, found, attention)
        | _blocks(config, text, counts),
        formats=quantized.formats,
        kv_format=quantized.kv_format,
        intermediate_size=_widest(found.get("intermediate_size_mlp") or found.get("intermediate_size")),
        expert_size=_widest(found.get("moe_intermediate_size")),
        images=_told(images, plain, found, None),
        repacked=quantized.repacked,
    )


def _plain_facts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config with plain facts of vision and audio encoders alone."""
    return {
        key: _plain(value) if key in ("vision_config", "audio_config", "thinker_config") else value
        for key, value in config.items()
    }


def _told(
    read: Callable[[Mapping[str, Any], Mapping[str, Any]], T], plain: Mapping[str, Any], found: Any, none: T
) -> T:
    """What facts of encoders tell; `none` where they are no numbers that an encoder can have."""
    try:
        return read(plain, found)
    except _MALFORMED:
        return none


def _plain(facts: Any) -> Any:
    """An encoder's config without what could be no size: long lists, huge and negative numbers, nulls."""
    if not isinstance(facts, dict):
        return None
    return {
        key: _plain(value) if isinstance(value, dict) else value
        for key, value in facts.items()
        if isinstance(value, str | dict)
        or (isinstance(value, int | float) and 0 <= value < _LARGEST)
        or (isinstance(value, list) and len(value) <= _MOST_NUMBERS and all(isinstance(item, int) for item in value))
    }


def _widest(size: Any) -> int | None:
    """The width of an MLP, the widest where layers differ (a list in the config)."""
    widest = max(size) if isinstance(size, list) and size else size
    return widest if isinstance(widest, int) and widest else None


def _refuse(family: Family, config: Mapping[str, Any], text: Mapping[str, Any], name: str) -> None:
    """Refuse memory that this family's readers do not know, and models that do not generate text."""
    for key, (what, known) in _MARKS.items():
        if text.get(key) and not known(family):
            raise UsageError(f"{name}: config.json has {key}: {what}, which this arithmetic does not cover")
    whole_text = (text.get("use_bidirectional_attention"), config.get("use_bidirectional_attention"))
    if text.get("is_causal") is False or any(value is True or value == "all" for value in whole_text):
        raise UsageError(f"{name}: config.json turns causal attention off: an encoder keeps no cache")


def _sizes(kinds: Sequence[Mixer], counts: Counts) -> dict[str, int]:
    """In how many layers each part is."""
    attention = sum(kind not in ("state", "none") for kind in kinds)
    states = sum(kind in ("state", "both") for kind in kinds)
    experts = counts.experts.layers if counts.experts else 0
    return {
        "attention": attention,
        "recurrent": states,
        "dense": len(kinds) - experts,
        "shared": experts,
        "experts": experts,
    }


def _notes(vision: bool, counted: bool) -> tuple[str, ...]:
    return ("the vision encoder's weights are not counted",) if vision and not counted else ()


def _extra(counts: Counts, found: Mapping[str, Any], step: int) -> dict[str, int]:
    """What theory needs beyond the common fields: the drafting layers, MLA's rank, the sparse indexer's heads, the
    tokens of one step of Mamba-2's scan, and the values that are allocated for each token of a `step`.
    """
    sparse, drafts = found.get("sparse_attention_config") or {}, any(tensor.draft for tensor in counts.tensors)
    named = {
        "next_token_layers": found.get("num_nextn_predict_layers") if drafts else 0,
        "kv_lora_rank": found.get("kv_lora_rank"),
        "index_heads": found.get("index_n_heads") or sparse.get("sparse_num_index_heads"),
        "mamba_chunk_size": found.get("mamba_chunk_size", found.get("chunk_size")),
        "step_values": step,
    }
    return {key: value for key, value in named.items() if isinstance(value, int) and value}


def _blocks(config: Mapping[str, Any], text: Mapping[str, Any], counts: Counts) -> dict[str, int]:
    """Columns of a block of the experts' fp8 weights that share a scale, where they are quantised so."""
    told = config.get("quantization_config") or text.get("quantization_config")
    size = told.get("weight_block_size") if isinstance(told, dict) and told.get("quant_method") == "fp8" else None
    columns = size[0] if isinstance(size, list) and size else None
    return {"expert_block": columns} if counts.experts and isinstance(columns, int) and columns > 0 else {}
