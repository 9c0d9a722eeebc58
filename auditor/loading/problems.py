"""Collects the problems of one file, each at its place, so that all are shown at once."""

import difflib
from collections.abc import Iterable

from auditor.errors import Problem, ProfileError
from auditor.evidence import Location
from auditor.yamlmarks import Mark, Marked

__all__ = ["Path", "Problems", "did_you_mean", "dotted", "one_line"]

Path = tuple[str | int, ...]

MAX_LENGTH = 500


def dotted(path: Path) -> str:
    """A path as people write it: `traffic.classes.0.share`."""
    return ".".join(map(str, path))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'` for the nearest known word, else an empty text."""
    words = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), words, 1, 0.6)
    return f", did you mean '{words[near[0]]}'" if near else ""


def one_line(message: str) -> str:
    """A message without what would break or hide the line: the user's own keys may hold anything."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]} ..."


class Problems:
    """The problems of one YAML file.

    A value that has a problem already takes the blame for what follows from it: a problem that depends on such a value
    is not added.
    """

    def __init__(self, file: str, marked: Marked) -> None:
        self.file = file
        self.marked = marked
        self.found: list[Problem] = []
        self.blamed: set[Path] = set()

    def add(self, path: Path, message: str, *, also: Iterable[Path] = ()) -> None:
        """Add a problem of the value at `path`, which also depends on the values at `also`."""
        if any(self.is_blamed(p) for p in (path, *also)):
            return
        self.blamed.add(path)
        self._append(self.marked.place(path), f"{dotted(path)}: {message}" if path else message)

    def add_unknown(self, path: Path, message: str) -> None:
        """Add a problem of the key at `path`, which nothing else can depend on."""
        self._append(self.marked.keys[path], message)

    def add_missing(self, path: Path) -> None:
        """Add that the key at `path` is missing, at the place of what should hold it."""
        if not self.is_blamed(path):
            place = f" in {dotted(path[:-1])}" if len(path) > 1 else ""
            self._append(self.marked.place(path[:-1]), f"the key '{path[-1]}' is missing{place}")

    def _append(self, mark: Mark, message: str) -> None:
        self.found.append(Problem(self.file, mark.line, mark.column, one_line(message)))

    def is_blamed(self, path: Path) -> bool:
        """Whether this value, a part of it or what it is a part of has a problem."""
        return any(path[: len(bad)] == bad[: len(path)] for bad in self.blamed if bad)

    def where(self, path: Path) -> Location:
        """The place of a value."""
        mark = self.marked.place(path)
        return Location(self.file, mark.line, mark.column)

    def stop(self) -> None:
        """Raise ProfileError if there are problems, in the order of the file."""
        if self.found:
            raise ProfileError(tuple(sorted(set(self.found), key=lambda p: (p.file, p.line, p.column, p.message))))
