"""Models by name: recorded facts of public config.json files, turned into geometry by the same reader as a user's own.

Each file of `models/` holds one model: its repository name, other names, where the facts were read, and the facts.
"""

import difflib
import json
import re
from functools import cache
from importlib import resources
from typing import Any

from auditor.catalog import hf
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Geometry

__all__ = ["find", "names"]

_SUFFIXES = ("instruct", "chat", "it", "hf", "base", "instruct-hf", "chat-hf")


def find(name: str) -> Geometry:
    """Geometry of a catalogue model. Case, organisation, underscores, dots and "-Instruct" are forgiven.

    Raises UsageError with the nearest names where it is unknown.
    """
    entries, keys = _catalogue()
    repository = next((keys[form] for form in _forms(name) if form in keys), None)
    if repository is None:
        raise UsageError(_unknown(name, list(entries)))
    entry = entries[repository]
    return hf.geometry(entry["config"], repository, entry.get("weight_bytes"), source=entry["source"])


def names() -> tuple[str, ...]:
    """Repository names of all models, sorted."""
    return tuple(sorted(_catalogue()[0], key=str.casefold))


@cache
def _catalogue() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Entries by repository name, and every way to write one, to its name."""
    folder = resources.files("auditor.catalog") / "models"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    entries = {entry["name"]: entry for entry in (json.loads(file.read_text("utf-8")) for file in files)}
    keys: dict[str, str] = {}
    for repository, entry in entries.items():
        for written in (repository, *entry.get("aliases", ())):
            for form in _forms(written):
                keys.setdefault(form, repository)
    # Exact names win over shortened ones of other models.
    for repository in entries:
        keys[_plain(repository)] = repository
    return entries, keys


def _forms(name: str) -> list[str]:
    """From the most to the least exact: as written, without its organisation, without its suffix."""
    full = _plain(name)
    short = full.rpartition("/")[2]
    forms = [full, short, short.removeprefix("meta-")]
    forms += [form.removesuffix(f"-{suffix}") for suffix in _SUFFIXES for form in tuple(forms)]
    return list(dict.fromkeys(forms))


def _plain(name: str) -> str:
    return re.sub(r"[\s_.:-]+", "-", name.strip().casefold()).strip("-/")


def _unknown(name: str, known: list[str]) -> str:
    by_form = {form: repository for repository in known for form in _forms(repository)}
    near = difflib.get_close_matches(_plain(name).rpartition("/")[2], by_form, n=6, cutoff=0.6)
    found = list(dict.fromkeys(by_form[form] for form in near))[:3]
    hint = f", did you mean {' or '.join(found)}?" if found else ""
    return f"unknown model {name!r}{hint} (give a catalogue name, a model folder with config.json, or a GGUF file)"
