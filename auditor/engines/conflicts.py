"""What is said twice and differently: profile, launch line and server compared field by field."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.catalog import models
from auditor.engines import formats
from auditor.engines.flavours import FLAVOURS
from auditor.engines.launch import Launch
from auditor.engines.speculation import speculates
from auditor.errors import UsageError
from auditor.evidence import Conflict, Location
from auditor.measurement import Served
from auditor.profile import Profile

__all__ = ["conflicts"]

_FIELDS = (
    *("engine_version", "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "quantization"),
    *("kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"),
    *("mem_fraction_static", "block_size", "enforce_eager", "speculative", "disaggregated"),
    *("attention_backend", "queue_limit", "prefix_caching", "decode_context_parallel", "swa_full_tokens_ratio"),
    *(
        "kv_pool_bytes",
        "mamba_cache_mode",
        "mamba_cache_dtype",
        "mamba_ssm_cache_dtype",
        "mamba_slots",
        "mamba_full_ratio",
    ),
)
_Said = tuple[Any, str]


def conflicts(
    profile: Profile, launch: Launch | None, served: Served | None, lines: Mapping[str, Location]
) -> tuple[Conflict, ...]:
    """Every difference between profile and launch line, and between either and the server.

    `Conflict.field` is the profile path ("deployment.max_model_len"), or the bare name of a setting that only a launch
    line has. A difference between launch line and server is listed only where the profile is silent.
    """
    found = []
    for name, declared, launched, told in _said(profile, launch, served, lines):
        for first, second in ((declared, launched), (_of_a_rank(name, launch, declared or launched), told)):
            if first and second and not _agree(name, first[0], second[0]):
                found.append(Conflict(name, _show(first[0]), first[1], _show(second[0]), second[1]))
    return tuple(found)


def _said(
    profile: Profile, launch: Launch | None, served: Served | None, lines: Mapping[str, Location]
) -> Iterator[tuple[str, _Said | None, _Said | None, _Said | None]]:
    """Each field with what profile, launch line and server say, None where one is silent."""

    def declared(path: str, value: Any) -> _Said | None:
        return (value, str(lines.get(path, path))) if value not in (None, "auto") else None

    def launched(name: str) -> _Said | None:
        value = launch.fields.get(name) if launch else None
        return (value, f"launch {launch.flag_of[name]}") if launch and value not in (None, "auto") else None

    def told(name: str) -> _Said | None:
        value = getattr(served, name, None) if served else None
        if served is not None and value is None and name in served.sources:
            value = "none"  # the server shows that it is off
        return (value, f"served {served.sources.get(name, '')}".strip()) if served and value is not None else None

    engine = (launch.engine, "launch command") if launch else None
    seen = told("engine") if served and served.engine != "generic" else None
    yield "endpoint.engine", declared("endpoint.engine", profile.endpoint.engine), engine, seen
    model = profile.deployment.model
    other = _other_model(model, told("model"))
    yield "deployment.model", declared("deployment.model", model), launched("model"), other
    served_name = launched("served_model_name") or launched("model")
    exact = served_name if launch and launch.engine in ("vllm", "sglang") else None
    yield "endpoint.model", None, exact, told("model")
    for name in _FIELDS:
        path = f"deployment.{name}"
        own = hasattr(profile.deployment, name)
        value = getattr(profile.deployment, name, None)
        yield (path if own else name), declared(path, value), launched(name), told(name)
    ranks = (_ranks(launch), "launch, TP x PP x DP") if launch and _ranks(launch) else None
    yield "deployment.count", declared("deployment.count", _count(profile)), ranks, None
    tokens = launched("kv_pool_tokens")
    yield "kv_pool_tokens", None, tokens, told("kv_tokens")


def _other_model(declared: str | None, told: _Said | None) -> _Said | None:
    """The served name where it is a catalogue model of another shape than the declared one; any other name may be an
    alias, and says nothing.
    """
    if declared is None or told is None:
        return None
    try:
        ours, theirs = models.find(declared), models.find(str(told[0]))
    except UsageError:
        return None
    return None if (ours.layers, ours.parameters) == (theirs.layers, theirs.parameters) else told


def _count(profile: Profile) -> int | None:
    """Devices of one replica; 1 is the default, so it says nothing."""
    return profile.deployment.count if profile.deployment.count > 1 else None


def _of_a_rank(name: str, launch: Launch | None, said: _Said | None) -> _Said | None:
    """SGLang's DP attention splits --max-running-requests over its ranks, and each tells its own part."""
    inside = launch is not None and launch.fields.get("dp_attention") is True
    if said is None or not inside or launch is None or name.rpartition(".")[2] != "max_num_seqs":
        return said
    return max(1, said[0] // launch.fields.get("data_parallel", 1)), f"{said[1]}, of a rank"


def _ranks(launch: Launch) -> int | None:
    """Devices that the launch line's parallelism takes; None where it sets none."""
    names = ["tensor_parallel", "pipeline_parallel", *([] if launch.fields.get("dp_attention") else ["data_parallel"])]
    degrees = [launch.fields[name] for name in names if name in launch.fields]
    return math.prod(degrees) if degrees else None


def _agree(name: str, first: Any, second: Any) -> bool:
    """Whether two ways to write a setting mean the same."""
    field = name.rpartition(".")[2]
    if field == "engine_version":
        return _release(str(first), str(second))
    if name == "deployment.model":
        return _same_model(str(first), str(second))
    if field == "speculative":
        return speculates(first) == speculates(second)
    if field == "block_size" and _aligned(first, second):
        return True
    if field in ("quantization", "kv_cache_dtype"):
        return _format(field, str(first)) == _format(field, str(second))
    if field == "attention_backend":
        return str(first).lower() == str(second).lower()
    if isinstance(first, float) or isinstance(second, float):
        return math.isclose(float(first), float(second), abs_tol=0.0005)
    return str(first) == str(second)


def _release(first: str, second: str) -> bool:
    """0.32 agrees with 0.32.0 and 0.32.0+cpu: only the parts that both write are compared."""
    parts = [text.removeprefix("v").partition("+")[0].split(".") for text in (first, second)]
    return all(a == b for a, b in zip(*parts, strict=False))


def _same_model(first: str, second: str) -> bool:
    """Names of a hub's models are compared without their owner; of a path only the name is known, so it agrees."""
    names = [text.rstrip("/").lower() for text in (first, second)]
    if any(name.startswith(("/", ".", "~")) or name.endswith((".gguf", ".json")) for name in names):
        return True
    return names[0].rpartition("/")[2] == names[1].rpartition("/")[2]


def _aligned(asked: int, served: int) -> bool:
    """Whether a block was enlarged to the states of recurrent layers: a multiple of what was asked, and no power of two
    as kernels ask for.
    """
    return served > asked and served % asked == 0 and served & (served - 1) != 0


def _format(field: str, word: str) -> float | str:
    """A format as the bits it takes, or the word itself where that is not known."""
    size = formats.kv_bytes(word, "bf16") if field == "kv_cache_dtype" else formats.weight_bits(word, "bf16")
    return size if size is not None else word.lower()


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("method") or value.get("model") or "speculative")
    if isinstance(value, str) and value in FLAVOURS:
        return FLAVOURS[value].title
    return str(value)
