"""One row of an instrument (a command line, a line of a batch) -> what theory takes: geometry, settings, device.

The engine's own rules and defaults are those of an audit (`engines.settings.resolve`); a row only spells them shorter.
"""

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from auditor.catalog import gguf_names, hf
from auditor.engines.formats import dtype
from auditor.engines.kernels import too_old
from auditor.engines.launch import Launch
from auditor.engines.settings import drafting, resolve
from auditor.errors import UsageError, unread
from auditor.instruments.devices import device, device_source
from auditor.instruments.engine import endpoint, launched, noted, version
from auditor.instruments.engine import engine as served_by
from auditor.instruments.keys import checked
from auditor.instruments.layers import from_layers
from auditor.instruments.naming import as_named, unsure
from auditor.instruments.refusals import beyond_positions, cap, one_machine, refuse, too_long
from auditor.loading import Here, read_model
from auditor.loading.problems import one_line
from auditor.profile import Deployment, Profile
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["Inputs", "inputs"]

_GIB = 1 << 30
_COMPUTING = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp4", "int4")
_SHARES = ("memory_fraction", "gpu_memory_utilization", "mem_fraction_static")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a row says, completed by the engine's defaults and the catalogue.

    `device` is None where none is named or the one that is is not known (`misnamed`); `no_device` says why, for whoever
    needs one. A device outside the catalogue whose memory is given has no bandwidth and no flops. `sources` say where
    each field of `settings` comes from, and "geometry", "device" and "weights" likewise; `notes` what was assumed.
    `refusal` is why the engine would not start, whatever the memory; `cap` the longest request
    that it takes, whatever its context.
    """

    geometry: Geometry
    settings: Settings
    device: Device | None
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()
    no_device: str = ""
    misnamed: bool = False
    refusal: str = ""
    cap: int | None = None

    @property
    def limit(self) -> int | None:
        """The longest request that the engine or the model takes, in tokens."""
        limits = (self.settings.max_model_len or self.geometry.max_position, self.cap)
        return min((limit for limit in limits if limit), default=None)

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
    launch = launched(values)
    found, doubt = device(values, here)
    engine, notes = served_by(values, launch, found)
    if launch is not None and "model" in values:
        values |= _tagged(values, launch)
    geometry = _geometry(values, launch, base or Path())
    release, unread = version(values, launch, engine)
    notes += unread
    profile = Profile(version=1, name="", endpoint=endpoint(engine), deployment=_deployment(values, release))
    if launch is not None:
        notes += noted(launch, _weighed(profile, values))
    drafted = drafting(profile, launch)
    draft = _model(drafted, base or Path()) if drafted is not None else None
    known = draft if isinstance(draft, Geometry) else None
    settings, sources = resolve(profile, launch, None, geometry, found, draft=known)
    computing, lacks = _computing(values, found)
    own = _own(values, engine) | computing
    settings = replace(settings, engine=engine, engine_version=release or settings.engine_version, **own)
    refuse(values, geometry, settings, sources)
    one_machine(settings, found)
    told = {**sources, **dict.fromkeys(own, "declared"), "geometry": geometry.source}
    told["engine"] = "declared" if "engine" in values else "assumed" if launch is None else "launch"
    told |= {"device": device_source(values, found), "weights": _weights_source(values, geometry)}
    return Inputs(
        geometry=geometry,
        settings=settings,
        device=found,
        sources=told,
        notes=(
            *notes,
            *geometry.notes,
            *unsure(geometry, settings, sources),
            *beyond_positions(geometry, settings),
            *lacks,
            *too_old(settings, found),
            *([doubt] if doubt and found else ()),
        ),
        no_device="" if found is not None else doubt,
        misnamed=found is None and "accelerator" in values,
        refusal=too_long(geometry, settings, values.get("launch", "")),
        cap=cap(geometry, settings, values.get("launch", "")),
    )


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


def _tagged(values: Mapping[str, Any], launch: Launch) -> dict[str, str]:
    """The format that the launch line's repository tells (llama-server -hf NAME:Q8_0), where nothing else does."""
    said = gguf_names.told(str(launch.fields.get("model") or ""))
    if "quantization" in values or "quantization" in launch.fields or said is None or said[1] is None:
        return {}
    return {"quantization": said[1]}


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
    except UsageError as error:
        return UsageError(f"model_config: {error}")
    except OSError as error:
        return UsageError(f"model_config: {path}: cannot be read ({unread(error)})")


@lru_cache(maxsize=1024)
def _model(name: str, base: Path) -> Geometry | UsageError:
    try:
        return read_model(name, base)
    except UsageError as error:
        return UsageError(f"model: {error}")
    except OSError as error:
        return UsageError(f"model: {name}: cannot be read ({unread(error)})")


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


def _weighed(profile: Profile, values: Mapping[str, Any]) -> Profile:
    """The profile with the share of the memory, which rows have by several names."""
    field = "mem_fraction_static" if profile.endpoint.engine == "sglang" else "gpu_memory_utilization"
    share: dict[str, Any] = {field: next((values[key] for key in _SHARES if key in values), None)}
    return replace(profile, deployment=replace(profile.deployment, **share))


def _method(written: str | None) -> str | None:
    """A quantisation word without an aside: "fp8(marlin w8)" is fp8."""
    return None if written is None else re.sub(r"\s*\(.*\)", "", written) or None


def _computing(values: Mapping[str, Any], device: Device | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The format of matrix products; of several ("int8/fp16 MMQ") the first that the device has, else a plain one.

    Where it has none of them the engine multiplies in another, and a note says so. Raises UsageError for words of which
    none is a format.
    """
    if "compute_dtype" not in values:
        return {}, ()
    written = one_line(values["compute_dtype"])
    words = re.split(r"[/\s]+", values["compute_dtype"].casefold())
    named = [found for word in words if (found := dtype(word) or word) in _COMPUTING]
    if not named:
        raise UsageError(f"compute_dtype: {written} is not known; {', '.join(_COMPUTING)} are")
    flops = device.flops if device is not None else {}
    chosen = next((word for word in named if word in flops), None)
    chosen = chosen or next((word for word in named if not flops or dtype(word)), None)
    if chosen is None and device is not None:
        return {}, (f"compute_dtype {written}: {device.name} has no such units and multiplies in another format",)
    return {"compute_dtype": chosen}, ()


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
    for key in _SHARES:
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
