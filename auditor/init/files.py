"""A file that deploys a model, of whatever kind, as a draft."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from auditor.errors import UsageError
from auditor.init import compose, helm, kubernetes
from auditor.init.containers import Container, draft_of, draft_of_line, serves
from auditor.init.draft import Draft
from auditor.init.launching import read_line, script_words
from auditor.loading.files import FileError, read_text
from auditor.monitoring.documents import Unreadable, documents

__all__ = ["from_file", "from_launch"]

_EXEC = re.compile(r"(?m)^ExecStart=[-@:+!]*")  # of a systemd unit, with what it may say before the command


def from_launch(line: str, folder: Path) -> Draft:
    """What a launch line says. Raises UsageError."""
    try:
        return draft_of_line(read_line(script_words(line)), folder, "a launch line")
    except UsageError as error:
        raise UsageError(f"--launch: {_reason(error)}") from None


def from_file(path: Path, folder: Path, pick: str | None = None) -> Draft:
    """What a manifest, a compose file, values of a Helm chart or a start script says; `pick` names one of several
    deployments in it. Raises UsageError in one line.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise UsageError(f"{path}: {error}") from None
    found = _documents(text, path)
    if not found:
        return _script(text, path, folder)
    return draft_of(_chosen(_containers(found, path), path, pick), folder)


def _reason(error: UsageError) -> str:
    return str(error).removeprefix("deployment.launch: ")


def _documents(text: str, path: Path) -> list[Mapping[str, Any]]:
    """The documents of a YAML or JSON file; none where it is another kind of text."""
    try:
        return [document for document in documents(text) if document and isinstance(document, Mapping)]
    except Unreadable as error:
        if re.search(r"\{\{.*?\}\}", text):
            raise UsageError(
                f"{path}: a Helm template, which only Helm can read; give its values file, or what "
                "`helm template` prints"
            ) from None
        if path.suffix.lower() in (".yaml", ".yml", ".json"):
            raise UsageError(f"{path}: {str(error).replace('to be a dashboard', 'to be read')}") from None
        return []


def _containers(found: Sequence[Mapping[str, Any]], path: Path) -> list[Container]:
    """Every container of the file, whatever kind it is."""
    if any("kind" in document for document in found):
        return kubernetes.containers(found, path.name)
    services = [document for document in found if isinstance(document.get("services"), Mapping)]
    if services:
        return [container for document in services for container in compose.containers(document, path)]
    return [container for document in found for container in helm.containers(document, path.name)]


def _chosen(every: Sequence[Container], path: Path, pick: str | None) -> Container:
    """The one container that serves a model. Of several that are started alike the first: they are replicas."""
    serving: dict[tuple[str, tuple[str, ...]], Container] = {}
    for container in filter(serves, every):
        serving.setdefault((container.name, container.words), container)
    named = _named(list(serving.values()))
    shown = ", ".join(named)[:300] or "none"
    if pick is not None:
        if pick not in named:
            raise UsageError(f"{path}: --pick {pick}: no such deployment; those that serve a model: {shown}")
        return named[pick]
    if not named:
        seen = ", ".join(dict.fromkeys(container.image or container.name for container in every)) or "no container"
        raise UsageError(f"{path}: nothing here starts an engine that is known ({seen[:200]}); give it by --launch")
    if len(named) > 1:
        raise UsageError(f"{path}: starts several engines; choose one with --pick: {shown}")
    return next(iter(named.values()))


def _named(serving: Sequence[Container]) -> dict[str, Container]:
    """Each by the name of its deployment; where several share it, by their own as well."""
    names = [container.name for container in serving]
    return {c.name if names.count(c.name) == 1 else f"{c.name}/{c.inner}": c for c in serving}


def _script(text: str, path: Path, folder: Path) -> Draft:
    """What a start script, a systemd unit or a file with a launch line says."""
    try:
        return draft_of_line(read_line(script_words(_EXEC.sub("", text))), folder, path.name)
    except UsageError as error:
        raise UsageError(f"{path}: no manifest, compose file, values file or start script: {_reason(error)}") from None
