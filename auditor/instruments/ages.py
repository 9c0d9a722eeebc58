"""Engines by their age: what releases before certain dates could not do, where only their name or version tells."""

import re
from dataclasses import replace

from auditor.theory.kv.releases import release
from auditor.theory.settings import Settings

__all__ = ["aged"]

_DATE = re.compile(r"\b(20\d\d)(?:-(\d\d))?\b")
_FLASH = re.compile(r"\bFA\b|flash", re.IGNORECASE)
_FUSED = (2025, 9)  # -fa auto is the default from then on (ggml-org/llama.cpp, pull request 15434)
_GRAPHS, _GRAPHS_DATE = (0, 2, 6), (2023, 12)  # vLLM captures kernel graphs from then on (release notes of v0.2.6)


def aged(settings: Settings, written: str) -> Settings:
    """The settings of an engine as it is written ("llama.cpp 2024-05", "vllm 0.2.3", "llama.cpp b5918 CUDA FA")."""
    found = _DATE.search(written)
    date = (int(found[1]), int(found[2] or 1)) if found else None
    if settings.engine == "llamacpp":
        unfused = date is not None and date < _FUSED
        fused = _FLASH.search(written) is not None or (settings.fused_attention and not unfused)
        return replace(settings, fused_attention=fused)
    old = (date is not None and date < _GRAPHS_DATE) or release(settings.engine_version) < _GRAPHS
    return replace(settings, enforce_eager=True) if settings.engine == "vllm" and old else settings
