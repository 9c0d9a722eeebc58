"""The shape of a model as far as serving arithmetic needs it. Data only; `catalog` fills it from model files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Experts", "Geometry", "Layers"]

LayerKind = Literal["full", "sliding", "chunked", "mla"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """`count` attention layers of one kind and shape.

    `window` (tokens) belongs to sliding and chunked layers; `latent_dim` (kv_lora_rank + qk_rope_head_dim) to MLA,
    whose `kv_heads` is 1 for the cache. `qk_head_dim` and `v_head_dim` are per head, as attention computes them.
    """

    kind: LayerKind
    count: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    window: int | None = None
    latent_dim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts: `count` routed experts a layer, `per_token` of them used, `layers` layers have them.

    `parameters` counts one routed expert of one layer.
    """

    count: int
    per_token: int
    layers: int
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A decoder-only model.

    `parameters` counts everything stored once (tied embeddings once); `embedding_parameters` is one vocab x hidden
    matrix; `active_parameters` is what one token passes through in the layer stack (no embeddings, no lm_head; routed
    experts only those used). `weight_bytes` is the true size where a file told it, else None.
    """

    name: str
    architecture: str
    layers: tuple[Layers, ...]
    hidden_size: int
    vocab_size: int
    attention_heads: int
    parameters: int
    active_parameters: int
    embedding_parameters: int
    tied_embeddings: bool
    experts: Experts | None = None
    max_position: int | None = None
    dtype: str = "bfloat16"
    quantization: str | None = None
    weight_bytes: int | None = None
    vision: bool = False
    source: str = ""
    notes: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)

    @property
    def layer_count(self) -> int:
        """Attention layers in all."""
        return sum(group.count for group in self.layers)
