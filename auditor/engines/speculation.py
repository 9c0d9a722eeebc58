"""Speculative decoding as it is declared, launched or served: how many tokens are drafted, and by how many layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditor.theory.kv.geometry import Geometry

__all__ = ["Drafts", "drafts", "speculates"]

# What is drafted where only the method is named: vLLM's recipes draft 3; SGLang's _auto_choose_speculative_params takes
# 3 steps and verifies 4 tokens, of a Llama 5 steps and 8 (srt/arg_groups/speculative_hook.py).
_USUAL = {"sglang": 4}
_OF_LLAMA = {"sglang": 8}
_WITHOUT_CACHE = ("ngram", "suffix", "medusa", "mlp_speculator")


@dataclass(frozen=True, slots=True)
class Drafts:
    """Tokens drafted a step, and the full attention layers that keep a cache for it (None: not known); `assumed` says
    what was not told.
    """

    tokens: int
    layers: int | None = None
    assumed: str = ""


def speculates(value: Any) -> bool:
    """Whether a profile's, a launch line's or a server's word means that drafting is on."""
    return bool(value) and str(value).lower() not in ("none", "off", "false", "null")


def drafts(value: Any, engine: str, geometry: Geometry | None) -> Drafts:
    """What a value of `speculative` means: a mapping of the engine's own keys, or the name of a method."""
    if not speculates(value):
        return Drafts(0, 0)
    given = value if isinstance(value, Mapping) else {"method": value}
    method = str(given.get("method") or given.get("model") or "").lower()
    layers = _layers(method, geometry)
    if (tokens := given.get("num_speculative_tokens")) is not None:
        return Drafts(int(tokens), layers)
    if engine == "vllm" and _multi_token(method) and layers:
        return Drafts(layers, layers)  # as many as the checkpoint has modules (vllm/config/speculative.py)
    llama = geometry is not None and geometry.architecture == "LlamaForCausalLM"
    usual = (_OF_LLAMA if llama else _USUAL).get(engine, 3)
    named = method or "speculative decoding"
    return Drafts(usual, layers, f"assumed, {named} gives no number")


def _layers(method: str, geometry: Geometry | None) -> int | None:
    """Layers of the draft: none for lookups, those that the checkpoint brings for multi-token prediction (a module is
    run again and again), one for EAGLE's heads, which a draft's name tells too (vllm/config/speculative.py). Of a draft
    model of its own they are not known, and Gemma-4's assistant is one.
    """
    if method.startswith(_WITHOUT_CACHE):
        return 0
    if _multi_token(method) and not (geometry is not None and geometry.architecture.startswith("Gemma4")):
        return geometry.extra.get("next_token_layers", 1) if geometry is not None else 1
    return 1 if "eagle" in method else None


def _multi_token(method: str) -> bool:
    return method.endswith("mtp") or method == "nextn"
