"""All weight matrices of a model, from config facts and the layers that were read from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from auditor.catalog.architectures import Family
from auditor.catalog.compressed import streams
from auditor.catalog.feedforward import feedforward, moe_layer, routed
from auditor.catalog.mixers import attention, small
from auditor.catalog.states import recurrent
from auditor.theory.kv.geometry import Indexer, Layers, Recurrent
from auditor.theory.tensors import Tensor

__all__ = ["matrices"]


def matrices(
    family: Family,
    facts: Mapping[str, Any],
    layers: Sequence[Layers],
    states: Sequence[Recurrent] = (),
    indexer: Indexer | None = None,
) -> tuple[Tensor, ...]:
    """Every matrix and vector of the language model, its multi-token-prediction layers included."""
    found = [
        *_ends(family, facts),
        *attention(family, facts, layers, indexer),
        *recurrent(family, facts, states),
        *feedforward(family, facts),
        *_norms(family, facts),
        *_alternating(facts),
        *_shared_blocks(facts, layers),
        *(streams(facts, facts["num_hidden_layers"]) if family.compressed else []),
        *_draft(family, facts, layers, indexer),
    ]
    return tuple(tensor for tensor in found if tensor.parameters > 0)


def _ends(family: Family, facts: Mapping[str, Any]) -> list[Tensor]:
    """Embedding and head, learned positions, and embeddings of each layer (Gemma 3n and 4)."""
    hidden, vocabulary = facts["hidden_size"], facts["vocab_size"]
    tied = bool(facts.get("tie_word_embeddings", family.tied))
    found = [Tensor(part="embedding", count=1, outputs=vocabulary, inputs=hidden, split="outputs")]
    if not tied:
        found.append(Tensor(part="head", count=1, outputs=vocabulary, inputs=hidden, split="outputs"))
    if family.positions:
        found.append(Tensor(part="lookup", count=1, outputs=facts["max_position_embeddings"], inputs=hidden))
    return found + _per_layer(facts)


def _per_layer(facts: Mapping[str, Any]) -> list[Tensor]:
    """A small embedding of each token for each layer, projected from and to the hidden size (modeling_gemma3n.py)."""
    narrow, layers, hidden = facts.get("hidden_size_per_layer_input"), facts["num_hidden_layers"], facts["hidden_size"]
    if not narrow:
        return []
    rows = facts.get("vocab_size_per_layer_input") or facts["vocab_size"]
    return [
        Tensor(part="lookup", count=1, outputs=rows, inputs=layers * narrow, split="outputs"),
        Tensor(part="dense", count=1, outputs=layers * narrow, inputs=hidden, split="outputs"),
        Tensor(part="dense", count=layers, outputs=narrow, inputs=hidden),
        Tensor(part="dense", count=layers, outputs=hidden, inputs=narrow),
        small(layers, hidden),
        small(1, narrow),
    ]


def _alternating(facts: Mapping[str, Any]) -> list[Tensor]:
    """Gemma 3n's parallel streams (AltUp) and low-rank residuals (LAuReL), on every device (modeling_gemma3n.py)."""
    streams, layers, hidden = facts.get("altup_num_inputs") or 0, facts["num_hidden_layers"], facts["hidden_size"]
    rank = facts.get("laurel_rank") or 0
    if not streams:
        return []
    return [
        Tensor(part="dense", count=2 * (streams - 1), outputs=hidden, inputs=hidden),
        Tensor(part="dense", count=2 * layers, outputs=hidden, inputs=rank),
        Tensor(part="router", count=layers, outputs=streams, inputs=hidden),
        small(layers, 3 * hidden + streams**2 + streams**3),
    ]


def _shared_blocks(facts: Mapping[str, Any], layers: Sequence[Layers]) -> list[Tensor]:
    """Zamba2: few attention blocks serve many layers, each through a projection and an adapter of its own
    (modeling_zamba2.py).
    """
    blocks, hidden, rank = facts.get("num_mem_blocks"), facts["hidden_size"], facts.get("adapter_rank", 0)
    if not blocks:
        return []
    uses = sum(group.count for group in layers)
    return [
        Tensor(part="dense", count=uses, outputs=hidden, inputs=hidden),
        Tensor(part="dense", count=uses, outputs=rank, inputs=hidden),
        Tensor(part="dense", count=uses, outputs=2 * facts["intermediate_size"], inputs=rank, split="outputs"),
    ]


def _norms(family: Family, facts: Mapping[str, Any]) -> list[Tensor]:
    """Of every layer, and the last one."""
    width = facts["hidden_size"] * (2 if family.norm_bias else 1)
    return [small(facts["num_hidden_layers"] * family.norms + 1, width)]


def _draft(family: Family, facts: Mapping[str, Any], layers: Sequence[Layers], indexer: Indexer | None) -> list[Tensor]:
    """Multi-token-prediction layers: a layer, a projection of two hidden states to one, three norms.

    DeepSeek-V3 (arXiv 2412.19437, section 2.2) and GLM-4.5 also store copies of embedding and head, which engines share
    with the model's own.
    """
    number, hidden = facts.get("num_nextn_predict_layers") or 0, facts["hidden_size"]
    if not number or not layers:
        return []
    group = replace(layers[-1], count=number, readers=0)
    if family.compressed:  # DeepSeek-V4's has its window alone
        group, indexer = replace(group, kind="sliding", compression=1), None
    probe = replace(indexer, count=number) if indexer else None
    experts = routed(facts)
    found = attention(family, facts, [group], probe)
    found += moe_layer(family, facts, experts, number) if experts else _draft_mlp(family, facts, number)
    found += [
        Tensor(part="dense", count=number, outputs=hidden, inputs=2 * hidden),
        small(number * (family.norms + 3), hidden),
    ]
    if facts.get("kv_lora_rank") or "Glm4Moe" in str(facts.get("architectures")):
        vocabulary = facts["vocab_size"]
        found += [
            Tensor(part="embedding", count=number, outputs=vocabulary, inputs=hidden, split="outputs"),
            Tensor(part="head", count=number, outputs=vocabulary, inputs=hidden, split="outputs"),
        ]
    return [replace(tensor, draft=True) for tensor in found]


def _draft_mlp(family: Family, facts: Mapping[str, Any], number: int) -> list[Tensor]:
    alone = {**facts, "num_hidden_layers": number, "block_configs": None, "layers_block_type": None}
    return feedforward(family, alone)
