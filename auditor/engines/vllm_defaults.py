"""What `vllm serve` uses where no flag says otherwise, by version, device and model."""

from collections.abc import Mapping
from typing import Any

from auditor.engines import vllm_batches, vllm_states
from auditor.engines.flavour import NOTHING
from auditor.engines.formats import kv_bytes
from auditor.engines.generations import compute_capability
from auditor.engines.speculation import waits
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.kv.releases import release

__all__ = ["defaults"]

_BLOCK = 16  # CacheConfig.DEFAULT_BLOCK_SIZE
_CPU_BLOCK = 128
_XPU_BLOCK = (0, 9, 2)
_BACKENDS_ASK = (0, 18, 0)  # from here on the attention backend says which block it wants
# Blocks of MLA kernels (get_supported_kernel_block_sizes in vllm/v1/attention/backends/mla).
_MLA_BLOCKS = {"FLASHMLA": 64, "CUTLASS_MLA": 128, "FLASHINFER_MLA": 32, "TRITON_MLA": 16, "FLASH_ATTN_MLA": 16}


def defaults(
    version: str | None, device: Device | None, geometry: Geometry | None = None, said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Every default of `vllm serve` that arithmetic takes.

    gpu_memory_utilization: vllm/config/cache.py, 0.9 up to 0.19, 0.92 from 0.20.
    """
    number = release(version)
    tokens, sequences = vllm_batches.limits(number, device, geometry, said)
    return {
        "memory_fraction": 0.92 if number >= (0, 20, 0) else 0.9,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": sequences,
        "block_size": _block_size(number, device, geometry, said),
        "enforce_eager": False,
        "captured_batch": 512,
        **_states(number, geometry, said),
        **_manager(number, geometry),
        **_steps(number, said),
    }


# ------------------------------------------------------------------------------------------------------------ KV cache


def _block_size(
    number: tuple[int, int, int], device: Device | None, geometry: Geometry | None, said: Mapping[str, Any]
) -> int:
    """Tokens of a block before a hybrid's alignment, which `theory.kv.vllm` computes.

    16 on GPUs (update_block_size_for_backend in vllm/platforms/interface.py); 64 on Intel's with V1 (platforms/xpu.py);
    128 on the CPU (platforms/cpu.py, whose MLA kernel for CPUs without AMX takes 16, told by the server alone).
    DeepSeek-V4's caches take 256 (v1/attention/backends/mla/sparse_swa.py).
    """
    if geometry is not None and any(group.kind == "compressed" for group in geometry.layers):
        return 256
    vendor = said.get("vendor") or (device.vendor if device else "nvidia")
    if vendor == "cpu":
        return _CPU_BLOCK
    if vendor == "intel" and number >= _XPU_BLOCK:
        return 64
    latent = geometry is not None and any(group.kind == "mla" for group in geometry.layers)
    if not latent or vendor != "nvidia":
        return _BLOCK
    return _latent_block(number, device, sparse=geometry is not None and geometry.indexer is not None, said=said)


def _latent_block(number: tuple[int, int, int], device: Device | None, *, sparse: bool, said: Mapping[str, Any]) -> int:
    """MLA on NVIDIA's GPUs, by the kernel that is chosen (_get_backend_priorities in vllm/platforms/cuda.py).

    Sparse MLA and its indexer take 64. Up to 0.17 FlashMLA's 64 on Hopper and CUTLASS's 128 on Blackwell were forced
    on the whole cache; since then a kernel's smallest block is taken: FlashAttention's 16 on Hopper (FlashMLA's 64 with
    an 8-bit cache, which it does not read), FlashInfer's 32 on Blackwell, Triton's 16 elsewhere.
    """
    backend = str(said.get("attention_backend") or "").upper()
    if sparse:
        return 64
    if backend in _MLA_BLOCKS:
        return _MLA_BLOCKS[backend]
    major = (compute_capability(device) or ((9, 0) if device is None else (0, 0)))[0]
    eight_bit = (kv_bytes(said.get("kv_cache_dtype"), "bf16") or 2.0) < 2
    if number < _BACKENDS_ASK:
        return {9: 64, 10: 128}.get(major, _BLOCK)
    return {9: 64 if eight_bit else _BLOCK, 10: 32}.get(major, _BLOCK)


def _states(number: tuple[int, int, int], geometry: Geometry | None, said: Mapping[str, Any]) -> dict[str, Any]:
    if geometry is None or not geometry.recurrent:
        return {}
    kept = vllm_states.mode(number, geometry, said.get("prefix_caching"), said.get("mamba_cache_mode"))
    return {"mamba_cache_mode": kept, "prefix_caching": kept != "none"}


def _manager(number: tuple[int, int, int], geometry: Geometry | None) -> dict[str, bool]:
    """Layers that see chunks are managed as full ones unless the environment allows otherwise, since 0.10.1
    (VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE in vllm/config/vllm.py).
    """
    chunked = geometry is not None and any(group.kind == "chunked" for group in geometry.layers)
    return {"hybrid_kv_manager": False} if chunked and number >= (0, 10, 1) else {}


def _steps(number: tuple[int, int, int], said: Mapping[str, Any]) -> dict[str, int]:
    """Batches in flight where none is scheduled ahead: on the CPU (vllm/platforms/cpu.py switches async scheduling
    off), and for drafts that wait for the step before.
    """
    alone = said.get("vendor") == "cpu" or waits(said.get("speculative"), number)
    return {"steps_in_flight": said.get("pipeline_parallel") or 1} if alone else {}
