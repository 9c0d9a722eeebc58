"""Weight matrices of layers with a recurrent state, from their shape.

Gated delta nets: transformers modeling_qwen3_next.py and modeling_qwen3_5.py (in_proj of q, k, v, z; of b, a). Kimi
Delta Attention: vllm/model_executor/layers/kda.py. Mamba-2: vllm/model_executor/layers/mamba/mamba_mixer2.py (arXiv
2405.21060); Mamba-1: mamba_mixer.py (arXiv 2312.00752). Short convolutions: modeling_lfm2.py. Lightning attention:
modeling_minimax.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.catalog.architectures import Family
from auditor.catalog.mixers import small
from auditor.theory.kv.geometry import Recurrent
from auditor.theory.tensors import Tensor

__all__ = ["recurrent"]


def recurrent(family: Family, facts: Mapping[str, Any], groups: Iterable[Recurrent]) -> list[Tensor]:
    """Projections, convolutions, norms and state parameters of every recurrent layer."""
    builders = {"gdn": _gated_delta, "kda": _kimi_delta, "lightning": _lightning}
    kinds = {"mamba1": _mamba1, "mamba2": _mamba2, "short_conv": _short_conv, "linear": builders.get(family.state)}
    found: list[Tensor] = []
    for group in groups:
        build = kinds[group.kind]
        found += build(facts, group) if build else []
    return found


def _in(count: int, outputs: int, inputs: int, units: int, *, plain: bool = False) -> Tensor:
    return Tensor(
        part="recurrent", count=count, outputs=outputs, inputs=inputs, split="outputs", units=units, plain=plain
    )


def _out(count: int, outputs: int, inputs: int, units: int) -> Tensor:
    return Tensor(part="recurrent", count=count, outputs=outputs, inputs=inputs, split="inputs", units=units)


def _single(count: int, size: int, units: int) -> Tensor:
    """Decay and step parameters, which vLLM keeps in fp32."""
    return Tensor(part="norm", count=count, outputs=size, split="outputs", units=units, single=True)


def _gated_delta(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    hidden, count, heads, keys = facts["hidden_size"], group.count, group.heads, group.groups
    key, value = keys * group.state_size, heads * group.head_dim
    return [
        _in(count, 2 * key, hidden, keys),
        _in(count, 2 * value, hidden, heads),
        _in(count, 2 * heads, hidden, heads, plain=True),
        _in(count, 2 * key + value, group.conv_kernel, keys, plain=True),
        _single(count, heads, heads),
        small(count, heads, heads),
        small(count, group.head_dim),
        _out(count, hidden, value, heads),
    ]


def _kimi_delta(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    """q, k, v with a convolution each; decay through a bottleneck of head size; beta per head; an output gate."""
    hidden, count, heads = facts["hidden_size"], group.count, group.heads
    key, value, narrow = group.groups * group.state_size, heads * group.head_dim, group.head_dim
    full = bool((facts.get("linear_attn_config") or {}).get("use_full_rank_gate"))
    gate = [_in(count, value, hidden, heads)] if full else _bottleneck(count, hidden, narrow, value, heads)
    return [
        *(_in(2 * count, key, hidden, group.groups), _in(count, value, hidden, heads)),
        *_bottleneck(count, hidden, narrow, key, group.groups),
        *gate,
        _in(count, heads, hidden, heads, plain=True),
        _in(count, 2 * key + value, group.conv_kernel, group.groups, plain=True),
        _single(count, heads, heads),
        _single(count, key, group.groups),
        small(count, group.head_dim),
        _out(count, hidden, value, heads),
    ]


def _bottleneck(count: int, inputs: int, narrow: int, outputs: int, units: int) -> list[Tensor]:
    down = Tensor(part="recurrent", count=count, outputs=narrow, inputs=inputs)
    return [down, _in(count, outputs, narrow, units)]


def _lightning(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    """q, k, v in one, an output gate, and a norm over all heads."""
    hidden, count, heads = facts["hidden_size"], group.count, group.heads
    wide = heads * group.head_dim
    return [
        _in(count, 3 * wide, hidden, heads),
        _in(count, wide, hidden, heads),
        small(count, wide, heads),
        _out(count, hidden, wide, heads),
    ]


def _mamba2(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    """z, x, B, C and dt in one projection; B and C belong to groups, which are copied beyond their number."""
    hidden, count, heads = facts["hidden_size"], group.count, group.heads
    inner, shared = heads * group.head_dim, group.groups * group.state_size
    wide = inner + 2 * shared
    return [
        _in(count, 2 * inner + heads, hidden, heads),
        _in(count, 2 * shared, hidden, group.groups),
        _in(count, wide, group.conv_kernel, heads, plain=True),
        *([small(count, wide, heads)] if facts.get("use_conv_bias", facts.get("mamba_conv_bias", True)) else []),
        *(_single(count, heads, heads), _single(count, heads, heads), _single(count, heads, heads)),
        small(count, inner, heads),
        _out(count, hidden, inner, heads),
    ]


def _mamba1(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    """x and z; then dt (through a bottleneck), B and C from x."""
    hidden, count, inner, state = facts["hidden_size"], group.count, group.heads * group.head_dim, group.state_size
    told = facts.get("mamba_dt_rank", facts.get("time_step_rank"))
    rank = told if isinstance(told, int) else -(-hidden // 16)
    return [
        _in(count, 2 * inner, hidden, inner),
        _in(count, inner, group.conv_kernel, inner, plain=True),
        small(count, inner, inner),
        _out(count, rank + 2 * state, inner, inner),
        _in(count, inner, rank, inner),
        _single(count, inner * (state + 2), inner),
        *([small(count, rank + 2 * state)] if "mamba_d_state" in facts else []),  # Jamba norms dt, B and C
        _out(count, hidden, inner, inner),
    ]


def _short_conv(facts: Mapping[str, Any], group: Recurrent) -> list[Tensor]:
    hidden, count = facts["hidden_size"], group.count
    wide = group.heads * group.head_dim
    return [
        _in(count, 3 * wide, hidden, wide),
        _in(count, wide, group.conv_kernel, wide, plain=True),
        _out(count, hidden, wide, wide),
    ]
