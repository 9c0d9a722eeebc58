"""Where reports go: `-o FORMAT=PATH`, checked before any load, written at the end; stdout stays clean."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.errors import UsageError

if TYPE_CHECKING:
    from auditor.evidence import Report

__all__ = ["Target", "check_writable", "deliver", "put", "say", "targets", "write"]


_SUMMARY_BYTES = 1_000_000  # GitHub takes 1 MiB a step


@dataclass(frozen=True, slots=True)
class Target:
    """One report to write; `path` None is stdout. With `append` what the file holds already stays."""

    format: str
    path: Path | None = None
    append: bool = False


def _parse(spec: str, formats: Sequence[str]) -> Target:
    name, separator, path = spec.partition("=")
    if not separator or not path:
        raise UsageError(f"-o {spec}: needs FORMAT=PATH, such as json=report.json (PATH - is stdout)")
    if name not in formats:
        near = get_close_matches(name, formats, 1)
        hint = f", did you mean {near[0]}?" if near else f"; formats: {', '.join(formats)}"
        raise UsageError(f"-o {spec}: unknown format '{name}'{hint}")
    return Target(name, None if path == "-" else Path(path))


def check_writable(path: Path, flag: str = "-o") -> None:
    """Raise UsageError now rather than after a load of ten minutes. Leaves nothing behind."""
    try:
        if not path.parent.is_dir():
            raise UsageError(f"{flag} {path}: the folder {path.parent} does not exist; create it first")
        existed = path.exists()
        if existed and not path.is_file() and not path.is_dir():
            return  # a pipe or a device: opening it here could block or be seen by its reader
        path.open("ab").close()
        if not existed:
            path.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{flag} {path}: cannot be written ({reason}); choose another path") from None


def _place(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # the current folder is gone, links in a circle: told by what follows
        return path


def _is_data(name: str) -> bool:
    """Whether a saved run is judged from the file of this name."""
    return name.startswith("samples-") or name in {"run.json", "profile.yaml", "evidence.json", "measurements.jsonl"}


def targets(
    specs: Sequence[str],
    *,
    always_print: bool = True,
    formats: Iterable[str] | None = None,
    keep: Path | None = None,
) -> tuple[Target, ...]:
    """The reports asked for, each path known to be writable.

    With `always_print` the terminal report goes to stdout unless another one does; without it only if nothing was
    asked for. `formats` are known instead of a report's. Raises UsageError for an unknown format, a path that cannot be
    written, two reports for one place, or one over the data of the saved run in `keep`.
    """
    if formats is None:
        from auditor.report.renderers import RENDERERS

        formats = RENDERERS
    found = [_parse(spec, sorted(formats)) for spec in specs]
    if not found or (always_print and all(target.path for target in found)):
        found.append(Target("terminal"))
    places = [target.path and _place(target.path) for target in found]
    for target, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"-o: two reports for {target.path or 'stdout'}; give each its own path")
        if target.path and place:
            if keep is not None and place.parent == _place(keep) and _is_data(place.name):
                raise UsageError(f"-o {target.path}: is a part of the saved run; choose another path")
            check_writable(target.path)
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------- writing


def write(text: str) -> bool:
    """Put `text` on stdout; False where its reader went away (`| head`), which is no error and changes no exit code.

    Raises UsageError where stdout cannot be written (a full disk).
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # what is still in the buffer must not fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UsageError(f"stdout cannot be written ({error.strerror}); send it to another place") from None
        return False
    return True


def say(text: str) -> None:
    """Put a line on stderr, where there is one: nothing depends on it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _in_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _renderer(target: Target) -> "Callable[[Report], str]":
    from auditor.report.renderers import RENDERERS
    from auditor.report.terminal import render_colour

    if target.path is None and target.format == "terminal" and _in_colour():
        return render_colour
    return RENDERERS[target.format]


def deliver(report: "Report", wanted: Sequence[Target]) -> None:
    """Render and write every report; one that fails does not keep the others from being written.

    Raises UsageError at the end, with the verdict, when a file could not be written.
    """
    put([(target, _renderer(target)(report)) for target in (*wanted, *_summary(wanted))], report.verdict_line)


def _summary(wanted: Sequence[Target]) -> tuple[Target, ...]:
    """The summary page of a step of GitHub Actions, where annotations are asked for and it has no report yet."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path or not any(target.format == "github" for target in wanted):
        return ()
    known = {_place(target.path) for target in wanted if target.path}
    return () if _place(Path(path)) in known else (Target("markdown", Path(path), append=True),)


def put(texts: Iterable[tuple[Target, str]], verdict: str) -> None:
    """Write each text to its target; see `deliver`."""
    failures = []
    for target, text in texts:
        try:
            if target.path is None:
                write(text)
            elif target.append:
                _append(target.path, text)
            elif target.format == "prometheus" and (target.path.is_file() or not target.path.exists()):
                _replace(target.path, text)
            else:
                target.path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        except OSError as error:
            failures.append(f"{target.path} cannot be written ({error.strerror})")
        except UsageError as error:
            failures.append(str(error))
    if failures:
        raise UsageError(f"{', '.join(failures)}; the verdict was: {verdict}")


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: a collector may read it at any moment."""
    part = path.resolve().with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        part.replace(path.resolve())
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, PermissionError):
            raise
        path.write_text(text, encoding="utf-8", errors="replace", newline="\n")  # its folder takes no other file


def _append(path: Path, text: str) -> None:
    """Add whole lines of `text` to a file, as many as a summary page holds."""
    held = path.stat().st_size if path.exists() else 0
    data = text.encode("utf-8", "replace")
    if held + len(data) > _SUMMARY_BYTES:
        data = data[: max(0, _SUMMARY_BYTES - held)]
        data = data[: data.rfind(b"\n") + 1]
    with path.open("ab") as file:
        file.write(data)
