"""Weight matrices that only DeepSeek-V4's layers have, from config facts.

Shapes are those of vLLM's modules (vllm/models/deepseek_v4/attention.py, compressor.py, nvidia/model.py): queries and
the output pass through a narrow space, keys and values are one vector for all heads, compressors pool tokens into
entries, and the hidden state runs in several streams (hyper-connections).
"""

from collections.abc import Mapping
from typing import Any

from auditor.theory.kv.geometry import Indexer, Layers
from auditor.theory.tensors import Tensor

__all__ = ["attention", "indexer", "streams"]

_OVERLAPS = 4  # compressors of this ratio see two windows at a time


def attention(facts: Mapping[str, Any], group: Layers) -> list[Tensor]:
    """A group's projections and, where it compresses, its compressors."""
    hidden, heads, size, count = facts["hidden_size"], facts["num_attention_heads"], group.qk_head_dim, group.count
    narrow, out, parts = facts["q_lora_rank"], facts["o_lora_rank"], facts["o_groups"]
    found = [
        _copied(count, narrow + size, hidden),
        _small(count, narrow + size),
        _split(count, heads * size, narrow, heads),
        _split(count, parts * out, heads * size // parts, parts),
        Tensor(part="attention", count=count, outputs=hidden, inputs=parts * out, split="inputs", units=parts),
        Tensor(part="norm", count=count, outputs=heads, split="outputs", units=heads, single=True),
    ]
    return found + (_compressor(facts, count, size, group.compression) if group.kind == "compressed" else [])


def indexer(facts: Mapping[str, Any], probe: Indexer) -> list[Tensor]:
    """Queries from the narrow space, a weight a head, and a compressor of keys; on every device."""
    hidden, heads, size = facts["hidden_size"], facts["index_n_heads"], facts["index_head_dim"]
    return [
        _copied(probe.count, heads * size, facts["q_lora_rank"]),
        _copied(probe.count, heads, hidden, plain=True),
        *_compressor(facts, probe.count, size, probe.compression),
    ]


def streams(facts: Mapping[str, Any], layers: int) -> list[Tensor]:
    """How the streams are mixed before and after attention and MLP and at the end, in fp32; biases of routers, and the
    tables by which the first layers choose experts from the token itself.
    """
    number, hidden, experts = facts.get("hc_mult") or 0, facts["hidden_size"], facts["n_routed_experts"]
    mixes, hashed = (2 + number) * number, min(facts.get("num_hash_layers") or 0, layers)
    found = [
        Tensor(part="router", count=layers - hashed, outputs=experts, single=True),
        Tensor(
            part="lookup", count=hashed, outputs=facts["vocab_size"], inputs=facts["num_experts_per_tok"], single=True
        ),
    ]
    if number:
        found += [
            Tensor(part="router", count=2 * layers, outputs=mixes, inputs=number * hidden, single=True),
            Tensor(part="norm", count=2 * layers, outputs=mixes + 3, single=True),
            Tensor(part="router", count=1, outputs=number, inputs=number * hidden, single=True),
            Tensor(part="norm", count=1, outputs=number + 1, single=True),
        ]
    return found


def _compressor(facts: Mapping[str, Any], count: int, size: int, ratio: int) -> list[Tensor]:
    """Values and their weights, learned positions within a window, a norm."""
    width = size * (2 if ratio == _OVERLAPS else 1)
    return [
        _copied(count, 2 * width, facts["hidden_size"], plain=True),
        Tensor(part="norm", count=count, outputs=ratio, inputs=width, single=True),
        _small(count, size),
    ]


def _copied(count: int, outputs: int, inputs: int, *, plain: bool = False) -> Tensor:
    return Tensor(part="attention", count=count, outputs=outputs, inputs=inputs, plain=plain)


def _split(count: int, outputs: int, inputs: int, units: int) -> Tensor:
    return Tensor(part="attention", count=count, outputs=outputs, inputs=inputs, split="outputs", units=units)


def _small(count: int, size: int) -> Tensor:
    return Tensor(part="norm", count=count, outputs=size)
