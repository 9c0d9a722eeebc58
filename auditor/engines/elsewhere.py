"""A deployment's settings on another accelerator or with one of them changed: what defaults follow from moves too."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from auditor.engines.cache_formats import of_sparse_latents
from auditor.engines.flavours import FLAVOURS
from auditor.engines.formats import compute_dtype, kv_bytes
from auditor.engines.generations import compute_capability
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["following", "moved"]

_NAMES = tuple(field.name for field in fields(Settings))
_MODES = (None, "throughput")  # vLLM's --performance-mode, which settings do not tell but by what follows from it


def moved(settings: Settings, device: Device) -> Settings:
    """The same settings on another device: its own units, vendor and generation; limits stay as they are."""
    dtype = compute_dtype(settings.quantization, settings.plain_dtype, frozenset(device.flops))
    vendor = "cpu" if device.kind == "cpu" else device.vendor
    return replace(settings, compute_dtype=dtype, vendor=vendor, capability=compute_capability(device))


def following(
    geometry: Geometry, settings: Settings, device: Device | None, sources: Mapping[str, str]
) -> Callable[[Settings, Device | None], Settings]:
    """What makes changed settings those that the engine would start with: the defaults among `settings` (by `sources`)
    are derived again for the changes and the device.

    A default that follows from something these settings do not tell (an attention kernel) stays as it is.
    """
    assumed = frozenset(name for name in _NAMES if sources.get(name, "").startswith("default"))
    mode = max(
        _MODES, key=lambda mode: len(_reproduced(_defaults(geometry, settings, device, assumed, mode), settings))
    )
    reproduced = _reproduced(_defaults(geometry, settings, device, assumed, mode), settings) & assumed
    told = frozenset(name for name in _NAMES if sources.get(name, "").startswith("launch"))

    def settled(changed: Settings, there: Device | None) -> Settings:
        still = frozenset(name for name in assumed if getattr(changed, name) == getattr(settings, name))
        found = _of_flags(settings, changed, told)
        after = _defaults(geometry, found, there, still, mode)
        found = replace(found, **{name: after[name] for name in reproduced & still if name in after})
        return _cache(found, after.get("kv_cache_dtype"), geometry)

    return settled


def _of_flags(before: Settings, changed: Settings, told: frozenset[str]) -> Settings:
    """What flags that stay mean under another parallelism: SGLang's batch limit is divided over the ranks of its DP
    attention (`engines.cache.of_a_rank`), vLLM's switch spreads experts over all devices.
    """
    found = changed
    if "max_num_seqs" in told and found.max_num_seqs and found.max_num_seqs == before.max_num_seqs:
        found = replace(found, max_num_seqs=max(1, found.max_num_seqs * _sharing(before) // _sharing(found)))
    everywhere = before.expert_parallel == before.tensor_parallel * before.data_parallel
    if "expert_parallel" in told and everywhere and found.engine == "vllm":
        found = replace(found, expert_parallel=found.tensor_parallel * found.data_parallel)
    return found


def _cache(settings: Settings, default: str | None, geometry: Geometry) -> Settings:
    """The cache in the format that the engine prefers on this device where none is asked for."""
    found = settings
    if default is not None and found.kv_cache_dtype == "auto":
        size = kv_bytes(default, found.plain_dtype) or found.kv_bytes
        found = replace(found, kv_cache_dtype=default, kv_bytes=size)
    return replace(found, kv_cache_dtype=of_sparse_latents(found.kv_cache_dtype, found, geometry))


def _reproduced(defaults: Mapping[str, Any], settings: Settings) -> frozenset[str]:
    return frozenset(name for name, value in defaults.items() if name in _NAMES and value == getattr(settings, name))


def _by_requests(settings: Settings) -> bool:
    """Whether data-parallel ranks live on the devices of tensor parallelism (DP attention)."""
    return settings.data_parallel > 1 and settings.devices == settings.tensor_parallel * settings.pipeline_parallel


def _sharing(settings: Settings) -> int:
    """Ranks over which SGLang divides the batch limit that a flag gives (`engines.cache.of_a_rank`)."""
    return settings.data_parallel if settings.engine == "sglang" and _by_requests(settings) else 1


def _defaults(
    geometry: Geometry, settings: Settings, device: Device | None, assumed: frozenset[str], mode: str | None
) -> Mapping[str, Any]:
    """The engine's defaults beside the settings that are not themselves `assumed`."""
    flavour = FLAVOURS.get(settings.engine)
    if flavour is None:
        return {}
    said = {name: getattr(settings, name) for name in _NAMES if name not in assumed}
    said["max_model_len"] = said.get("max_model_len") or geometry.max_position
    said["speculative"] = "on" if settings.speculative_tokens or settings.draft_layers else None
    said |= {"dp_attention": _by_requests(settings), "performance_mode": mode}
    found = dict(flavour.defaults(settings.engine_version, device, geometry, said))
    limit = said.get("max_num_seqs") or found.get("max_num_seqs")
    if limit and found.get("captured_batch"):
        graphs = 2 * limit if settings.engine == "vllm" else limit
        found["captured_batch"] = min(found["captured_batch"], graphs)
    return found
