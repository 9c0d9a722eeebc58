"""Attention backends by the names that engines report: fused kernels, unfused ones, and those that are not known."""

__all__ = ["fused"]

_UNFUSED = ("eager", "torch_native", "torch_sdpa", "sdpa", "math", "native")
_FUSED = (
    *("flash_attn", "flash_attention", "flashattn", "flashinfer", "fa2", "fa3", "fa4", "mla", "triton", "xformers"),
    *("trtllm", "rocm", "aiter", "cutlass", "flex", "pallas", "nsa", "wave", "dual_chunk", "tree_attn", "metal"),
)


def fused(name: str) -> bool | None:
    """Whether attention of this name keeps its scores out of memory; None for a name that is not known."""
    word = name.lower().replace("-", "_")
    if word in _UNFUSED:
        return False
    return True if any(known in word for known in _FUSED) else None
