"""True weight bytes of a model folder: from the index's metadata or from file headers. No tensor is read."""

import json
import struct
from pathlib import Path
from typing import Any

from auditor.errors import UsageError

__all__ = ["weight_bytes"]

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MOST_INDEX = 256 << 20
_MOST_HEADER = 100_000_000  # the format's own limit (huggingface/safetensors, MAX_HEADER_SIZE)


def weight_bytes(folder: Path) -> int | None:
    """Bytes of all tensors in a Hugging Face folder; None where it has neither an index nor safetensors files.

    Raises UsageError naming the file that is damaged.
    """
    for name in _INDEXES:
        index = folder / name
        if index.is_file():
            total = _index_total(index)
            if total is not None:
                return total
    files = sorted(file for file in folder.glob("*.safetensors") if file.is_file())
    return sum(map(_header_total, files)) if files else None


def _index_total(index: Path) -> int | None:
    if index.stat().st_size > _MOST_INDEX:
        raise UsageError(f"{index}: larger than any index of tensors, is this the right file?")
    try:
        content = json.loads(index.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{index}: not JSON ({error})") from error
    metadata = content.get("metadata") if isinstance(content, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < 2**53:
        return None
    return int(total)


def _header_total(path: Path) -> int:
    """Sum of the tensors' own sizes: 8 bytes of length, then a JSON header with data_offsets (safetensors format)."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST_HEADER or length + 8 > path.stat().st_size:
                raise UsageError(f"{path}: not a safetensors file (its header claims {length:,} bytes)")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
        return sum(_size(entry) for name, entry in header.items() if name != "__metadata__")
    except (OSError, struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: not a safetensors file ({error})") from error


def _size(entry: dict[str, Any]) -> int:
    start, end = entry["data_offsets"]
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end):
        raise ValueError("a tensor's data_offsets are out of order")
    return end - start
