"""The header of a GGUF file: metadata and tensor table. No tensor is read, so size does not matter.

Format: ggml-org/ggml docs/gguf.md, versions 2 and 3. Every count and length is checked against the file's own size: a
damaged or hostile file ends in one line, not in memory.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.errors import UsageError, unread

__all__ = ["Header", "Tensor", "read_header"]

_MOST_HEADER = 1 << 30
_MOST_TENSORS = 1_000_000
_MOST_PAIRS = 100_000
_MOST_ITEMS = 50_000_000
_KEPT_ITEMS = 4096  # longer arrays (vocabularies) are known by their length alone

# struct codes by GGUF value type; 8 is a string, 9 an array
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

# ggml type -> (values of a block, bytes of a block); ggml/src/ggml.c type_traits
_TYPES = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
    42: (64, 18),  # Q2_0
}
PLAIN_TYPES = frozenset({0, 1, 28, 30})


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the tensor table: its values and bytes; `plain` for floating-point types without blocks."""

    name: str
    values: int
    bytes: int
    plain: bool


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata (arrays longer than a few thousand items as their length) and the tensor table."""

    metadata: dict[str, Any]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]


class _Cursor:
    """Reads forward through the mapped file and refuses to leave it."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.end = min(len(data), _MOST_HEADER)
        self.at = 0

    def skip(self, size: int) -> int:
        """Move on by `size` bytes and return where they began."""
        start = self.at
        if size < 0 or start + size > self.end:
            raise ValueError("it ends in the middle of its header")
        self.at = start + size
        return start

    def scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self.data, self.skip(size))[0]

    def string(self) -> str:
        length = self.scalar("Q")
        start = self.skip(length)
        return self.data[start : start + length].decode("utf-8", "replace")


def read_header(path: Path) -> Header:
    """Metadata and tensor table of one file. Raises UsageError where it is not GGUF, damaged, or of an unknown type."""
    try:
        if path.stat().st_size == 0:
            raise ValueError("it is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Cursor(data))
    except (struct.error, OverflowError) as error:
        raise UsageError(f"{path}: not a readable GGUF file (it ends in the middle of its header)") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a readable GGUF file ({unread(error)})") from error


def _header(cursor: _Cursor) -> Header:
    if cursor.data[cursor.skip(4) : 4] != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise ValueError(f"its version {version} is not 2 or 3, or it is big-endian")
    tensors, pairs = cursor.scalar("Q"), cursor.scalar("Q")
    if tensors > _MOST_TENSORS or pairs > _MOST_PAIRS:
        raise ValueError(f"its header claims {tensors:,} tensors and {pairs:,} metadata entries")
    metadata: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for _ in range(pairs):
        key = cursor.string()
        kind = cursor.scalar("I")
        if kind == _ARRAY:
            metadata[key], lengths[key] = _array(cursor)
        else:
            metadata[key] = _value(cursor, kind)
    return Header(metadata, lengths, tuple(_tensor(cursor) for _ in range(tensors)))


def _value(cursor: _Cursor, kind: int) -> Any:
    if kind == _STRING:
        return cursor.string()
    if kind not in _SCALARS:
        raise ValueError(f"its metadata has a value of the unknown type {kind}")
    return cursor.scalar(_SCALARS[kind])


def _array(cursor: _Cursor) -> tuple[list[Any] | None, int]:
    """An array's items (None where there are too many to keep) and how many there are."""
    kind, count = cursor.scalar("I"), cursor.scalar("Q")
    if count > _MOST_ITEMS:
        raise ValueError(f"its metadata has an array of {count:,} items")
    if kind == _STRING:
        if count <= _KEPT_ITEMS:
            return [cursor.string() for _ in range(count)], count
        # Vocabularies have hundreds of thousands of entries: no call for each of them.
        unpack, data, at, end = struct.Struct("<Q").unpack_from, cursor.data, cursor.at, cursor.end
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
            if at > end:
                raise ValueError("it ends in the middle of its header")
        cursor.at = at
        return None, count
    if kind not in _SCALARS:
        raise ValueError(f"its metadata has an array of the unknown type {kind}")
    code = _SCALARS[kind]
    start = cursor.skip(count * struct.calcsize("<" + code))
    if count > _KEPT_ITEMS:
        return None, count
    return list(struct.unpack_from(f"<{count}{code}", cursor.data, start)), count


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.string()
    dimensions = cursor.scalar("I")
    if dimensions > 8:
        raise ValueError(f"tensor {name[:80]!r} has {dimensions} dimensions")
    values = 1
    for _ in range(dimensions):
        values *= cursor.scalar("Q")
    kind = cursor.scalar("I")
    cursor.scalar("Q")  # the offset of its data
    if kind not in _TYPES:
        raise ValueError(f"tensor {name[:80]!r} has the type {kind}, whose size is not known")
    if values > 1 << 48:
        raise ValueError(f"tensor {name[:80]!r} claims {values:,} values")
    block, size = _TYPES[kind]
    return Tensor(name, values, -(-values // block) * size, kind in PLAIN_TYPES)
