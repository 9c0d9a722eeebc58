"""One row of an instrument (a command line, a line of a batch) -> what theory takes: geometry, settings, device.

The engine's own rules and defaults are those of an audit (`engines.settings.resolve`); a row only spells them shorter.
"""

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from auditor.catalog import accelerators, hf
from auditor.engines.dated import release_before
from auditor.engines.flavours import FLAVOURS
from auditor.engines.formats import dtype
from auditor.engines.launch import Launch, parse_launch
from auditor.engines.settings import drafting, resolve
from auditor.errors import UsageError
from auditor.instruments.keys import checked
from auditor.instruments.layers import from_layers
from auditor.instruments.naming import as_named, unsure
from auditor.instruments.refusals import refuse
from auditor.loading import Here, read_model
from auditor.loading.problems import one_line
from auditor.profile import Deployment, Endpoint, Profile
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import NEWEST, build, releases
from auditor.theory.settings import Settings

__all__ = ["Inputs", "inputs"]

_GIB = 1 << 30
_ENGINES = (  # how people write engines, and what is computed for them
    (r"vllm|aphrodite", "vllm"),
    (r"sglang", "sglang"),
    (r"llama\.?[ _-]?cpp|ollama|lm ?studio|koboldcpp", "llamacpp"),
    (r"tensorrt|trt-?_?llm|\btrt\b|\bnim\b", "trtllm"),
    (r"lmdeploy|turbomind", "lmdeploy"),
)
_RELEASE = re.compile(r"(?<![\d.-])v?(\d{1,2}\.\d+x?(?:\.(?:\d+|x))?)(?![\dx])")
_VENDORS = (
    (r"nvidia|cuda|rtx|gtx|tesla|quadro|titan|[ahbv]\d{2,3}s?\b|\b[kmp]\d{2,3}\b|\b\d0[5-9]0(?:\b|ti)", "nvidia"),
    (r"\bamd\b|\bmi\d|radeon|\brx ?\d|rocm", "amd"),
    (r"intel|\barc|gaudi", "intel"),
    (r"apple|\bm\d\b", "apple"),
    (r"\bcpu\b|xeon|epyc", "cpu"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a row says, completed by the engine's defaults and the catalogue.

    `device` is None where none is named or the one that is is not known; `no_device` says why, for whoever needs one, and
    `misnamed` that one is named. A device outside the catalogue whose memory is given has no bandwidth and no flops. `sources` say where each field of
    `settings` comes from, and "geometry", "device" and "weights" likewise; `notes` what was assumed.
    """

    geometry: Geometry
    settings: Settings
    device: Device | None
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()
    no_device: str = ""
    misnamed: bool = False

    @property
    def started(self) -> bool:
        """Whether the row tells the pool that an engine had, which proves that it started."""
        return "declared" in (self.sources.get("kv_pool_bytes"), self.sources.get("kv_pool_tokens"))


def inputs(
    row: Mapping[str, Any], base: Path | None = None, also: Container[str] = (), here: Here | None = None
) -> Inputs:
    """Read one row; files are found relative to `base`. Keys in `also` are the caller's own and left alone; `here`
    tells the figures of this machine where the row means it.

    Raises UsageError with the key, what is wrong, and what to do.
    """
    values = checked(row, also)
    launch = _launch(values)
    engine, notes = _engine(values, launch)
    if launch is not None:
        notes += tuple(f"launch: {said}" for said in (*launch.problems, *launch.unknown))
    geometry = _geometry(values, launch, base or Path())
    device, doubt = _device(values, here)
    version, unread = _version(values, launch, engine)
    notes += unread
    profile = Profile(version=1, name="", endpoint=_endpoint(engine), deployment=_deployment(values, version))
    drafted = drafting(profile, launch)
    draft = _model(drafted, base or Path()) if drafted is not None else None
    known = draft if isinstance(draft, Geometry) else None
    settings, sources = resolve(profile, launch, None, geometry, device, draft=known)
    own = _own(values, engine) | _computing(values, device)
    settings = replace(settings, engine=engine, engine_version=version or settings.engine_version, **own)
    refuse(values, geometry, settings, sources)
    told = {**sources, **dict.fromkeys(own, "declared"), "geometry": geometry.source}
    told |= {"device": _device_source(values, device), "weights": _weights_source(values, geometry)}
    return Inputs(
        geometry=geometry,
        settings=settings,
        device=device,
        sources=told,
        notes=(*notes, *geometry.notes, *unsure(geometry, settings, sources), *([doubt] if doubt and device else ())),
        no_device="" if device is not None else doubt,
        misnamed=device is None and "accelerator" in values,
    )


# --------------------------------------------------------------------------------------------------------------- engine


def _launch(values: Mapping[str, Any]) -> Launch | None:
    if "launch" not in values:
        return None
    named = _flavour(values["engine"]) if "engine" in values else None
    try:
        return parse_launch(values["launch"], named if named in FLAVOURS else None)
    except UsageError as error:
        raise UsageError(f"launch: {str(error).removeprefix('deployment.launch: ')}") from None


def _engine(values: Mapping[str, Any], launch: Launch | None) -> tuple[str, tuple[str, ...]]:
    written = values.get("engine")
    if written is None:
        if launch is not None:
            return launch.engine, ()
        return "vllm", ("no engine is named: vLLM is assumed",)
    engine = _flavour(written)
    if engine is None:
        return "generic", (f"the engine {one_line(written)} is not known: plain paging is assumed",)
    return engine, ()


@cache
def _flavour(written: str) -> str | None:
    """The engine that people mean, by the words they use for it and its forks."""
    word = written.casefold()
    if word in FLAVOURS:
        return word
    return next((name for pattern, name in _ENGINES if re.search(pattern, word)), None)


def _version(values: Mapping[str, Any], launch: Launch | None, engine: str) -> tuple[str | None, tuple[str, ...]]:
    """The version as numbers ("v0.11.2+rhai5" -> "0.11.2"), from its own key or the engine's ("vllm 0.18.0")."""
    if engine == "llamacpp":
        return _build(values.get("engine_version", "")) or _build(values.get("engine", "")), ()
    written = values.get("engine_version")
    if written is None:
        told = launch.fields.get("engine_version") if launch is not None else None
        found = _numbers(values.get("engine", ""))
        return found or (str(told) if told else None), ()
    span = releases(written)
    if span is not None:
        return "-".join(span), (
            f"engine_version {one_line(written)} is a range: its first release's rules are assumed",
        )
    found = _numbers(written)
    if found is not None:
        return found, ()
    found = release_before(engine, written)
    if found is not None:
        return found, (f"engine_version {one_line(written)} is taken as {found}, the newest release before that month",)
    return None, (f"engine_version {one_line(written)} names no release: the newest rules are assumed",)


@cache
def _numbers(written: str) -> str | None:
    """The first release of a text, with an x for what it leaves open: "0.8.x", "0.1x"."""
    match = _RELEASE.search(written)
    return None if match is None else match[1]


def _build(written: str) -> str | None:
    """llama.cpp's build, which no date is."""
    number = build(written)
    return None if number == NEWEST else f"b{number}"


def _endpoint(engine: str) -> Endpoint:
    known: Any = engine if engine in FLAVOURS else "generic"
    return Endpoint(url="", engine=known)


# ---------------------------------------------------------------------------------------------------------------- model


def _geometry(values: Mapping[str, Any], launch: Launch | None, base: Path) -> Geometry:
    name = values.get("model") or (launch.fields.get("model") if launch is not None else None)
    label = str(name) if name else ""
    given = [key for key in ("model_config", "model_config_inline", "kv_layers") if key in values]
    if len(given) > 1:
        raise UsageError(f"{given[1]}: the model is already given by {given[0]}; leave one out")
    asked = values.get("quantization") or (launch.fields.get("quantization") if launch is not None else None)
    if "model_config" in values:
        geometry = _named(_read(values["model_config"], base), label, asked)
    elif "model_config_inline" in values:
        geometry = _named(_inline(json.dumps(values["model_config_inline"], sort_keys=True), label), label, asked)
    elif "kv_layers" in values:
        geometry = from_layers(label, values["kv_layers"], values.get("model_facts") or {})
    elif label:
        geometry = _raised(_model(label, base))
    else:
        raise UsageError("model: none is given; name a catalogue model, a folder, a config.json or a GGUF file")
    if "weight_file_bytes" in values:
        stored = int(values["weight_file_bytes"])
        return replace(geometry, weight_bytes=stored, quantization=values.get("quantization") or geometry.quantization)
    return geometry


def _named(geometry: Geometry, label: str, asked: str | None) -> Geometry:
    return as_named(replace(geometry, name=label), label, asked) if label else geometry


def _raised(found: Geometry | UsageError) -> Geometry:
    if isinstance(found, UsageError):
        raise found
    return found


def _read(path: str, base: Path) -> Geometry:
    return _raised(_config(str(base / path)))


@lru_cache(maxsize=1024)
def _config(path: str) -> Geometry | UsageError:
    """Each file is read once, however many rows name it; what is wrong with it is kept as well."""
    try:
        return hf.read(path)
    except (UsageError, OSError) as error:
        return UsageError(f"model_config: {error}")


@lru_cache(maxsize=1024)
def _model(name: str, base: Path) -> Geometry | UsageError:
    try:
        return read_model(name, base)
    except (UsageError, OSError) as error:
        return UsageError(f"model: {error}")


@lru_cache(maxsize=1024)
def _inline(config: str, label: str) -> Geometry:
    name = label or "model_config_inline"
    try:
        return hf.geometry(json.loads(config), name, source="model_config_inline")
    except UsageError as error:
        raise UsageError(f"model_config_inline: {str(error).removeprefix(f'{name}: ')}") from None


def _weights_source(values: Mapping[str, Any], geometry: Geometry) -> str:
    if "weights_gib" in values or "weight_file_bytes" in values:
        return "declared"
    return "the model's files" if geometry.weight_bytes is not None else "computed from parameters"


# --------------------------------------------------------------------------------------------------------------- device


def _device(values: Mapping[str, Any], here: Here | None) -> tuple[Device | None, str]:
    """The accelerator, and what is wrong with it. One that the catalogue does not know serves by its memory alone."""
    memory, written = values.get("gpu_memory_gib"), values.get("accelerator")
    if written is None:
        missing = "accelerator: none is named; name one, or give gpu_memory_gib"
        return (None, missing) if memory is None else (_unknown("unknown", memory), "")
    found = here() if here is not None and accelerators.is_this_cpu(written) else _accelerator(written)
    if isinstance(found, Device):
        return (found if memory is None else replace(found, usable_bytes=int(memory * _GIB))), ""
    named = re.search(r"(\d{1,3}) ?g(?:i?b)?\b", written.casefold())  # "80G-class", "RTX2080Ti-22G"
    if memory is None and named is None:
        if _unknown(written, 0.0).kind == "cpu":
            return None, f"accelerator: {one_line(written)} has the memory of its host: give gpu_memory_gib"
        return None, f"{found}; or give gpu_memory_gib"
    note = f"accelerator {one_line(written)} is not known: only its memory is used"
    if memory is None and named is not None:
        return replace(_unknown(written, float(named[1])), usable_bytes=None), note
    return _unknown(written, memory or 0.0), note


@lru_cache(maxsize=4096)
def _accelerator(written: str) -> Device | UsageError:
    """The catalogue's device; of several names ("A40/48G", "L40S/A40", "A100-40G?") the first that is known, and of
    words written together ("ArcB70") each.
    """
    try:
        return accelerators.find(written)
    except UsageError as error:
        first = UsageError(f"accelerator: {error}")
    parts = re.split(r"[/?]", written)[: written.count("/") + written.count("?")]
    for part in (re.sub(r"(?<=[a-z])(?=[A-Z])", " ", written), *parts):
        try:
            if re.search(r"[A-Za-z]", part):
                return accelerators.find(part)
        except UsageError:
            continue
    return first


def _unknown(written: str, memory: float) -> Device:
    """A device of which only the memory is known; its vendor by the words of its name."""
    word = written.casefold()
    vendor = next((name for pattern, name in _VENDORS if re.search(pattern, word)), "unknown")
    return Device(
        key=one_line(word),
        name=one_line(written),
        vendor=vendor,
        kind="cpu" if vendor == "cpu" else "gpu",
        memory_bytes=int(memory * _GIB),
        usable_bytes=int(memory * _GIB),
        bandwidth=0.0,
        flops={},
        notes=("not in the catalogue: no speed is known of it",),
    )


def _device_source(values: Mapping[str, Any], device: Device | None) -> str:
    if "gpu_memory_gib" in values:
        return "declared"
    return "measured here" if device is not None and device.here else "catalogue"


# ------------------------------------------------------------------------------------------------------------- settings


def _deployment(values: Mapping[str, Any], version: str | None) -> Deployment:
    """The fields that a profile has too."""
    return Deployment(
        count=values.get("count", 1),
        tensor_parallel=values.get("tensor_parallel"),
        pipeline_parallel=values.get("pipeline_parallel"),
        data_parallel=values.get("data_parallel"),
        expert_parallel=values.get("expert_parallel"),
        quantization=_method(values.get("quantization")),
        kv_cache_dtype=values.get("kv_cache_dtype"),
        engine_version=version,
        max_model_len=values.get("max_model_len"),
        max_num_seqs=values.get("slots") or values.get("max_num_seqs"),
        max_num_batched_tokens=values.get("max_num_batched_tokens"),
        block_size=values.get("block_size"),
        enforce_eager=values.get("enforce_eager"),
    )


def _method(written: str | None) -> str | None:
    """A quantisation word without an aside: "fp8(marlin w8)" is fp8."""
    return None if written is None else re.sub(r"\s*\(.*\)", "", written) or None


def _computing(values: Mapping[str, Any], device: Device | None) -> dict[str, Any]:
    """The format of matrix products; of several ("int8/fp16 MMQ") the first that the device has, else the first."""
    words = re.split(r"[/\s]+", values.get("compute_dtype", "").casefold())
    named = [dtype(word) or word for word in words if word]
    if not named:
        return {}
    return {"compute_dtype": next((word for word in named if device is not None and word in device.flops), named[0])}


def _own(values: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The fields of `Settings` that a profile has no word for, or has by engine, as given; they win over what was
    resolved.
    """
    names = {
        "kv_bytes_per_element": "kv_bytes",
        "kv_pool_tokens": "kv_pool_tokens",
        "decode_context_parallel": "decode_context_parallel",
        "hybrid_kv_cache_manager": "hybrid_kv_manager",
        "num_speculative_tokens": "speculative_tokens",
        "extra_full_layers": "draft_layers",
        "mamba_cache_mode": "mamba_cache_mode",
        "mamba_slots": "mamba_slots",
        "mamba_full_ratio": "mamba_full_ratio",
        "ssm_bytes": "state_bytes",
        "conv_bytes": "conv_bytes",
        "swa_full_tokens_ratio": "swa_full_tokens_ratio",
        "n_ubatch": "ubatch",
        "swa_full": "full_swa_cache",
        "kv_unified": "kv_unified",
    }
    own = {field: values[key] for key, field in names.items() if key in values}
    for key in ("memory_fraction", "gpu_memory_utilization", "mem_fraction_static"):
        if key in values:
            own.setdefault("memory_fraction", values[key])
    if "kv_pool_gib" in values:
        own["kv_pool_bytes"] = round(values["kv_pool_gib"] * _GIB)
    if "weights_gib" in values:
        own["weight_bytes"] = values["weights_gib"] * _GIB
    if engine == "llamacpp":
        if "kv_pool_gib" in values and "max_model_len" not in values:
            own["max_model_len"] = None  # the context follows from the cells that the pool holds
        if "ik_llama" in values.get("engine", "").casefold():
            own.setdefault("full_swa_cache", True)  # this fork keeps sliding layers in full
            if re.search(r"\bmla ?= ?0\b", values.get("model", "").casefold()):
                own["latent_cache"] = False  # its -mla 0, as people note it beside the model's name
    return own
