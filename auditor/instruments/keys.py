"""The keys of a row that describes one deployment to an instrument, and how their values are checked."""

from collections.abc import Callable, Container, Mapping
from typing import Any

from auditor.engines.speculation import MOST
from auditor.errors import UsageError
from auditor.loading.problems import did_you_mean, one_line

__all__ = ["KEYS", "checked", "refuse"]

_BYTES = (1, 10**15)
_GIB = (1e-6, 10**6)
_WIDTH = (1 / 16, 16)  # bytes of an element
_SHARE = (1e-6, 1)
_RATIO = (1e-6, 10**6)
_MOST = 10**9  # tokens, requests
_DEVICES = 2**16
_LONGEST = 2**16  # characters of a text; launch lines are the longest


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST and value.strip() else None


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def _count(value: Any) -> int | None:
    return _whole(value) or None


def _degree(value: Any) -> int | None:
    found = _count(value)
    return found if found is not None and found <= _DEVICES else None


def _drafts(value: Any) -> int | None:
    found = _whole(value)
    return found if found is not None and found <= MOST else None


def _within(value: Any, least: float, most: float) -> float | None:
    """A number in these bounds; compared as it is written, since no float holds an integer of 400 digits."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and least <= value <= most else None


def _bytes(value: Any) -> float | None:
    return _within(value, *_BYTES)


def _gib(value: Any) -> float | None:
    return _within(value, *_GIB)


def _width(value: Any) -> float | None:
    return _within(value, *_WIDTH)


def _share(value: Any) -> float | None:
    return _within(value, *_SHARE)


def _ratio(value: Any) -> float | None:
    return _within(value, *_RATIO)


def _switch(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _mapping(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and value else None


def _id(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else None


_WANTED: Mapping[Callable[[Any], Any], str] = {
    _text: f"text of up to {_LONGEST} characters is needed",
    _whole: "a whole number of 0 or more is needed",
    _count: "a whole number of 1 or more is needed",
    _degree: f"a whole number from 1 to {_DEVICES} is needed",
    _drafts: f"a whole number from 0 to {MOST} is needed",
    _bytes: f"a number of bytes from 1 to {_BYTES[1]} is needed",
    _gib: f"a number of GiB from {_GIB[0]:f} to {_GIB[1]} is needed",
    _width: f"bytes of an element, from {_WIDTH[0]} to {_WIDTH[1]}, are needed",
    _ratio: f"a ratio from {_RATIO[0]:f} to {_RATIO[1]} is needed",
    _share: "a fraction above 0 and up to 1 is needed, such as 0.9",
    _switch: "true or false is needed",
    _mapping: "an object with keys is needed",
    _list: "a list with entries is needed",
    _id: "text or a number is needed",
}
_BY_KIND: Mapping[Callable[[Any], Any], tuple[str, ...]] = {
    _id: ("id",),
    _text: (
        *("engine", "engine_version", "launch", "model", "model_config", "accelerator", "quantization"),
        *("compute_dtype", "kv_cache_dtype", "mamba_cache_mode"),
    ),
    _mapping: ("model_config_inline", "model_facts"),
    _list: ("kv_layers",),
    _degree: (
        *("count", "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel"),
        "decode_context_parallel",
    ),
    _count: (
        *("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
        *("mamba_slots", "n_ubatch", "slots", "kv_pool_tokens"),
    ),
    _whole: ("extra_full_layers",),
    _drafts: ("num_speculative_tokens",),
    _gib: ("gpu_memory_gib", "weights_gib", "kv_pool_gib"),
    _bytes: ("weight_file_bytes",),
    _width: ("kv_bytes_per_element", "ssm_bytes", "conv_bytes"),
    _ratio: ("swa_full_tokens_ratio", "mamba_full_ratio"),
    _share: ("gpu_memory_utilization", "mem_fraction_static", "memory_fraction"),
    _switch: ("enforce_eager", "hybrid_kv_cache_manager", "swa_full", "kv_unified"),
}
KEYS: Mapping[str, Callable[[Any], Any]] = {key: kind for kind, keys in _BY_KIND.items() for key in keys}
"""Every key of a row, with the function that gives its value as the program uses it, or None for a wrong one."""


def refuse(names: Container[str] | Mapping[str, Any], given: Mapping[str, Any], place: str = "") -> None:
    """Raise UsageError for the first key of `given` that is not among `names`, with the nearest that is."""
    for key in given:
        if key not in names:
            near = did_you_mean(str(key), names) if isinstance(names, Mapping) else ""
            raise UsageError(f"{place}{one_line(str(key))}: unknown key{near}")


def checked(row: Mapping[str, Any], also: Container[str] = ()) -> dict[str, Any]:
    """The row's values, checked, without those that say nothing (null); keys in `also` are the caller's own.

    Raises UsageError with the key and what is needed.
    """
    found: dict[str, Any] = {}
    for key, value in row.items():
        kind = KEYS.get(key)
        if kind is None:
            if key in also:
                continue
            refuse(KEYS, {key: value})
        elif value is not None:
            found[key] = kind(value)
            if found[key] is None:
                raise UsageError(f"{key}: {one_line(repr(value))[:60]}, {_WANTED[kind]}")
    return found
