"""The settings of the KV cache: formats of its values, what sizes the pool, and the states of recurrent layers."""

import re
from dataclasses import replace

from auditor.engines import formats
from auditor.engines.places import Places
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.pool import kv_pool
from auditor.theory.settings import Settings

__all__ = ["formats_of", "of_a_rank", "pinned_by_blocks", "pool", "states"]

_FRACTIONS = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}
_PACKED = "fp8_ds_mla"
_LARGE = 1 << 44  # bytes: a pool that holds any model's blocks


def formats_of(places: Places, geometry: Geometry | None, plain: str) -> None:
    """Bytes of one element of keys and values; `plain` is the model's own format.

    Sparse MLA's 8-bit cache is DeepSeek's packed one, whatever the flag calls it (vllm
    v1/attention/backends/mla/flashmla_sparse.py, sglang srt/mem_cache/memory_pool.py), but for FlashInfer's on
    Blackwell in vLLM.
    """
    word = places.found("kv_cache_dtype") or "auto"
    source = places.sources.setdefault("kv_cache_dtype", "the model's own")
    if _sparse(geometry) and re.search(r"fp8|e4m3", word) and not _flashinfer(places):
        word = _PACKED
    places.chosen["kv_cache_dtype"] = word
    other = places.launched("kv_cache_dtype_v")[0]
    sizes = [formats.kv_bytes(w, plain) for w in (word, other or word)]
    known = sum(s for s in sizes if s is not None) / 2 if None not in sizes else None
    places.take("kv_bytes", (known, source), (formats.kv_bytes("auto", plain), f"assumed, {word} is not known"))
    if other and None not in sizes:
        places.take("key_bytes", (sizes[0], source))
        places.take("value_bytes", (sizes[1], places.launched("kv_cache_dtype_v")[1]))


def _sparse(geometry: Geometry | None) -> bool:
    return geometry is not None and geometry.indexer is not None


def _flashinfer(places: Places) -> bool:
    """Whether vLLM reads an 8-bit sparse cache by FlashInfer's kernels, which take plain values."""
    capability = places.chosen.get("capability")
    return places.flavour.name == "vllm" and capability is not None and capability[0] == 10


def pool(places: Places) -> None:
    """What sizes the pool: a share of the memory, or a flag that fixes it, and how it is cut."""
    name = _FRACTIONS.get(places.flavour.name, "memory_fraction")
    places.take("memory_fraction", *places.said(name), places.default("memory_fraction"))
    places.found("block_size")
    echoed = places.told("kv_pool_bytes") if places.flavour.name == "vllm" else (None, "")  # vLLM repeats its flag
    places.take("kv_pool_bytes", places.launched("kv_pool_bytes"), echoed)
    places.take("kv_pool_tokens", places.launched("kv_pool_tokens"))
    places.take("hybrid_kv_manager", places.launched("hybrid_kv_manager"), places.default("hybrid_kv_manager"))
    places.take("window_pools", places.launched("window_pools"))
    places.found("swa_full_tokens_ratio")
    places.take("prefix_caching", *places.said("prefix_caching"), places.default("prefix_caching"))


def states(places: Places, geometry: Geometry | None) -> None:
    """How states of recurrent layers are kept: mode, slots, and the bytes of their elements where a flag sets them."""
    if geometry is not None and not geometry.recurrent:
        return
    places.found("mamba_cache_mode")
    places.found("mamba_full_ratio")
    places.found("mamba_slots")
    of_a_rank(places, "mamba_slots")
    window, matrix = (_element(places, name) for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"))
    places.take("conv_bytes", window, places.default("conv_bytes"))
    silent = geometry is not None and all(layer.state_bytes is None for layer in geometry.recurrent)
    inherited = window if places.flavour.name == "vllm" and silent else (None, "")
    places.take("state_bytes", matrix, inherited, places.default("state_bytes"))


def _element(places: Places, name: str) -> tuple[float | None, str]:
    """Bytes of one element of a state, by the word for its format that was said first; "auto" says nothing."""
    said = ((formats.element_bytes(value), source) for value, source in places.said(name) if value is not None)
    return next(((size, source) for size, source in said if size is not None), (None, ""))


def of_a_rank(places: Places, name: str) -> None:
    """SGLang's DP attention divides what a flag gives in all over its ranks (resolve_max_num_reqs and
    _handle_max_mamba_cache in srt/mem_cache/kv_cache_configurator.py).
    """
    if places.sources.get(name, "").startswith("launch") and places.launched("dp_attention")[0]:
        places.chosen[name] = max(1, places.chosen[name] // places.chosen.get("data_parallel", 1))


def pinned_by_blocks(settings: Settings, places: Places, geometry: Geometry | None) -> Settings:
    """The settings with the pool of `--num-gpu-blocks-override`, in tokens by the block that the engine uses: a hybrid
    aligns it to its states.
    """
    blocks, source = places.launched("kv_blocks")
    if blocks is None:
        return settings
    size = _block_in_use(settings, geometry)
    if size is None:
        return settings
    places.sources["kv_pool_tokens"] = source
    return replace(settings, kv_pool_tokens=blocks * size)


def _block_in_use(settings: Settings, geometry: Geometry | None) -> int | None:
    if geometry is None:
        return settings.block_size
    try:
        return kv_pool(geometry, settings, _LARGE).block_size
    except ValueError:
        return settings.block_size
