"""Speculative decoding as it is declared, launched or served: how many tokens are drafted, and by how many layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditor.theory.kv.geometry import Geometry

__all__ = ["MOST", "Drafts", "drafts", "own_model", "speculates", "waits"]

MOST = 1024
"""Tokens drafted a step: many times more than anybody gains by, so that more are a slip of the pen."""

# What is drafted where only the method is named: vLLM's recipes draft 3; SGLang's _auto_choose_speculative_params takes
# 3 steps and verifies 4 tokens, of a Llama 5 steps and 8 (srt/arg_groups/speculative_hook.py).
_USUAL = {"sglang": 4}
_OF_LLAMA = {"sglang": 8}
_WITHOUT_CACHE = ("ngram", "suffix", "medusa", "mlp_speculator")
_ON_HOST = frozenset({"ngram", "[ngram]", "suffix", "medusa", "mlp_speculator", "custom_class"})
_MODELS_AHEAD = (0, 28, 0)  # the first release that schedules ahead of a draft model
# Methods that draft with a model of its own, and parts of a model's name that mean another method.
_OWN = frozenset({"", "draft_model", "standalone"})
_OTHERS = ("eagle", "mtp", "ngram", "suffix", "medusa", "mlp_speculator", "dflash", "dspark")


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
    method = _method(given)
    layers = _layers(method, geometry)
    if (tokens := given.get("num_speculative_tokens")) is not None:
        return Drafts(int(tokens), layers)
    if engine == "vllm" and _multi_token(method) and layers:
        return Drafts(layers, layers)  # as many as the checkpoint has modules (vllm/config/speculative.py)
    llama = geometry is not None and geometry.architecture == "LlamaForCausalLM"
    usual = (_OF_LLAMA if llama else _USUAL).get(engine, 3)
    named = method or "speculative decoding"
    return Drafts(usual, layers, f"assumed, {named} gives no number")


def own_model(value: Any) -> str | None:
    """The name of the model that drafts, where that is one of its own: no heads on the target's states."""
    given = value if isinstance(value, Mapping) else {}
    name = str(given.get("model") or "")
    others = any(word in name.lower() for word in _OTHERS)
    return name if name and not others and str(given.get("method") or "").lower() in _OWN else None


def waits(value: Any, number: tuple[int, int, int]) -> bool:
    """Whether vLLM schedules no step ahead with these drafts, since they are made on the host (async_scheduling in
    vllm/config/vllm.py).
    """
    if not speculates(value):
        return False
    method = _method(value if isinstance(value, Mapping) else {"method": value})
    by_model = method == "draft_model" or own_model(value) is not None
    return method in _ON_HOST or (by_model and number < _MODELS_AHEAD)


def _method(given: Mapping[str, Any]) -> str:
    """The method, which a draft's name tells too."""
    return str(given.get("method") or given.get("model") or "").lower()


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
