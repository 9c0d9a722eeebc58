"""The settings of the KV cache: what sizes the pool, and the states of recurrent layers."""

from auditor.engines import formats, vllm_states
from auditor.engines.places import Places
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release

__all__ = ["of_a_rank", "pool", "states"]

_FRACTIONS = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}


def pool(places: Places) -> None:
    """What sizes the pool: a share of the memory, or a flag that fixes it, and how it is cut."""
    name = _FRACTIONS.get(places.flavour.name, "memory_fraction")
    places.take("memory_fraction", *places.said(name), places.default("memory_fraction"))
    places.found("block_size")
    echoed = places.told("kv_pool_bytes") if places.flavour.name == "vllm" else (None, "")  # vLLM repeats its flag
    places.take("kv_pool_bytes", places.launched("kv_pool_bytes"), echoed)
    places.take("kv_pool_tokens", places.launched("kv_pool_tokens"))
    blocks, source = places.launched("kv_blocks")
    if blocks is not None and places.chosen.get("block_size"):
        places.take("kv_pool_tokens", (blocks * places.chosen["block_size"], source))
    places.take("hybrid_kv_manager", places.launched("hybrid_kv_manager"), places.default("hybrid_kv_manager"))
    places.take("window_pools", places.launched("window_pools"))
    places.found("swa_full_tokens_ratio")
    places.take("prefix_caching", *places.said("prefix_caching"), places.default("prefix_caching"))


def states(places: Places, geometry: Geometry | None, device: Device | None) -> None:
    """How states of recurrent layers are kept: mode, slots, and the bytes of their elements where a flag sets them."""
    if geometry is not None and not geometry.recurrent:
        return
    _mode(places)
    places.found("mamba_full_ratio")
    places.found("mamba_slots")
    window, matrix = (_element(places, name) for name in ("mamba_cache_dtype", "mamba_ssm_cache_dtype"))
    places.take("conv_bytes", window)
    silent = geometry is not None and all(layer.state_bytes is None for layer in geometry.recurrent)
    inherited = window if places.flavour.name == "vllm" and silent else (None, "")
    places.take("state_bytes", _on_cpu(places, geometry, device), matrix, inherited)


def _mode(places: Places) -> None:
    """The flag's mode, or what vLLM makes of it where release, model or caching do not let it be."""
    asked, flag = places.launched("mamba_cache_mode")
    kept, default = places.default("mamba_cache_mode")
    if asked is not None and kept is not None and asked != kept:
        title = default.removeprefix("default of ")
        places.take("mamba_cache_mode", (kept, f"{flag} {asked}, which {title} turns into {kept} here"))
    else:
        places.found("mamba_cache_mode")


def _on_cpu(places: Places, geometry: Geometry | None, device: Device | None) -> tuple[float | None, str]:
    """The format that vLLM's CPU backend makes of any for matrices; a running one tells its own."""
    name = "mamba_ssm_cache_dtype"
    if places.flavour.name != "vllm" or geometry is None or places.chosen.get("vendor") != "cpu":
        return None, ""
    if not vllm_states.widens(release(places.version), geometry, device, places.first(name)):
        return None, ""
    word, source = places.told(name)
    if (told := formats.element_bytes(word)) is not None:
        return told, source
    return 4.0, f"vLLM on a CPU, {'assumed to have' if vllm_states.assumes_units(device) else 'with'} AVX512-BF16"


def _element(places: Places, name: str) -> tuple[float | None, str]:
    """Bytes of one element of a state, by the word for its format that was said first; "auto" says nothing."""
    said = ((formats.element_bytes(value), source) for value, source in places.said(name) if value is not None)
    return next(((size, source) for size, source in said if size is not None), (None, ""))


def of_a_rank(places: Places, name: str) -> None:
    """SGLang's DP attention divides what a flag gives in all over its ranks (resolve_max_num_reqs in
    srt/mem_cache/kv_cache_configurator.py).
    """
    if places.sources.get(name, "").startswith("launch") and places.launched("dp_attention")[0]:
        places.chosen[name] = max(1, places.chosen[name] // places.chosen.get("data_parallel", 1))
