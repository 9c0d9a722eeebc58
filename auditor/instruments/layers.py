"""A model given by its layers alone: enough for the KV cache, where no config.json is at hand."""

from collections.abc import Mapping
from typing import Any

from auditor.errors import UsageError
from auditor.instruments.keys import refuse
from auditor.loading.problems import one_line
from auditor.theory.kv.geometry import Experts, Geometry, Indexer, Layers, Recurrent

__all__ = ["from_layers"]

_ATTENTION = {"full": "full", "swa": "sliding", "sliding": "sliding", "chunk": "chunked", "chunked": "chunked"}
_STATES = {"gdn": "linear", "linear": "linear", "mamba1": "mamba1", "mamba2": "mamba2", "short_conv": "short_conv"}
_KINDS = (*_ATTENTION, "mla", "dsa_idx", *_STATES)
_KEYS = dict.fromkeys(
    (
        *("kind", "layers", "num_kv_heads", "head_dim", "v_head_dim", "window", "latent_dim"),
        *("bytes_per_token", "topk"),
        *("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim", "conv_kernel", "ssm_bytes"),
        *("num_heads", "state_size", "n_groups", "hidden_size"),
    )
)
_WIDEST = 8  # bytes of an element
_FACTS = dict.fromkeys(("hidden", "inter", "vocab", "heads", "experts", "topk", "tie", "vision", "dtype", "note"))


def from_layers(name: str, layers: list[Any], facts: Mapping[str, Any]) -> Geometry:
    """Geometry of explicit layers; parameters are not known and count 0, so weights must be given beside them.

    Raises UsageError with the layer and key that is missing or wrong.
    """
    refuse(_FACTS, facts, "model_facts.")
    attention, recurrent = [], []
    indexer: Indexer | None = None
    for number, layer in enumerate(layers):
        place = f"kv_layers[{number}]"
        if not isinstance(layer, dict):
            raise UsageError(f"{place}: an object with kind and layers is needed")
        refuse(_KEYS, layer, f"{place}.")
        kind = layer.get("kind") if isinstance(layer.get("kind"), str) else ""
        if kind in _ATTENTION:
            attention.append(_attention(_ATTENTION[kind], layer, place))
        elif kind == "mla":
            attention.append(_latent(layer, place))
        elif kind == "dsa_idx":
            topk = layer.get("topk") and _whole(layer, "topk", place)
            size = _whole(layer, "bytes_per_token", place)
            indexer = Indexer(count=_whole(layer, "layers", place), token_bytes=size, topk=topk)
        elif kind in _STATES:
            recurrent.append(_recurrent(_STATES[kind], layer, place))
        else:
            raise UsageError(f"{place}.kind: {_shown(layer.get('kind'))} is not known; known are {', '.join(_KINDS)}")
    if not attention and not recurrent:
        raise UsageError("kv_layers: no layer holds keys and values or a state")
    total = sum(group.count for group in attention) + sum(group.count for group in recurrent)
    return Geometry(
        name=name,
        architecture="",
        layers=tuple(attention),
        recurrent=tuple(recurrent),
        indexer=indexer,
        hidden_size=_fact(facts, "hidden"),
        vocab_size=_fact(facts, "vocab"),
        attention_heads=_fact(facts, "heads"),
        parameters=0,
        active_parameters=0,
        embedding_parameters=0,
        tied_embeddings=bool(facts.get("tie")),
        experts=_experts(facts, total),
        dtype=str(facts.get("dtype") or "bfloat16"),
        vision=bool(facts.get("vision")),
        source="kv_layers",
        intermediate_size=_fact(facts, "inter") or None,
    )


def _experts(facts: Mapping[str, Any], layers: int) -> Experts | None:
    if not facts.get("experts"):
        return None
    return Experts(count=_fact(facts, "experts"), per_token=_fact(facts, "topk") or 1, layers=layers, parameters=0)


def _attention(kind: Any, layer: Mapping[str, Any], place: str) -> Layers:
    size = _whole(layer, "head_dim", place)
    return Layers(
        kind=kind,
        count=_whole(layer, "layers", place),
        kv_heads=_whole(layer, "num_kv_heads", place),
        qk_head_dim=size,
        v_head_dim=_whole(layer, "v_head_dim", place) if layer.get("v_head_dim") else size,
        window=None if kind == "full" else _whole(layer, "window", place),
    )


def _latent(layer: Mapping[str, Any], place: str) -> Layers:
    """An MLA group; its per-head sizes are those of DeepSeek, and no figure of the cache depends on them."""
    latent = _whole(layer, "latent_dim", place)
    return Layers(
        kind="mla",
        count=_whole(layer, "layers", place),
        kv_heads=1,
        qk_head_dim=_whole(layer, "head_dim", place) if layer.get("head_dim") else 192,
        v_head_dim=_whole(layer, "v_head_dim", place) if layer.get("v_head_dim") else 128,
        latent_dim=latent,
    )


def _recurrent(kind: Any, layer: Mapping[str, Any], place: str) -> Recurrent:
    """A state in the terms of `Recurrent`: values' heads and size first, then the keys'."""
    names = {
        "linear": ("num_value_heads", "value_head_dim", "key_head_dim", "num_key_heads"),
        "mamba2": ("num_heads", "head_dim", "state_size", "n_groups"),
        "mamba1": ("num_heads", "", "state_size", ""),
        "short_conv": ("hidden_size", "", "", ""),
    }[kind]
    heads, size, state, groups = (_whole(layer, name, place) if name else None for name in names)
    return Recurrent(
        kind=kind,
        count=_whole(layer, "layers", place),
        heads=heads or 1,
        head_dim=size or 1,
        state_size=state or 0,
        groups=groups or 0,
        conv_kernel=_whole(layer, "conv_kernel", place),
        state_bytes=_bytes(layer, "ssm_bytes", place),
    )


def _whole(layer: Mapping[str, Any], key: str, place: str) -> int:
    value = layer.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise UsageError(f"{place}.{key}: {_shown(value)}, a positive whole number is needed")
    return value


def _bytes(layer: Mapping[str, Any], key: str, place: str) -> float | None:
    """Bytes of one element, None where they are not given."""
    value = layer.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _WIDEST:
        raise UsageError(f"{place}.{key}: {_shown(value)}, bytes of an element are needed, up to {_WIDEST}")
    return float(value)


def _shown(value: object) -> str:
    return one_line(repr(value))[:60]


def _fact(facts: Mapping[str, Any], key: str) -> int:
    """A figure of the model, 0 where it is not given."""
    return _whole(facts, key, "model_facts") if facts.get(key) else 0
