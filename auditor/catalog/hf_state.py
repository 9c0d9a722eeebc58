"""The recurrent layers of a model from its config facts: what state each keeps for a sequence."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from auditor.catalog.architectures import Family
from auditor.catalog.hf_facts import whole
from auditor.catalog.hf_layers import Mixer
from auditor.theory.kv.geometry import Recurrent, RecurrentKind

__all__ = ["recurrent"]

_ELEMENT = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


def recurrent(family: Family, facts: Mapping[str, Any], kinds: Sequence[Mixer], name: str) -> tuple[Recurrent, ...]:
    """The layers with a recurrent state; empty for a model of attention alone.

    Shapes as vLLM and SGLang allocate them (vllm/model_executor/layers/mamba/mamba_utils.py,
    sglang/srt/configs/mamba_utils.py). Raises UsageError where a size is missing.
    """
    count = sum(kind in ("state", "both") for kind in kinds)
    if not count:
        return ()
    kind, shape = _SHAPES[family.state]
    heads, head_dim, state_size, groups, kernel = shape(facts, name)
    return (
        Recurrent(
            kind=kind,
            count=count,
            heads=heads,
            head_dim=head_dim,
            state_size=state_size,
            groups=groups,
            conv_kernel=kernel,
            state_bytes=_state_bytes(family, facts),
        ),
    )


def _state_bytes(family: Family, facts: Mapping[str, Any]) -> float | None:
    """Bytes of one element of the state's matrix: what the config asks for, else what engines give this family."""
    asked = facts.get("mamba_ssm_dtype") or facts.get("mamba_ssm_cache_dtype")
    return _ELEMENT.get(str(asked).removeprefix("torch."), family.state_bytes)


def _gdn(facts: Mapping[str, Any], name: str) -> tuple[int, int, int, int, int]:
    """Gated delta nets (Qwen3-Next): value heads hold value x key matrices; the window covers q, k and v."""
    return (
        whole(facts, "linear_num_value_heads", name),
        whole(facts, "linear_value_head_dim", name),
        whole(facts, "linear_key_head_dim", name),
        whole(facts, "linear_num_key_heads", name),
        whole(facts, "linear_conv_kernel_dim", name),
    )


def _kda(facts: Mapping[str, Any], name: str) -> tuple[int, int, int, int, int]:
    """Kimi delta attention: as many key heads as value heads, of one size."""
    linear = facts.get("linear_attn_config")
    if isinstance(linear, dict):
        heads, size = whole(linear, "num_heads", name), whole(linear, "head_dim", name)
        return heads, size, size, heads, whole(linear, "short_conv_kernel_size", name)
    if facts.get("linear_num_heads"):
        heads, size = whole(facts, "linear_num_heads", name), whole(facts, "linear_head_dim", name)
        return heads, size, size, heads, whole(facts, "linear_conv_kernel_dim", name)
    heads, size = facts["num_attention_heads"], facts["head_dim"]
    return heads, size, size, heads, whole(facts, "short_conv_kernel_size", name)


def _lightning(facts: Mapping[str, Any], _: str) -> tuple[int, int, int, int, int]:
    """Lightning attention: one matrix a head and no convolution."""
    return facts["num_attention_heads"], facts["head_dim"], facts["head_dim"], 0, 1


def _mamba1(facts: Mapping[str, Any], name: str) -> tuple[int, int, int, int, int]:
    """Mamba-1: each channel is a head of one; B and C do not pass through the convolution."""
    channels = whole(facts, "mamba_expand", name) * facts["hidden_size"]
    return channels, 1, whole(facts, "mamba_d_state", name), 0, whole(facts, "mamba_d_conv", name)


def _mamba2(facts: Mapping[str, Any], name: str) -> tuple[int, int, int, int, int]:
    """Mamba-2 under the three sets of names: Nemotron-H; Bamba, Granite 4 and Falcon-H1; Zamba2."""
    if facts.get("mamba_num_heads"):
        heads, size, state, groups, kernel = (
            whole(facts, key, name)
            for key in ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")
        )
        return heads, size, state, groups, kernel
    zamba = bool(facts.get("n_mamba_heads"))
    heads = whole(facts, "n_mamba_heads" if zamba else "mamba_n_heads", name)
    size_key = "mamba_headdim" if zamba else "mamba_d_head"
    if isinstance(facts.get(size_key), int):
        size = whole(facts, size_key, name)
    else:  # "auto", or left out: the inner width over the heads
        inner = facts.get("mamba_d_ssm") or whole(facts, "mamba_expand", name) * facts["hidden_size"]
        size = max(1, inner // heads)
    groups = facts.get("mamba_ngroups" if zamba else "mamba_n_groups") or 1
    return heads, size, whole(facts, "mamba_d_state", name), groups, whole(facts, "mamba_d_conv", name)


def _short_conv(facts: Mapping[str, Any], name: str) -> tuple[int, int, int, int, int]:
    """Gated short convolutions (LFM2): a window of hidden_size channels and nothing else."""
    return facts.get("conv_dim") or facts["hidden_size"], 1, 0, 0, whole(facts, "conv_L_cache", name)


_SHAPES: Mapping[str, tuple[RecurrentKind, Callable[[Mapping[str, Any], str], tuple[int, int, int, int, int]]]] = {
    "gdn": ("linear", _gdn),
    "kda": ("linear", _kda),
    "lightning": ("linear", _lightning),
    "mamba1": ("mamba1", _mamba1),
    "mamba2": ("mamba2", _mamba2),
    "short_conv": ("short_conv", _short_conv),
}
