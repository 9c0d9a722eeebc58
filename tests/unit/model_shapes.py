"""Small model shapes whose pools were read off running engines, and one well-known model, as config facts."""

from dataclasses import replace
from typing import Any

from auditor.catalog import hf
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings
from auditor.theory.weights import per_device_bytes

GIB = 1 << 30

_BASE: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-gqa": {**_BASE, "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2, "head_dim": 32},
    "qwen3": {
        **_BASE,
        "architectures": ["Qwen3ForCausalLM"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "use_sliding_window": False,
    },
    "mla": {
        **_BASE,
        "architectures": ["DeepseekV2ForCausalLM"],
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "8b-shape": {
        **_BASE,
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
    },
    "gemma3-hybrid": {
        **_BASE,
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": 512,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    },
}
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def shape(name: str, **changes: Any) -> Geometry:
    """One of the shapes above, with config facts changed."""
    config = LLAMA_8B if name == "llama-8b" else CONFIGS[name]
    return hf.geometry({**config, **changes}, name)


def device(**changes: Any) -> Device:
    """An H100 SXM by its data sheet: 3.35 TB/s, 989 TFLOP/s dense bf16, 1979 fp8; 79.2 GiB seen by programs."""
    facts: dict[str, Any] = {
        "key": "h100-sxm",
        "name": "H100 SXM5 80GB",
        "vendor": "nvidia",
        "kind": "gpu",
        "memory_bytes": 80 * GIB,
        "usable_bytes": int(79.2 * GIB),
        "bandwidth": 3.35e12,
        "flops": {"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12},
    }
    return Device(**{**facts, **changes})


def total_bytes(geometry: Geometry, settings: Settings) -> float:
    """One copy of the weights: on one device, without what vLLM and SGLang load beside them."""
    engine = settings.engine if settings.engine == "llamacpp" else "generic"
    alone = {"devices": 1, "tensor_parallel": 1, "data_parallel": 1, "pipeline_parallel": 1, "expert_parallel": 1}
    return per_device_bytes(geometry, replace(settings, engine=engine, **alone))
