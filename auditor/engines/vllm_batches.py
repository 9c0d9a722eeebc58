"""How many tokens a step of `vllm serve` takes and how many requests run at once, where no flag says otherwise."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.speculation import speculates
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["limits"]

_Release = tuple[int, int, int]

_GIB = 2**30
_TPUS = {"tpu-v6e": 1024, "tpu-v5e": 512, "tpu-v5p": 256}
_SMALL, _LARGE, _LARGEST = (2048, 256), (8192, 1024), (16384, 1024)
_IMAGE_TOKENS = 5120  # _MULTIMODAL_MODEL_MAX_NUM_BATCHED_TOKENS of V0
_WHOLE_PROMPT = 32768  # V0 cut longer ones alone

# First releases of rules.
_V1 = (0, 8, 0)
_BY_MEMORY = (0, 8, 5)  # pull request 17073; before, H100 and H200 by name (12369)
_OTHERS_V1 = (0, 9, 1)  # V1 on ROCm and CPUs
_WITHOUT_A100 = (0, 9, 0)  # pull request 17885
_XPU_V1, _CPU_LIMITS = (0, 9, 2), (0, 9, 2)
_CPU_RANKS = (0, 10, 0)  # ... times how many ranks it plays
_SEQUENCES_BOUND = (0, 10, 1)
_TOKENS_BOUND = (0, 11, 1)
_BY_160_GIB = (0, 28, 0)  # pull request 51726


def limits(
    number: _Release, device: Device | None, geometry: Geometry | None, said: Mapping[str, Any]
) -> tuple[int, int]:
    """Tokens of a step and requests of a batch, bounded by each other.

    EngineArgs.get_batch_defaults and _set_default_max_num_seqs_and_batched_tokens_args in vllm/engine/arg_utils.py:
    `--performance-mode throughput` doubles both, and a step never needs more tokens than all requests hold.
    """
    vendor = said.get("vendor") or (device.vendor if device is not None else "nvidia")
    first = _first_engine(number, vendor)
    tokens, sequences = _of_v0(geometry, vendor, said) if first else _by_device(number, device, vendor, said)
    if said.get("performance_mode") == "throughput":
        tokens, sequences = 2 * tokens, 2 * sequences
    sequences = said.get("max_num_seqs") or sequences
    length = said.get("max_model_len")
    most = sequences * length if length and number >= _TOKENS_BOUND else tokens
    tokens = said.get("max_num_batched_tokens") or min(tokens, most)
    return tokens, min(sequences, tokens) if number >= _SEQUENCES_BOUND else sequences


def _by_device(number: _Release, device: Device | None, vendor: str, said: Mapping[str, Any]) -> tuple[int, int]:
    """Pull requests 17073 and 17885: devices of at least 70 GiB that are no A100; 51726: of at least 160 GiB."""
    if vendor == "cpu":
        ranks = (said.get("tensor_parallel") or 1) * (said.get("pipeline_parallel") or 1)
        ranks = ranks if number >= _CPU_RANKS else 1
        return (2048 * ranks, 128 * ranks) if number >= _CPU_LIMITS else _SMALL
    if device is None:
        return _SMALL
    memory, key = device.memory_bytes / _GIB, device.key.lower()
    if key in _TPUS:
        return _TPUS[key], 1024 if memory >= 70 else 256
    if memory >= 160 and number >= _BY_160_GIB:
        return _LARGEST
    if number < _BY_MEMORY:
        return _LARGE if key.startswith(("h100", "h200")) else _SMALL
    return _LARGE if memory >= 70 and ("a100" not in key or number < _WITHOUT_A100) else _SMALL


def _first_engine(number: _Release, vendor: str) -> bool:
    """Whether the V0 engine serves: before 0.8, and up to 0.9 on devices that V1 left to it
    (_is_v1_supported_oracle in vllm/engine/arg_utils.py).

    Up to 0.10.1 it also served NVIDIA's devices older than Ampere, whose limits are V1's but for prompts taken whole;
    that is not counted.
    """
    if number < _V1 or vendor in ("nvidia", "google"):
        return number < _V1
    return number < (_XPU_V1 if vendor == "intel" else _OTHERS_V1)


def _of_v0(geometry: Geometry | None, vendor: str, said: Mapping[str, Any]) -> tuple[int, int]:
    """V0 took a prompt whole up to 32,768 tokens, and where it cut none: beside MLA, images, windows and drafts, and
    off NVIDIA's devices (_set_default_args_v0 there, SchedulerConfig in vllm/config.py).
    """
    tokens, sequences = _SMALL
    length, images = said.get("max_model_len") or 0, geometry is not None and geometry.vision
    kinds = {group.kind for group in geometry.layers} if geometry is not None else {"full"}
    cuts = kinds == {"full"} and not images and not speculates(said.get("speculative"))
    if length <= _WHOLE_PROMPT or not cuts or vendor != "nvidia":
        tokens = max(tokens, length)
    return max(tokens, _IMAGE_TOKENS) if images else tokens, sequences
