"""vLLM's paged KV cache: the pool that bytes give, what it logs of it, and how many requests it carries."""

from auditor.theory.kv.cells import KvPool, stage_layers
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release
from auditor.theory.kv.vllm_experts import divided
from auditor.theory.kv.vllm_groups import layout
from auditor.theory.kv.vllm_layout import Kind, Layout
from auditor.theory.kv.vllm_specs import FULL, Model, Spec, token_bytes
from auditor.theory.settings import Settings

__all__ = ["blocks_needed", "capacity", "longest", "pool", "residents"]

_BATCHED_TOKENS = 2048

# First releases of rules.
_V1 = (0, 8)
_TOKENS_FROM_CONCURRENCY = (0, 20, 1)  # the logged token count is concurrency x max_model_len
_STEPS_IN_FLIGHT = (0, 26)  # tokens of every scheduled step are held, not of one
_ASYNC_PIPELINES = (0, 29)  # the runner that schedules ahead does so with pipeline stages too
_STATE_MODES = (0, 15)  # mamba_cache_mode
_STATES_BY_TOKENS = (0, 11, 1)  # a state for each block of max_model_len
_DRAFTS_BESIDE_ALL = (0, 22)  # mode "all" counts drafts
_CHECKPOINTS = (0, 32)  # Mamba-2 keeps one state more in mode "align"
_STATES_PER_REQUEST = (0, 20)  # fewer blocks than max_num_seqs are refused


def pool(geometry: Geometry, settings: Settings, pool_bytes: float | None) -> KvPool:
    """The pool that `pool_bytes` per device give; `kv_pool_tokens` (num_gpu_blocks_override x block) overrides it.

    Raises ValueError where neither is known, or this release cannot manage the model's layers or divide its experts
    with these settings.
    """
    divided(geometry, settings)
    cut = layout(geometry, settings)
    if not cut.kinds:
        return KvPool(tokens=0, blocks=1, block_size=None, bytes=0.0, bytes_per_token=0.0, rule=_rule(cut, 1))
    if settings.kv_pool_tokens is not None:
        blocks = settings.kv_pool_tokens // (settings.block_size or cut.block)
    elif pool_bytes is not None:
        blocks = max(0, int(pool_bytes) // cut.block_bytes)
    else:
        raise ValueError("vLLM's pool needs its bytes or its number of tokens")
    return KvPool(
        tokens=_tokens(geometry, settings, cut, blocks),
        blocks=blocks,
        block_size=cut.block,
        bytes=float(blocks * cut.block_bytes),
        bytes_per_token=_bytes_per_token(geometry, settings),
        rule=_rule(cut, blocks),
        refusal=_refusal(geometry, settings, blocks),
    )


def capacity(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens fit at once in one rank, all at their peak: blocks / blocks needed by one.

    This is the concurrency that vLLM logs. One block is the null block and never serves a request, so a single request
    that needs them all does not fit. A model without attention and state is bound by its batch alone.
    """
    need = blocks_needed(geometry, settings, length)
    if need == 0:
        return float(settings.max_num_seqs or 1)
    blocks = kv.blocks or 0
    return blocks / need if need <= blocks - 1 else max(0, blocks - 1) / need


def residents(geometry: Geometry, settings: Settings, kv: KvPool, length: int) -> float:
    """How many requests of `length` tokens live in one rank at once: those whose prompts are read at their peak, the
    others decoding.

    Blocks that a window has left are given back before every step (remove_skipped_blocks in
    vllm/v1/core/single_type_kv_cache_manager.py), so that a step's tokens are held in windows only by the prompts that
    it reads: as many as its tokens have room for, one at least, whose blocks it asks for before it admits one.
    """
    cut, tokens = layout(geometry, settings), max(1, length)
    peak, held = _needed(cut, settings, tokens), _held(cut, settings, tokens)
    most = capacity(geometry, settings, kv, length)
    read = max(1.0, _batch(settings) / (-(-tokens // cut.block) * cut.block))
    if held == peak or most <= read:
        return most
    return ((kv.blocks or 0) - read * (peak - held)) / held


def blocks_needed(geometry: Geometry, settings: Settings, length: int) -> int:
    """Blocks that one request of `length` tokens takes at its peak, over all groups."""
    return _needed(layout(geometry, settings), settings, max(1, length))


def longest(geometry: Geometry, settings: Settings, kv: KvPool) -> int:
    """The longest request that fits alone, in whole blocks (what vLLM's "estimated maximum model length" says)."""
    cut = layout(geometry, settings)
    free = (kv.blocks or 0) - 1
    low, high = 0, max(1, free + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _needed(cut, settings, middle * cut.block) <= free else (low, middle)
    return low * cut.block


# ----------------------------------------------------------------------------------------------------------- a request


def _needed(cut: Layout, settings: Settings, length: int) -> int:
    return sum(kind.groups * _blocks(kind.spec, settings, length) for kind in cut.kinds if kind.groups)


def _held(cut: Layout, settings: Settings, length: int) -> int:
    """Blocks of a request that decodes, over all groups: none of a prompt's step, and none beyond its tokens."""
    return sum(kind.groups * _decoding(kind.spec, settings, length) for kind in cut.kinds if kind.groups)


def _decoding(spec: Spec, settings: Settings, length: int) -> int:
    """Blocks in one table between prompts: a window keeps what the tokens of steps in flight reach, until they are
    settled.
    """
    peak = _blocks(spec, settings, length)
    if spec.window is None:
        return peak
    ahead = (1 + settings.speculative_tokens) * _steps(settings) - 1
    return min(peak, _sliding(spec, length, ahead), -(-length // spec.block))


def _blocks(spec: Spec, settings: Settings, length: int) -> int:
    """Blocks in one table (max_memory_usage_bytes in vllm/v1/kv_cache_interface.py).

    Full: all tokens, divided by decode context parallelism. Sliding: window - 1 and the tokens of steps in flight, plus
    one block because the window's start is rarely a block's start. Chunked: the chunk and the steps.
    """
    if spec.kind in FULL:
        return -(-length // (spec.block * settings.decode_context_parallel))
    if spec.window is None:
        return _states(spec, settings, length)
    return _sliding(spec, length, _step(settings))


def _sliding(spec: Spec, length: int, step: int) -> int:
    held = (spec.window or 0) + step
    if spec.kind == "sliding":
        return -(-min(held - 1, length) // spec.block) + 1
    return -(-min(held, length) // spec.block)


def _step(settings: Settings) -> int:
    """Tokens that may be scheduled and not yet settled (VllmConfig.max_in_flight_tokens in vllm/config/vllm.py)."""
    return _batch(settings) * _steps(settings)


def _batch(settings: Settings) -> int:
    return settings.max_num_batched_tokens or _BATCHED_TOKENS


def _steps(settings: Settings) -> int:
    """Steps whose tokens are held until they are settled."""
    version = release(settings.engine_version)
    if version < _STEPS_IN_FLIGHT:
        return 1
    stages = settings.pipeline_parallel
    ahead = 1 if stages == 1 or version >= _ASYNC_PIPELINES else 0
    return settings.steps_in_flight or stages + (0 if settings.vendor == "cpu" else ahead)


def _states(spec: Spec, settings: Settings, length: int) -> int:
    """States of one request (MambaSpec.max_memory_usage_bytes): one, and one for each drafted token; two where prefixes
    are kept at the end of a step ("align"); one a block where all are ("all").
    """
    version, drafted = release(settings.engine_version), settings.speculative_tokens
    mode = settings.mamba_cache_mode
    if mode == "all" and version >= _STATES_BY_TOKENS:
        return -(-length // spec.block) + (drafted if version >= _DRAFTS_BESIDE_ALL else 0)
    if version < _STATE_MODES:
        return 1
    if mode == "align":
        return 2 + drafted + (spec.kind == "mamba2" and version >= _CHECKPOINTS)
    return 1 + drafted


# ------------------------------------------------------------------------------------------------------------- figures


def _tokens(geometry: Geometry, settings: Settings, cut: Layout, blocks: int) -> int:
    """The token count of the start-up log, whose meaning changed with the release."""
    length = Model.of(geometry, settings).length
    if release(settings.engine_version) >= _TOKENS_FROM_CONCURRENCY and length:
        return int(blocks / _needed(cut, settings, length) * length)
    smallest = min(kind.spec.block for kind in cut.kinds)
    return blocks // cut.tables * smallest * settings.decode_context_parallel


def _bytes_per_token(geometry: Geometry, settings: Settings) -> float:
    model = Model.of(geometry, settings)
    layers = sum(stage_layers(group, settings) * token_bytes(group, model, settings) for group in model.layers)
    keys = model.indexer
    if keys is None:
        return layers
    return layers + -(-keys.count // settings.pipeline_parallel) * keys.token_bytes / keys.compression


def _refusal(geometry: Geometry, settings: Settings, blocks: int) -> str | None:
    """vLLM captures decode graphs for max_num_seqs states (resolve_cudagraph_mode_and_sizes in
    vllm/config/compilation.py).
    """
    asked, version = settings.max_num_seqs or 0, release(settings.engine_version)
    eager = settings.enforce_eager or settings.vendor == "cpu"
    if not geometry.recurrent or eager or version < _STATES_PER_REQUEST or asked <= blocks:
        return None
    return f"max_num_seqs {asked} is more than the {blocks} blocks that can hold a request's state: lower it to those"


def _rule(cut: Layout, blocks: int) -> str:
    if not cut.kinds:
        return "vLLM: a model without attention and state needs no pool"
    if cut.tables == 1:
        layers = sum(kind.layers for kind in cut.kinds)
        return f"vLLM: pool / ({layers} layers, {cut.block_bytes:,} bytes a block of {cut.block}) = {blocks:,} blocks"
    parts = ", ".join(map(_words, cut.kinds))
    return (
        f"vLLM: pool / (groups of {cut.group_size} layers ({parts}), {cut.block_bytes:,} bytes a block) "
        f"= {blocks:,} blocks"
    )


def _words(kind: Kind) -> str:
    window = f"({kind.spec.window})" if kind.spec.window else ""
    return f"{kind.groups} x {kind.spec.kind}{window}"
