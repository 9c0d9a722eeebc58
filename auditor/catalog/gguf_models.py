"""The architectures of GGUF files that are known, as llama.cpp reads them.

Sources: ggml-org/llama.cpp src/llama-arch.cpp (names), src/models/*.cpp (load_arch_hparams: windows, recurrent layers),
src/llama-model.cpp (load_swa_pattern).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["ARCHITECTURES", "Architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """`name` is Hugging Face's. `every`: each n-th layer attends to everything, the others slide where the file has a
    window (0: none slide, whatever the file says); `first`: it is the first of each n and not the last. `window` is the
    one that llama.cpp takes where the file has none; `chunked`: windows do not slide but start anew. `state`: what
    recurrent layers are; `interval`: each n-th layer is none (0: those without KV heads are).
    """

    name: str
    every: int = 0
    window: int | None = None
    first: bool = False
    chunked: bool = False
    state: Literal["none", "mamba1", "mamba2", "gdn", "kda", "lightning", "short_conv", "beside"] = "none"
    interval: int = 0


_NEVER = 1 << 30  # no layer attends to everything where the file has a window
ARCHITECTURES: Mapping[str, Architecture] = {
    "afmoe": Architecture("AfmoeForCausalLM", 4),
    "apertus": Architecture("ApertusForCausalLM"),
    "arcee": Architecture("ArceeForCausalLM"),
    "baichuan": Architecture("BaichuanForCausalLM"),
    "bailingmoe": Architecture("BailingMoeForCausalLM"),
    "bailingmoe2": Architecture("BailingMoeV2ForCausalLM"),
    "bailingmoe3": Architecture("BailingMoeV3ForCausalLM", state="kda"),
    "bloom": Architecture("BloomForCausalLM"),
    "chatglm": Architecture("ChatGLMModel"),
    "cohere2": Architecture("Cohere2ForCausalLM", 4),
    "cohere2moe": Architecture("Cohere2MoeForCausalLM", 4),
    "command-r": Architecture("CohereForCausalLM"),
    "dbrx": Architecture("DbrxForCausalLM"),
    "deci": Architecture("DeciLMForCausalLM"),
    "deepseek": Architecture("DeepseekForCausalLM"),
    "deepseek2": Architecture("DeepseekV3ForCausalLM"),
    "deepseek32": Architecture("DeepseekV32ForCausalLM"),
    "dots1": Architecture("Dots1ForCausalLM"),
    "ernie4_5": Architecture("Ernie4_5ForCausalLM"),
    "ernie4_5-moe": Architecture("Ernie4_5_MoeForCausalLM"),
    "exaone": Architecture("ExaoneForCausalLM"),
    "exaone-moe": Architecture("ExaoneMoEForCausalLM", 4, 128),
    "exaone4": Architecture("Exaone4ForCausalLM", 4, 4096),
    "falcon": Architecture("FalconForCausalLM"),
    "falcon-h1": Architecture("FalconH1ForCausalLM", state="beside"),
    "gemma": Architecture("GemmaForCausalLM"),
    "gemma2": Architecture("Gemma2ForCausalLM", 2, 4096),
    "gemma3": Architecture("Gemma3ForCausalLM", 6),
    "gemma3n": Architecture("Gemma3nForCausalLM", 5),
    "gemma4": Architecture("Gemma4ForCausalLM", 6),
    "glm-dsa": Architecture("GlmMoeDsaForCausalLM"),
    "glm4": Architecture("Glm4ForCausalLM"),
    "glm4moe": Architecture("Glm4MoeForCausalLM"),
    "gpt-oss": Architecture("GptOssForCausalLM", 2),
    "gpt2": Architecture("GPT2LMHeadModel"),
    "gptj": Architecture("GPTJForCausalLM"),
    "gptneox": Architecture("GPTNeoXForCausalLM"),
    "granite": Architecture("GraniteForCausalLM"),
    "granitehybrid": Architecture("GraniteMoeHybridForCausalLM", state="mamba2"),
    "granitemoe": Architecture("GraniteMoeForCausalLM"),
    "hunyuan-dense": Architecture("HunYuanDenseV1ForCausalLM"),
    "hunyuan-moe": Architecture("HunYuanMoEV1ForCausalLM"),
    "hy_v3": Architecture("HYV3ForCausalLM"),
    "internlm2": Architecture("InternLM2ForCausalLM"),
    "jamba": Architecture("JambaForCausalLM", state="mamba1"),
    "kimi-k3": Architecture("KimiLinearForCausalLM", state="kda"),
    "kimi-linear": Architecture("KimiLinearForCausalLM", state="kda"),
    "laguna": Architecture("LagunaForCausalLM", 4, first=True),
    "lfm2": Architecture("Lfm2ForCausalLM", _NEVER, state="short_conv"),
    "lfm2moe": Architecture("Lfm2MoeForCausalLM", state="short_conv"),
    "llama": Architecture("LlamaForCausalLM"),
    "llama4": Architecture("Llama4ForCausalLM", 4, 8192, chunked=True),
    "mellum": Architecture("MellumForCausalLM", 4),
    "mimo2": Architecture("MiMoV2FlashForCausalLM", 6),
    "minicpm": Architecture("MiniCPMForCausalLM"),
    "minicpm3": Architecture("MiniCPM3ForCausalLM"),
    "minimax-01": Architecture("MiniMaxText01ForCausalLM", state="lightning", interval=8),
    "minimax-m2": Architecture("MiniMaxM2ForCausalLM"),
    "mistral3": Architecture("Mistral3ForConditionalGeneration"),
    "mistral4": Architecture("Mistral4ForCausalLM"),
    "nemotron": Architecture("NemotronForCausalLM"),
    "nemotron_h": Architecture("NemotronHForCausalLM", state="mamba2"),
    "nemotron_h_moe": Architecture("NemotronHForCausalLM", state="mamba2"),
    "olmo": Architecture("OlmoForCausalLM"),
    "olmo2": Architecture("Olmo3ForCausalLM", 4),
    "olmoe": Architecture("OlmoeForCausalLM"),
    "orion": Architecture("OrionForCausalLM"),
    "phi2": Architecture("PhiForCausalLM"),
    "phi3": Architecture("Phi3ForCausalLM"),
    "phimoe": Architecture("PhimoeForCausalLM"),
    "plamo3": Architecture("Plamo3ForCausalLM", 8),
    "qwen": Architecture("QWenLMHeadModel"),
    "qwen2": Architecture("Qwen2ForCausalLM"),
    "qwen2moe": Architecture("Qwen2MoeForCausalLM"),
    "qwen2vl": Architecture("Qwen2VLForConditionalGeneration"),
    "qwen3": Architecture("Qwen3ForCausalLM"),
    "qwen35": Architecture("Qwen3_5ForCausalLM", state="gdn", interval=4),
    "qwen35moe": Architecture("Qwen3_5MoeForCausalLM", state="gdn", interval=4),
    "qwen3moe": Architecture("Qwen3MoeForCausalLM"),
    "qwen3next": Architecture("Qwen3NextForCausalLM", state="gdn", interval=4),
    "qwen3vl": Architecture("Qwen3VLForConditionalGeneration"),
    "qwen3vlmoe": Architecture("Qwen3VLMoeForConditionalGeneration"),
    "seed_oss": Architecture("SeedOssForCausalLM"),
    "smallthinker": Architecture("SmallThinkerForCausalLM", 4, first=True),
    "smollm3": Architecture("SmolLM3ForCausalLM"),
    "stablelm": Architecture("StableLmForCausalLM"),
    "starcoder": Architecture("GPTBigCodeForCausalLM"),
    "starcoder2": Architecture("Starcoder2ForCausalLM"),
    "step35": Architecture("Step3p5ForCausalLM", 4, first=True),
    "xverse": Architecture("XverseForCausalLM"),
}
