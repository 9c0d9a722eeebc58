"""`--batch FILE`: JSON lines from a file or stdin, answered one by one on stdout."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from auditor.cli.output import write
from auditor.errors import UsageError

__all__ = ["answer_lines"]


def answer_lines(source: str, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Answer each line of a file (`-` is stdin) as soon as it is read; ends at once when nobody reads the answers.

    Raises UsageError where the lines cannot be read or the answers not be written.
    """
    from auditor.instruments.batch import answered, bounded

    with _opened(source) as lines:
        for line in answered(bounded(lines), answer):
            if not write(line):
                return


@contextmanager
def _opened(source: str) -> Iterator[TextIO]:
    if source == "-":
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        yield sys.stdin
        return
    try:
        with Path(source).open(encoding="utf-8", errors="replace") as lines:
            yield lines
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--batch {source}: cannot be read ({reason})") from None
