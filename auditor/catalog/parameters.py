"""How many parameters each part of a decoder has, from config facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditor.catalog.architectures import Family

__all__ = ["Counts", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Parameters of the layer stack by part: summed over all layers, `expert` of one routed expert of one layer.

    `unquantized` counts what quantised checkpoints keep in 16 bit (norms, routers, biases); `replicated` what tensor
    parallelism copies to every device (norms, routers, MLA's down projections).
    """

    attention: int
    dense: int
    expert: int
    experts: int
    expert_layers: int
    per_token: int
    unquantized: int
    replicated: int
    next_token: int

    @property
    def stack(self) -> int:
        """Everything in the layer stack, every expert counted."""
        return self.dense + self.expert * self.experts * self.expert_layers

    @property
    def active(self) -> int:
        """What one token passes through."""
        return self.dense + self.expert * self.per_token * self.expert_layers


def count(family: Family, config: Mapping[str, Any]) -> Counts:
    """Parameters by part from config facts: hidden_size, num_hidden_layers, heads, MLP and expert sizes."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    attention, bias, copied = _attention(family, config)
    norms = family.norms * hidden
    moe_layers = expert_layers(config)
    expert = _expert(family, config)
    experts = expert_count(config)
    dense_mlp = 3 * hidden * config.get("intermediate_size_mlp", config["intermediate_size"])
    shared, router = _shared(config), hidden * experts + (experts if family.router_bias else 0)
    unquantized = layers * (norms + bias) + moe_layers * router + hidden
    return Counts(
        attention=layers * (attention + bias),
        dense=layers * (attention + bias + norms)
        + (layers - moe_layers) * dense_mlp
        + moe_layers * (shared + router)
        + hidden,
        expert=expert,
        experts=experts,
        expert_layers=moe_layers,
        per_token=config.get("num_experts_per_tok") or config.get("experts_per_token") or 0,
        unquantized=unquantized,
        replicated=layers * (norms + copied) + moe_layers * router + hidden,
        next_token=_next_token(config, attention + bias + norms + shared + router + expert * experts),
    )


def expert_count(config: Mapping[str, Any]) -> int:
    """Routed experts of a layer, 0 for dense models."""
    for name in ("n_routed_experts", "num_local_experts", "num_experts"):
        if config.get(name):
            return int(config[name])
    return 0


def expert_layers(config: Mapping[str, Any]) -> int:
    """Layers that have routed experts."""
    layers: int = config["num_hidden_layers"]
    if not expert_count(config):
        return 0
    first = config.get("first_k_dense_replace", 0)
    step = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or config.get("moe_layer_freq")
    step = step if isinstance(step, int) and step > 0 else 1
    dense = config.get("mlp_only_layers") or ()
    return sum(1 for i in range(first, layers) if i not in dense and (i + 1) % step == 0)


def _attention(family: Family, config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Weights of one layer's attention, its small 16-bit parts (biases, norms, sinks), and what TP copies."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if config.get("kv_lora_rank"):
        return _latent_attention(config)
    size, kv = config["head_dim"], config["num_key_value_heads"]
    wide, narrow = heads * size, kv * size
    biased = family.bias if family.bias != "config" else ("qkvo" if config.get("attention_bias") else "none")
    small = (wide + 2 * narrow) if biased != "none" else 0
    small += hidden if biased == "qkvo" and family.bias_o else 0
    norm = family.qk_norm if family.qk_norm != "config" else ("head" if config.get("use_qk_norm") else "none")
    norm_size = {"none": 0, "head": 2 * size, "all": wide + narrow}[norm]
    small += norm_size + (heads if family.sinks else 0)
    return hidden * wide * 2 + hidden * narrow * 2, small, norm_size


def _latent_attention(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """MLA (DeepSeek-V2, arXiv 2405.04434, appendix): down to the latent, up per head, with norms in between."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    query_rank = config.get("q_lora_rank")
    down = hidden * (rank + rope)
    if query_rank:
        query, norms = hidden * query_rank + query_rank * heads * (nope + rope), rank + query_rank
        down += hidden * query_rank
        query_down = hidden * query_rank
    else:
        query, norms, query_down = hidden * heads * (nope + rope), rank, 0
    total = down - query_down + query + rank * heads * (nope + value) + heads * value * hidden
    return total, norms, down + norms


def _expert(family: Family, config: Mapping[str, Any]) -> int:
    if not expert_count(config):
        return 0
    hidden = config["hidden_size"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    return int(3 * hidden * inner + (2 * inner + hidden if family.expert_bias else 0))


def _shared(config: Mapping[str, Any]) -> int:
    """Shared experts of one layer, with the gate of Qwen2-MoE."""
    hidden = config["hidden_size"]
    inner = config.get("moe_intermediate_size") or config["intermediate_size"]
    if config.get("shared_expert_intermediate_size"):
        return int(3 * hidden * config["shared_expert_intermediate_size"] + hidden)
    if "interleave_moe_layer_step" in config:  # Llama 4: always one
        return int(3 * hidden * inner)
    return int(3 * hidden * inner * (config.get("n_shared_experts") or 0))


def _next_token(config: Mapping[str, Any], layer: int) -> int:
    """Multi-token-prediction layers stored in the file: a layer, a 2h x h projection, three norms, and copies of the
    embedding and the head each (DeepSeek-V3, arXiv 2412.19437, section 2.2; the copies are in its checkpoint).
    """
    hidden = config["hidden_size"]
    copies = 2 * hidden * config["vocab_size"]
    return int((config.get("num_nextn_predict_layers") or 0) * (layer + 2 * hidden * hidden + 3 * hidden + copies))
