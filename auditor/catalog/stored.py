"""The bytes that a checkpoint's own files tell, part by part, over those that its config leads one to expect."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from auditor.theory.kv.geometry import Geometry
from auditor.theory.tensors import Part, Tensor

__all__ = ["with_files"]

# Names of modules in Hugging Face checkpoints, the first that matches.
_NAMED: tuple[tuple[str, Part], ...] = (
    (r"visual|vision|audio|image|multi_modal|mm_projector|patch_embed|embed_audio", "tower"),
    (r"embed_tokens_per_layer|embed_positions|\bwpe\b|position_embedding", "lookup"),
    (r"embed_tokens|\bwte\b|word_embeddings|tok_embeddings|embed_in\b|backbone\.embedding", "embedding"),
    (r"lm_head|embed_out|^output\.", "head"),
    (
        r"shared_expert_gate|(mlp|moe|mixer|feed_forward)\.(gate|router)\.|router|e_score_correction|expert_bias",
        "router",
    ),
    (r"shared_?expert|shared_mlp", "shared"),
    (r"experts", "experts"),
    (r"norm|\bln_|\.bias$|sinks", "norm"),
    (r"linear_attn|mamba|mixer\.(in|out)_proj|conv1d|A_log|dt_bias|\.D$|\.conv\.", "recurrent"),
    (r"attn|attention|mixer\.[qkvo]_proj|indexer", "attention"),
)
_PATTERNS = tuple((re.compile(pattern), part) for pattern, part in _NAMED)
_LAYER = re.compile(r"(?:layers|h|blocks)\.(\d+)\.")
_DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn)\b")
_DIGITS = re.compile(r"\d+")
_MOST_BYTES = 5.0  # of one parameter: fp32, and scales
_SHARE = 0.02  # of the whole file that may lie in parts that the config does not lead one to expect
_Place = tuple[Part, bool]


def with_files(geometry: Geometry, sizes: Mapping[str, int], layers: int) -> Geometry:
    """The geometry with each part's true bytes, from the sizes of its tensors by name; what is numbered `layers` and
    more are multi-token-prediction layers.

    Unchanged where the names do not fit the model: then only the sum is known (`Geometry.weight_bytes`).
    """
    found = _by_place(sizes, layers)
    counted: Counter[_Place] = Counter()
    for tensor in geometry.tensors:
        counted[tensor.part, tensor.draft] += tensor.parameters
    known = {place: stored for place, stored in found.items() if counted[place]}
    strange = sum(found.values()) - sum(known.values())
    if strange > _SHARE * sum(found.values()) or any(
        stored > _MOST_BYTES * counted[place] for place, stored in known.items()
    ):
        return geometry
    return replace(geometry, tensors=tuple(_with_bytes(geometry.tensors, known, counted)))


def _by_place(sizes: Mapping[str, int], layers: int) -> Counter[_Place]:
    """Bytes by part, those of multi-token-prediction layers (numbered on after the model's own) apart."""
    found: Counter[_Place] = Counter()
    alike: dict[str, Part] = {}
    for name, size in sizes.items():
        shape = _DIGITS.sub("0", name)
        if shape not in alike:
            alike[shape] = next((part for pattern, part in _PATTERNS if pattern.search(shape)), "dense")
        layer = _LAYER.search(name)
        draft = _DRAFT.search(name) is not None or (layer is not None and int(layer[1]) >= layers)
        found[alike[shape], draft and alike[shape] != "tower"] += size
    return found


def _with_bytes(
    tensors: Iterable[Tensor], known: Mapping[_Place, int], counted: Mapping[_Place, int]
) -> Iterable[Tensor]:
    for tensor in tensors:
        place = tensor.part, tensor.draft
        stored = known.get(place)
        yield tensor if stored is None else replace(tensor, stored=stored * tensor.parameters // counted[place])
