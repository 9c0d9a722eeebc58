"""The decoder architectures that are known, and what sets each apart from a plain Llama layer.

A family says where its classes in Hugging Face transformers (src/transformers/models/*/modeling_*.py and
configuration_*.py) and vLLM (vllm/model_executor/models) differ from Llama's: two RMS norms, q/k/v/o without bias, a
gated MLP of three matrices, full attention in every layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What sets an architecture apart.

    Parameters. `norms` a layer; `norm_bias`: LayerNorms with one. `bias`: which projections have one ("qkv", "qkvo", or
    "config": what attention_bias says, on q/k/v/o or, where `bias_o` is False, on q/k/v). `qk_norm`: one norm of head
    size for q and one for k ("head"), or over all heads ("all"). `mlp`: gated of three matrices or plain of two, with
    `mlp_bias`. `gate`: attention's output is gated by another projection as wide as q. `tied`: input embedding and
    lm_head are one where the config does not tell. `positions`: learned positions are stored.

    Layers. `window`: how sliding layers are laid out where layer_types does not tell: "all", all but each `every`-th
    ("every"), from max_window_layers on ("upper"), chunked but each fourth ("chunked"). `state`: what its recurrent
    layers are, `state_bytes` those of a state's element where the config does not tell (None: the compute dtype's).
    `latent`: whether what MLA caches is the latent. `compressed`: DeepSeek-V4's layers, which cache one vector for many
    tokens beside a window. `indexer`: which layout its sparse-attention indexer has. `shared`:
    the last num_kv_shared_layers read the caches of earlier layers. `defaults` are values of the configuration class
    that config.json may leave out.
    """

    norms: int = 2
    norm_bias: bool = False
    bias: Literal["none", "qkv", "qkvo", "config"] = "config"
    bias_o: bool = True
    qk_norm: Literal["none", "head", "all", "config"] = "none"
    mlp: Literal["gated", "plain"] = "gated"
    mlp_bias: bool = False
    gate: bool = False
    tied: bool = False
    positions: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    sinks: bool = False
    window: Literal["none", "all", "every", "upper", "chunked"] = "none"
    every: int = 2
    state: Literal["none", "gdn", "kda", "lightning", "mamba1", "mamba2", "short_conv"] = "none"
    state_bytes: float | None = None
    latent: bool = True
    compressed: bool = False
    indexer: Literal["none", "dsa", "blocks"] = "none"
    shared: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_LLAMA = Family(
    defaults={
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    }
)
_PLAIN = Family()
_MPT = Family(bias="none", mlp="plain", tied=True)
_MISTRAL = Family(
    bias="none",
    window="all",
    defaults={**_LLAMA.defaults, "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096},
)
_MINISTRAL = replace(_MISTRAL, window="none", defaults={})
_MIXTRAL = replace(_MISTRAL, defaults={})
_QWEN2 = Family(bias="qkv", window="upper")
_QWEN3 = Family(qk_norm="head", window="upper")
_QWEN_GDN = Family(qk_norm="head", gate=True, state="gdn", defaults={"full_attention_interval": 4, "head_dim": 256})
_DEEPSEEK = Family()
_DEEPSEEK_V3 = Family(router_bias=True)
_DSA = replace(_DEEPSEEK_V3, indexer="dsa")
_COMPRESSED = Family(bias="none", compressed=True, indexer="dsa", defaults={"head_dim": 512})
_GEMMA = Family(tied=True, defaults={"head_dim": 256})
_GEMMA2 = Family(norms=4, tied=True, window="every", every=2, defaults={"head_dim": 256, "sliding_window": 4096})
_GEMMA3 = Family(
    norms=4,
    qk_norm="head",
    tied=True,
    window="every",
    every=6,
    defaults={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
)
_GEMMA3N = replace(
    _GEMMA3,
    every=5,
    shared=True,
    defaults={
        "vocab_size": 262400,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 32768,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
    },
)
_GEMMA4 = replace(
    _GEMMA3,
    shared=True,
    defaults={
        "vocab_size": 262144,
        "head_dim": 256,
        "global_head_dim": 512,
        "max_position_embeddings": 131072,
        "sliding_window": 512,
        "vocab_size_per_layer_input": 262144,
    },
)
_LAYER_NORM = Family(norm_bias=True, mlp="plain", mlp_bias=True, bias="qkvo")
_GLM = Family(bias_o=False)
_GLM_MOE = Family(bias_o=False, qk_norm="config", router_bias=True)
_GRANITE_MOE = Family()
_MAMBA2 = Family(state="mamba2")
_NEMOTRON_H = Family(norms=1, mlp="plain", router_bias=True, state="mamba2", state_bytes=4.0)
_SHORT_CONV = Family(qk_norm="head", tied=True, state="short_conv")
_BAILING = Family(qk_norm="config", router_bias=True)
_BAILING_LINEAR = replace(_BAILING, state="lightning")
_LIGHTNING = Family(bias="none", state="lightning")
_KDA = Family(router_bias=True, state="kda", state_bytes=4.0)
_MINIMAX_M3 = Family(bias="none", qk_norm="head", router_bias=True, indexer="blocks")
_MIMO_V2 = Family(bias="none", router_bias=True, sinks=True, defaults={"head_dim": 192, "v_head_dim": 128})
_STEP = Family(bias="config", qk_norm="head", router_bias=True, window="every", every=4)
_HUNYUAN = Family(qk_norm="config")
_ERNIE = Family(tied=True, defaults={"head_dim": 128})
_OLMO2 = Family(qk_norm="all")
_WINDOW = {"sliding_window": 4096}
_EXAONE4 = Family(bias="none", qk_norm="head", window="every", every=4, defaults=_WINDOW)
_COHERE2 = Family(norms=1, tied=True, window="every", every=4, defaults=_WINDOW)

FAMILIES: Mapping[str, Family] = {
    "AfmoeForCausalLM": Family(
        norms=4,
        qk_norm="head",
        gate=True,
        router_bias=True,
        window="every",
        every=4,
        defaults={"head_dim": 128, "sliding_window": 1024},
    ),
    "ApertusForCausalLM": Family(qk_norm="head", mlp="plain"),
    "ArceeForCausalLM": Family(mlp="plain"),
    "BaiChuanForCausalLM": _PLAIN,
    "BaichuanForCausalLM": _PLAIN,
    "BailingMoeForCausalLM": _BAILING,
    "BailingMoeLinearForCausalLM": _BAILING_LINEAR,
    "BailingMoeLinearV2ForCausalLM": _BAILING_LINEAR,
    "BailingMoeV2ForCausalLM": _BAILING,
    "BailingMoeV2_5ForCausalLM": _BAILING_LINEAR,
    "BailingMoeV3ForCausalLM": replace(_BAILING, state="kda", state_bytes=4.0),
    "BambaForCausalLM": _MAMBA2,
    "BloomForCausalLM": replace(_LAYER_NORM, tied=True),
    "ChatGLMForConditionalGeneration": _GLM,
    "ChatGLMModel": _GLM,
    "Cohere2ForCausalLM": _COHERE2,
    "Cohere2MoeForCausalLM": _COHERE2,
    "CohereForCausalLM": Family(norms=1, qk_norm="config", tied=True),
    "CwmForCausalLM": Family(bias="none", window="every", every=4, defaults={"sliding_window": 8192}),
    "DbrxForCausalLM": Family(bias="none"),
    "DeciLMForCausalLM": _PLAIN,
    "DeepseekForCausalLM": _DEEPSEEK,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DSA,
    "DeepseekV3ForCausalLM": _DEEPSEEK_V3,
    "DeepseekV4ForCausalLM": _COMPRESSED,
    "Dots1ForCausalLM": Family(qk_norm="head", router_bias=True, window="upper"),
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_ForCausalLM": _ERNIE,
    "Ernie4_5_MoeForCausalLM": replace(_ERNIE, router_bias=True, defaults={}),
    "Exaone4ForCausalLM": _EXAONE4,
    "ExaoneForCausalLM": _PLAIN,
    "ExaoneMoEForCausalLM": replace(_EXAONE4, router_bias=True),
    "ExaoneMoeForCausalLM": replace(_EXAONE4, router_bias=True),
    "FalconForCausalLM": Family(norms=1, norm_bias=True, mlp="plain", bias="none", tied=True),
    "FalconH1ForCausalLM": _MAMBA2,
    "FlexOlmoForCausalLM": Family(qk_norm="all"),
    "GPT2LMHeadModel": replace(_LAYER_NORM, tied=True, positions=True, defaults={"vocab_size": 50257}),
    "GPTBigCodeForCausalLM": replace(_LAYER_NORM, tied=True, positions=True),
    "GPTJForCausalLM": Family(norms=1, norm_bias=True, mlp="plain", mlp_bias=True, bias="none"),
    "GPTNeoXForCausalLM": _LAYER_NORM,
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma4ForCausalLM": _GEMMA4,
    "GemmaForCausalLM": _GEMMA,
    "Glm4ForCausalLM": replace(_GLM, norms=4),
    "Glm4MoeForCausalLM": _GLM_MOE,
    "Glm4MoeLiteForCausalLM": _DEEPSEEK_V3,
    "GlmForCausalLM": _GLM,
    "GlmMoeDsaForCausalLM": _DSA,
    "GptOssForCausalLM": Family(
        bias="qkvo",
        window="every",
        every=2,
        expert_bias=True,
        router_bias=True,
        sinks=True,
        defaults={"head_dim": 64, "sliding_window": 128},
    ),
    "GraniteForCausalLM": _PLAIN,
    "GraniteMoeForCausalLM": _GRANITE_MOE,
    "GraniteMoeHybridForCausalLM": _MAMBA2,
    "GraniteMoeSWAForCausalLM": Family(sinks=True),
    "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
    "GraniteSWAForCausalLM": Family(tied=True, sinks=True),
    "Grok1ForCausalLM": Family(norms=4),
    "HYV3ForCausalLM": Family(qk_norm="head", router_bias=True, defaults={"head_dim": 128}),
    "HunYuanDenseV1ForCausalLM": _HUNYUAN,
    "HunYuanMoEV1ForCausalLM": _HUNYUAN,
    "HyperCLOVAXForCausalLM": _PLAIN,
    "IQuestCoderForCausalLM": _PLAIN,
    "InternLM2ForCausalLM": _PLAIN,
    "InternLM3ForCausalLM": _PLAIN,
    "InternLMForCausalLM": Family(bias="qkvo"),
    "Jais2ForCausalLM": Family(norm_bias=True, mlp="plain"),
    "JambaForCausalLM": Family(bias="none", state="mamba1", defaults={"attn_layer_period": 8, "attn_layer_offset": 4}),
    "KimiLinearForCausalLM": _KDA,
    "LLaMAForCausalLM": _LLAMA,
    "LagunaForCausalLM": Family(qk_norm="head", gate=True, router_bias=True, defaults={"head_dim": 128}),
    "Lfm2ForCausalLM": _SHORT_CONV,
    "Lfm2MoeForCausalLM": replace(_SHORT_CONV, router_bias=True),
    "Llama4ForCausalLM": Family(window="chunked"),
    "LlamaForCausalLM": _LLAMA,
    "LongcatFlashForCausalLM": _DEEPSEEK_V3,
    "MPTForCausalLM": _MPT,
    "MellumForCausalLM": Family(qk_norm="head", defaults={"head_dim": 128}),
    "MiMoForCausalLM": _QWEN2,
    "MiMoV2FlashForCausalLM": _MIMO_V2,
    "MiMoV2ForCausalLM": _MIMO_V2,
    "MiniCPM3ForCausalLM": Family(latent=False, tied=True),
    "MiniCPMForCausalLM": Family(tied=True),
    "MiniMaxForCausalLM": _LIGHTNING,
    "MiniMaxM1ForCausalLM": _LIGHTNING,
    "MiniMaxM2ForCausalLM": Family(bias="none", qk_norm="all", router_bias=True, defaults={"head_dim": 128}),
    "MiniMaxM3ForCausalLM": _MINIMAX_M3,
    "MiniMaxM3SparseForCausalLM": _MINIMAX_M3,
    "MiniMaxText01ForCausalLM": _LIGHTNING,
    "Ministral3ForCausalLM": _MINISTRAL,
    "Mistral4ForCausalLM": _DEEPSEEK,
    "MistralForCausalLM": _MISTRAL,
    "MistralLarge3ForCausalLM": _DEEPSEEK,
    "MixtralForCausalLM": _MIXTRAL,
    "MptForCausalLM": _MPT,
    "NanbeigeForCausalLM": _PLAIN,
    "NemotronForCausalLM": Family(norm_bias=True, mlp="plain"),
    "NemotronHForCausalLM": _NEMOTRON_H,
    "NemotronHPuzzleForCausalLM": _NEMOTRON_H,
    "OPTForCausalLM": replace(_LAYER_NORM, tied=True, positions=True),
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": replace(_OLMO2, window="every", every=4, defaults=_WINDOW),
    "OlmoForCausalLM": Family(norms=0),
    "OlmoHybridForCausalLM": Family(qk_norm="all", state="gdn"),
    "OlmoeForCausalLM": Family(qk_norm="all"),
    "OrionForCausalLM": Family(norm_bias=True),
    "Phi3ForCausalLM": replace(_MISTRAL, defaults={}),
    "PhiForCausalLM": replace(_LAYER_NORM, norms=1),
    "PhiMoEForCausalLM": Family(norm_bias=True, window="all"),
    "PhimoeForCausalLM": Family(norm_bias=True, window="all"),
    "QWenLMHeadModel": Family(bias="qkv"),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2MoeForCausalLM": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3,
    "Qwen3NextForCausalLM": _QWEN_GDN,
    "Qwen3_5ForCausalLM": _QWEN_GDN,
    "Qwen3_5MoeForCausalLM": _QWEN_GDN,
    "SarvamMLAForCausalLM": _DEEPSEEK_V3,
    "SarvamMoEForCausalLM": _BAILING,
    "SeedOssForCausalLM": Family(bias="config", bias_o=False, defaults={"head_dim": 128}),
    "SmolLM3ForCausalLM": Family(tied=True, window="upper"),
    "SolarForCausalLM": _PLAIN,
    "SolarOpenForCausalLM": Family(bias_o=False, router_bias=True, defaults={"head_dim": 128}),
    "StableLMEpochForCausalLM": Family(norm_bias=True, bias_o=False),
    "StableLmForCausalLM": Family(norm_bias=True, bias_o=False),
    "Starcoder2ForCausalLM": replace(_LAYER_NORM, tied=True, window="all"),
    "Step3TextForCausalLM": Family(bias="none"),
    "Step3p5ForCausalLM": _STEP,
    "Step3p7FlashForCausalLM": _STEP,
    "Step3p7ForCausalLM": _STEP,
    "TeleChat3ForCausalLM": _PLAIN,
    "VaultGemmaForCausalLM": replace(_GEMMA2, norms=2),
    "XverseForCausalLM": _PLAIN,
    "YiForCausalLM": _PLAIN,
    "Zamba2ForCausalLM": replace(_MAMBA2, tied=True),
}
