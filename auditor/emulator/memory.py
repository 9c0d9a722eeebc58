"""How much KV the emulated engine gets: its own arithmetic, not the auditor's."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from random import Random

from auditor.emulator.layout import cut, layer_bytes, sequence_state_bytes
from auditor.emulator.spec import Spec
from auditor.errors import UsageError

__all__ = ["PoolSize", "kv_bytes_per_token", "pool_size", "weight_bytes"]

GIB = 2**30
TOKENS_FROM_REQUESTS = (0, 20)  # vLLM's token count is requests at once x max_model_len since then
STATES_ASKED = (0, 20)  # vLLM wants a block for the state of each of max_num_seqs requests since then
STATE_SHARE = 0.9 / 1.9  # SGLang's states of the memory beside weights (--mamba-full-memory-ratio 0.9)
TRACKED = (0, 5, 13)  # since then SGLang keeps two more states for each request
SLIDING_SHARE = 0.8  # of the tokens, in sliding layers, where SGLang gives them a pool of their own
SLIDING_APART = ("GptOss", "Llama4", "MiMoV2", "Step3p5")  # ... which it does for these


@dataclass(frozen=True, slots=True)
class PoolSize:
    """One scheduler's pool, and the weights' bytes per device.

    `slots` are what the scheduler hands out, in whole pages of `page`, and `needs` those that a sequence of so many
    tokens takes. `tokens` is what the engine tells of its size, `requests` how many of max_model_len it holds at once,
    `running` how many its states let run (None: any number).
    """

    slots: int
    page: int
    needs: Callable[[int], int]
    tokens: int
    requests: float
    bytes: float
    weights: float
    running: int | None = None


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
    """KV bytes of one token per device in SGLang's pool: every layer keeps it, sliding ones a part where they are kept
    apart.
    """
    apart = spec.geometry.architecture.startswith(SLIDING_APART)
    sizes = [(group, group.count * layer_bytes(group, spec)) for group in spec.geometry.layers]
    total = sum(size * (SLIDING_SHARE if apart and group.window else 1.0) for group, size in sizes)
    indexer = spec.geometry.indexer
    return (total + (indexer.count * indexer.token_bytes if indexer else 0)) / spec.pipeline_parallel


def pool_size(spec: Spec) -> PoolSize:
    """The pool of each scheduler; UsageError where the real engine would refuse to start."""
    weights = weight_bytes(spec)
    return _blocks(spec, weights) if spec.flavour == "vllm" else _tokens(spec, weights)


def _pool_bytes(spec: Spec, weights: float) -> float:
    if spec.pool_bytes is not None:
        return spec.pool_bytes
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


# ---------------------------------------------------------------------------------------------------------------- vLLM


def _blocks(spec: Spec, weights: float) -> PoolSize:
    """Blocks of equal bytes; one of them is never given out."""
    layout = cut(spec)
    pinned = spec.pool_tokens
    blocks = int(_pool_bytes(spec, weights) // layout.block_bytes) if pinned is None else pinned // spec.block_size
    length = spec.max_model_len
    needed = layout.blocks(length)
    _refuse_small(spec, blocks, needed, layout.page)
    if spec.release >= TOKENS_FROM_REQUESTS:
        tokens = int(blocks / needed * length)
    else:
        tokens = blocks // sum(table.copies for table in layout.tables) * layout.page
    return PoolSize(
        slots=blocks * layout.page,
        page=layout.page,
        needs=lambda tokens: layout.blocks(tokens) * layout.page,
        tokens=tokens,
        requests=blocks / needed,
        bytes=blocks * layout.block_bytes,
        weights=weights,
    )


def _refuse_small(spec: Spec, blocks: int, needed: int, page: int) -> None:
    """Raise UsageError for a pool that vLLM does not start with."""
    if needed + 1 > blocks:  # one block is kept back
        raise UsageError(
            f"the emulated vLLM does not start: one request of max_model_len {spec.max_model_len} needs {needed + 1} "
            f"blocks of {page} tokens, the pool has {max(0, blocks)}; lower max_model_len or enlarge the pool"
        )
    states = spec.geometry.recurrent and not spec.enforce_eager and spec.release >= STATES_ASKED
    if states and spec.max_num_seqs > blocks:
        raise UsageError(
            f"the emulated vLLM does not start: max_num_seqs {spec.max_num_seqs} exceeds the {blocks} blocks that can "
            "hold a request's state; lower max_num_seqs or enlarge the pool"
        )


# -------------------------------------------------------------------------------------------------------------- SGLang


def _tokens(spec: Spec, weights: float) -> PoolSize:
    """Tokens in pages, after the states of recurrent layers have got their share."""
    running, taken = None, 0.0
    if spec.pool_tokens is not None:
        found = float(spec.pool_tokens)
    else:
        room, state = _pool_bytes(spec, weights), sequence_state_bytes(spec)
        if state:
            slots = int((room * STATE_SHARE - state) // state)
            running, taken = slots // _slots_of_request(spec), (slots + 1) * state
        found = (room - taken) / kv_bytes_per_token(spec)
    page = spec.block_size
    held = int(found) // page * page
    if held < 2 * page:
        raise UsageError(f"the emulated engine does not start: its KV pool of {held} tokens holds no request")
    if running is not None and running < 1:
        raise UsageError("the emulated SGLang does not start: its memory holds no request's state; enlarge the pool")
    return PoolSize(
        slots=held,
        page=page,
        needs=lambda tokens: ceil(tokens / page) * page,
        tokens=held,
        requests=held / (ceil(spec.max_model_len / page) * page),
        bytes=held * kv_bytes_per_token(spec),
        weights=weights,
        running=running,
    )


def _slots_of_request(spec: Spec) -> int:
    """States that one request may hold: its own, and those by which prefixes are kept."""
    if not spec.prefix_caching:
        return 1
    return 5 if spec.release >= TRACKED else 3
