"""Model geometry from a GGUF file's header. What is not known is refused with what is missing, never guessed."""

import re
from collections.abc import Sequence
from pathlib import Path

from auditor.catalog.gguf_header import Header, Tensor, read_header
from auditor.catalog.gguf_layers import Facts, attention, blocks, indexer, recurrent
from auditor.catalog.gguf_models import ARCHITECTURES
from auditor.catalog.gguf_tensors import is_expert, parts
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Experts, Geometry

__all__ = ["read"]

# general.file_type -> name (llama.h, enum llama_ftype)
_FILE_TYPES = (
    {2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l"}
    | {14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s"}
    | {22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m"}
    | {30: "iq4_xs", 31: "iq1_m", 36: "tq1_0", 37: "tq2_0", 38: "mxfp4", 39: "nvfp4"}
)
_PLAIN_FILES = {0: "float32", 1: "float16", 32: "bfloat16"}
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_SPLITS = 512


def read(path: str | Path) -> Geometry:
    """Geometry of a GGUF file (all parts of a split one) from headers alone.

    Raises UsageError: not found, not GGUF, or an architecture that is not known.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        raise UsageError(f"{place}: {'not a plain file' if place.exists() else 'no such file'}")
    header = read_header(place)
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        raise UsageError(
            f"{place}: architecture {architecture!r} is not known, so its memory cannot be computed; "
            f"known are {', '.join(sorted(ARCHITECTURES))}"
        )
    if header.metadata.get(f"{architecture}.attention.causal") is False:
        raise UsageError(f"{place}: {architecture}.attention.causal is false: an encoder keeps no cache")
    return _geometry(Facts(place, header, architecture), _all_tensors(place, header))


def _all_tensors(path: Path, header: Header) -> tuple[Tensor, ...]:
    """The tensors of this file and of the other parts that its name and metadata announce."""
    count = header.metadata.get("split.count", 1)
    match = _SPLIT.search(path.name)
    if not isinstance(count, int) or count <= 1 or not match:
        return header.tensors
    if count > _MOST_SPLITS:
        raise UsageError(f"{path}: claims to be split into {count:,} files")
    stem = path.name[: match.start()]
    files = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"{path}: {len(missing)} of its {count} parts are missing ({missing[0]})")
    return tuple(tensor for file in files for tensor in read_header(file).tensors)


def _geometry(facts: Facts, tensors: tuple[Tensor, ...]) -> Geometry:
    embedding = [tensor for tensor in tensors if tensor.name == "token_embd.weight"]
    head = [tensor for tensor in tensors if tensor.name == "output.weight"]
    if not embedding:
        raise UsageError(f"{facts.path}: has no token_embd.weight, so it is no language model of its own")
    layers, count = attention(facts), blocks(facts)
    if not layers:
        raise UsageError(f"{facts.path}: has no attention layer, so nothing of it grows with a request's tokens")
    held = parts(tensors, count)
    experts = _experts(facts, tensors)
    routed = experts.count * experts.layers * experts.parameters if experts else 0
    parameters = sum(tensor.parameters for tensor in held if not tensor.draft)
    ends = sum(tensor.parameters for tensor in held if tensor.part in ("embedding", "head", "lookup"))
    stack = parameters - ends
    file_type = facts.header.metadata.get("general.file_type")
    return Geometry(
        name=str(facts.header.metadata.get("general.name") or facts.path.stem),
        architecture=facts.known.name,
        layers=layers,
        hidden_size=facts.need("embedding_length"),
        vocab_size=_vocabulary(facts, embedding[0]),
        attention_heads=max(facts.each("attention.head_count", count) or [0]),
        parameters=parameters,
        active_parameters=stack - routed + (routed * experts.per_token // experts.count if experts else 0),
        embedding_parameters=embedding[0].values,
        tied_embeddings=not head,
        experts=experts,
        max_position=facts.find("context_length"),
        dtype=_PLAIN_FILES.get(file_type, "bfloat16") if isinstance(file_type, int) else "bfloat16",
        quantization=_FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        weight_bytes=sum(tensor.bytes for tensor in tensors),
        source=str(facts.path),
        recurrent=recurrent(facts),
        indexer=indexer(facts, layers),
        extra=_extra(facts),
        tensors=held,
        intermediate_size=max(facts.each("feed_forward_length", count) or [0]) or None,
        expert_size=max(facts.each("expert_feed_forward_length", count) or [0]) or None,
    )


def _vocabulary(facts: Facts, embedding: Tensor) -> int:
    return facts.header.lengths.get("tokenizer.ggml.tokens") or embedding.values // facts.need("embedding_length")


def _experts(facts: Facts, tensors: Sequence[Tensor]) -> Experts | None:
    count = facts.find("expert_count")
    last = blocks(facts)
    routed = [tensor for tensor in tensors if is_expert(tensor) and int(tensor.name.split(".")[1]) < last]
    if not routed or not count:
        return None
    layers = len({tensor.name.split(".")[1] for tensor in routed})
    return Experts(
        count=count,
        per_token=max(facts.each("expert_used_count", last) or [0]) or facts.need("expert_used_count"),
        layers=layers,
        parameters=sum(tensor.values for tensor in routed) // (count * layers),
    )


def _extra(facts: Facts) -> dict[str, int]:
    """What theory needs beyond the common fields."""
    named = {
        "kv_lora_rank": facts.find("attention.kv_lora_rank"),
        "next_token_layers": facts.find("nextn_predict_layers"),
        "index_heads": facts.find("attention.indexer.head_count"),
    }
    return {key: value for key, value in named.items() if value}
