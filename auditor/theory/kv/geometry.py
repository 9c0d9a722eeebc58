"""The shape of a model as far as serving arithmetic needs it. Data only; `catalog` fills it from model files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from auditor.theory.tensors import Tensor

__all__ = ["Experts", "Geometry", "Images", "Indexer", "Layers", "Recurrent"]

LayerKind = Literal["full", "sliding", "chunked", "mla", "compressed"]
RecurrentKind = Literal["linear", "mamba1", "mamba2", "short_conv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """`count` attention layers of one kind and shape.

    `window` (tokens) belongs to sliding and chunked layers; `latent_dim` (kv_lora_rank + qk_rope_head_dim) to MLA,
    whose `kv_heads` is 1 for the cache. `qk_head_dim` and `v_head_dim` are per head, as attention computes them.
    `readers` are further layers that attend to this group's cache and store none of their own (Gemma's shared keys and
    values). "compressed" layers (DeepSeek-V4) keep one vector of `latent_dim` for each of the last `window` tokens and
    one that stands for each `compression` tokens before.
    """

    kind: LayerKind
    count: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    window: int | None = None
    latent_dim: int | None = None
    readers: int = 0
    compression: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """`count` layers that keep a state of fixed size for each sequence instead of keys and values of every token.

    A state is a convolution window of `conv_kernel` - 1 columns, heads x head_dim + 2 x groups x state_size channels
    wide, and a matrix of heads x head_dim x state_size. Gated delta nets ("linear"): heads and head_dim of the values,
    groups and state_size heads and size of the keys. Mamba-2: groups share B and C. Mamba-1: one head a channel, no
    groups in the window. Short convolutions: hidden_size heads of one, no matrix (state_size 0).
    `state_bytes` are bytes of one matrix element as the model asks for them; None: the compute dtype's.
    """

    kind: RecurrentKind
    count: int
    heads: int
    head_dim: int
    state_size: int
    groups: int
    conv_kernel: int
    state_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The small key cache by which sparse attention (DSA) picks what to attend to: `count` layers of it.

    `token_bytes` is one key of `width` values in one layer, never divided by tensor parallelism: 132 for 128 fp8 values
    and their scale. `topk` is how many keys attention then reads the entries of. A key stands for `compression` tokens.
    """

    count: int
    token_bytes: int
    topk: int | None = None
    compression: int = 1
    width: int = 128


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
class Images:
    """The largest image that a vision encoder is given: `patches` of it become `tokens` for the language model.

    At its peak a patch holds `whole` values on every device and `split` values that tensor parallelism divides; a token
    leaves `output` values behind. The longest video is as large as `videos` such images, where the context holds them.
    `one_by_one`: images of one step are encoded one after the other.
    """

    tokens: int
    patches: int
    whole: int
    split: int
    output: int
    videos: int = 1
    one_by_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A decoder-only model.

    `parameters` counts everything stored once (tied embeddings once); `embedding_parameters` is one vocab x hidden
    matrix; `active_parameters` is what one token passes through in the layer stack (no embeddings, no lm_head; routed
    experts only those used). `weight_bytes` is the true size where a file told it, else None. `intermediate_size` is
    the width of a dense MLP and `expert_size` that of one routed expert, None where not told.

    `formats` says how a quantised checkpoint stores each of its parts, where its config tells: attention, recurrent
    (the mixers of recurrent layers), dense (MLPs of layers without routed experts), shared (shared experts), experts,
    head; values are words as in `quantization`, or "none" for a part left in `dtype`. Empty: nothing is known beyond
    `quantization`. `tensors` are all weight matrices, where the architecture is known. `kv_format` is the cache's own
    format where the checkpoint brings scales for one ("fp8"). `images` are those of a model with `vision` whose encoder
    is known. `repacked`: quantised by NVIDIA's ModelOpt, rarely by who published the model.
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
    recurrent: tuple[Recurrent, ...] = ()
    indexer: Indexer | None = None
    extra: Mapping[str, int] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    kv_format: str | None = None
    tensors: tuple[Tensor, ...] = ()
    intermediate_size: int | None = None
    expert_size: int | None = None
    images: Images | None = None
    repacked: bool = False

    @property
    def layer_count(self) -> int:
        """Attention and recurrent layers in all."""
        attention = sum(group.count + group.readers for group in self.layers)
        return attention + sum(group.count for group in self.recurrent)
