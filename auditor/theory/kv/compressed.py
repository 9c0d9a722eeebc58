"""What DeepSeek-V4's attention keeps: entries that stand for several tokens, and states of those not yet compressed.

DeepSeek-V4's technical report (arXiv 2606.19348, section 2) and the engines' caches: vllm/models/deepseek_v4/
attention.py and compressor.py, sglang/srt/mem_cache/deepseek_v4_memory_pool.py.
"""

from typing import NamedTuple

from auditor.theory.kv.geometry import Geometry, Indexer, Layers
from auditor.theory.settings import Settings

__all__ = ["States", "compressed", "entry_bytes", "packed", "refused", "states"]

_SIZE = 512  # values of an entry, which kernels are written for
_PACKED = 584  # 448 one-byte values, 64 two-byte rotary values, 7 scales of a byte and one of padding
_OVERLAPS = 4  # compressors of this ratio see two windows at a time
_FP32 = 4
_SIXTEEN_BIT = ("bf16", "bfloat16", "fp16", "float16")


class States(NamedTuple):
    """A layer's compressors: tokens they see at once, and bytes that one token takes in each of them."""

    window: int
    widths: tuple[int, ...]


def compressed(geometry: Geometry) -> bool:
    """Whether any layer compresses tokens into entries."""
    return any(group.kind == "compressed" for group in geometry.layers)


def packed(settings: Settings) -> bool:
    """Whether entries are stored in fp8 with their scales, as engines do unless told to keep 16 bits."""
    return settings.kv_cache_dtype not in _SIXTEEN_BIT


def entry_bytes(settings: Settings) -> int:
    """Bytes of one entry, of a window as of a compressed cache."""
    return _PACKED if packed(settings) else 2 * _SIZE


def states(group: Layers, indexer: Indexer | None) -> States:
    """Of a token that no entry stands for yet, every compressor keeps its values and their weights in fp32."""
    overlap = 2 if group.compression == _OVERLAPS else 1
    sizes = [group.latent_dim or group.qk_head_dim]
    if indexer is not None and indexer.compression == group.compression:
        sizes.append(indexer.width)
    return States(overlap * group.compression, tuple(2 * overlap * size * _FP32 for size in sizes))


def refused(geometry: Geometry, engine: str) -> None:
    """Raise ValueError for an engine whose pool of compressed entries is not known."""
    if compressed(geometry):
        raise ValueError(f"how {engine} lays out DeepSeek-V4's compressed caches is not known: vLLM's and SGLang's are")
