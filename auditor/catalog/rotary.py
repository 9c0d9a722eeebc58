"""How many values an engine tabulates for rotary positions, from config facts.

vLLM keeps cosines and sines of every position that a model knows, one table for each distinct kind of rotation
(vllm/model_executor/layers/rotary_embedding: __init__.py get_rope, base.py, phi3_long_rope_scaled_rope.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.catalog.architectures import Family
from auditor.theory.kv.geometry import Layers

__all__ = ["rotary"]

_NESTED = {"full": "full_attention", "sliding": "sliding_attention", "chunked": "chunked_attention"}


def rotary(family: Family, facts: Mapping[str, Any], layers: Iterable[Layers]) -> dict[str, int]:
    """`rotary_values`, `rotary_sections` where positions have several axes (images and video), and the `positions` that
    a scaled rotation reaches.
    """
    if family.positions or (family.state == "mamba2" and family.norms == 1):  # Nemotron-H knows no positions
        return {}
    tables = {_table(facts, group) for group in layers}
    sections = any("mrope_section" in _scaling(facts, group.kind) for group in layers)
    found = {"rotary_values": sum(rows * columns for rows, columns, _ in tables), "rotary_sections": int(sections)}
    return found | {"positions": max((rows for rows, _, _ in tables), default=0)}


def _table(facts: Mapping[str, Any], group: Layers) -> tuple[int, int, float]:
    """Positions, values of each, and the base, which tells tables of one size apart."""
    scaling = _scaling(facts, group.kind)
    size = facts.get("qk_rope_head_dim") or facts.get("rotary_dim") or group.qk_head_dim
    part = scaling.get("partial_rotary_factor", facts.get("partial_rotary_factor", 1.0))
    kind = scaling.get("rope_type", scaling.get("type"))
    whole = "qk_rope_head_dim" in facts or "rotary_dim" in facts or kind == "proportional"
    base = scaling.get("rope_theta", facts.get("rope_theta", 10000.0))
    if group.kind == "compressed":
        base = facts.get("compress_rope_theta", base)
    elif group.kind == "sliding":
        base = facts.get("rope_local_base_freq", facts.get("swa_rope_theta", base))
    return _positions(facts, scaling, kind), size if whole else int(size * part), _number(base)


def _scaling(facts: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The rotation's own facts, apart for each kind of layer where the config tells them apart."""
    found = facts.get("rope_parameters") or facts.get("rope_scaling")
    if not isinstance(found, dict):
        return {}
    own = found.get(_NESTED.get(kind, ""))
    return own if isinstance(own, dict) else found


def _positions(facts: Mapping[str, Any], scaling: Mapping[str, Any], kind: object) -> int:
    known = int(facts.get("max_position_embeddings") or 0)
    factor, first = _number(scaling.get("factor", 1.0)), scaling.get("original_max_position_embeddings")
    first = first or facts.get("original_max_position_embeddings") or known
    if kind in ("yarn", "deepseek_yarn"):
        return int(first * factor)
    if kind == "linear":
        return int(known * factor)
    return int(known + first) if kind in ("longrope", "su") else known


def _number(value: object) -> float:
    if isinstance(value, list):
        return _number(value[0]) if value else 1.0
    return float(value) if isinstance(value, int | float) else 1.0
