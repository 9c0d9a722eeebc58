"""Engines whose rule is read from their source and has not been held against a running engine: a share of what is free
once the weights are loaded.
"""

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.overhead import activations
from auditor.theory.overhead.share import Band, Share, gib
from auditor.theory.settings import Settings

__all__ = ["lmdeploy", "trtllm"]

_TRTLLM_TOKENS = 8192  # max_num_tokens of tensorrt_llm/llmapi/llm_args.py
_TRTLLM_BATCH = 2048  # its max_batch_size
_LMDEPLOY_TOKENS = 8192  # max_prefill_token_num of lmdeploy/messages.py


def trtllm(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> Share:
    """pool = free_gpu_memory_fraction x (total - peak of a trial step), 0.9 by default.

    _cal_max_memory in tensorrt_llm/_torch/pyexecutor/_util.py; the TensorRT engine of older releases takes its
    activations when it is loaded, before what is free is asked: a log of 0.19 gives 16.05 GiB of 17.83 free at 0.9
    (github.com/NVIDIA/TensorRT-LLM issue 4275). Engines with no rule of their own are treated alike.
    """
    del device
    tokens = settings.max_num_batched_tokens or _TRTLLM_TOKENS
    step = activations.forward(geometry, settings, tokens) + activations.expert_workspace(geometry, settings, tokens)
    logits = 4.0 * geometry.vocab_size * (settings.max_num_seqs or _TRTLLM_BATCH)
    peak = Band(0.2 * step, 0.6 * step + logits, 1.5 * step + 3 * logits)
    return _of_the_free(settings, usable, weights, peak, settings.memory_fraction or 0.9)


def lmdeploy(geometry: Geometry, settings: Settings, device: Device, usable: float, weights: float) -> Share:
    """pool = cache_max_entry_count x (free - runtime), 0.8 by default.

    runtime = (max_prefill_token_num + 2 x max_batch_size) x vocab x 2 bytes (ExecutorBase._get_runtime_size in
    lmdeploy/pytorch/engine/executor/base.py). TurboMind takes the share of what is free without it
    (BlockManager::GetBlockCount in src/turbomind/models/llama/BlockManager.cc), and keeps its own activations.
    """
    del device
    tokens = settings.max_num_batched_tokens or _LMDEPLOY_TOKENS
    runtime = 2.0 * geometry.vocab_size * (tokens + 2 * (settings.max_num_seqs or 256))
    fraction = settings.memory_fraction or 0.8
    return _of_the_free(settings, usable, weights, Band(0.0, 0.5 * runtime, 1.2 * runtime), fraction)


def _of_the_free(settings: Settings, usable: float, weights: float, peak: Band, fraction: float) -> Share:
    """The rest of what is free stays free, so that a GiB of overhead costs the pool only `fraction` of it.

    For the device context and communicators the ranges of SGLang's are taken, and wider.
    """
    several = max(settings.devices, settings.tensor_parallel) > 1
    fixed = gib(0.6, 1.6, 4.0) if several else gib(0.3, 0.7, 3.0)
    reserved = (1 - fraction) * max(0.0, usable - weights - peak.likely - fixed.likely)
    note = f"the memory rule of {settings.engine} is read from its source, not checked on a running engine"
    return Share(
        budget=usable - reserved,
        activations=peak.softened(fraction),
        other=fixed.softened(fraction),
        notes=(note,),
    )
