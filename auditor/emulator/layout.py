"""How the emulated engine cuts its pool among layers of several kinds: its own arithmetic, not the auditor's.

vLLM hands out blocks of equal bytes to tables, one table for each group of layers of a kind. A full layer's table grows
with the tokens, a sliding one's stops at the window and a step, a recurrent one's holds the states of the sequence.
"""

from dataclasses import dataclass
from math import ceil

from auditor.emulator.spec import Spec
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Layers, Recurrent

__all__ = ["Cut", "Table", "cut", "layer_bytes", "sequence_state_bytes"]

LATENT_SCALE_BYTES = 80  # what the packed fp8 MLA cell of 656 bytes holds beyond 576 values
KERNEL_BLOCK = 16  # tokens by which a block grows until a state fits in it
LATENT_BLOCK = 128  # ... of a model with latents
STEPS_IN_FLIGHT = (0, 26)  # since then the tokens of two scheduled steps are held, not of one


@dataclass(frozen=True, slots=True)
class Table:
    """`copies` block tables of a kind, with blocks of `page` tokens: of all tokens, of `kept` at most and a block more,
    or of `states` blocks whatever the length.
    """

    copies: int
    page: int
    kept: int | None = None
    states: int = 0

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of so many tokens takes in all copies."""
        if self.states:
            return self.copies * self.states
        if self.kept is None:
            return self.copies * ceil(tokens / self.page)
        return self.copies * (ceil(min(tokens, self.kept) / self.page) + 1)


@dataclass(frozen=True, slots=True)
class Cut:
    """`page` is the block that the engine tells, in tokens; `block_bytes` are those of one block of the pool."""

    page: int
    block_bytes: float
    tables: tuple[Table, ...]

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of so many tokens takes."""
        return sum(table.blocks(tokens) for table in self.tables)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Attention layers of one reach: how many, the bytes of one token in one of them, and the tokens they look back."""

    layers: int
    token: float
    window: int | None


def cut(spec: Spec) -> Cut:
    """How vLLM cuts the pool of this model; UsageError for one without attention, which the emulator does not play."""
    kinds, states = _kinds(spec), [(layer, _of_stage(layer.count, spec)) for layer in spec.geometry.recurrent]
    if not kinds:
        raise UsageError(f"the emulator plays no model without attention layers, such as {spec.geometry.name}")
    widest = max(kind.token for kind in kinds)
    page = _page(spec, max((_state_bytes(layer, spec) for layer, _ in states), default=0.0), widest)
    counts = [*(kind.layers for kind in kinds), *(count for _, count in states)]
    group = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    tables = [_table(kind, ceil(kind.layers / group), page * int(widest // kind.token), spec) for kind in kinds]
    tables += [Table(ceil(count / group), page, states=1 + spec.draft_tokens) for _, count in states]
    return Cut(page, page * (group * widest + _index_bytes(spec)), tuple(tables))


def _kinds(spec: Spec) -> tuple[_Kind, ...]:
    """Full layers first. Those that see chunks are kept in full, as vLLM does by default, and so are all without its
    hybrid manager. A draft adds full layers.
    """
    found: dict[int | None, tuple[int, float]] = {}
    for group in spec.geometry.layers:
        window = group.window if group.kind == "sliding" and spec.hybrid_manager else None
        count, (layers, size) = _of_stage(group.count, spec), found.get(window, (0, 0.0))
        found[window] = layers + count, size + count * layer_bytes(group, spec)
    ordered = sorted(found.items(), key=lambda item: item[0] is not None)
    return tuple(
        _Kind(layers=count + (0 if window else spec.draft_layers), token=size / count, window=window)
        for window, (count, size) in ordered
    )


def _table(kind: _Kind, copies: int, page: int, spec: Spec) -> Table:
    if kind.window is None:
        return Table(copies, page)
    steps = 2 if spec.release >= STEPS_IN_FLIGHT else 1
    return Table(copies, page, kept=kind.window - 1 + steps * spec.max_num_batched_tokens)


def _page(spec: Spec, state: float, token: float) -> int:
    """Tokens of a block, enlarged until a state fits in it."""
    latent = any(group.kind == "mla" for group in spec.geometry.layers)
    step = max(LATENT_BLOCK if latent else KERNEL_BLOCK, spec.block_size)
    return max(spec.block_size, step * ceil(state / (step * token))) if state else spec.block_size


def _of_stage(layers: int, spec: Spec) -> int:
    return ceil(layers / spec.pipeline_parallel)


# --------------------------------------------------------------------------------------------------------------- bytes


def layer_bytes(group: Layers, spec: Spec) -> float:
    """Bytes of one token in one layer on one device. KV heads divide by TP down to one; a latent is held whole."""
    if group.kind == "mla":
        scales = LATENT_SCALE_BYTES if spec.kv_cache_dtype == "fp8_ds_mla" else 0
        return (group.latent_dim or 0) * spec.kv_bytes + scales
    heads = max(1, group.kv_heads // spec.tensor_parallel)
    return heads * (group.qk_head_dim + group.v_head_dim) * spec.kv_bytes


def sequence_state_bytes(spec: Spec) -> float:
    """Bytes of the states that one sequence holds on one device, over all recurrent layers."""
    return sum(_of_stage(layer.count, spec) * _state_bytes(layer, spec) for layer in spec.geometry.recurrent)


def _state_bytes(layer: Recurrent, spec: Spec) -> float:
    """One layer's state: a window of the last inputs, and a matrix."""
    channels = layer.heads * layer.head_dim + 2 * layer.groups * layer.state_size
    window = channels * (layer.conv_kernel - 1 + spec.draft_tokens) * (spec.window_bytes or 2.0)
    matrix = layer.heads * layer.head_dim * layer.state_size * (spec.state_bytes or layer.state_bytes or 2.0)
    return (window + matrix) / spec.tensor_parallel


def _index_bytes(spec: Spec) -> float:
    """Bytes of one token's keys for sparse attention, over the layers of a stage."""
    indexer = spec.geometry.indexer
    return _of_stage(indexer.count, spec) * indexer.token_bytes if indexer else 0.0
