"""Reads the user's files: bounded, as UTF-8, with an error that says what is wrong."""

import os
import select
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["FileError", "TextFile", "read_text"]

MAX_BYTES = 16 << 20
PIPE_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class TextFile:
    """A dashboard or rule file as it was read; `name` is its path as the profile gives it."""

    name: str
    text: str
    kind: Literal["dashboard", "rules"]


class FileError(ValueError):
    """A file cannot be read; the message says why, without its name. `line` and `column` where known."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.line, self.column = line, column
        super().__init__(message)


def _read_file(path: Path, most: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(most)


def _read_pipe(path: Path, most: int) -> bytes:
    """What a pipe (`<(generate profile)`, /dev/stdin, mkfifo) gives until its end; opening or reading never blocks."""
    descriptor, found = os.open(path, os.O_RDONLY | os.O_NONBLOCK), bytearray()
    try:
        while len(found) < most:
            if not select.select([descriptor], [], [], PIPE_WAIT)[0]:
                raise FileError(f"is a pipe from which nothing came for {PIPE_WAIT:g} s")
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            found += part
    finally:
        os.close(descriptor)
    return bytes(found)


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a file of at most `limit` bytes. Raises FileError."""
    try:
        raw = _read_pipe(path, limit + 1) if stat.S_ISFIFO(path.stat().st_mode) else _read_file(path, limit + 1)
    except FileNotFoundError:
        raise FileError("there is no such file") from None
    except FileError:
        raise
    except IsADirectoryError:
        raise FileError("this is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(raw) > limit:
        raise FileError(f"is larger than {limit >> 20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise FileError(f"is not UTF-8 (byte 0x{raw[error.start]:02x})", line, column) from None
