"""What `sglang.launch_server` uses where no flag says otherwise, by device and model."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flavour import NOTHING
from auditor.engines.generations import compute_capability
from auditor.engines.speculation import speculates
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.overhead.sglang import step_limits

__all__ = ["defaults"]

_RUNNING = 2048  # resolve_max_num_reqs: capacity / context x 512 within 2048..4096, at most half of the pool's tokens
_RUNNING_DRAFTED = 48  # _handle_eagle_family and its kin in srt/arg_groups/speculative_hook.py
# Pages that attention kernels ask for (_mla_backend_page_constraints and others in srt/arg_groups/overrides.py).
_PAGES = {
    **dict.fromkeys(("flashmla", "trtllm_mla", "trtllm_mha", "cutedsl_mla", "hpc_ops", "nsa", "dsa"), 64),
    **dict.fromkeys(("cutlass_mla", "intel_xpu", "ascend"), 128),
    "dsv4": 256,
}
_FEW_SLIDING = ("DeepseekV4", "Inkling")  # srt/arg_groups/model_overrides: a tenth of the tokens in sliding layers


def defaults(
    release: str | None, device: Device | None, geometry: Geometry | None = None, said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Every default of SGLang that arithmetic takes, but mem_fraction_static: that follows from all the others, so that
    `theory.overhead.sglang` computes it.
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
    usable = float(device.usable_bytes or device.memory_bytes)
    chunk, captured = step_limits(release, usable, said.get("tensor_parallel") or 1)
    return found | {"max_num_batched_tokens": chunk, "captured_batch": captured}


def _running(said: Mapping[str, Any]) -> int:
    """Requests that one rank runs at once."""
    if not speculates(said.get("speculative")):
        return _RUNNING
    ranks = (said.get("data_parallel") or 1) if said.get("dp_attention") else 1
    return max(1, _RUNNING_DRAFTED // ranks)


def _page(device: Device | None, geometry: Geometry | None, said: Mapping[str, Any]) -> int:
    """Tokens of a page: 1, unless the attention kernel asks for more.

    The kernel is the one named, else by device and model (get_default_attn_backend in model_override_base.py,
    model_overrides/deepseek_v2.py): DeepSeek-V4 takes 256, other sparse MLA 64 (128 on Intel), TensorRT-LLM's kernels
    on Blackwell 64.
    """
    backend = str(said.get("attention_backend") or "").lower()
    if backend:
        return 128 if backend == "fa4" and _blackwell(device) else _PAGES.get(backend, 1)
    if geometry is not None and geometry.architecture.startswith("DeepseekV4"):
        return 256
    if geometry is not None and geometry.indexer is not None:
        return 128 if device is not None and device.vendor == "intel" else 64
    return 64 if _blackwell(device) else 1


def _blackwell(device: Device | None) -> bool:
    """Whether this is one of Blackwell's data-centre GPUs, which have kernels of their own."""
    return (compute_capability(device) or (0, 0))[0] == 10
