"""Weight matrices of MLPs and mixtures of experts, from config facts, and which layers have which.

Shapes are those of the modules in Hugging Face transformers (src/transformers/models/*/modeling_*.py) and vLLM
(vllm/model_executor/models): a gated MLP has three matrices, a plain one two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditor.catalog.architectures import Family
from auditor.catalog.mixers import small
from auditor.theory.tensors import Part, Tensor

__all__ = ["Routed", "feedforward", "moe_layer", "routed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The routed experts of a model: `count` in each of `layers`, `per_token` used, each from `width` to `inner`."""

    count: int
    layers: int
    per_token: int
    width: int
    inner: int


def routed(facts: Mapping[str, Any]) -> Routed | None:
    """None for dense models."""
    count = next((facts[key] for key in ("n_routed_experts", "num_local_experts", "num_experts") if facts.get(key)), 0)
    layers = _layout(facts)[1] if count else 0
    if not layers or facts.get("enable_moe_block") is False:
        return None
    latent = facts.get("moe_latent_size") or facts.get("routed_expert_hidden_size")
    return Routed(
        count=int(count),
        layers=layers,
        per_token=facts.get("num_experts_per_tok") or 0,
        width=latent or facts["hidden_size"],
        inner=facts.get("moe_intermediate_size") or facts["intermediate_size"],
    )


def feedforward(family: Family, facts: Mapping[str, Any]) -> list[Tensor]:
    """All MLPs, experts and routers of the layer stack."""
    experts = routed(facts)
    dense, sparse = _layout(facts)
    if experts is None:
        dense, sparse = dense + sparse, 0
    elif facts.get("enable_moe_block") or _both(facts):  # Gemma 4, LongCat: an MLP beside the experts in every layer
        dense = dense + sparse * _both(facts)
    found = _dense(family, facts, dense)
    return found + (moe_layer(family, facts, experts, sparse) if experts else [])


def _both(facts: Mapping[str, Any]) -> int:
    """Dense MLPs that stand beside the experts of one layer."""
    if "zero_expert_num" in facts or "expert_ffn_hidden_size" in facts:  # LongCat: a block is two attention layers
        return 2
    return 1 if facts.get("enable_moe_block") else 0


def _layout(facts: Mapping[str, Any]) -> tuple[int, int]:
    """How many layers have a dense MLP and how many routed experts."""
    layers: int = facts["num_hidden_layers"]
    pattern = facts.get("hybrid_override_pattern") or facts.get("layers_block_type")
    if pattern and ({"mlp", "moe"} & set(pattern) or isinstance(pattern, str)):  # Nemotron-H: a layer is one thing
        kinds = list(pattern)
        return kinds.count("-") + kinds.count("mlp"), kinds.count("E") + kinds.count("moe")
    if "expert_ffn_hidden_size" in facts:
        return 0, layers // 2
    if facts.get("num_mem_blocks"):  # Zamba2: one in each shared block
        return facts["num_mem_blocks"], 0
    sparse = sum(1 for layer in range(layers) if _is_sparse(facts, layer))
    return layers - sparse, sparse


def _is_sparse(facts: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer has routed experts, by whichever key its configuration class uses."""
    named = facts.get("mlp_layer_types")
    if named and layer < len(named):
        return bool(named[layer] == "sparse")
    if facts.get("moe_layers"):
        return layer in facts["moe_layers"]
    every = facts.get("moe_layer_freq")
    if isinstance(every, list):
        return bool(layer < len(every) and every[layer])
    if facts.get("expert_layer_period"):
        return bool(layer % facts["expert_layer_period"] == facts.get("expert_layer_offset", 0))
    if layer in (facts.get("mlp_only_layers") or ()) or layer > facts.get("moe_layer_end_index", layer):
        return False
    if facts.get("first_k_dense_replace", 0) > layer:
        return False
    steps = (facts.get(key) for key in ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval"))
    step = next((step for step in (*steps, every) if isinstance(step, int) and step > 0), 1)
    return (layer + 1) % step == 0


def _dense(family: Family, facts: Mapping[str, Any], count: int) -> list[Tensor]:
    """Dense MLPs; some models have another width in some layers."""
    hidden = facts["hidden_size"]
    widths = _widths(facts, count)
    biased = family.mlp_bias or bool(facts.get("mlp_bias"))
    found: list[Tensor] = []
    for width in dict.fromkeys(widths):
        found += _mlp(family, "dense", widths.count(width), hidden, width, biased=biased)
    return found


def _widths(facts: Mapping[str, Any], count: int) -> list[int]:
    """The MLP's width of each dense layer."""
    if facts.get("block_configs"):
        return _puzzle(facts)
    width = facts.get("intermediate_size_mlp") or facts.get("dense_intermediate_size") or facts.get("intermediate_size")
    if isinstance(width, list):
        return [int(item) for item in width[:count]]
    shared, one = facts.get("num_kv_shared_layers") or 0, int(width or 0)
    if facts.get("use_double_wide_mlp") and shared:  # Gemma 4: layers without keys of their own are twice as wide
        return [one] * (count - shared) + [2 * one] * shared
    return [one] * count


def _puzzle(facts: Mapping[str, Any]) -> list[int]:
    """DeciLM: each layer multiplies the hidden size, rounded up to 256, or has no MLP (nemotron_nas.py)."""
    widths = []
    for block in facts["block_configs"]:
        scale = (block.get("ffn") or {}).get("ffn_mult") if isinstance(block, dict) else None
        own = (block.get("ffn") or {}).get("intermediate_size") if isinstance(block, dict) else None
        if own:
            widths.append(int(own))
        elif scale:
            widths.append(-(-int(2 * scale * facts["hidden_size"] / 3) // 256) * 256)
    return widths


def _mlp(family: Family, part: Part, count: int, hidden: int, width: int, *, biased: bool = False) -> list[Tensor]:
    up = 2 if family.mlp == "gated" else 1
    found = [
        Tensor(part=part, count=up * count, outputs=width, inputs=hidden, split="outputs"),
        Tensor(part=part, count=count, outputs=hidden, inputs=width, split="inputs"),
    ]
    return found + ([small(up * count, width, width), small(count, hidden)] if biased else [])


def moe_layer(family: Family, facts: Mapping[str, Any], experts: Routed, layers: int) -> list[Tensor]:
    """Routed and shared experts and the router of `layers` layers."""
    hidden, number = facts["hidden_size"], experts.count * layers
    found = _mlp(family, "experts", number, experts.width, experts.inner)
    if family.expert_bias:
        up = 2 if family.mlp == "gated" else 1
        found.append(Tensor(part="experts", count=number, outputs=up * experts.inner, split="outputs", plain=True))
        found.append(Tensor(part="experts", count=number, outputs=experts.width, plain=True))
    found.append(
        Tensor(part="router", count=layers, outputs=experts.count + facts.get("zero_expert_num", 0), inputs=hidden)
    )
    if family.router_bias or facts.get("use_moe_router_bias"):
        found.append(Tensor(part="router", count=layers, outputs=experts.count, single=True))
    if experts.width != hidden:  # Nemotron 3 Super: experts work in a narrower space
        found += [
            Tensor(part="shared", count=layers, outputs=experts.width, inputs=hidden),
            Tensor(part="shared", count=layers, outputs=hidden, inputs=experts.width),
        ]
    return found + _shared(family, facts, experts, layers)


def _shared(family: Family, facts: Mapping[str, Any], experts: Routed, layers: int) -> list[Tensor]:
    """Shared experts, with the gate of Qwen2-MoE."""
    hidden = facts["hidden_size"]
    own = next(
        (
            facts[key]
            for key in ("moe_shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size")
            if facts.get(key)
        ),
        None,
    )
    number = facts.get("n_shared_experts") or 0
    if facts.get("shared_expert_intermediate_size"):
        gate = Tensor(part="router", count=layers, outputs=1, inputs=hidden)
        return [*_mlp(family, "shared", layers, hidden, facts["shared_expert_intermediate_size"]), gate]
    if "interleave_moe_layer_step" in facts:  # Llama 4: always one
        number, own = 1, None
    width = own if own is not None else experts.inner * number
    return _mlp(family, "shared", layers, hidden, width) if width else []
