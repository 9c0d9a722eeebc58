"""What `sglang.launch_server` uses where no flag says otherwise, by device and model."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flavour import NOTHING
from auditor.engines.generations import compute_capability
from auditor.engines.speculation import speculates
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["defaults"]

_MIB = 2**20
_RUNNING = 2048  # resolve_max_num_reqs: capacity / context x 512 within 2048..4096, at most half of the pool's tokens
_RUNNING_DRAFTED = 48  # _handle_eagle_family and its kin in srt/arg_groups/speculative_hook.py
# Up to so many GiB: chunk, largest decode batch captured as a graph with TP below 4, and from 4 on.
_STEPS = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
_LARGEST = (16384, 512, 512)
# Pages that attention kernels ask for (_mla_backend_page_constraints and others in srt/arg_groups/overrides.py).
_PAGES = {
    **dict.fromkeys(("flashmla", "trtllm_mla", "trtllm_mha", "cutedsl_mla", "hpc_ops", "nsa", "dsa"), 64),
    **dict.fromkeys(("cutlass_mla", "intel_xpu", "ascend"), 128),
    "dsv4": 256,
}
_FEW_SLIDING = ("DeepseekV4", "Inkling")  # srt/arg_groups/model_overrides: a tenth of the tokens in sliding layers


def defaults(
    _release: str | None, device: Device | None, geometry: Geometry | None = None, said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Every default of SGLang that arithmetic takes, by the rules of 0.5.23 (srt/arg_groups/memory_hook.py,
    handle_gpu_memory_settings; in server_args.py before).
    """
    found: dict[str, Any] = {
        "max_num_batched_tokens": 4096,
        "max_num_seqs": _running(said),
        "block_size": _page(device, geometry, said),
        "enforce_eager": False,
        "swa_full_tokens_ratio": 0.8,
        "mamba_full_ratio": 0.9,
    }
    if geometry is not None and geometry.architecture.startswith(_FEW_SLIDING):
        found["swa_full_tokens_ratio"] = 0.1
    if geometry is not None and geometry.indexer is not None and _blackwell(device):
        found["kv_cache_dtype"] = "fp8_e4m3"  # _dsa_kv_cache_dtype_default in srt/arg_groups/overrides.py
    if device is None or device.kind == "cpu":
        return found
    memory = (device.usable_bytes or device.memory_bytes) / _MIB
    chunk, graph, wide = next((step[1:] for step in _STEPS if memory < step[0] * 1024), _LARGEST)
    chunk = said.get("max_num_batched_tokens") or chunk
    captured = min(wide if (said.get("tensor_parallel") or 1) >= 4 else graph, said.get("max_num_seqs") or wide)
    return found | {
        "memory_fraction": _fraction(memory, chunk, captured, geometry, said),
        "max_num_batched_tokens": chunk,
        "captured_batch": graph,
        "captured_batch_wide": wide,
    }


def _running(said: Mapping[str, Any]) -> int:
    """Requests that one rank runs at once."""
    if not speculates(said.get("speculative")):
        return _RUNNING
    ranks = (said.get("data_parallel") or 1) if said.get("dp_attention") else 1
    return max(1, _RUNNING_DRAFTED // ranks)


def _fraction(memory: float, chunk: int, captured: int, geometry: Geometry | None, said: Mapping[str, Any]) -> float:
    """mem_fraction_static: what is not kept free, rounded to three digits. Everything in MiB.

    Kept free are 512, 1.5 a token of a chunk, TP x PP / 8 GiB and room for graphs, at least 10 GiB above 60 GiB. Models
    with a vision encoder keep 5 % more, and still more by the encoder's size, which is not counted here.
    """
    devices = (said.get("tensor_parallel") or 1) * (said.get("pipeline_parallel") or 1)
    reserved = 512 + 1.5 * max(chunk, 2048) + 1024 * devices / 8 + _for_graphs(chunk, captured, geometry, said)
    if memory > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    fraction = round((memory - reserved) / memory, 3)
    return round(0.95 * fraction, 3) if geometry is not None and geometry.vision else fraction


def _for_graphs(chunk: int, captured: int, geometry: Geometry | None, said: Mapping[str, Any]) -> float:
    """Room for kernel graphs (reserve_for_graph_mb): 2 a decode batch, 8 a prefill graph or 1.5 GiB in all for MLA;
    DP attention pads batches: 3 a batch and rank, half as much again above 300.
    """
    if said.get("enforce_eager"):
        return 0.0
    room = 2.0 * captured
    if said.get("dp_attention"):
        room += captured * (said.get("data_parallel") or 1) * (3 if captured <= 300 else 4.5)
    latent = geometry is not None and any(group.kind == "mla" for group in geometry.layers)
    return room + (1536 if latent else 8 * _prefill_graphs(chunk))


def _prefill_graphs(largest: int) -> int:
    """How many prefill graphs are captured (generate_prefill_cuda_graph_batch_sizes in cuda_graph_hook.py)."""
    ranges = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, largest + 1, 512))
    return sum(size <= largest for bounds in ranges for size in range(*bounds))


def _page(device: Device | None, geometry: Geometry | None, said: Mapping[str, Any]) -> int:
    """Tokens of a page: 1, unless the attention kernel asks for more.

    The kernel is the one named, else by device and model (get_default_attn_backend in model_override_base.py,
    model_overrides/deepseek_v2.py): sparse MLA takes 64 (128 on Intel), TensorRT-LLM's kernels on Blackwell 64.
    """
    backend = str(said.get("attention_backend") or "").lower()
    if backend:
        return 128 if backend == "fa4" and _blackwell(device) else _PAGES.get(backend, 1)
    if geometry is not None and geometry.indexer is not None:
        return 128 if device is not None and device.vendor == "intel" else 64
    return 64 if _blackwell(device) else 1


def _blackwell(device: Device | None) -> bool:
    """Whether this is one of Blackwell's data-centre GPUs, which have kernels of their own."""
    return (compute_capability(device) or (0, 0))[0] == 10
