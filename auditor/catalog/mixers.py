"""Weight matrices of attention layers, from config facts.

Shapes are those of the modules in Hugging Face transformers (src/transformers/models/*/modeling_*.py) and vLLM
(vllm/model_executor/models): q_proj, k_proj, v_proj, o_proj; MLA's are the DeepSeek-V2 paper's (arXiv 2405.04434,
appendix C), the sparse-attention indexer's DeepSeek-V3.2's (deepseek_v2.py, Indexer).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.catalog import compressed
from auditor.catalog.architectures import Family
from auditor.theory.kv.geometry import Indexer, Layers
from auditor.theory.tensors import Tensor

__all__ = ["attention", "linear", "small"]


def attention(
    family: Family, facts: Mapping[str, Any], layers: Iterable[Layers], indexer: Indexer | None
) -> list[Tensor]:
    """Projections, norms and biases of every attention layer, a sparse-attention indexer's included."""
    found: list[Tensor] = []
    if family.compressed:
        for group in layers:
            found += compressed.attention(facts, group)
        return found + (compressed.indexer(facts, indexer) if indexer else [])
    for group in layers:
        found += _latent(facts, group) if facts.get("kv_lora_rank") else _grouped(family, facts, group)
    return found + (_indexer(facts, indexer.count) if indexer else [])


def linear(count: int, outputs: int, inputs: int, units: int = 0) -> Tensor:
    """Attention projections divided by heads (`units`) on their output side."""
    return Tensor(part="attention", count=count, outputs=outputs, inputs=inputs, split="outputs", units=units)


def small(count: int, size: int, units: int = 0) -> Tensor:
    """Norms and biases: copied to every device, or divided by heads (`units`)."""
    return Tensor(part="norm", count=count, outputs=size, split="outputs" if units else "none", units=units)


def _output(count: int, outputs: int, inputs: int, units: int) -> Tensor:
    return Tensor(part="attention", count=count, outputs=outputs, inputs=inputs, split="inputs", units=units)


def _copied(count: int, outputs: int, inputs: int, *, plain: bool = False) -> Tensor:
    return Tensor(part="attention", count=count, outputs=outputs, inputs=inputs, plain=plain)


def _heads(facts: Mapping[str, Any], group: Layers) -> int:
    """Query heads; sliding layers may have a number of their own (MiMo-V2, Step-3.5)."""
    other = facts.get("attention_other_setting") or {}
    own = facts.get("swa_num_attention_heads") or other.get("num_attention_heads")
    return int(own) if own and group.kind == "sliding" else int(facts["num_attention_heads"])


def _grouped(family: Family, facts: Mapping[str, Any], group: Layers) -> list[Tensor]:
    """MHA, GQA and MQA. Layers that read another's cache project no keys and values of their own."""
    hidden, heads, kv = facts["hidden_size"], _heads(facts, group), group.kv_heads
    own = facts.get("num_mem_blocks") or group.count  # Zamba2's layers share blocks that see the embedding too
    every = own + group.readers
    wide, key, value = heads * group.qk_head_dim, kv * group.qk_head_dim, kv * group.v_head_dim
    out = heads * group.v_head_dim
    seen = hidden * (2 if facts.get("num_mem_blocks") else 1)
    alike = bool(facts.get("attention_k_eq_v")) and group.kind == "full"  # Gemma 4: values are the keys
    found = [
        linear(every, wide, seen, heads),
        linear(own, key, seen, kv),
        linear(0 if alike else own, value, seen, kv),
        _output(every, hidden, out, heads),
    ]
    if facts.get("attn_output_gate", family.gate):
        found.append(linear(every, out, hidden, heads))
    if facts.get("use_head_wise_attn_gate"):
        found.append(linear(every, heads, hidden, heads))
    return found + _grouped_small(family, facts, group, heads)


def _grouped_small(family: Family, facts: Mapping[str, Any], group: Layers, heads: int) -> list[Tensor]:
    """Biases, norms of queries and keys, and sinks."""
    kv, own, every = group.kv_heads, group.count, group.count + group.readers
    wide, key, value = heads * group.qk_head_dim, kv * group.qk_head_dim, kv * group.v_head_dim
    found: list[Tensor] = []
    biased = family.bias if family.bias != "config" else ("qkvo" if facts.get("attention_bias") else "none")
    if biased != "none":
        found += [small(every, wide, heads), small(own, key, kv), small(own, value, kv)]
    if biased == "qkvo" and family.bias_o:
        found.append(small(every, facts["hidden_size"]))
    norm = family.qk_norm if family.qk_norm != "config" else ("head" if facts.get("use_qk_norm") else "none")
    if norm == "head":
        found += [small(every, group.qk_head_dim), small(own, group.qk_head_dim)]
    elif norm == "all":
        found += [small(every, wide), small(own, key)]
    if family.sinks and (group.kind == "sliding" or not facts.get("add_swa_attention_sink_bias")):
        found.append(small(every, heads, heads))
    return found


def _latent(facts: Mapping[str, Any], group: Layers) -> list[Tensor]:
    """MLA: down to the latent on every device, up per head, with norms in between."""
    hidden, heads, rank = facts["hidden_size"], facts["num_attention_heads"], facts["kv_lora_rank"]
    nope, rope, value = facts["qk_nope_head_dim"], facts["qk_rope_head_dim"], facts["v_head_dim"]
    narrow, count = facts.get("q_lora_rank"), group.count
    found = [
        _copied(count, rank + rope, hidden),
        small(count, rank),
        linear(count, heads * (nope + value), rank, heads),
        _output(count, hidden, heads * value, heads),
    ]
    if narrow:
        found += [_copied(count, narrow, hidden), small(count, narrow)]
    found.append(linear(count, heads * (nope + rope), narrow or hidden, heads))
    if facts.get("mla_use_output_gate"):
        found.append(linear(count, heads * value, hidden, heads))
    return found


def _indexer(facts: Mapping[str, Any], count: int) -> list[Tensor]:
    """Queries from MLA's query latent, one key a token with its norm, and a weight per head; on every device."""
    size, heads = facts.get("index_head_dim", 0), facts.get("index_n_heads", 0)
    blocks = facts.get("sparse_attention_config")
    if isinstance(blocks, dict):  # MiniMax-M3: queries and keys from the hidden state, each with a norm
        size, heads = blocks.get("sparse_index_dim", 0), blocks.get("sparse_num_index_heads", 0)
        hidden = facts["hidden_size"]
        return [_copied(count, heads * size, hidden), _copied(count, size, hidden), small(2 * count, size)]
    hidden, rank = facts["hidden_size"], facts.get("q_lora_rank") or facts["hidden_size"]
    return [
        _copied(count, heads * size, rank),
        _copied(count, size, hidden),
        _copied(count, heads, hidden, plain=True),
        small(2 * count, size),
    ]
