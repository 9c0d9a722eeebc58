"""The decoder architectures that are known, and what sets each apart.

A family says where its classes in Hugging Face transformers (src/transformers/models/*/modeling_*.py) differ from the
plain Llama layer: two RMS norms, q/k/v/o without bias, a gated MLP of three matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What sets an architecture apart.

    `bias`: which projections have one ("qkv", "qkvo", or "config": what attention_bias says, on q/k/v/o or, where
    `bias_o` is False, on q/k/v). `qk_norm`: one norm of head size for q and one for k ("head"), or over all heads
    ("all"). `window`: how sliding layers are laid out where layer_types does not tell. `defaults` are values of the
    configuration class that config.json may leave out.
    """

    norms: int = 2
    bias: Literal["none", "qkv", "qkvo", "config"] = "config"
    bias_o: bool = True
    qk_norm: Literal["none", "head", "all", "config"] = "none"
    tied: bool = False
    window: Literal["none", "all", "alternate", "pattern", "upper", "chunked"] = "none"
    expert_bias: bool = False
    router_bias: bool = False
    sinks: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_LLAMA = Family()
_MISTRAL = Family(bias="none", window="all")
_QWEN2 = Family(bias="qkv", window="upper")
_QWEN3 = Family(qk_norm="head", window="upper")
_DEEPSEEK = Family(router_bias=False)
_GEMMA3 = Family(
    norms=4,
    qk_norm="head",
    tied=True,
    window="pattern",
    defaults={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
)

FAMILIES: Mapping[str, Family] = {
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": Family(router_bias=True),
    "Gemma2ForCausalLM": Family(norms=4, tied=True, window="alternate", defaults={"head_dim": 256}),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "GemmaForCausalLM": Family(tied=True, defaults={"head_dim": 256}),
    "Glm4MoeForCausalLM": Family(bias_o=False, qk_norm="config", router_bias=True),
    "GptOssForCausalLM": Family(bias="qkvo", window="alternate", expert_bias=True, router_bias=True, sinks=True),
    "Llama4ForConditionalGeneration": Family(window="chunked"),
    "LlamaForCausalLM": _LLAMA,
    "MiniMaxM2ForCausalLM": Family(bias="none", qk_norm="all", router_bias=True),
    "Mistral3ForConditionalGeneration": _MISTRAL,
    "MistralForCausalLM": _MISTRAL,
    "MixtralForCausalLM": _MISTRAL,
    "Phi3ForCausalLM": _MISTRAL,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2MoeForCausalLM": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
}
