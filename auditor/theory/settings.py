"""The explicit values that theory takes. `engines` resolves profile, launch flags, served facts and defaults into
them.
"""

from dataclasses import dataclass

from auditor.theory.kv.geometry import Layers

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One engine instance (replica). None means: the engine has no such setting, or it is unknown.

    `weight_bits` and `kv_bytes` are per element (kv_bytes 1 for fp8, 34/32 for q8_0). `memory_fraction` is
    gpu_memory_utilization (vLLM), mem_fraction_static (SGLang) or free_gpu_memory_fraction (TensorRT-LLM).
    `kv_pool_bytes` and `kv_pool_tokens` are pools that a flag fixes outright, or bytes that a log tells: of SGLang and
    llama.cpp those of keys and values alone, without states and drafts. `slots`, `ubatch`, `kv_unified` and
    `full_swa_cache` are llama.cpp's (-np, -ub, --kv-unified, --swa-full); its `max_model_len` is the context per slot.
    `captured_batch` is the largest batch captured as a kernel graph (SGLang --cuda-graph-max-bs, vLLM's largest
    capture size); larger batches run without.
    `decode_context_parallel` devices of a TP group share one request's tokens (vLLM). `draft_layers` are full attention
    layers of the draft (None: one where `speculative_tokens` are drafted), like the target's; `draft` those of a draft
    model of its own, where they are known. Recurrent state: `mamba_cache_mode` is
    vLLM's ("none", "all", "align"), `mamba_slots` SGLang's --max-mamba-cache-size, `mamba_full_ratio` its
    --mamba-full-memory-ratio; `state_bytes` of one matrix element where a flag sets it (None: as the model asks),
    `conv_bytes` of one element of the convolution window (None: the compute dtype's). `weight_bytes` are the weights of
    one device where they are known from elsewhere (a log line); None: they are computed from the model.
    `vendor` of the device ("nvidia", "amd", ...) and CUDA's `capability` of it decide how kernels lay weights out.
    `steps_in_flight` batches are scheduled before the first has ended (vLLM: 2 with async scheduling, more with
    pipeline stages; None: as its release does on GPUs).
    `prefix_caching` keeps finished requests' tokens for reuse (SGLang's radix cache, which then holds several states
    for each running request). `key_bytes` and `value_bytes` are those of one element where two flags tell them apart
    (llama.cpp -ctk, -ctv; None: `kv_bytes`). `latent_cache` False keeps MLA's keys and values of every head
    (ik_llama.cpp -mla 0). `window_pools` says that TensorRT-LLM was given the model's windows (max_attention_window),
    so that sliding layers have pools of their own. `disaggregated`: prompts and replies are worked on by instances of
    their own, of which this is one ("prefill", "decode", or "yes" where it is not told which). Where `fused_attention`
    is False, scores are written to memory and read again (llama.cpp without -fa).
    """

    engine: str
    engine_version: str | None = None
    devices: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1
    compute_dtype: str = "bf16"
    weight_bits: float = 16.0
    quantization: str | None = None
    kv_bytes: float = 2.0
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    memory_fraction: float | None = None
    kv_pool_bytes: int | None = None
    kv_pool_tokens: int | None = None
    enforce_eager: bool = False
    hybrid_kv_manager: bool = True
    speculative_tokens: int = 0
    slots: int | None = None
    ubatch: int | None = None
    kv_unified: bool = False
    full_swa_cache: bool = False
    swa_full_tokens_ratio: float = 0.8
    captured_batch: int | None = None
    decode_context_parallel: int = 1
    draft_layers: int | None = None
    draft: tuple[Layers, ...] = ()
    mamba_cache_mode: str | None = None
    mamba_slots: int | None = None
    mamba_full_ratio: float = 0.9
    state_bytes: float | None = None
    conv_bytes: float | None = None
    weight_bytes: float | None = None
    vendor: str | None = None
    capability: tuple[int, int] | None = None
    steps_in_flight: int | None = None
    prefix_caching: bool = True
    key_bytes: float | None = None
    value_bytes: float | None = None
    latent_cache: bool = True
    window_pools: bool = False
    disaggregated: str | None = None
    fused_attention: bool = True

    @property
    def plain_dtype(self) -> str:
        """The format of activations and of weights that are not quantised: the compute dtype, 16 bit where products run
        in a narrower one.
        """
        return self.compute_dtype if self.compute_dtype in {"bf16", "fp16", "fp32"} else "bf16"

    @property
    def plain_bytes(self) -> float:
        """Bytes of one value in `plain_dtype`."""
        return 4.0 if self.plain_dtype == "fp32" else 2.0

    @property
    def pins_pool(self) -> bool:
        """Whether a flag fixes the KV pool outright, whatever memory there is."""
        return bool(self.kv_pool_bytes or self.kv_pool_tokens) or self.engine == "llamacpp"
