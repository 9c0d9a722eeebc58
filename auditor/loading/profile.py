"""The profile: from a path or a shipped name to a validated object, with the place of every value."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from auditor.engines.launch import Launch, parse_launch
from auditor.errors import Problem, ProfileError, UsageError
from auditor.evidence import Location
from auditor.loading import rules, traffic
from auditor.loading.build import build
from auditor.loading.endpoint import key_fault
from auditor.loading.files import FileError, read_text
from auditor.loading.problems import Problems, did_you_mean, dotted, one_line
from auditor.loads import Logged
from auditor.profile import Endpoint, Profile
from auditor.redact import find_secrets, is_secret_name
from auditor.yamlmarks import Marked, YamlError, load

__all__ = [
    "NEWEST_VERSION",
    "Loaded",
    "find_profile",
    "key_of",
    "load_profile",
    "parse_profile",
    "shipped_profiles",
    "shown",
]

NEWEST_VERSION = 1
"""The newest profile `version` that this program understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A profile and what was read with it.

    `lines` maps every dotted path of the file to its place; `path` is the file, to whose folder other paths are
    relative; `launch` is what `deployment.launch` says; `key` the API key, `keys` this and those of "prometheus" and
    "grafana", `secrets` all values to be redacted;
    `log` the requests of `traffic.log` where the classes came of it; `prompts` the texts of `traffic.prompts`;
    `warnings` are lines for the user that stop nothing.
    """

    profile: Profile
    lines: Mapping[str, Location]
    path: Path
    text: str
    launch: Launch | None = None
    key: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    log: tuple[Logged, ...] = ()
    prompts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


# What Kubernetes manifests, compose files, Helm values, start scripts and units have, and no profile has.
_DEPLOYS = r"""(?m)\A#!|^\[Service\]|^[{ ]*["']?(apiVersion|services|servingEngineSpec|modelArtifacts|image)["']?\s*:"""


def load_profile(source: str | Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Read a profile from a path or by its shipped name ("embedded").

    Raises UsageError where there is no such file, and ProfileError with every problem found in it.
    """
    path = find_profile(source)
    try:
        text = read_text(path)
    except FileError as error:
        raise ProfileError((Problem(shown(path), error.line, error.column, str(error)),)) from None
    try:
        return parse_profile(text, path, os.environ if environ is None else environ)
    except ProfileError:
        if re.search(_DEPLOYS, text) is None:
            raise
    advice = f"audit init {shlex.quote(one_line(str(source)))} -o prod.yaml writes a profile from it"
    raise ProfileError((Problem(shown(path), 1, 1, f"this deploys a service and is no profile; {advice}"),))


def parse_profile(text: str, path: Path, environ: Mapping[str, str]) -> Loaded:
    """Read the text of a profile; other files are found relative to the folder of `path`."""
    marked = _marked(text, shown(path))
    problems = Problems(shown(path), marked)
    _refuse_newer(marked.value, problems)
    profile = build(marked.value, problems)
    launch = _launch(profile, problems)
    rules.check(profile, launch, problems)
    read = traffic.read(profile, path.parent, problems)
    endpoint = _with_authority(profile.endpoint, path.parent, problems)
    problems.stop()
    keys, missing = _keys(profile, path.parent, environ)
    warnings = [*rules.warn(profile, launch), *missing]
    return Loaded(
        profile=replace(profile, endpoint=endpoint, traffic=read.traffic),
        lines={dotted(place): problems.where(place) for place in marked.values if place},
        path=path,
        text=text,
        launch=launch,
        key=keys.get("endpoint"),
        keys=keys,
        secrets=_secrets(profile, launch, keys.values()),
        log=read.log,
        prompts=read.prompts,
        warnings=tuple(f"{problems.where(place)}: {dotted(place)}: {message}" for place, message in warnings),
    )


# -------------------------------------------------------------------------------------------------------------- source


def shipped_profiles() -> dict[str, Path]:
    """The profiles that come with the program, by name: in the wheel beside the code, in a checkout above it."""
    package = Path(__file__).parent.parent
    for folder in (package / "profiles", package.parent / "profiles"):
        if folder.is_dir():
            return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    return {}


def find_profile(source: str | Path) -> Path:
    """The file that `source` names: an existing path, else a shipped profile. Raises UsageError."""
    path, shipped = Path(source), shipped_profiles()
    try:
        if path.exists() and not (path.is_dir() and str(source) in shipped):
            return path
    except (OSError, ValueError) as error:
        raise UsageError(f"{one_line(str(source))}: cannot be read ({getattr(error, 'strerror', error)})") from None
    if str(source) in shipped:
        return shipped[str(source)]
    near = did_you_mean(str(source), shipped)
    known = ", ".join(shipped) or "none"
    raise UsageError(f"{source}: there is no such profile{near} (shipped: {known}; audit init writes your own)")


def shown(path: Path) -> str:
    """A path as messages and reports name it: relative where it lies below the current folder."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()


def _marked(text: str, file: str) -> Marked:
    try:
        return load(text)
    except YamlError as error:
        found = (Problem(file, mark.line, mark.column, one_line(note)) for mark, note in error.problems)
        raise ProfileError(tuple(found)) from None


def _refuse_newer(data: object, problems: Problems) -> None:
    """A profile of a later format gets one line, not one for each key that is new."""
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version == NEWEST_VERSION:
        return
    newer = version > NEWEST_VERSION
    advice = "is newer than this program understands; upgrade serving-audit" if newer else "never existed; write 1"
    problems.add(("version",), f"profile version {version} {advice}")
    problems.stop()


# ------------------------------------------------------------------------------------------------------------- content


def _launch(profile: Profile, problems: Problems) -> Launch | None:
    if profile.deployment.launch is None:
        return None
    engine = profile.endpoint.engine
    try:
        return parse_launch(profile.deployment.launch, None if engine == "auto" else engine)
    except UsageError as error:
        problems.add(("deployment", "launch"), str(error).removeprefix("deployment.launch: "))
        return None


def _with_authority(endpoint: Endpoint, folder: Path, problems: Problems) -> Endpoint:
    """The endpoint with its authority's file as a path that holds wherever the program runs."""
    if endpoint.ca_file is None:
        return endpoint
    file = folder / Path(endpoint.ca_file).expanduser()
    try:
        fault = None if "-----BEGIN" in read_text(file, 4 << 20) else "holds no PEM certificate"
    except FileError as error:
        fault = str(error)
    if fault is not None:
        problems.add(("endpoint", "ca_file"), fault)
    return replace(endpoint, ca_file=str(file))


def _keys(
    profile: Profile, folder: Path, environ: Mapping[str, str]
) -> tuple[dict[str, str], list[tuple[tuple[str, str], str]]]:
    """The keys by whose they are, and why there is none where the profile names one."""
    keys, missing = {}, []
    for path, name in profile.key_names.items():
        key, warning = key_of(name, folder, environ)
        if key is not None:
            keys["endpoint" if path[0] == "endpoint" else path[1].removesuffix("_key_env")] = key
        elif warning is not None:
            missing.append((path, warning))
    return keys, missing


def key_of(name: str, folder: Path, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The key that a variable or file holds, or why there is none."""
    if name.startswith("file:"):
        try:
            key = read_text(folder / Path(name.removeprefix("file:")).expanduser(), 64 << 10).strip()
        except FileError as error:
            return None, f"the key file cannot be used: {error}"
        where = "the key file"
    else:
        key, where = environ.get(name, "").strip(), f"the environment variable {name}"
    if not key:
        return None, f"{where} is {'empty' if name.startswith('file:') or name in environ else 'not set'}"
    if (fault := key_fault(key)) is not None:
        return None, f"{where} {fault}"
    return key, None


def _secrets(profile: Profile, launch: Launch | None, keys: Iterable[str]) -> tuple[str, ...]:
    """Every value to be redacted: the keys, and what is spelled out in the profile."""
    sent = (*profile.endpoint.headers.items(), *profile.monitoring.headers.items())
    headers = [value for name, value in sent if is_secret_name(name)]
    found = {*find_secrets(profile), *headers, *(launch.secrets if launch is not None else ()), *keys}
    return tuple(sorted(found))
