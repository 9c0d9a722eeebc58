"""Pictures of a wanted size, each different from all others, cheap to make while a load runs. Pure.

A picture is a PNG with a palette (https://www.w3.org/TR/png-3/): the pattern of colour numbers is compressed once a
size, and a new palette makes it another picture, so that no server finds it in a cache of what it has seen.
"""

import struct
import zlib
from base64 import b64encode
from functools import lru_cache
from random import Random

__all__ = ["data_url", "png"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_TILE = 16  # pixels of one colour, each way
_DEPTH, _PALETTE = 8, 3


def png(width: int, height: int, key: str) -> bytes:
    """A picture of `width` x `height` pixels whose colours depend on `key`."""
    header = struct.pack(">IIBBBBB", width, height, _DEPTH, _PALETTE, 0, 0, 0)
    palette = Random(key).randbytes(3 * _COLOURS)
    parts = _chunk(b"IHDR", header), _chunk(b"PLTE", palette), _pattern(width, height), _chunk(b"IEND", b"")
    return _SIGNATURE + b"".join(parts)


def data_url(width: int, height: int, key: str) -> str:
    """The same as an address that holds the picture itself."""
    return "data:image/png;base64," + b64encode(png(width, height, key)).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@lru_cache(maxsize=16)
def _pattern(width: int, height: int) -> bytes:
    """Tiles of random colour numbers, compressed. Each row begins with its filter, none."""
    rng, rows = Random(f"{width}x{height}"), bytearray()
    for top in range(0, height, _TILE):
        tiles = rng.randbytes(-(-width // _TILE))
        row = b"\0" + b"".join(bytes([colour]) * _TILE for colour in tiles)[:width]
        rows += row * min(_TILE, height - top)
    return _chunk(b"IDAT", zlib.compress(bytes(rows), 6))
