"""Entries of the catalogue as people read them: what serving depends on, with units, in 80 columns."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.report.words import quantity
from auditor.theory.device import Device
from auditor.theory.kv.cells import all_bytes_per_token
from auditor.theory.kv.geometry import Geometry, Layers, Recurrent
from auditor.theory.settings import Settings

__all__ = ["attention", "billions", "device", "limit", "lines", "model"]

_WIDTH = 80
_SHORT = {"sliding": "slide", "chunked": "chunk", "compressed": "comp"}


# --------------------------------------------------------------------------------------------------------------- models


def attention(geometry: Geometry) -> str:
    """Its kinds of attention in at most ten characters; "state" stands for recurrent layers."""
    kinds = sorted({_SHORT.get(group.kind, group.kind) for group in geometry.layers})
    return "+".join([*kinds, *["state"] * bool(geometry.recurrent)])


def limit(tokens: int | None) -> str:
    """A context limit in at most six characters: 131,072 -> "128Ki"."""
    if not tokens:
        return ""
    kibi = tokens / 1024
    return f"{kibi:.5g}Ki" if kibi < 1024 else f"{kibi / 1024:.3g}Mi"


def billions(parameters: int) -> str:
    """A number of parameters in at most five characters."""
    return f"{parameters / 1e9:.4g}" if parameters >= 10**9 else f"{parameters / 1e9:.3f}"


def model(geometry: Geometry) -> dict[str, Any]:
    """What a model's arithmetic rests on; its weight matrices one by one are in the JSON."""
    experts = geometry.experts
    head = "shared with the output head" if geometry.tied_embeddings else "and as many in the output head"
    cache = all_bytes_per_token(geometry, Settings(engine="generic"))
    growing = " until windows are full" if any(group.window for group in geometry.layers) else ""
    return {
        "name": geometry.name,
        "architecture": geometry.architecture,
        "parameters": f"{geometry.parameters:,} ({quantity(geometry.parameters, 'parameters')})",
        "a token passes": f"{geometry.active_parameters:,} of them, without embeddings and output head",
        "embeddings": f"{geometry.embedding_parameters:,} parameters, {head}",
        "layers": str(geometry.layer_count),
        "  attention": [_layers(group) for group in geometry.layers],
        "  recurrent": [_recurrent(group) for group in geometry.recurrent],
        "hidden size": f"{geometry.hidden_size:,}",
        "attention heads": f"{geometry.attention_heads:,}",
        "vocabulary": f"{geometry.vocab_size:,} tokens",
        "experts": None
        if experts is None
        else f"{experts.count:,} in each of {experts.layers} layers, {experts.per_token} used by a token, "
        f"{experts.parameters:,} parameters each",
        "context limit": f"{geometry.max_position:,} tokens" if geometry.max_position else None,
        "KV cache": f"{quantity(cache, 'bytes')} a token in 16 bit{growing}" if cache else None,
        "sparse keys": _indexer(geometry),
        "weights": f"{geometry.dtype}{f', quantised as {geometry.quantization}' if geometry.quantization else ''}",
        "formats": ", ".join(f"{part} {word}" for part, word in geometry.formats.items()),
        "weights on disk": quantity(geometry.weight_bytes, "bytes") if geometry.weight_bytes else None,
        "vision": "yes" if geometry.vision else "no",
        "source": geometry.source,
        "notes": list(geometry.notes),
    }


def _layers(group: Layers) -> str:
    heads = (
        f"a latent of {group.latent_dim} values"
        if group.latent_dim is not None
        else f"{group.kv_heads} KV heads of {_widths(group)}"
    )
    window = f", a window of {group.window:,} tokens" if group.window else ""
    stands = f", one for {group.compression} tokens beyond it" if group.compression > 1 else ""
    readers = f", read by {group.readers} more" if group.readers else ""
    return f"{group.count} {group.kind}: {heads}{window}{stands}{readers}"


def _widths(group: Layers) -> str:
    same = group.qk_head_dim == group.v_head_dim
    return str(group.qk_head_dim) if same else f"{group.qk_head_dim} (keys) and {group.v_head_dim} (values)"


def _recurrent(group: Recurrent) -> str:
    matrix = f", each {group.head_dim} x {group.state_size}" if group.state_size else ""
    return f"{group.count} {group.kind}: {group.heads:,} heads{matrix}, convolution of {group.conv_kernel}"


def _indexer(geometry: Geometry) -> str | None:
    found = geometry.indexer
    if found is None:
        return None
    most = f", the best {found.topk:,} tokens are read" if found.topk else ""
    return f"{found.token_bytes} bytes a token in each of {found.count} layers{most}"


# --------------------------------------------------------------------------------------------------------- accelerators


def device(found: Device) -> dict[str, Any]:
    """Its figures with units; those that are recalled or in dispute say so."""
    usable = quantity(found.usable_bytes, "bytes") if found.usable_bytes is not None else "not known"
    return {
        "key": found.key,
        "name": found.name,
        "vendor": found.vendor,
        "kind": found.kind,
        "memory": f"{quantity(found.memory_bytes, 'bytes')}{_doubt(found, 'memory')}, usable {usable}",
        "bandwidth": f"{quantity(found.bandwidth, 'bytes/s')}{_doubt(found, 'bandwidth')}",
        "caches": [f"{quantity(size, 'bytes')} at {quantity(speed, 'bytes/s')}" for size, speed in found.caches],
        "dense rates": [f"{name}: {_rate(name, rate)}{_doubt(found, 'flops')}" for name, rate in found.flops.items()],
        "interconnect": found.interconnect,
        "confidence": found.confidence,
        "figures": ", ".join(f"{name} {grade}" for name, grade in found.figures.items()),
        "sources": list(found.sources),
        "notes": list(found.notes),
    }


def _rate(name: str, rate: float) -> str:
    said = quantity(rate, "FLOP/s")
    return said.replace("FLOP", "OP") if name.startswith("int") else said


def _doubt(found: Device, figure: str) -> str:
    if found.certainty(figure) != "C":
        return ""
    return " (computed, not measured)" if found.here else " (recalled or in dispute)"


# ----------------------------------------------------------------------------------------------------------------- text


def lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """An entry as lines of at most 80 columns; what has nothing to say is left out."""
    for key, value in entry.items():
        if value in (None, "", []):
            continue
        if isinstance(value, list):
            yield f"{key}:"
            indent = " " * (len(key) - len(key.lstrip()) + 2)
            for item in value:
                yield from _wrap(str(item), indent, f"{indent}  ")
        else:
            yield from _wrap(f"{key}: {value}", "", "  ")


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
