"""vLLM on CPUs: the KV cache has a size of its own, by flag or environment, or takes what the process leaves."""

from auditor.theory.kv.releases import release
from auditor.theory.overhead.share import USUAL_FRACTION, Share, gib
from auditor.theory.settings import Settings
from auditor.units import GIB

__all__ = ["share"]

_RESIDENT = gib(0.6, 1.2, 4.0)  # the interpreter, PyTorch and warm-up, beside the weights


def share(settings: Settings, usable: float) -> Share:
    """--kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE where given (`kv_pool_bytes`), else by version.

    4 GiB up to 0.11, half of a NUMA node's memory up to 0.19 (CpuPlatform.get_device_total_memory in
    vllm/platforms/cpu.py), from 0.20 on gpu_memory_utilization x the node's memory less what the process holds
    (CPUWorker.determine_available_memory in vllm/v1/worker/cpu_worker.py).
    """
    version = release(settings.engine_version)
    if settings.kv_pool_bytes is not None:
        return Share(budget=usable, other=_RESIDENT, pool=float(settings.kv_pool_bytes))
    node = ("one NUMA node is assumed: vLLM counts the memory of the node that a worker is bound to",)
    if version < (0, 12, 0):
        return Share(budget=usable, other=_RESIDENT, pool=4 * GIB)
    if version < (0, 20, 0):
        return Share(budget=usable, other=_RESIDENT, pool=usable / 2, notes=node)
    fraction = settings.memory_fraction or USUAL_FRACTION
    return Share(budget=fraction * usable, other=_RESIDENT, notes=node)
