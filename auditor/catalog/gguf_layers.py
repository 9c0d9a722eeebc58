"""The layers of a model from a GGUF file's metadata: attention, shared caches, recurrent states, sparse indexers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from auditor.catalog.gguf_header import Header
from auditor.catalog.gguf_models import ARCHITECTURES, Architecture
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Indexer, Layers, Recurrent

__all__ = ["Facts", "attention", "blocks", "indexer", "recurrent"]

_MOST_LAYERS = 2_000
_GEMMA_3N_OWN = 20  # layers with keys and values of their own (src/models/gemma3n.cpp, n_layer_kv_from_start)
_SCALE_VALUES = 128  # values of an indexer key that share one fp32 scale in the format that models are published for


@dataclass(frozen=True, slots=True)
class Facts:
    """Metadata of one architecture, with errors that name the key."""

    path: Path
    header: Header
    architecture: str

    @property
    def known(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    def find(self, key: str) -> int | None:
        """A whole number, or the one value of a per-layer array; layers that differ are refused."""
        name = f"{self.architecture}.{key}"
        value = self.header.metadata.get(name)
        if isinstance(value, list):
            if len(set(value)) > 1:
                raise UsageError(f"{self.path}: {name} differs between layers, which this arithmetic does not cover")
            value = value[0] if value else None
        return None if value is None else self._whole(value, name)

    def need(self, key: str) -> int:
        value = self.find(key)
        if not value:
            raise UsageError(f"{self.path}: lacks {self.architecture}.{key}")
        return value

    def each(self, key: str, count: int) -> list[int] | None:
        """The key's value in each of `count` layers: an array of at least as many, or one number for all."""
        name = f"{self.architecture}.{key}"
        value = self.header.metadata.get(name)
        if value is None:
            if self.header.lengths.get(name):
                raise UsageError(f"{self.path}: {name} has {self.header.lengths[name]:,} entries, more than any model")
            return None
        if not isinstance(value, list):
            return [self._whole(value, name)] * count
        if len(value) < count:
            raise UsageError(f"{self.path}: {name} has {len(value)} entries for {count} layers")
        return [self._whole(item, name) for item in value[:count]]

    def _whole(self, value: object, name: str) -> int:
        if not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise UsageError(f"{self.path}: {name} is {value!r}, a whole number is needed")
        return int(value)


def blocks(facts: Facts) -> int:
    """Layers of the model itself, without those that predict further tokens."""
    count = facts.need("block_count") - (facts.find("nextn_predict_layers") or 0)
    if not 0 < count <= _MOST_LAYERS:
        raise UsageError(f"{facts.path}: claims to have {count:,} layers")
    return count


def attention(facts: Facts) -> tuple[Layers, ...]:
    """Attention layers, those of one kind and shape as one group. Raises UsageError where none is left."""
    count, states = blocks(facts), _states(facts)
    heads = facts.each("attention.head_count", count) or []
    kv = facts.each("attention.head_count_kv", count) or heads
    if not heads or not max(heads):
        raise UsageError(f"{facts.path}: lacks {facts.architecture}.attention.head_count")
    slides, own = _slides(facts, count), _owners(facts, count)
    groups: dict[Layers, list[int]] = {}
    for layer in range(count):
        attends = kv[layer] > 0 and (facts.known.state == "beside" or not states[layer])
        if attends:
            shape = _shape(facts, max(heads), kv[layer], slides=slides[layer])
            groups.setdefault(shape, [0, 0])[0 if layer < own else 1] += 1
    if not groups or any(not mine for mine, _ in groups.values()):
        raise UsageError(f"{facts.path}: has no attention layers with keys and values of their own")
    return tuple(replace(shape, count=mine, readers=read) for shape, (mine, read) in groups.items())


def _owners(facts: Facts, count: int) -> int:
    """Layers before the first that reads an earlier one's cache."""
    if facts.architecture == "gemma3n":
        return min(count, _GEMMA_3N_OWN)
    return count - (facts.find("attention.shared_kv_layers") or 0)


def _slides(facts: Facts, count: int) -> list[bool]:
    """Which layers see only a window: as the file lists them, or by its or the architecture's pattern."""
    known = facts.known
    if not known.every or not _window(facts) or (facts.architecture == "exaone4" and count != 64):
        return [False] * count
    name = f"{facts.architecture}.attention.sliding_window_pattern"
    told = facts.header.metadata.get(name)
    if isinstance(told, list):
        return [bool(slides) for slides in facts.each("attention.sliding_window_pattern", count) or []]
    every = facts.find("attention.sliding_window_pattern") or known.every
    return [layer % every != (0 if known.first else every - 1) for layer in range(count)]


def _window(facts: Facts) -> int | None:
    told = facts.find("attention.sliding_window")
    return facts.known.window if told is None else told


def _shape(facts: Facts, heads: int, kv: int, *, slides: bool) -> Layers:
    if facts.find("attention.kv_lora_rank") and facts.find("attention.key_length_mla"):
        return Layers(
            kind="mla",
            count=1,
            kv_heads=1,
            qk_head_dim=facts.need("attention.key_length_mla"),
            v_head_dim=facts.need("attention.value_length_mla"),
            latent_dim=facts.need("attention.key_length"),
        )
    size = facts.find("attention.key_length") or facts.need("embedding_length") // heads
    if not size:
        raise UsageError(f"{facts.path}: has {heads:,} attention heads, more than its embedding_length divides into")
    value = facts.find("attention.value_length") or size
    if not slides:
        return Layers(kind="full", count=1, kv_heads=kv, qk_head_dim=size, v_head_dim=value)
    return Layers(
        kind="chunked" if facts.known.chunked else "sliding",
        count=1,
        kv_heads=kv,
        qk_head_dim=facts.find("attention.key_length_swa") or size,
        v_head_dim=facts.find("attention.value_length_swa") or value,
        window=_window(facts),
    )


def _states(facts: Facts) -> list[bool]:
    """Which layers keep a recurrent state."""
    known, count = facts.known, blocks(facts)
    if known.state == "none":
        return [False] * count
    if known.state == "beside":
        return [True] * count
    listed = facts.each("attention.recurrent_layers", count)
    if listed is not None:
        return [bool(state) for state in listed]
    if known.interval:
        every = facts.find("full_attention_interval") or known.interval
        return [(layer + 1) % every != 0 for layer in range(count)]
    kv = facts.each("attention.head_count_kv", count)
    widths = facts.each("feed_forward_length", count) if facts.architecture.startswith("nemotron_h") else None
    if kv is None:
        raise UsageError(f"{facts.path}: lacks {facts.architecture}.attention.head_count_kv")
    return [not kv[layer] and not (widths and widths[layer]) for layer in range(count)]


def recurrent(facts: Facts) -> tuple[Recurrent, ...]:
    """Layers with a recurrent state (src/llama-hparams.cpp, n_embd_r and n_embd_s)."""
    count = sum(_states(facts))
    if not count:
        return ()
    hidden, state = facts.need("embedding_length"), facts.known.state
    if state == "short_conv":
        kernel = facts.need("shortconv.l_cache")
        shape: Recurrent | None = Recurrent(
            kind="short_conv", count=count, heads=hidden, head_dim=1, state_size=0, groups=0, conv_kernel=kernel
        )
    elif state in ("kda", "lightning"):
        shape = _delta(facts, count, lightning=state == "lightning")
    else:
        shape = _mamba(facts, count, linear=state == "gdn", first=state == "mamba1")
    return (shape,) if shape else ()


def _delta(facts: Facts, count: int, *, lightning: bool) -> Recurrent:
    """One matrix a head; Kimi delta attention also a window of q, k and v."""
    heads = max(facts.each("attention.head_count", blocks(facts)) or [0])
    size = facts.need("attention.key_length" if lightning else "kda.head_dim")
    return Recurrent(
        kind="linear",
        count=count,
        heads=heads,
        head_dim=size,
        state_size=size,
        groups=0 if lightning else heads,
        conv_kernel=1 if lightning else facts.need("ssm.conv_kernel"),
    )


def _mamba(facts: Facts, count: int, *, linear: bool, first: bool) -> Recurrent:
    """Mamba and gated delta nets under the same keys: time_step_rank are the heads (Mamba-1: each channel is one)."""
    inner = facts.need("ssm.inner_size")
    heads = inner if first else facts.need("ssm.time_step_rank")
    return Recurrent(
        kind="linear" if linear else ("mamba1" if first else "mamba2"),
        count=count,
        heads=heads,
        head_dim=max(1, inner // heads),
        state_size=facts.need("ssm.state_size"),
        groups=0 if first else facts.need("ssm.group_count"),
        conv_kernel=facts.need("ssm.conv_kernel"),
    )


def indexer(facts: Facts, layers: Sequence[Layers]) -> Indexer | None:
    """The sparse-attention indexer of DeepSeek-V3.2 and GLM-5, None for other models."""
    size = facts.find("attention.indexer.key_length")
    if not size or not any(group.kind == "mla" for group in layers):
        return None
    count = blocks(facts)
    types = facts.each("attention.indexer.types", count)
    return Indexer(
        count=sum(map(bool, types)) if types else count,
        token_bytes=size + size // _SCALE_VALUES * 4,
        topk=facts.find("attention.indexer.top_k"),
        width=size,
    )
