"""What the emulator plays: one deployment in plain numbers, and the ways in which it can misbehave."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from auditor.errors import UsageError
from auditor.profile import Profile
from auditor.theory.device import Device
from auditor.theory.kv.cells import draft_layers
from auditor.theory.kv.geometry import Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["DEFAULT_DEVICE", "DEFAULT_GEOMETRY", "Faults", "Spec", "served", "spec_from"]

# Llama-3.1-8B as its config.json tells, and an H100 SXM as NVIDIA's data sheet does: what a bare Spec() plays.
DEFAULT_GEOMETRY = Geometry(
    name="meta-llama/Llama-3.1-8B-Instruct",
    architecture="LlamaForCausalLM",
    layers=(Layers(kind="full", count=32, kv_heads=8, qk_head_dim=128, v_head_dim=128),),
    hidden_size=4096,
    vocab_size=128256,
    attention_heads=32,
    parameters=8_030_261_248,
    active_parameters=6_979_588_096,
    embedding_parameters=525_336_576,
    tied_embeddings=False,
    max_position=131072,
)
DEFAULT_DEVICE = Device(
    key="h100-sxm",
    name="H100 SXM",
    vendor="nvidia",
    kind="gpu",
    memory_bytes=80 * 10**9,
    usable_bytes=int(79.2 * 2**30),
    bandwidth=3.35e12,
    flops={"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Ways to misbehave, all off by default. `*_every` N means every Nth generation request by arrival.

    buffered: the whole event stream arrives at the end, as behind a buffering proxy. not_streamed: a JSON reply where
    a stream was asked for. short_replies: replies end at this many tokens whatever was asked. quota: a gateway answers
    429 after so many requests per `quota_window` seconds. queue_limit: the engine refuses when so many requests wait.
    drop_every, stall_every, error_in_stream_every: half of the tokens, then a reset, silence, or an error event.
    no_usage: usage is never sent. lies_usage: completion_tokens is doubled. foreign_rate: other users' requests per
    second, of about `foreign_tokens` (prompt, output). cold_first_token: seconds that the first prefill takes longer.
    prefix_cached: every prompt hits the prefix cache. accept_length: tokens per decode step under speculation.
    drifted: fields of Spec that are served otherwise than declared. no_metrics: no metrics page. html_errors: a
    gateway answers 502 with an HTML page. dies_after: the server is gone when so many generation requests have
    come. ignore_min_tokens: min_tokens has no effect.
    """

    buffered: bool = False
    not_streamed: bool = False
    short_replies: int = 0
    quota: int = 0
    quota_window: float = 60.0
    queue_limit: int = 0
    drop_every: int = 0
    stall_every: int = 0
    error_in_stream_every: int = 0
    no_usage: bool = False
    lies_usage: bool = False
    foreign_rate: float = 0.0
    foreign_tokens: tuple[int, int] = (500, 200)
    cold_first_token: float = 0.0
    prefix_cached: bool = False
    accept_length: float | None = None
    drifted: Mapping[str, Any] = field(default_factory=dict)
    no_metrics: bool = False
    html_errors: bool = False
    dies_after: int = 0
    ignore_min_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One deployment to play. Sizes in bytes, lengths in tokens, times in seconds.

    `replicas` x `data_parallel` schedulers stand behind the one address, each with its own pool. `pool_tokens` and
    `pool_bytes` (per device) fix the pool of each; otherwise it is what the memory arithmetic leaves. `seed` draws
    the efficiencies, the memory overhead and the lengths of unforced replies (`eos_tokens` is their mean). `jitter` is
    the relative standard deviation of step times. `prompt_tokens_details` makes usage tell cached tokens.
    `state_bytes` and `window_bytes` are of one element of recurrent layers' matrices and windows (None: as the model
    asks, 16 bit).
    """

    flavour: Literal["vllm", "sglang"] = "vllm"
    version: str = "0.32.0"
    model: str = DEFAULT_GEOMETRY.name
    geometry: Geometry = DEFAULT_GEOMETRY
    device: Device = DEFAULT_DEVICE
    replicas: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    memory_fraction: float = 0.92
    pool_tokens: int | None = None
    pool_bytes: float | None = None
    weight_bits: float = 16.0
    quantization: str | None = None
    kv_bytes: float = 2.0
    kv_cache_dtype: str = "auto"
    compute_dtype: str = "bf16"
    enforce_eager: bool = False
    speculative_tokens: int = 0
    draft_layers: int = 0
    hybrid_manager: bool = True
    state_bytes: float | None = None
    window_bytes: float | None = None
    attention_backend: str | None = None
    prefix_caching: bool = True
    prompt_tokens_details: bool = False
    schedule_conservativeness: float = 1.0
    template_tokens: int = 4
    eos_tokens: int = 200
    jitter: float = 0.02
    seed: int = 0
    api_key: str | None = None
    faults: Faults = field(default_factory=Faults)

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers that compare; its suffixes are left out."""
        return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.v]", self.version, maxsplit=1)[0]))

    @property
    def accept_length(self) -> float:
        """Mean tokens that one decode step gives a sequence, 1 without speculation."""
        if self.faults.accept_length is not None:
            return self.faults.accept_length
        return 1 + 0.6 * self.speculative_tokens  # a middling acceptance of the drafts

    @property
    def draft_tokens(self) -> int:
        """Drafts proposed in each decode step of a sequence."""
        return self.speculative_tokens or (round(self.accept_length + 0.5) if self.accept_length > 1 else 0)


def spec_from(
    profile: Profile,
    geometry: Geometry,
    device: Device,
    settings: Settings,
    *,
    api_key: str | None = None,
    faults: Faults | None = None,
) -> Spec:
    """The deployment that a profile declares, as resolved into `settings`; UsageError for engines it cannot play."""
    flavour = "vllm" if settings.engine in ("auto", "generic", "vllm") else settings.engine
    if flavour not in ("vllm", "sglang"):
        raise UsageError(f"the emulator plays vllm and sglang, not {settings.engine}: set endpoint.engine")
    if any(group.kind == "compressed" for group in geometry.layers):
        raise UsageError("the emulator plays no compressed caches: declare another model than DeepSeek-V4")
    if settings.decode_context_parallel > 1:
        raise UsageError("the emulator plays no decode context parallelism: leave it out of deployment.launch")
    base = Spec() if flavour == "vllm" else Spec(flavour="sglang", version="0.5.23", block_size=1, memory_fraction=0.88)
    return replace(
        base,
        model=profile.endpoint.model if profile.endpoint.model != "auto" else geometry.name,
        geometry=geometry,
        device=device,
        version=settings.engine_version or base.version,
        max_model_len=settings.max_model_len or min(geometry.max_position or base.max_model_len, 131072),
        max_num_seqs=settings.max_num_seqs or base.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens or base.max_num_batched_tokens,
        block_size=settings.block_size or base.block_size,
        memory_fraction=settings.memory_fraction or base.memory_fraction,
        pool_tokens=settings.kv_pool_tokens,
        pool_bytes=settings.kv_pool_bytes,
        replicas=max(1, profile.deployment.replicas),
        tensor_parallel=settings.tensor_parallel,
        pipeline_parallel=settings.pipeline_parallel,
        data_parallel=settings.data_parallel,
        weight_bits=settings.weight_bits,
        quantization=settings.quantization,
        kv_bytes=settings.kv_bytes,
        kv_cache_dtype=settings.kv_cache_dtype,
        compute_dtype=settings.compute_dtype,
        enforce_eager=settings.enforce_eager,
        speculative_tokens=settings.speculative_tokens,
        draft_layers=draft_layers(geometry, settings),
        hybrid_manager=settings.hybrid_kv_manager,
        state_bytes=settings.state_bytes,
        window_bytes=settings.conv_bytes,
        prefix_caching=not geometry.recurrent and settings.prefix_caching,
        seed=profile.probe.seed,
        api_key=api_key,
        faults=faults or Faults(),
    )


def served(spec: Spec) -> Spec:
    """The spec as it is really served: declared, with the drifted fields replaced."""
    return replace(spec, **spec.faults.drifted) if spec.faults.drifted else spec
