"""How much KV the emulated engine gets: its own arithmetic, not the auditor's."""

from dataclasses import dataclass
from math import ceil
from random import Random

from auditor.emulator.spec import Spec
from auditor.errors import UsageError

__all__ = ["PoolSize", "kv_bytes_per_token", "pool_size", "weight_bytes"]

GIB = 2**30
LATENT_SCALE_BYTES = 80  # what the packed fp8 MLA cell of 656 bytes holds beyond 576 values


@dataclass(frozen=True, slots=True)
class PoolSize:
    """One scheduler's pool: tokens (whole pages), its bytes per device, and the weights' bytes per device."""

    tokens: int
    bytes: float
    weights: float
    per_token: float


def weight_bytes(spec: Spec) -> float:
    """Weights per device. Quantised checkpoints keep the embeddings at 16 bit."""
    geometry = spec.geometry
    if geometry.weight_bytes is not None:
        total = float(geometry.weight_bytes)
    else:
        embeddings = geometry.embedding_parameters * (1 if geometry.tied_embeddings else 2)
        rest = geometry.parameters - embeddings
        total = embeddings * max(16.0, spec.weight_bits) / 8 + rest * spec.weight_bits / 8
    return total / (spec.tensor_parallel * spec.pipeline_parallel)


def kv_bytes_per_token(spec: Spec) -> float:
    """KV bytes that one token of a full-length request costs per device, over all layers.

    KV heads divide by TP down to one; an MLA latent is held whole by each device. Windowed layers stop growing at
    their window, so they count with their share of a request of max_model_len tokens.
    """
    total = 0.0
    for group in spec.geometry.layers:
        if group.kind == "mla":
            cell = (group.latent_dim or 0) * spec.kv_bytes
            if spec.kv_cache_dtype == "fp8_ds_mla":
                cell += LATENT_SCALE_BYTES
        else:
            heads = max(1, group.kv_heads // spec.tensor_parallel)
            cell = heads * (group.qk_head_dim + group.v_head_dim) * spec.kv_bytes
        if group.window:
            held = min(spec.max_model_len, group.window + spec.max_num_batched_tokens)
            cell *= held / spec.max_model_len
        total += cell * group.count
    return total / spec.pipeline_parallel


def _pool_bytes(spec: Spec, weights: float) -> float:
    device = spec.device
    usable = device.usable_bytes if device.usable_bytes is not None else 0.97 * device.memory_bytes
    budget = usable * spec.memory_fraction
    low, high = (0.015, 0.035) if spec.flavour == "vllm" else (0.003, 0.012)
    overhead = budget * Random(f"overhead {spec.seed}").uniform(low, high)
    if weights + overhead >= budget:
        raise UsageError(
            f"the emulated engine does not start: {weights / GIB:.1f} GiB of weights and {overhead / GIB:.1f} GiB of "
            f"overhead do not fit {budget / GIB:.1f} GiB per device; use more devices, a smaller model or quantisation"
        )
    return budget - weights - overhead


def pool_size(spec: Spec) -> PoolSize:
    """The pool of each scheduler; UsageError where the real engine would refuse to start."""
    weights = weight_bytes(spec)
    per_token = kv_bytes_per_token(spec)
    if spec.pool_tokens is not None:
        tokens = float(spec.pool_tokens)
    else:
        tokens = (spec.pool_bytes if spec.pool_bytes is not None else _pool_bytes(spec, weights)) / per_token
    page = spec.block_size
    held = int(tokens) // page * page
    needed = (ceil(spec.max_model_len / page) + 1) * page  # vLLM keeps one block back
    if spec.flavour == "vllm" and needed > held:
        raise UsageError(
            f"the emulated vLLM does not start: one request of max_model_len {spec.max_model_len} needs {needed} KV "
            f"tokens, the pool has {held}; lower max_model_len or enlarge the pool"
        )
    if held < 2 * page:
        raise UsageError(f"the emulated engine does not start: its KV pool of {held} tokens holds no request")
    return PoolSize(tokens=held, bytes=held * per_token, weights=weights, per_token=per_token)
