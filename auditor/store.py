"""The run folder: everything an audit saw, written as it happens, so that it can be judged again without the endpoint.

    run.json            versions of format and program, how it was judged, whether it ended and with how many requests
    profile.yaml        the profile's text
    evidence.json       the evidence without its measurements
    measurements.jsonl  one load a line, without its requests
    samples-00.jsonl    the requests of the first load, one a line, written as each one ends; samples-01.jsonl ...
    report.json         the report without its evidence

Secrets are redacted by value before anything is written. Files are the user's own (0600 in a folder of 0700). Numbers
come back exactly as they were; infinite ones are the strings "Infinity" and "-Infinity", so that every file is JSON.
"""

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from auditor.errors import UsageError
from auditor.evidence import Evidence, Report
from auditor.loading import Loaded
from auditor.loads import Load
from auditor.measurement import Measurement, Sample
from auditor.redact import Redactor, find_secrets

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["SCHEMA_VERSION", "Recording", "load", "load_options", "plain", "recording", "redactor_of"]

SCHEMA_VERSION = 1
"""The version of the folder's format that this program writes; it reads every older one."""

CUT_OFF = "cut off"
"""Why a load ended whose requests were saved but whose end was not."""

_LONGEST = 1e9  # seconds of a load, that no run comes near

UNSAVED = "the run cannot be saved"
"""Is in every `Recording.failure`."""

T = TypeVar("T")


@contextmanager
def recording(
    folder: Path | None, loaded: Loaded, evidence: Evidence, options: Mapping[str, Any] | None = None
) -> Iterator["Recording"]:
    """Keep a run in `folder` as it goes; None keeps nothing, but redacts all the same.

    `options` (plain values) say how the run was judged; `load_options` gives them back. Raises UsageError before
    anything is measured where the folder cannot be written or holds a run already.
    """
    keep = Recording(folder, redactor_of(loaded, evidence), options or {})
    keep.begin(loaded.text, evidence)
    try:
        yield keep
    finally:
        keep.close()


def redactor_of(loaded: Loaded, evidence: Evidence) -> Redactor:
    """What removes every secret of a profile, and those spelled out in what is known before the first request."""
    return Redactor([*loaded.secrets, *find_secrets(evidence)])


class Recording:
    """One run being saved. Once writing fails (a full disk) `failure` says why; the audit itself goes on."""

    def __init__(self, folder: Path | None, redactor: Redactor, options: Mapping[str, Any]) -> None:
        self.folder = folder
        self._options = options
        self.failure: str | None = None
        self._redactor = redactor
        self._loads: list[str] = []
        self._live: TextIO | None = None

    def begin(self, text: str, evidence: Evidence) -> None:
        """Make the folder and write what is known before the first request. Raises UsageError."""
        if self.folder is None:
            return
        try:
            if (self.folder / "run.json").exists() and _holds_requests(self.folder):
                raise UsageError(f"{self.folder}: holds a saved run already; choose another folder, or remove it first")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path("measurements.jsonl").unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{self.folder}: cannot be made ({reason}); choose another folder") from None
        self._write("run.json", self._facts(complete=False))
        self._write("profile.yaml", self._redactor.text(text))
        self.update(evidence)
        if self.failure is not None:
            raise UsageError(f"{self.failure}; choose another folder")

    def sample(self, sample: Sample) -> None:
        """Append one request to its load's file and hand it to the operating system at once."""
        if self.folder is None or self.failure is not None:
            return
        try:
            if self._live is None or sample.load != self._loads[-1]:
                self._open_live(sample.load)
            if self._live is not None:
                self._live.write(_line(plain(self._redactor.data(sample))))
                self._live.flush()
        except OSError as error:
            self._fail(error)

    def _open_live(self, load: str) -> None:
        self.close()
        self._loads.append(load)
        self._live = _open(self._path(_samples_name(len(self._loads) - 1)))

    def measurement(self, measurement: Measurement) -> None:
        """Keep one load that has ended, with all it knows (warm-up and snapshots too)."""
        if self._live is None or not self._loads or self._loads[-1] != measurement.load.id:
            self._loads.append(measurement.load.id)
        self.close()
        measurement = self._redactor.data(measurement)
        self._write_samples(len(self._loads) - 1, measurement)
        self._write("measurements.jsonl", _line(_without_samples(measurement)), append=True)

    def update(self, evidence: Evidence) -> None:
        """Keep what is known so far besides the measurements (served facts, plan)."""
        kept = replace(self._redactor.data(evidence), measurements=())
        self._write("evidence.json", _line(plain(kept)))

    def redact(self, evidence: Evidence) -> Evidence:
        """The evidence as a saved run gives it back: without secrets, and equal to the last bit."""
        clean = self._redactor.data(replace(evidence, measurements=()))
        measured = tuple(_normal(self._redactor.data(m)) for m in evidence.measurements)
        return replace(_normal(clean), measurements=measured)

    def finish(self, evidence: Evidence, report: Report) -> None:
        """Write the whole run once more from the evidence that was judged, and the report."""
        self.close()
        self.failure = None
        self.update(evidence)
        for index, measurement in enumerate(evidence.measurements):
            self._write_samples(index, measurement)
        self._write("measurements.jsonl", "".join(_line(_without_samples(m)) for m in evidence.measurements))
        self._write("report.json", json.dumps(_report(report), indent=2, allow_nan=False) + "\n")
        self._write("run.json", self._facts(complete=True, requests=_requests(evidence.measurements)))

    def close(self) -> None:
        """End the file of the load that is running; what was written reaches the disk."""
        live, self._live = self._live, None
        if live is not None:
            try:
                with live:
                    live.flush()
                    os.fsync(live.fileno())
            except OSError as error:
                self._fail(error)

    def _facts(self, **more: bool | list[int]) -> str:
        from auditor import __version__

        facts = {"schema_version": SCHEMA_VERSION, "tool_version": __version__, **more}
        return _line({**facts, "options": plain(self._options)})

    def _write_samples(self, index: int, measurement: Measurement) -> None:
        lines = [{**plain(sample), "phase": "warmup"} for sample in measurement.warmup]
        lines += [plain(sample) for sample in measurement.samples]
        self._write(_samples_name(index), "".join(map(_line, lines)))

    def _write(self, name: str, text: str, *, append: bool = False) -> None:
        """Write a file whole or, where that fails, leave the old one. Raises nothing: see `failure`."""
        if self.folder is None or self.failure is not None:
            return
        path, part = self._path(name), self._path(name + ".part")
        try:
            with _open(path if append else part, append=append) as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            if not append:
                part.replace(path)
        except OSError as error:
            self._fail(error)
            if not append:
                part.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return (self.folder or Path()) / name

    def _fail(self, error: OSError) -> None:
        self.failure = f"{self.folder}: {UNSAVED} ({error.strerror or error})"


def _holds_requests(folder: Path) -> bool:
    """Whether a saved run got as far as a request; one that failed before may be written over."""
    return any(file.stat().st_size for file in folder.glob("samples-*.jsonl")) or (folder / "report.json").exists()


def _open(path: Path, *, append: bool = False) -> TextIO:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    return os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="\n")


def _samples_name(index: int) -> str:
    return f"samples-{index:02d}.jsonl"


def _report(report: Report) -> dict[str, Any]:
    return {f.name: plain(getattr(report, f.name)) for f in fields(report) if f.name != "evidence"}


def plain(value: Any) -> Any:
    """Dataclasses as mappings, infinite numbers as text: what `json` can write."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if set(map(type, value)) == {float} and all(map(math.isfinite, value)):
            return list(value)  # arrival times: by far the most of the data, and written while a load is running
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _line(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n"


def _without_samples(measurement: Measurement) -> Any:
    return plain(replace(measurement, samples=(), warmup=()))


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _parse(kind: type[T], data: Any) -> T:
    """The dataclass that plain data stand for. Raises ValueError."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]
    return adapter.validate_python(data)


def _normal(value: T) -> T:
    """The value as it comes back from a file."""
    return _parse(type(value), json.loads(_line(plain(value))))


def load(folder: Path) -> Evidence:
    """The evidence of a saved run, also of one that was cut off (its `problems` then say so).

    Raises UsageError in one line for a folder that holds no run, a damaged file, or a newer format.
    """
    facts = _facts(folder)
    evidence = _read(folder, "evidence.json", Evidence, _dated(_read_json(folder, "evidence.json")))
    measured = _measurements(folder)
    if facts.get("complete") is True:
        _refuse_parts(folder, measured, facts.get("requests"))
        return replace(evidence, measurements=measured)
    note = "the saved run was cut off before its end; judged with what was saved"
    rest = _unfinished(folder, evidence, len(measured))
    return replace(evidence, measurements=(*measured, *rest), problems=(*evidence.problems, note))


def _dated(data: Any) -> Any:
    """Runs that do not say what their numbers mean are older than the first change of that."""
    return {"metrics_version": 1, **data} if isinstance(data, dict) else data


def load_options(folder: Path) -> dict[str, Any]:
    """How a saved run was judged: the plain values that `recording` was given. Raises UsageError like `load`."""
    options = _facts(folder).get("options", {})
    return options if isinstance(options, dict) else {}


def _facts(folder: Path) -> dict[str, Any]:
    """What run.json says, unless a newer program wrote it."""
    facts = _read_json(folder, "run.json")
    version = facts.get("schema_version") if isinstance(facts, dict) else None
    if not isinstance(version, int) or version < 1:
        raise UsageError(f"{folder / 'run.json'}: is damaged: it names no format version")
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{folder}: this run was saved by a newer serving-audit (format {version}, this program reads up to "
            f"{SCHEMA_VERSION}); upgrade serving-audit"
        )
    return facts  # type: ignore[no-any-return]


def _requests(measured: Sequence[Measurement]) -> list[int]:
    return [len(m.samples) + len(m.warmup) for m in measured]


def _refuse_parts(folder: Path, measured: tuple[Measurement, ...], told: Any) -> None:
    """Refuse a finished run that lost requests: what is left could pass. Older runs did not tell how many they hold."""
    names = ("measurements.jsonl", *map(_samples_name, range(len(measured))))
    gone = next((name for name in names if not (folder / name).exists()), None)
    if gone or told not in (None, _requests(measured)):
        lost = gone or "a part of its requests"
        raise UsageError(f"{folder}: is damaged: {lost} is missing; copy it whole once more")


def _measurements(folder: Path) -> tuple[Measurement, ...]:
    """Every load that ended, with its requests."""
    found: list[Measurement] = []
    for line in _lines(folder, "measurements.jsonl"):
        measurement = _read(folder, "measurements.jsonl", Measurement, line)
        samples, warmup = _samples(folder, len(found))
        found.append(replace(measurement, samples=samples, warmup=warmup))
    return tuple(found)


def _unfinished(folder: Path, evidence: Evidence, index: int) -> tuple[Measurement, ...]:
    """The load that was running when the run was cut off, if the plan that was saved knows it."""
    samples, warmup = _samples(folder, index)
    plan = evidence.plan
    planned: Sequence[Load] = (*plan.loads, *plan.reserve) if plan is not None else ()
    known = next((load for load in planned if samples and load.id == samples[0].load), None)
    if known is None:
        return ()
    duration = max(s.start + s.stay for s in samples)
    return (Measurement(load=known, samples=samples, warmup=warmup, duration=duration, stopped=CUT_OFF),)


def _samples(folder: Path, index: int) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """The measured and the warm-up requests of a load, each in the order in which they started."""
    name = _samples_name(index)
    measured: list[Sample] = []
    warmup: list[Sample] = []
    for line in _lines(folder, name):
        phase = line.pop("phase", "measured") if isinstance(line, dict) else "measured"
        sample = _read(folder, name, Sample, line)
        if not _clocked(sample):
            raise UsageError(f"{folder / name}: is damaged: request {sample.index} has a time that no clock gives")
        (warmup if phase == "warmup" else measured).append(sample)
    return tuple(sorted(measured, key=lambda s: s.index)), tuple(sorted(warmup, key=lambda s: s.index))


def _clocked(sample: Sample) -> bool:
    """Whether all times are finite, and shorter than a load can be."""
    times = (sample.start, sample.connect, sample.ttft, sample.first_answer, sample.e2e, sample.closed, sample.late)
    return all(abs(time) <= _LONGEST for time in (*times, *sample.arrivals) if time is not None)


def _read(folder: Path, name: str, kind: type[T], data: Any) -> T:
    try:
        return _parse(kind, data)
    except ValueError as error:
        reason = " ".join(str(error).split("\n")[:3]).strip()
        raise UsageError(f"{folder / name}: is damaged: {reason}") from None


def _read_json(folder: Path, name: str) -> Any:
    try:
        if name == "run.json" and not (folder / name).is_file():
            missing = "there is no such folder" if not folder.is_dir() else "holds no saved run (no run.json)"
            raise UsageError(f"{folder}: {missing}; `audit run --save DIR` writes one")
        return json.loads(_bytes(folder / name))
    except OSError as error:
        raise UsageError(f"{folder / name}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{folder / name}: is damaged: not JSON") from None


def _bytes(path: Path) -> bytes:
    """A file's bytes. Raises OSError, also for a pipe or a device, which would have no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a file")
    return path.read_bytes()


def _count(text: str) -> int:
    """A whole number that arithmetic can bear; what was measured holds no other."""
    if len(text) > 18:
        raise ValueError(f"the number {text[:20]} is too large")
    return int(text)


def _lines(folder: Path, name: str) -> Iterator[Any]:
    """The JSON value of each line; a last line that was cut off is left out. A file that is not there has no lines."""
    try:
        raw = _bytes(folder / name).split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{folder / name}: cannot be read ({error.strerror})") from None
    for number, line in enumerate(raw[:-1], 1):
        try:
            yield json.loads(line, parse_int=_count)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            raise UsageError(f"{folder / name}: is damaged: line {number} is not JSON") from None
        except ValueError as error:
            raise UsageError(f"{folder / name}: is damaged: line {number}: {error}") from None
