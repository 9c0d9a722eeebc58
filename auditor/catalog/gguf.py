"""Model geometry from a GGUF file's header. What is not known is refused with what is missing, never guessed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from auditor.catalog.gguf_header import Header, Tensor, read_header
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Experts, Geometry, LayerKind, Layers

__all__ = ["read"]

# GGUF architecture -> (Hugging Face's name for it, a window on all but each n-th layer; llama.cpp's
# llama_model::load_hparams, set_swa_pattern). 0: no sliding layers.
_ARCHITECTURES: Mapping[str, tuple[str, int]] = {
    "deepseek2": ("DeepseekV3ForCausalLM", 0),
    "gemma": ("GemmaForCausalLM", 0),
    "gemma2": ("Gemma2ForCausalLM", 2),
    "gemma3": ("Gemma3ForCausalLM", 6),
    "glm4moe": ("Glm4MoeForCausalLM", 0),
    "gpt-oss": ("GptOssForCausalLM", 2),
    "llama": ("LlamaForCausalLM", 0),
    "minimax-m2": ("MiniMaxM2ForCausalLM", 0),
    "mistral3": ("Mistral3ForConditionalGeneration", 0),
    "phi3": ("Phi3ForCausalLM", 0),
    "qwen2": ("Qwen2ForCausalLM", 0),
    "qwen2moe": ("Qwen2MoeForCausalLM", 0),
    "qwen3": ("Qwen3ForCausalLM", 0),
    "qwen3moe": ("Qwen3MoeForCausalLM", 0),
}

# general.file_type -> name (llama.h, enum llama_ftype)
_FILE_TYPES = (
    {2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l"}
    | {14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s"}
    | {22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m"}
    | {30: "iq4_xs", 31: "iq1_m", 36: "tq1_0", 37: "tq2_0", 38: "mxfp4"}
)
_PLAIN_FILES = {0: "float32", 1: "float16", 32: "bfloat16"}
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_SPLITS = 512
_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """Metadata of one architecture, with errors that name the key."""

    path: Path
    header: Header
    architecture: str

    def find(self, key: str) -> int | None:
        """A whole number, or the one value of a per-layer array; layers that differ are refused."""
        name = f"{self.architecture}.{key}"
        value = self.header.metadata.get(name)
        if isinstance(value, list):
            if len(set(value)) > 1:
                raise UsageError(f"{self.path}: {name} differs between layers, which this arithmetic does not cover")
            value = value[0] if value else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise UsageError(f"{self.path}: {name} is {value!r}, a whole number is needed")
        return value

    def need(self, key: str) -> int:
        value = self.find(key)
        if not value:
            raise UsageError(f"{self.path}: lacks {self.architecture}.{key}")
        return value


def read(path: str | Path) -> Geometry:
    """Geometry of a GGUF file (all parts of a split one) from headers alone.

    Raises UsageError: not found, not GGUF, or an architecture that is not known.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        raise UsageError(f"{place}: no such file")
    header = read_header(place)
    architecture = header.metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise UsageError(
            f"{place}: architecture {architecture!r} is not known, so its memory cannot be computed; "
            f"known are {', '.join(sorted(_ARCHITECTURES))}"
        )
    tensors = _all_tensors(place, header)
    return _geometry(_Facts(place, header, str(architecture)), tensors)


def _all_tensors(path: Path, header: Header) -> tuple[Tensor, ...]:
    """The tensors of this file and of the other parts that its name and metadata announce."""
    count = header.metadata.get("split.count", 1)
    match = _SPLIT.search(path.name)
    if not isinstance(count, int) or count <= 1 or not match:
        return header.tensors
    if count > _MOST_SPLITS:
        raise UsageError(f"{path}: claims to be split into {count:,} files")
    stem = path.name[: match.start()]
    parts = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UsageError(f"{path}: {len(missing)} of its {count} parts are missing ({missing[0]})")
    return tuple(tensor for part in parts for tensor in read_header(part).tensors)


def _geometry(facts: _Facts, tensors: tuple[Tensor, ...]) -> Geometry:
    embedding = [tensor for tensor in tensors if tensor.name == "token_embd.weight"]
    head = [tensor for tensor in tensors if tensor.name == "output.weight"]
    if not embedding:
        raise UsageError(f"{facts.path}: has no token_embd.weight, so it is no language model of its own")
    experts = _experts(facts, tensors)
    routed = experts.count * experts.layers * experts.parameters if experts else 0
    parameters = _values(tensors)
    stack = parameters - embedding[0].values - _values(head)
    file_type = facts.header.metadata.get("general.file_type")
    quantization = _FILE_TYPES.get(file_type) if isinstance(file_type, int) else None
    return Geometry(
        name=str(facts.header.metadata.get("general.name") or facts.path.stem),
        architecture=_ARCHITECTURES[facts.architecture][0],
        layers=_layers(facts),
        hidden_size=facts.need("embedding_length"),
        vocab_size=_vocabulary(facts, embedding[0]),
        attention_heads=facts.need("attention.head_count"),
        parameters=parameters,
        active_parameters=stack - routed + (routed * experts.per_token // experts.count if experts else 0),
        embedding_parameters=embedding[0].values,
        tied_embeddings=not head,
        experts=experts,
        max_position=facts.find("context_length"),
        dtype=_PLAIN_FILES.get(file_type, "bfloat16") if isinstance(file_type, int) else "bfloat16",
        quantization=quantization,
        weight_bytes=_bytes(tensors),
        source=str(facts.path),
        extra=_extra(tensors, embedding, head),
    )


def _vocabulary(facts: _Facts, embedding: Tensor) -> int:
    return facts.header.lengths.get("tokenizer.ggml.tokens") or embedding.values // facts.need("embedding_length")


def _layers(facts: _Facts) -> tuple[Layers, ...]:
    blocks = facts.need("block_count") - (facts.find("nextn_predict_layers") or 0)
    if not 0 < blocks <= _MOST_LAYERS:
        raise UsageError(f"{facts.path}: claims to have {blocks:,} layers")
    heads = facts.need("attention.head_count")
    rank = facts.find("attention.kv_lora_rank")
    if rank and facts.find("attention.key_length_mla"):
        latent = facts.need("attention.key_length")
        return (
            Layers(
                kind="mla",
                count=blocks,
                kv_heads=1,
                qk_head_dim=facts.need("attention.key_length_mla"),
                v_head_dim=facts.need("attention.value_length_mla"),
                latent_dim=latent,
            ),
        )
    size = facts.find("attention.key_length") or facts.need("embedding_length") // heads
    if not size:
        raise UsageError(f"{facts.path}: has {heads:,} attention heads, more than its embedding_length divides into")
    value = facts.find("attention.value_length") or size
    kv_heads = facts.find("attention.head_count_kv") or heads
    every = _ARCHITECTURES[facts.architecture][1]
    window = facts.find("attention.sliding_window") if every else None
    counts: dict[tuple[LayerKind, int | None], int] = {}
    for layer in range(blocks):
        kind: tuple[LayerKind, int | None] = ("full", None)
        if window and layer % every < every - 1:
            kind = ("sliding", window)
        counts[kind] = counts.get(kind, 0) + 1
    return tuple(
        Layers(kind=name, count=count, kv_heads=kv_heads, qk_head_dim=size, v_head_dim=value, window=reach)
        for (name, reach), count in counts.items()
    )


def _is_expert(tensor: Tensor) -> bool:
    return re.search(r"\.ffn_(gate|up|down|gate_up)_exps\.", tensor.name) is not None


def _experts(facts: _Facts, tensors: tuple[Tensor, ...]) -> Experts | None:
    routed = [tensor for tensor in tensors if _is_expert(tensor)]
    count = facts.find("expert_count")
    if not routed or not count:
        return None
    layers = len({tensor.name.split(".")[1] for tensor in routed})
    return Experts(
        count=count,
        per_token=facts.need("expert_used_count"),
        layers=layers,
        parameters=_values(routed) // (count * layers),
    )


def _extra(tensors: tuple[Tensor, ...], embedding: list[Tensor], head: list[Tensor]) -> dict[str, int]:
    """True bytes by part, and the parameters that weights and roofline tell apart."""

    def pick(wanted: Callable[[Tensor], bool]) -> list[Tensor]:
        return [tensor for tensor in tensors if tensor.name.startswith("blk.") and wanted(tensor)]

    attention = pick(lambda tensor: ".attn_" in tensor.name and "norm" not in tensor.name)
    copied = pick(lambda tensor: "norm" in tensor.name or ".ffn_gate_inp" in tensor.name)
    extra = {
        "embedding_bytes": _bytes(embedding),
        "head_bytes": _bytes(head),
        "expert_bytes": _bytes(pick(_is_expert)),
        "attention_parameters": _values(attention),
        "unquantized_parameters": _values(pick(lambda tensor: tensor.plain and not _is_expert(tensor))),
        "replicated_parameters": _values(copied),
    }
    rank = next((tensor for tensor in tensors if tensor.name.endswith(".attn_kv_a_norm.weight")), None)
    return extra | ({"kv_lora_rank": rank.values} if rank else {})


def _values(tensors: "tuple[Tensor, ...] | list[Tensor]") -> int:
    return sum(tensor.values for tensor in tensors)


def _bytes(tensors: "tuple[Tensor, ...] | list[Tensor]") -> int:
    return sum(tensor.bytes for tensor in tensors)
