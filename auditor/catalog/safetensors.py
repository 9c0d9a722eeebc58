"""True weight bytes of a model folder: from file headers or the index's metadata. No tensor is read."""

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.errors import UsageError, unread

__all__ = ["index_bytes", "tensor_sizes"]

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
_MOST_SHARDS = 10_000
_MOST_INDEX = 256 << 20
_MOST_HEADER = 100_000_000  # the format's own limit (huggingface/safetensors, MAX_HEADER_SIZE)


def index_bytes(folder: Path) -> int | None:
    """Bytes of all tensors as the folder's index tells them; None where it has none, or one that does not tell.

    Raises UsageError naming the file that is damaged, or tells what is no number of bytes.
    """
    indexes = (folder / name for name in _INDEXES)
    totals = (_total(_read_index(index), index) for index in indexes if index.is_file())
    return next((total for total in totals if total is not None), None)


def tensor_sizes(folder: Path) -> dict[str, int] | None:
    """Bytes of each tensor by name, from headers; None where there are no safetensors files, or not all that the index
    names.

    Raises UsageError naming the file that is damaged, or missing among those that number themselves.
    """
    files = _files(folder)
    if not files or not all(file.is_file() for file in files):
        return None
    sizes: dict[str, int] = {}
    for file in files:
        sizes |= _header(file)
    return sizes


def _files(folder: Path) -> list[Path]:
    """The files that the index names, or all where there is none; none where the index names none but their size."""
    index = folder / _INDEXES[0]
    if index.is_file():
        content = _read_index(index)
        found = content.get("weight_map")
        names = sorted({str(name) for name in found.values()}) if isinstance(found, dict) else []
        if names or _total(content, index) is not None:
            return [folder / Path(name).name for name in names]
    files = sorted(file for file in folder.glob("*.safetensors") if file.is_file())
    # Mistral's folders hold the same weights twice, once more as consolidated*.safetensors.
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    _complete(folder, {file.name for file in files})
    return files


def _complete(folder: Path, names: set[str]) -> None:
    """Refuse a part of a model: files say of how many they are."""
    for stem, width, total in sorted({(m[1], len(m[2]), m[3]) for m in map(_SHARD.fullmatch, names) if m}):
        numbers = range(1, min(int(total), _MOST_SHARDS) + 1)
        missing = [file for n in numbers if (file := f"{stem}-{n:0{width}}-of-{total}.safetensors") not in names]
        if missing:
            others = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise UsageError(
                f"{folder} lacks {missing[0]}{others}: finish the download, or give a folder with config.json alone"
            )


def _read_index(index: Path) -> dict[str, Any]:
    if index.stat().st_size > _MOST_INDEX:
        raise UsageError(f"{index}: larger than any index of tensors, is this the right file?")
    try:
        content = json.loads(index.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{index}: not JSON ({unread(error)})") from error
    return content if isinstance(content, dict) else {}


def _total(content: Mapping[str, Any], index: Path) -> int | None:
    metadata = content.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is None:
        return None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < 2**53:
        raise UsageError(f"{index}: total_size {total!r:.40} is no number of bytes; download the file again")
    return int(total)


def _header(path: Path) -> dict[str, int]:
    """The tensors' own sizes: 8 bytes of length, then a JSON header with data_offsets (safetensors format)."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if len(start) < 8:
                raise UsageError(f"{path}: not a safetensors file (it ends in its first 8 bytes)")
            (length,) = struct.unpack("<Q", start)
            if length > _MOST_HEADER or length + 8 > path.stat().st_size:
                raise UsageError(f"{path}: not a safetensors file (its header claims {length:,} bytes)")
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
        return {name: _size(name, entry) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a safetensors file ({unread(error)})") from error


def _size(name: str, entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(at, int) for at in offsets)):
        raise ValueError(f"tensor {name[:80]!r} has no data_offsets")
    start, end = offsets
    if not 0 <= start <= end:
        raise ValueError("a tensor's data_offsets are out of order")
    return int(end - start)
