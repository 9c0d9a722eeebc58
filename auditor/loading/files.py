"""Reads the user's files: bounded, as UTF-8, with an error that says what is wrong."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["FileError", "TextFile", "read_text"]

MAX_BYTES = 16 << 20


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


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a file of at most `limit` bytes. Raises FileError."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(limit + 1)
    except FileNotFoundError:
        raise FileError("there is no such file") from None
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
