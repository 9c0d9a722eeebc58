"""The attention layers of a model from its config facts: kind, window and shape of each, grouped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from auditor.catalog.architectures import Family
from auditor.catalog.hf_facts import whole
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Indexer, Layers

__all__ = ["Mixer", "indexer", "layers", "mixers"]

# What a layer mixes tokens with: attention of some reach, a recurrent state, both side by side, or nothing (an MLP).
Mixer = Literal["full", "sliding", "chunked", "compressed", "state", "both", "none"]

# Spellings of layer_types and layers_block_type (transformers configuration_utils.py, ALLOWED_LAYER_TYPES, and classes
# before it). Sparse attention keeps keys and values of every token, so its cache is that of full attention.
_SPELLED: Mapping[str, Mixer] = {
    "attention": "full",
    "chunked_attention": "chunked",
    "conv": "state",
    "deepseek_sparse_attention": "full",
    "full_attention": "full",
    "global_attention": "full",
    "hybrid": "both",
    "indexed_attention": "full",
    "linear_attention": "state",
    "local_attention": "sliding",
    "mamba": "state",
    "mamba2": "state",
    "minimax_m3_sparse": "full",
    "mlp": "none",
    "moe": "none",
    "sliding_attention": "sliding",
}
_PATTERN: Mapping[str, Mixer] = {"M": "state", "*": "full", "-": "none", "E": "none"}
_BY_LAYER = ("block_configs", "sliding_windows", "per_layer_config")
_RATIOS = (4, 128)  # what DeepSeek-V4's compressors are written for (vllm/models/deepseek_v4/compressor.py)
_INDEXED = 4  # its layers of this ratio choose what to attend to by an indexer
_SCALE_VALUES = 128  # values of an indexer key that share one fp32 scale (vLLM, v1/attention/backends/mla/indexer.py)


def mixers(family: Family, facts: Mapping[str, Any], name: str) -> tuple[Mixer, ...]:
    """What each layer mixes tokens with. Raises UsageError where the config does not tell, or tells the impossible."""
    count: int = facts["num_hidden_layers"]
    found = _listed(family, facts, name)
    if found is None and family.state != "none":
        found = _hybrid(family, facts, name)
    if found is None:
        found = [_windowed(family, facts, layer) for layer in range(count)]
    if len(found) < count:
        raise UsageError(f"{name}: config.json has {count} layers but tells the kind of {len(found)}")
    found = found[:count]
    if family.state == "none" and ("state" in found or "both" in found):
        raise UsageError(f"{name}: config.json has recurrent layers, which its architecture is not known to have")
    return tuple(found)


def _listed(family: Family, facts: Mapping[str, Any], name: str) -> list[Mixer] | None:
    """Kinds that the config lists layer by layer."""
    if family.compressed:
        ratios = [_ratio(facts, layer, name) for layer in range(facts["num_hidden_layers"])]
        return ["sliding" if ratio == 1 else "compressed" for ratio in ratios]
    if family.window == "chunked" and facts.get("no_rope_layers"):  # Llama 4 (vllm/model_executor/models/llama4.py)
        return ["chunked" if rope else "full" for rope in facts["no_rope_layers"]]
    if facts.get("hybrid_layer_pattern"):  # MiMo-V2
        return ["sliding" if slides else "full" for slides in facts["hybrid_layer_pattern"]]
    if isinstance(facts.get("hybrid_override_pattern"), str):
        return [_spelled(letter, _PATTERN, name) for letter in facts["hybrid_override_pattern"]]
    if facts.get("block_configs"):
        return [_block(block, name) for block in facts["block_configs"]]
    words = facts.get("layer_types") or facts.get("layers_block_type")
    return [_spelled(word, _SPELLED, name) for word in words] if words else None


def _ratio(facts: Mapping[str, Any], layer: int, name: str) -> int:
    """Tokens that an entry of a DeepSeek-V4 layer's cache stands for; 1: the layer has its window alone."""
    ratios = facts.get("compress_ratios") or []
    if layer >= len(ratios):
        raise UsageError(f"{name}: config.json tells {len(ratios)} compress_ratios, too few for its layers")
    if ratios[layer] in _RATIOS or ratios[layer] in (0, 1):
        return max(1, int(ratios[layer]))
    raise UsageError(f"{name}: config.json has a compress_ratio of {ratios[layer]!r:.40}, only 0, 4 and 128 are known")


def _spelled(word: object, known: Mapping[str, Mixer], name: str) -> Mixer:
    if isinstance(word, str) and word in known:
        return known[word]
    raise UsageError(f"{name}: layer type {word!r} is not known, so its cache cannot be computed")


def _block(block: object, name: str) -> Mixer:
    """One entry of block_configs: DeciLM tells attention and MLP apart, Nemotron-H Puzzle names the block's type."""
    if isinstance(block, dict) and isinstance(block.get("block_type"), str):
        return _spelled(block["block_type"], _SPELLED, name)
    attention = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention, dict):
        raise UsageError(f"{name}: config.json has a block_configs entry that tells nothing of its attention")
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return "none"
    return "sliding" if attention.get("window_length") else "full"


def _hybrid(family: Family, facts: Mapping[str, Any], name: str) -> list[Mixer]:
    """Kinds of a model with recurrent layers from its rule for them, by the key that its class has."""
    count: int = facts["num_hidden_layers"]
    linear = facts.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(linear.get("kda_layers"), list):  # counted from 1
        recurrent = _chosen(linear["kda_layers"], "kda_layers", name)
        return ["state" if layer + 1 in recurrent else "full" for layer in range(count)]
    if facts.get("attn_type_list"):  # MiniMax-Text-01: 0 lightning, 1 softmax
        return ["full" if softmax else "state" for softmax in facts["attn_type_list"]]
    for key in ("full_attn_idxs", "attn_layer_indices", "hybrid_layer_ids"):
        if facts.get(key) is not None:
            attends: Mixer = "both" if key == "hybrid_layer_ids" else "full"
            chosen = _chosen(facts[key], key, name)
            return [attends if layer in chosen else "state" for layer in range(count)]
    if facts.get("layer_group_size"):
        group = facts["layer_group_size"]
        if isinstance(group, list):
            return ["state" if recurrent == 1 else "full" for recurrent in group]
        return _grouped(count, whole(facts, "layer_group_size", name), state=family.state == "kda")
    if facts.get("full_attention_interval"):
        every: int = facts["full_attention_interval"]
        return ["full" if (layer + 1) % every == 0 else "state" for layer in range(count)]
    if facts.get("attn_layer_period"):
        period, offset = facts["attn_layer_period"], facts.get("attn_layer_offset", 0)
        return ["full" if layer % period == offset else "state" for layer in range(count)]
    if facts.get("model_type") == "falcon_h1" or facts.get("mamba_d_ssm"):
        return ["both"] * count
    raise UsageError(f"{name}: config.json does not tell which of its layers are recurrent")


def _chosen(numbers: object, key: str, name: str) -> frozenset[int]:
    """Numbers of layers that a list names."""
    if isinstance(numbers, list) and all(isinstance(number, int) for number in numbers):
        return frozenset(numbers)
    raise UsageError(f"{name}: config.json's {key} is not a list of layer numbers")


def _grouped(count: int, group: int, *, state: bool) -> list[Mixer]:
    """Ling: the last layer of each group attends; with KDA, so does what is left after the last whole group
    (vllm/model_executor/models/bailing_moe_linear.py, bailing_moe_v3.py).
    """
    rest = count // group * group if state else count
    return ["full" if (layer + 1) % group == 0 or layer >= rest else "state" for layer in range(count)]


def _windowed(family: Family, facts: Mapping[str, Any], layer: int) -> Mixer:
    """The kind of a layer by its family's layout of windows."""
    if family.window == "chunked":
        interval = facts.get("no_rope_layer_interval") or 4
        return "full" if (layer + 1) % interval == 0 or not facts.get("attention_chunk_size") else "chunked"
    if family.window == "none" or not _window(facts):
        return "full"
    if family.window == "all":
        return "sliding"
    if family.window == "every":
        return "sliding" if (layer + 1) % _every(family, facts) else "full"
    first = facts.get("max_window_layers", facts["num_hidden_layers"]) if facts.get("use_sliding_window") else None
    return "full" if first is None or layer < first else "sliding"


def _every(family: Family, facts: Mapping[str, Any]) -> int:
    """How often a layer attends to everything: a number, or letters of one round (EXAONE 4: LLLG)."""
    for key in ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"):
        value = facts.get(key)
        if isinstance(value, str) and value:
            return len(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return family.every


def _window(facts: Mapping[str, Any]) -> int | None:
    window = facts.get("sliding_window") or facts.get("sliding_window_size")
    return window if isinstance(window, int) else None


def layers(family: Family, facts: Mapping[str, Any], kinds: Sequence[Mixer], name: str) -> tuple[Layers, ...]:
    """Attention layers, those of one kind and shape as one group, in the order in which the first of each comes.

    Layers that read an earlier layer's cache are `readers` of the group they share.
    """
    owned = len(kinds) - (facts.get("num_kv_shared_layers") or 0 if family.shared else 0)
    if not 0 < owned <= len(kinds):
        raise UsageError(f"{name}: config.json has no layers left that keep keys and values of their own")
    groups: dict[Layers, list[int]] = {}
    for layer, shape in _shapes(family, facts, kinds, name):
        counts = groups.setdefault(shape, [0, 0])
        counts[0 if layer < owned else 1] += 1
    if any(not own for own, _ in groups.values()):
        raise UsageError(f"{name}: config.json shares the cache of a kind of layer that has none")
    return tuple(replace(shape, count=own, readers=read) for shape, (own, read) in groups.items())


def _shapes(
    family: Family, facts: Mapping[str, Any], kinds: Sequence[Mixer], name: str
) -> Iterator[tuple[int, Layers]]:
    """Each attention layer's number and shape, as a group of one."""
    plain = {kind: _shape(family, facts, kind, name) for kind in dict.fromkeys(kinds) if kind not in ("state", "none")}
    differing = any(facts.get(key) for key in _BY_LAYER)
    for layer, kind in enumerate(kinds):
        if kind == "compressed":
            yield layer, replace(plain[kind], compression=_ratio(facts, layer, name))
        elif kind in plain:
            yield layer, _own_shape(plain[kind], facts, layer, name) if differing else plain[kind]


def _shape(family: Family, facts: Mapping[str, Any], kind: Mixer, name: str) -> Layers:
    size: int = facts["head_dim"]
    if kind == "compressed" or family.compressed:
        return _compressed(kind, size, whole(facts, "sliding_window", name))
    if facts.get("kv_lora_rank"):
        return _latent(family, facts)
    heads: int = facts["num_key_value_heads"]
    value = facts.get("v_head_dim") or size
    if kind in ("full", "both"):
        if facts.get("global_head_dim"):  # Gemma 4
            size = value = facts["global_head_dim"]
            heads = (facts.get("attention_k_eq_v") and facts.get("num_global_key_value_heads")) or heads
        return Layers(kind="full", count=1, kv_heads=heads, qk_head_dim=size, v_head_dim=value)
    if kind == "chunked":
        window = whole(facts, "attention_chunk_size", name)
        return Layers(kind="chunked", count=1, kv_heads=heads, qk_head_dim=size, v_head_dim=value, window=window)
    other = facts.get("attention_other_setting")  # Step-3.5
    if isinstance(other, dict) and other.get("attention_type") == "sliding_attention":
        heads = whole(other, "num_attention_groups", name) if other.get("num_attention_groups") else heads
        size = value = whole(other, "head_dim", name) if other.get("head_dim") else size
    if not _window(facts):
        raise UsageError(f"{name}: config.json has sliding_attention layers and no sliding_window")
    size = facts.get("swa_head_dim") or size  # MiMo-V2
    return Layers(
        kind="sliding",
        count=1,
        kv_heads=facts.get("swa_num_key_value_heads") or heads,
        qk_head_dim=size,
        v_head_dim=facts.get("swa_v_head_dim") or value,
        window=_window(facts),
    )


def _compressed(kind: Mixer, size: int, window: int) -> Layers:
    """DeepSeek-V4: keys and values are one vector, shared by all heads (vllm/models/deepseek_v4/attention.py)."""
    found: Any = "compressed" if kind == "compressed" else "sliding"
    return Layers(kind=found, count=1, kv_heads=1, qk_head_dim=size, v_head_dim=size, window=window, latent_dim=size)


def _latent(family: Family, facts: Mapping[str, Any]) -> Layers:
    """MLA caches one latent and one rotary key a token (DeepSeek-V2, arXiv 2405.04434, section 2.1); classes that
    expand it first cache keys and values of every head, the values padded to the keys' size (MiniCPM3 in vLLM).
    """
    size = facts["qk_nope_head_dim"] + facts["qk_rope_head_dim"]
    if not family.latent:
        return Layers(kind="full", count=1, kv_heads=facts["num_attention_heads"], qk_head_dim=size, v_head_dim=size)
    latent = facts["kv_lora_rank"] + facts["qk_rope_head_dim"]
    return Layers(kind="mla", count=1, kv_heads=1, qk_head_dim=size, v_head_dim=facts["v_head_dim"], latent_dim=latent)


def _own_shape(shape: Layers, facts: Mapping[str, Any], layer: int, name: str) -> Layers:
    """A layer's own shape where the config overrides it layer by layer."""
    blocks, windows, overrides = (facts.get(key) for key in _BY_LAYER)
    attention = blocks[layer].get("attention") if blocks else None
    if isinstance(attention, dict):
        if attention.get("n_heads_in_group"):
            heads = facts["num_attention_heads"] // whole(attention, "n_heads_in_group", name)
            shape = replace(shape, kv_heads=max(1, heads))
        if attention.get("window_length"):
            shape = replace(shape, window=whole(attention, "window_length", name))
    if windows and shape.kind == "sliding":
        if layer >= len(windows):
            raise UsageError(f"{name}: config.json tells {len(windows)} sliding_windows, too few for its layers")
        shape = replace(shape, window=whole({"sliding_windows": windows[layer]}, "sliding_windows", name))
    own = overrides.get(str(layer)) if isinstance(overrides, dict) else None
    if isinstance(own, dict):
        size = whole(own, "head_dim", name) if own.get("head_dim") else None
        heads = whole(own, "num_key_value_heads", name) if own.get("num_key_value_heads") else shape.kv_heads
        shape = replace(
            shape, kv_heads=heads, qk_head_dim=size or shape.qk_head_dim, v_head_dim=size or shape.v_head_dim
        )
    return shape


def indexer(family: Family, facts: Mapping[str, Any], kinds: Sequence[Mixer], name: str) -> Indexer | None:
    """The sparse-attention indexer's own key cache, None where the model has none.

    DSA (DeepSeek-V3.2): index_head_dim fp8 values and an fp32 scale for each 128 of them, in each layer that does not
    take over another's choice (vllm/models/deepseek_v32/attention.py: index_topk_pattern, or every index_topk_freq-th
    layer from index_skip_topk_offset on). DeepSeek-V4: one such key for every 4 tokens in each layer of that ratio.
    MiniMax-M3: one 16-bit key a token in each sparse layer (vllm/models/minimax_m3/common/indexer.py).
    """
    if family.indexer == "dsa":
        size = whole(facts, "index_head_dim", name)
        scales = size // _SCALE_VALUES * 4
        if family.compressed:
            count = sum(kind == "compressed" and _ratio(facts, i, name) == _INDEXED for i, kind in enumerate(kinds))
        else:
            count = sum(_indexes(facts, layer) for layer in range(len(kinds)))
        return Indexer(
            count=count,
            token_bytes=size + scales,
            topk=whole(facts, "index_topk", name),
            compression=_INDEXED if family.compressed else 1,
            width=size,
        )
    sparse = facts.get("sparse_attention_config")
    if family.indexer != "blocks" or not isinstance(sparse, dict) or not sparse.get("use_sparse_attention", True):
        return None
    per_layer = sparse.get("sparse_attention_freq")
    if not isinstance(per_layer, list) or len(per_layer) < len(kinds):
        raise UsageError(f"{name}: config.json's sparse_attention_config does not tell which layers are sparse")
    blocks, block = (whole(sparse, key, name) for key in ("sparse_topk_blocks", "sparse_block_size"))
    count = sum(bool(sparse_layer) for sparse_layer in per_layer[: len(kinds)])
    size = whole(sparse, "sparse_index_dim", name)
    return Indexer(count=count, token_bytes=2 * size, topk=blocks * block, width=size)


def _indexes(facts: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer chooses by itself what to attend to."""
    pattern, types = facts.get("index_topk_pattern"), facts.get("indexer_types")
    if isinstance(pattern, str):
        return layer >= len(pattern) or pattern[layer] != "S"
    if types and layer < len(types) and not facts.get("index_topk_freq"):
        return bool(types[layer] == "full")
    every = facts.get("index_topk_freq") or 1
    offset = facts.get("index_skip_topk_offset", 2)
    return bool(max(layer - offset + 1, 0) % every == 0)
