"""The dashboards and alert rules that the profile names."""

from itertools import islice
from pathlib import Path

from auditor.errors import Problem
from auditor.loading.files import FileError, TextFile, read_text
from auditor.loading.problems import Problems
from auditor.loading.profile import Loaded, shown
from auditor.yamlmarks import load

__all__ = ["load_monitoring"]

MOST_FILES = 500


def load_monitoring(loaded: Loaded) -> tuple[TextFile, ...]:
    """Every file that the globs of `monitoring.dashboards` and `monitoring.rules` name, relative to the profile.

    Raises ProfileError, with the profile's line, for each pattern without a file and each file that cannot be read.
    """
    problems = Problems(shown(loaded.path), load(loaded.text))
    files: list[TextFile] = []
    for kind, patterns in (
        ("dashboard", loaded.profile.monitoring.dashboards),
        ("rules", loaded.profile.monitoring.rules),
    ):
        section = "dashboards" if kind == "dashboard" else "rules"
        for index, pattern in enumerate(patterns):
            found = _matches(loaded.path.parent, pattern)
            if not found:
                problems.add(("monitoring", section, index), f"no file matches {pattern}")
            if len(found) > MOST_FILES:
                problems.add(("monitoring", section, index), f"{pattern} matches more than {MOST_FILES} files")
                continue
            for path in found:
                name = _name(path, loaded.path.parent)
                try:
                    file = TextFile(name, read_text(path), "dashboard" if kind == "dashboard" else "rules")
                except FileError as error:
                    problems.found.append(Problem(name, error.line, error.column, str(error)))
                else:
                    files += [file] if file.name not in {f.name for f in files} else []
    problems.stop()
    return tuple(files)


def _matches(folder: Path, pattern: str) -> list[Path]:
    """The files that a pattern names, sorted; an absolute pattern counts from the root, a folder means its files."""
    base, relative = (Path("/"), pattern.lstrip("/")) if pattern.startswith("/") else (folder, pattern)
    try:
        if (base / relative).is_file():
            return [base / relative]
        found = (path for path in base.glob(relative) if path.is_file()) if relative else iter(())
        return sorted(islice(found, MOST_FILES + 1))
    except (ValueError, NotImplementedError, OSError):
        return []


def _name(path: Path, folder: Path) -> str:
    try:
        return path.relative_to(folder).as_posix()
    except ValueError:
        return path.as_posix()
