"""From what is declared, launched, served and default to the explicit values that theory takes, each with its source.

Precedence: declared in the profile > launch flag > served > default of the engine's version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from auditor.engines import formats
from auditor.engines.conflicts import conflicts
from auditor.engines.flavour import Flavour
from auditor.engines.flavours import FLAVOURS
from auditor.engines.launch import Launch
from auditor.measurement import Served
from auditor.profile import Profile
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["conflicts", "engine_of", "resolve"]

# A drafting depth where a profile only names the method: what vLLM's and SGLang's own recipes use most.
_ASSUMED_DRAFT = 3
_FRACTIONS = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}


@dataclass(slots=True)
class _Inputs:
    """The places in which a value can be found, and what was chosen so far."""

    profile: Profile
    launch: Launch | None
    served: Served | None
    flavour: Flavour
    defaults: Mapping[str, Any]
    version: str | None
    chosen: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, *candidates: tuple[Any, str]) -> Any:
        """Choose the first candidate that says something; None where none does."""
        for value, source in candidates:
            if value is not None and value != "auto":
                self.chosen[name], self.sources[name] = value, source
                return value
        return None

    def declared(self, name: str) -> tuple[Any, str]:
        """A field of the profile's `deployment`."""
        return getattr(self.profile.deployment, name, None), "declared"

    def launched(self, name: str) -> tuple[Any, str]:
        """A field that a launch flag set."""
        if self.launch is None or name not in self.launch.fields:
            return None, ""
        return self.launch.fields[name], f"launch {self.launch.flag_of[name]}"

    def told(self, name: str) -> tuple[Any, str]:
        """A field that the server told."""
        if self.served is None:
            return None, ""
        return getattr(self.served, name, None), f"served {self.served.sources.get(name, '')}".strip()

    def default(self, name: str) -> tuple[Any, str]:
        """The engine's own default."""
        return self.defaults.get(name), " ".join(["default of", self.flavour.title, *([self.version or ""])]).strip()

    def found(self, name: str) -> Any:
        """Choose a field that all four places call by the same name."""
        return self.take(name, self.declared(name), self.launched(name), self.told(name), self.default(name))


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
) -> tuple[Settings, Mapping[str, str]]:
    """The settings of one engine instance and, by field, where each value comes from.

    Served facts about the KV pool itself are not used: the pool is computed from settings, then compared with them.
    """
    engine, said = engine_of(profile, launch, served)
    flavour = FLAVOURS[engine]
    version = profile.deployment.engine_version
    version = version or (launch.fields.get("engine_version") if launch and launch.engine == engine else None)
    version = version or (served.engine_version if served is not None and served.engine == engine else None)
    inputs = _Inputs(profile, launch, served, flavour, flavour.defaults(version, device), version)
    inputs.take("engine", (engine, said))
    inputs.found("engine_version")
    _parallelism(inputs)
    _formats(inputs, geometry, device)
    _limits(inputs, geometry)
    _pool(inputs, geometry, device)
    _graphs(inputs)
    _speculation(inputs)
    if engine == "llamacpp":
        _slots(inputs)
    return Settings(**inputs.chosen), inputs.sources


# ------------------------------------------------------------------------------------------------------------- devices


def _parallelism(inputs: _Inputs) -> None:
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    degrees = {name: inputs.found(name) for name in names}
    count = inputs.profile.deployment.count
    if count > 1 and not any(degrees[name] for name in names[:3]):
        across = "pipeline_parallel" if inputs.flavour.name == "llamacpp" else "tensor_parallel"
        degrees[across] = inputs.take(across, (count, "deployment.count, no parallelism declared"))
    ranks = 1
    for name in names[:3]:
        ranks *= degrees[name] or 1
    inside = inputs.launched("dp_attention")[0] is True  # SGLang: DP ranks live on the TP devices
    used = ranks // (degrees["data_parallel"] or 1) if inside else ranks
    inputs.take("devices", (count if count > 1 else None, "declared"), (used, "parallelism"))


# ------------------------------------------------------------------------------------------------------------- formats


def _formats(inputs: _Inputs, geometry: Geometry | None, device: Device | None) -> None:
    model = (geometry.dtype if geometry else None), "the model's own"
    asked = inputs.launched("compute_dtype")
    plain = formats.dtype(asked[0]) or formats.dtype(inputs.told("dtype")[0]) or formats.dtype(model[0]) or "bf16"
    own = (geometry.quantization if geometry else None), "the model's own"
    quantization = inputs.take(
        "quantization",
        inputs.declared("quantization"),
        inputs.launched("quantization"),
        own,
        inputs.told("quantization"),
    )
    supported = frozenset(device.flops) if device else frozenset[str]()
    source = inputs.sources.get("quantization") if quantization else None
    inputs.take("compute_dtype", (formats.compute_dtype(quantization, plain, supported), source or "the model's own"))
    bits = formats.weight_bits(quantization, plain)
    inputs.take("weight_bits", (bits, source or "the model's own"), (16.0, f"assumed, {quantization} is not known"))
    if str(quantization).lower() == "none":
        inputs.chosen["quantization"] = None
    word = inputs.found("kv_cache_dtype") or "auto"
    inputs.chosen["kv_cache_dtype"] = word
    other = inputs.launched("kv_cache_dtype_v")[0]
    sizes = [formats.kv_bytes(w, plain) for w in (word, other or word)]
    known = sum(s for s in sizes if s is not None) / 2 if None not in sizes else None
    source = inputs.sources.setdefault("kv_cache_dtype", "the model's own")
    inputs.take("kv_bytes", (known, source), (formats.kv_bytes("auto", plain), f"assumed, {word} is not known"))


# -------------------------------------------------------------------------------------------------------------- limits


def _limits(inputs: _Inputs, geometry: Geometry | None) -> None:
    own = (geometry.max_position if geometry else None), "the model's own"
    inputs.take(
        "max_model_len",
        *(place("max_model_len") for place in (inputs.declared, inputs.launched, inputs.told)),
        own,
    )
    inputs.found("max_num_seqs")
    if inputs.sources.get("max_num_seqs", "").startswith("launch") and inputs.launched("dp_attention")[0]:
        # SGLang divides the total over the ranks (resolve_max_num_reqs in kv_cache_configurator.py)
        ranks = inputs.chosen.get("data_parallel", 1)
        inputs.chosen["max_num_seqs"] = max(1, inputs.chosen["max_num_seqs"] // ranks)
    inputs.found("max_num_batched_tokens")


def _pool(inputs: _Inputs, geometry: Geometry | None, device: Device | None) -> None:
    name = _FRACTIONS.get(inputs.flavour.name, "memory_fraction")
    places = (inputs.declared(name), inputs.launched(name), inputs.told(name))
    inputs.take("memory_fraction", *places, inputs.default("memory_fraction"))
    inputs.take(
        "block_size",
        *(place("block_size") for place in (inputs.declared, inputs.launched, inputs.told)),
        _mla_block(inputs.flavour.name, geometry, device),
        inputs.default("block_size"),
    )
    inputs.take("kv_pool_bytes", inputs.launched("kv_pool_bytes"))
    inputs.take("kv_pool_tokens", inputs.launched("kv_pool_tokens"))
    blocks, source = inputs.launched("kv_blocks")
    if blocks is not None and inputs.chosen.get("block_size"):
        inputs.take("kv_pool_tokens", (blocks * inputs.chosen["block_size"], source))
    inputs.take("hybrid_kv_manager", inputs.launched("hybrid_kv_manager"))
    inputs.take("swa_full_tokens_ratio", inputs.launched("swa_full_tokens_ratio"))


def _mla_block(engine: str, geometry: Geometry | None, device: Device | None) -> tuple[int | None, str]:
    """vLLM's block for MLA on CUDA is 64 (FlashMLA's page, vllm/platforms/cuda.py); on the CPU it is as for others."""
    latent = geometry is not None and any(group.kind == "mla" for group in geometry.layers)
    if engine == "vllm" and latent and not (device is not None and device.kind == "cpu"):
        return 64, "default of vLLM for MLA"
    return None, ""


def _graphs(inputs: _Inputs) -> None:
    """The largest batch captured as a kernel graph: vLLM min(2 x max_num_seqs, 512) (vllm/config/vllm.py), SGLang by
    device and TP, never above the batch limit.
    """
    if inputs.found("enforce_eager"):
        return
    wide = inputs.chosen.get("tensor_parallel", 1) >= 4
    default = inputs.default("captured_batch_wide" if wide else "captured_batch")
    captured = inputs.take("captured_batch", inputs.launched("captured_batch"), default)
    limit = inputs.chosen.get("max_num_seqs")
    if captured and limit and inputs.sources["captured_batch"].startswith("default"):
        inputs.chosen["captured_batch"] = min(captured, 2 * limit if inputs.flavour.name == "vllm" else limit)


def _speculation(inputs: _Inputs) -> None:
    """How many tokens are drafted a step; 0 without speculation."""
    for value, source in (inputs.declared("speculative"), inputs.launched("speculative"), inputs.told("speculative")):
        if isinstance(value, Mapping):
            tokens = value.get("num_speculative_tokens")
            inputs.take("speculative_tokens", (tokens, source), (_ASSUMED_DRAFT, f"assumed, {source} gives no number"))
            return
        if isinstance(value, str):
            off = value.lower() in ("", "none", "off", "false")
            inputs.take(
                "speculative_tokens", (0, source) if off else (_ASSUMED_DRAFT, f"assumed for {value}, {source}")
            )
            return


def _slots(inputs: _Inputs) -> None:
    """llama.cpp: slots are its batch limit; automatic slots share one buffer."""
    asked = [inputs.launched("slots"), inputs.declared("max_num_seqs"), inputs.told("max_num_seqs")]
    inputs.take("slots", *asked, inputs.default("slots"))
    inputs.take("ubatch", inputs.launched("ubatch"), inputs.default("ubatch"))
    inputs.take("full_swa_cache", inputs.launched("full_swa_cache"))
    automatic, reason = False, "slots are set"
    if inputs.sources["slots"].startswith("default") or (inputs.launch and inputs.launched("slots")[0] is None):
        automatic, reason = True, "slots are automatic"
    elif inputs.launch is None and inputs.sources["slots"].startswith("served") and inputs.chosen["slots"] == 4:
        automatic, reason = True, "assumed, 4 is the automatic number of slots"  # the server does not tell
    inputs.take("kv_unified", inputs.launched("kv_unified"), (automatic, reason))
