"""From what is declared, launched, served and default to the explicit values that theory takes, each with its source.

Precedence: declared in the profile > launch flag > served > default of the engine's version.
"""

from collections.abc import Mapping
from typing import Any

from auditor.engines import cache, cache_formats, formats, speculation
from auditor.engines.conflicts import conflicts
from auditor.engines.flavours import FLAVOURS
from auditor.engines.generations import compute_capability
from auditor.engines.launch import Launch
from auditor.engines.places import Places
from auditor.measurement import Served
from auditor.profile import Profile
from auditor.theory.backends import fused
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["conflicts", "drafting", "engine_of", "resolve"]

_BUILDS = {"cpu": "cpu", "cu": "nvidia", "rocm": "amd", "xpu": "intel"}  # local versions of wheels, and whose they are
_CPU_BLOCK = 128  # tokens
# What a default may follow from, beyond the parallelism.
_FOLLOWED = (
    *(
        "attention_backend",
        "dp_attention",
        "enforce_eager",
        "kv_cache_dtype",
        "mamba_cache_mode",
        "max_model_len",
        "max_num_batched_tokens",
    ),
    *("max_num_seqs", "performance_mode", "prefix_caching", "speculative"),
)


def engine_of(profile: Profile, launch: Launch | None, served: Served | None) -> tuple[str, str]:
    """The engine's flavour and who says so; the embedded emulator plays vLLM unless told otherwise."""
    if profile.endpoint.engine != "auto":
        return profile.endpoint.engine, "declared"
    if launch is not None:
        return launch.engine, "launch command"
    if served is not None and served.engine != "generic":
        return served.engine, f"served {served.sources.get('engine', '')}".strip()
    if profile.deployment.mem_fraction_static is not None:
        return "sglang", "deployment.mem_fraction_static"
    return ("vllm", "played by the emulator") if profile.endpoint.url == "emulator" else ("generic", "not recognised")


def resolve(
    profile: Profile,
    launch: Launch | None,
    served: Served | None,
    geometry: Geometry | None,
    device: Device | None,
    *,
    draft: Geometry | None = None,
) -> tuple[Settings, Mapping[str, str]]:
    """The settings of one engine instance and, by field, where each value comes from.

    `draft` is the model that `drafting` names, where its config is at hand. Served facts about the KV pool itself are
    not used: the pool is computed from settings, then compared with them.
    """
    engine, said = engine_of(profile, launch, served)
    version = profile.deployment.engine_version
    version = version or (launch.fields.get("engine_version") if launch and launch.engine == engine else None)
    version = version or (served.engine_version if served is not None and served.engine == engine else None)
    places = Places(profile, launch, served, FLAVOURS[engine], version)
    places.take("engine", (engine, said))
    places.found("engine_version")
    _parallelism(places)
    _hardware(places, geometry, device)
    places.defaults = FLAVOURS[engine].defaults(version, device, geometry, _followed(places, geometry))
    _formats(places, geometry, device)
    _limits(places, geometry)
    _scheduling(places)
    cache.pool(places)
    cache.states(places, geometry, device)
    _graphs(places)
    _speculation(places, geometry, draft)
    if engine == "llamacpp":
        _slots(places)
    return Settings(**places.chosen), places.sources


def drafting(profile: Profile, launch: Launch | None) -> str | None:
    """The name of the model that drafts, where one of its own does."""
    said = profile.deployment.speculative or (launch.fields.get("speculative") if launch is not None else None)
    return speculation.own_model(said)


def _followed(places: Places, geometry: Geometry | None) -> dict[str, Any]:
    found = places.chosen | {name: places.first(name) for name in _FOLLOWED}
    if found["max_model_len"] is None and geometry is not None:
        found["max_model_len"] = geometry.max_position
    found["kv_cache_dtype"] = found["kv_cache_dtype"] or cache_formats.own(places, geometry)[0]
    return found


# ------------------------------------------------------------------------------------------------------------- devices


def _parallelism(places: Places) -> None:
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    degrees = {name: places.found(name) for name in names}
    places.found("decode_context_parallel")
    count = places.profile.deployment.count
    if count > 1 and not any(degrees[name] for name in names[:3]):
        across = "pipeline_parallel" if places.flavour.name == "llamacpp" else "tensor_parallel"
        degrees[across] = places.take(across, (count, "deployment.count, no parallelism declared"))
    ranks = 1
    for name in names[:3]:
        ranks *= degrees[name] or 1
    inside = places.launched("dp_attention")[0] is True  # SGLang: DP ranks live on the TP devices
    used = ranks // (degrees["data_parallel"] or 1) if inside else ranks
    places.take("devices", (count if count > 1 else None, "declared"), (used, "parallelism"))


def _hardware(places: Places, geometry: Geometry | None, device: Device | None) -> None:
    """Whose device it is; where none is declared, by the build of the engine ("0.32.0+cpu") or its block size."""
    if device is not None:
        places.take("vendor", ("cpu" if device.kind == "cpu" else device.vendor, "catalogue"))
        places.take("capability", (compute_capability(device), "catalogue"))
        return
    build = (places.version or "").partition("+")[2]
    vendor = next((vendor for word, vendor in _BUILDS.items() if build.startswith(word)), None)
    cpu = "cpu" if _cpu_blocks(places, geometry) else None
    places.take("vendor", (vendor, f"engine version {places.version}"), (cpu, f"blocks of {_CPU_BLOCK} tokens"))


def _cpu_blocks(places: Places, geometry: Geometry | None) -> bool:
    """Whether vLLM serves the blocks that only its CPU backend starts with (update_block_size_for_backend in
    vllm/platforms/cpu.py), where neither a flag nor a latent cache nor recurrent states made them so.
    """
    if places.flavour.name != "vllm" or geometry is None or geometry.recurrent:
        return False
    asked = places.declared("block_size")[0] or places.launched("block_size")[0]
    latent = any(group.kind == "mla" for group in geometry.layers)
    return not (asked or latent) and places.told("block_size")[0] == _CPU_BLOCK


# ------------------------------------------------------------------------------------------------------------- formats


def _formats(places: Places, geometry: Geometry | None, device: Device | None) -> None:
    model = (geometry.dtype if geometry else None), "the model's own"
    asked = places.launched("compute_dtype")
    plain = formats.dtype(asked[0]) or formats.dtype(places.told("dtype")[0]) or formats.dtype(model[0]) or "bf16"
    own = (geometry.quantization if geometry else None), "the model's own"
    quantization = places.take(
        "quantization",
        places.declared("quantization"),
        places.launched("quantization"),
        own,
        places.told("quantization"),
    )
    supported = frozenset(device.flops) if device else frozenset[str]()
    source = places.sources.get("quantization") if quantization else None
    held = own[0] if own[0] and formats.loads_several(quantization) else quantization
    places.take("compute_dtype", (formats.compute_dtype(held, plain, supported), source or "the model's own"))
    bits = formats.weight_bits(held, plain)
    places.take("weight_bits", (bits, source or "the model's own"), (16.0, f"assumed, {quantization} is not known"))
    if str(quantization).lower() == "none":
        places.chosen["quantization"] = None
    cache_formats.settle(places, geometry, plain)


# -------------------------------------------------------------------------------------------------------------- limits


def _limits(places: Places, geometry: Geometry | None) -> None:
    own = (geometry.max_position if geometry else None), "the model's own"
    places.take("max_model_len", *places.said("max_model_len"), places.default("max_model_len"), own)
    places.found("max_num_seqs")
    cache.of_a_rank(places, "max_num_seqs")
    places.found("max_num_batched_tokens")


def _scheduling(places: Places) -> None:
    """How steps run: how many at once (max_concurrent_batches in vllm/config/vllm.py), which of a request's phases, and
    whether attention keeps its scores out of memory.
    """
    ahead, flag = places.launched("async_scheduling")
    stages = places.chosen.get("pipeline_parallel", 1)
    at_once = None if ahead is None or (ahead and stages > 1) else stages + ahead
    places.take("steps_in_flight", (at_once, flag), places.default("steps_in_flight"))
    apart = "yes" if places.first("disaggregated") else None
    places.take("disaggregated", places.launched("disaggregated_role"), (apart, "disaggregation"))
    kernel = places.first("attention_backend")
    known = (fused(str(kernel)) if kernel else None), f"attention backend {kernel}"
    places.take("fused_attention", places.launched("fused_attention"), known, places.default("fused_attention"))


def _graphs(places: Places) -> None:
    """The largest batch captured as a kernel graph: vLLM min(2 x max_num_seqs, 512) (vllm/config/vllm.py), SGLang by
    device and TP, never above the batch limit.
    """
    if places.found("enforce_eager"):
        return
    captured = places.take("captured_batch", places.launched("captured_batch"), places.default("captured_batch"))
    limit = places.chosen.get("max_num_seqs")
    if captured and limit and places.sources["captured_batch"].startswith("default"):
        places.chosen["captured_batch"] = min(captured, 2 * limit if places.flavour.name == "vllm" else limit)


def _speculation(places: Places, geometry: Geometry | None, draft: Geometry | None) -> None:
    """How many tokens are drafted a step, and by which layers; 0 without speculation."""
    value, source = next(((v, s) for v, s in places.said("speculative") if v is not None), (None, ""))
    if value is None:
        return
    found = speculation.drafts(value, places.flavour.name, geometry)
    told = places.told("speculative_tokens") if found.assumed else (None, "")
    places.take("speculative_tokens", told, (found.tokens, f"{found.assumed}, {source}" if found.assumed else source))
    if speculation.speculates(value):
        places.take("draft_layers", (found.layers, source))
    if draft is not None and speculation.own_model(value):
        places.take("draft", (draft.layers, source))


def _slots(places: Places) -> None:
    """llama.cpp: slots are its batch limit; automatic slots share one buffer."""
    asked = [places.launched("slots"), places.declared("max_num_seqs"), places.told("max_num_seqs")]
    places.take("slots", *asked, places.default("slots"))
    places.take("ubatch", places.launched("ubatch"), places.default("ubatch"))
    places.take("full_swa_cache", places.launched("full_swa_cache"))
    places.take("latent_cache", places.launched("latent_cache"))
    shared, reason = False, "slots are set"
    if places.sources["slots"].startswith("default") or (places.launch and places.launched("slots")[0] is None):
        shared, reason = places.defaults["kv_unified"], "slots are automatic"
    elif places.launch is None and places.sources["slots"].startswith("served") and places.chosen["slots"] == 4:
        shared, reason = True, "assumed, 4 is the automatic number of slots"  # the server does not tell
    places.take("kv_unified", places.launched("kv_unified"), (shared, reason))
