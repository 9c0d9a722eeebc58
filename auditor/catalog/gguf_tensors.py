"""A GGUF file's tensor table as the parts of a model, with their true bytes."""

import re
from collections.abc import Iterable

from auditor.catalog.gguf_header import Tensor as Entry
from auditor.theory.tensors import Part, Split, Tensor

__all__ = ["is_expert", "parts"]

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# Names of ggml-org/llama.cpp src/llama-arch.cpp (LLM_TENSOR_NAMES), the first that matches.
_NAMED: tuple[tuple[str, Part, Split], ...] = (
    (r"ffn_down_exps", "experts", "inputs"),
    (r"ffn_\w+_exps", "experts", "outputs"),
    (r"ffn_gate_inp", "router", "none"),
    (r"ffn_down_shexp", "shared", "inputs"),
    (r"ffn_\w+_shexp", "shared", "outputs"),
    (r"norm|_scale|sinks|exp_probs_b|\.bias$|ssm_(a|d|dt)\b", "norm", "none"),
    (r"ssm_out|shortconv\.out_proj", "recurrent", "inputs"),
    (r"ssm|shortconv|attn_qkv_la|attn_gate_la", "recurrent", "outputs"),
    (r"attn_output", "attention", "inputs"),
    (r"attn_(q_a|kv_a|k_b|kv_a_mqa)|indexer", "attention", "none"),
    (r"attn", "attention", "outputs"),
    (r"ffn_down", "dense", "inputs"),
    (r"ffn|proj|inp_gate", "dense", "outputs"),
)
_NAMED_PATTERNS = tuple((re.compile(pattern), part, split) for pattern, part, split in _NAMED)
_ENDS: dict[str, Part] = {
    "token_embd.weight": "embedding",
    "output.weight": "head",
    "per_layer_token_embd.weight": "lookup",
    "position_embd.weight": "lookup",
}
_Place = tuple[Part, Split, bool, bool]


def parts(entries: Iterable[Entry], layers: int) -> tuple[Tensor, ...]:
    """One tensor for each part, split and kind, all entries of it together; blocks from `layers` on are draft ones."""
    found: dict[_Place, list[int]] = {}
    for entry in entries:
        sums = found.setdefault(_place(entry, layers), [0, 0])
        sums[0] += entry.values
        sums[1] += entry.bytes
    return tuple(
        Tensor(
            part=part,
            count=1,
            outputs=1 if split == "inputs" else values,
            inputs=values if split == "inputs" else 1,
            split=split,
            plain=plain,
            draft=draft,
            stored=stored,
        )
        for (part, split, plain, draft), (values, stored) in found.items()
        if values
    )


def _place(entry: Entry, layers: int) -> _Place:
    block = _BLOCK.match(entry.name)
    if block is None:
        part = _ENDS.get(entry.name, "norm" if "norm" in entry.name else "dense")
        return part, "outputs" if part != "norm" else "none", entry.plain, False
    part, split = next(
        ((part, split) for pattern, part, split in _NAMED_PATTERNS if pattern.search(block[2])), ("dense", "outputs")
    )
    return part, split, entry.plain, int(block[1]) >= layers


def is_expert(entry: Entry) -> bool:
    """Whether a tensor holds routed experts."""
    return re.search(r"\.ffn_(gate|up|down|gate_up)_exps\.", entry.name) is not None
