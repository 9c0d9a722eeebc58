"""What no engine starts with, told in one line before anything is computed."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.speculation import MOST
from auditor.errors import UsageError
from auditor.loading.problems import one_line
from auditor.theory.device import Device
from auditor.theory.kv.cells import attention_parallel
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings

__all__ = ["beyond_positions", "cap", "one_machine", "refuse", "too_long", "unstartable"]

_CACHE_WORDS = "auto, fp16, bf16, fp8 (fp8_e4m3, fp8_e5m2), int8, int4, nvfp4 and llama.cpp's q8_0 to q4_0"
_STEP = 16  # tokens of a block that vLLM's kernels read at once
_SMALL = (1, 8)  # ... and smaller blocks that some take
_MOST_LISTED = 1024
_ALLOWED = {  # the flag of the context limit, and the variable that lets it exceed the model's own
    "vllm": ("--max-model-len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    "sglang": ("--context-length", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
}
_RESCALED = ("rope", "hf-overrides", "json-model-override-args")  # what changes the positions that a model knows


def refuse(values: Mapping[str, Any], geometry: Geometry, settings: Settings, sources: Mapping[str, str]) -> None:
    """Raise UsageError for an unknown cache format, blocks that no kernel reads, a count of devices that is not
    what the parallelism takes, and what `unstartable` does. A pool that is told proves a start: then the first two.
    """
    if sources.get("kv_bytes", "").startswith("assumed") and "kv_bytes_per_element" not in values:
        word = one_line(settings.kv_cache_dtype)
        raise UsageError(f"kv_cache_dtype: {word} is not known; {_CACHE_WORDS} are, or give kv_bytes_per_element")
    _blocks(values, settings)
    if not {"kv_pool_gib", "kv_pool_tokens"} & values.keys():
        if "count" in values:
            _devices(values["count"], settings)
        unstartable(geometry, settings)


def one_machine(settings: Settings, device: Device | None) -> None:
    """Raise UsageError for several of this machine: its figures are those of all of its cores."""
    if device is not None and device.here and settings.devices > 1:
        raise UsageError(f"count: {settings.devices}, but {device.key} is one machine with all of its cores")


def unstartable(geometry: Geometry, settings: Settings) -> None:
    """Raise UsageError for attention heads that the devices cannot share, for more pipeline stages than layers, and for
    more drafts a step than anybody means.
    """
    stages, layers = settings.pipeline_parallel, geometry.layer_count
    if layers and stages > layers:
        raise UsageError(f"pipeline_parallel: {stages} stages for {layers} layers, which are the most")
    if settings.speculative_tokens > MOST:
        raise UsageError(f"speculative: {settings.speculative_tokens:,} tokens drafted a step, {MOST:,} are the most")
    _heads(geometry, settings)


def too_long(geometry: Geometry, settings: Settings, launch: str = "") -> str:
    """Why the engine refuses a context beyond the model's positions; "" where it does not, or `launch` lifts that.

    _get_and_verify_max_len in vllm/config/model.py; _derive_context_length in sglang/srt/configs/model_config.py.
    """
    known, limit = _positions(geometry), settings.max_model_len or 0
    flag, allowed = _ALLOWED.get(settings.engine, ("", ""))
    if not flag or not known or limit <= known or any(word in launch for word in (allowed, *_RESCALED)):
        return ""
    return f"{flag} {limit} is more than the model's {known} positions ({allowed}=1 would allow it)"


def beyond_positions(geometry: Geometry, settings: Settings) -> tuple[str, ...]:
    """A note on a context beyond the model's positions, for engines whose rule on it is not known here."""
    known, limit = _positions(geometry), settings.max_model_len or 0
    if settings.engine in (*_ALLOWED, "llamacpp") or not known or limit <= known:
        return ()
    return (f"a context of {limit} tokens is beyond the model's {known} positions: the engine may refuse it",)


def _positions(geometry: Geometry) -> int:
    return max(geometry.max_position or 0, geometry.extra.get("positions", 0))


def cap(geometry: Geometry, settings: Settings, launch: str = "") -> int | None:
    """The longest request that llama.cpp takes whatever context a slot has: "the slot context exceeds the training
    context of the model - capping" (tools/server/server-context.cpp). None where `launch` moves that, or it is another
    engine.
    """
    if settings.engine != "llamacpp" or any(word in launch.casefold() for word in ("rope", "yarn", "override-kv")):
        return None
    return geometry.max_position


def _devices(count: int, settings: Settings) -> None:
    """SGLang's attention data parallelism runs within TP."""
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    tp, pp, dp = (getattr(settings, name) for name in names)
    inside = settings.engine == "sglang" and tp % dp == 0
    if count == tp * pp * dp or (inside and count == tp * pp):
        return
    product = " x ".join(f"{name} {getattr(settings, name)}" for name in names if getattr(settings, name) > 1)
    raise UsageError(f"count: {product or 'no parallelism'} = {tp * pp * dp} devices, but count is {count}")


def _blocks(values: Mapping[str, Any], settings: Settings) -> None:
    """get_supported_kernel_block_sizes in vllm/v1/attention/backends; tokens_per_block of tensorrt_llm/llmapi."""
    size = values.get("block_size")
    if size is None:
        return
    if settings.engine == "vllm" and size % _STEP and size not in _SMALL:
        raise UsageError(f"block_size: {size}, but vLLM's kernels take multiples of {_STEP}")
    if settings.engine == "trtllm" and size & (size - 1):
        raise UsageError(f"block_size: {size}, but TensorRT-LLM takes powers of two")


def _heads(geometry: Geometry, settings: Settings) -> None:
    """verify_with_parallel_config in vllm/config/model.py; heads of keys and values are divided or copied whole."""
    heads, devices = geometry.attention_heads, attention_parallel(settings)
    if settings.engine not in ("vllm", "sglang") or not geometry.layers or not heads or _divides(devices, geometry):
        return
    title = {"vllm": "vLLM", "sglang": "SGLang"}[settings.engine]
    possible = ", ".join(str(size) for size in range(1, min(heads, _MOST_LISTED) + 1) if _divides(size, geometry))
    kept = sorted({group.kv_heads for group in geometry.layers if group.latent_dim is None})
    of_keys = f" and {' and '.join(map(str, kept))} of keys and values" if kept else ""
    raise UsageError(
        f"tensor_parallel: {title} does not start with {devices} devices for {heads} attention heads{of_keys}; "
        f"{possible} can share them"
    )


def _divides(devices: int, geometry: Geometry) -> bool:
    kept = (group.kv_heads for group in geometry.layers if group.latent_dim is None)
    return geometry.attention_heads % devices == 0 and all(
        heads % devices == 0 or devices % heads == 0 for heads in kept
    )
