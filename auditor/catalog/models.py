"""Models by name: recorded facts of public config.json files, turned into geometry by the same reader as a user's own.

Each file of `models/` holds one model: its repository name, other names, where the facts were read, and the facts.
"""

import difflib
import json
import re
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from auditor.catalog import hf
from auditor.errors import UsageError
from auditor.theory.kv.geometry import Geometry

__all__ = ["find", "format_of", "names", "published"]

_SUFFIXES = ("instruct", "chat", "it", "hf", "base", "instruct-hf", "chat-hf")
# What people append to the name of a repository whose weights they quantised, and the format's word; None: plain.
_QUANTISED: tuple[tuple[str, str | None], ...] = (
    (r"mxfp4", "mxfp4"),
    (r"mxfp8", "mxfp8"),
    (r"(nv)?fp4(-v\d)?", "nvfp4"),
    (r"fp8-(dynamic|static)", "fp8-dynamic"),
    (r"fp8(-(block|kv|per-?tensor|per-?channel))*", "fp8"),
    (r"(gptq|awq|auto-?round)-(int8|8bit|w8a16)|(int8|w8a16)-auto-?round", "int8"),
    (r"((int4|w4a16)-)?auto-?round(-(int4|4bit|w4a16))?(-gptq(-4bit)?)?", "auto-round"),
    (r"(int4-)?awq(-(int4|4bit|marlin|w4a16))?", "awq"),
    (r"gptq(-(int4|4bit|w4a16))?(-g\d+)?", "gptq"),
    (r"(quantized-)?w8a8|w8a8-int8|w8a16|int8", "int8"),
    (r"w4a-?fp8|w4a8", "w4a8"),
    (r"(quantized-)?w4a16(-g\d+)?|int4", "int4"),
    (r"(unsloth-)?bnb-4bit|nf4", "bnb-4bit"),
    *((rf"(mlx-)?{bits}bit", f"mlx-{bits}bit") for bits in (3, 4, 5, 6, 8)),  # as mlx-community names its copies
    (r"bf16|fp16", None),
)
# Names of models that keep no cache of keys and values token by token, and what they are.
_OTHERS = (
    (r"whisper|wav2vec|parakeet|canary|seamless", "a speech model, whose decoder attends to an encoder"),
    (r"rerank|colbert", "a reranker"),
    (r"embed|(^|-)(bge|gte|e5)-|minilm|mpnet", "an embedding model"),
    (r"(^|-)(\w*bert|\w*bert\w|electra|xlm-r\w*)(-|$)", "an encoder"),
    (r"(^|-)(flan-|m|by)?t5(gemma)?(-|$)|(^|-)m?bart(-|$)|nllb|m2m100|pegasus", "an encoder with a decoder"),
    (r"stable-diffusion|sdxl|(^|-)flux|(^|-)wan-?2", "a diffusion model"),
)
_DATE = re.compile(r"-\d{4}$")  # of a release; forgiven where it is left out, never where it is another
_PATTERNS = tuple((re.compile(rf"(.+?)-(?:{pattern})"), word) for pattern, word in _QUANTISED)
_ANYWHERE = tuple((re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"), word) for pattern, word in _QUANTISED)


class _Catalogue(NamedTuple):
    """Entries by repository name; `exact` names and aliases, and `short` forms with the repositories that have them."""

    entries: dict[str, dict[str, Any]]
    exact: dict[str, str]
    short: dict[str, tuple[str, ...]]


@lru_cache(maxsize=1024)
def find(name: str) -> Geometry:
    """Geometry of a catalogue model. Case, organisation, underscores, dots and "-Instruct" are forgiven.

    The name of a quantised copy ("...-FP8-dynamic", "...-AWQ") is its model with weights in that format. Raises
    UsageError with the nearest names where it is unknown, or with all where it means more than one model.
    """
    repository = _repository(name)
    if repository is not None:
        return _geometry(repository)
    for pattern, word in _PATTERNS:
        match = pattern.fullmatch(_plain(name))
        repository = _repository(match[1]) if match else None
        if repository is not None:
            note = f"{name} is read as {repository} with {word or '16-bit'} weights"
            found = _geometry(repository)
            return replace(found, quantization=word, formats={}, weight_bytes=None, notes=(*found.notes, note))
    raise UsageError(_unknown(name, list(_catalogue().entries)))


@lru_cache(maxsize=1024)
def published(name: str) -> Geometry | None:
    """The catalogue's model that goes by this name, in its publisher's own format; None where none does, or several."""
    try:
        repository = _repository(name)
    except UsageError:
        return None
    return None if repository is None else _geometry(repository)


@lru_cache(maxsize=4096)
def format_of(name: str) -> str | None:
    """The format that a name gives its weights ("...-NVFP4", "... w4a16"), "none" where it says that they are plain;
    None where it says nothing.
    """
    plain = _plain(name)
    return next((word or "none" for pattern, word in _ANYWHERE if pattern.search(plain)), None)


def names() -> tuple[str, ...]:
    """Repository names of all models, sorted."""
    return tuple(sorted(_catalogue().entries, key=str.casefold))


def _geometry(repository: str) -> Geometry:
    entry = _catalogue().entries[repository]
    return hf.geometry(entry["config"], repository, entry.get("weight_bytes"), source=entry["source"])


def _repository(name: str) -> str | None:
    """The one repository that a name means, by its most exact form that is known. Raises UsageError for several."""
    _, exact, short = _catalogue()
    for form in _forms(name):
        if form in exact:
            return exact[form]
        found = short.get(form, ())
        if len(found) > 1:
            raise UsageError(f"model {name!r} is ambiguous: {', '.join(found)}")
        if found:
            return found[0]
    return None


@cache
def _catalogue() -> _Catalogue:
    folder = resources.files("auditor.catalog") / "models"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    entries = {entry["name"]: entry for entry in (json.loads(file.read_text("utf-8")) for file in files)}
    exact: dict[str, str] = {}
    bare: dict[str, list[str]] = {}
    short: dict[str, list[str]] = {}
    for repository, entry in entries.items():
        for written in (repository, *entry.get("aliases", ())):
            exact[_plain(written)] = repository
            _add(bare, _plain(written).rpartition("/")[2], repository)
            for form in (*_forms(written), *_forms(_DATE.sub("", written))):
                _add(short, form, repository)
    # A name without its organisation is as good as the whole, unless two organisations have it.
    exact = {form: found[0] for form, found in bare.items() if len(found) == 1} | exact
    return _Catalogue(entries, exact, {form: tuple(found) for form, found in short.items()})


def _add(forms: dict[str, list[str]], form: str, repository: str) -> None:
    found = forms.setdefault(form, [])
    if repository not in found:
        found.append(repository)


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
    other = next((what for pattern, what in _OTHERS if re.search(pattern, _plain(name).rpartition("/")[2])), None)
    if other is not None:
        return f"unknown model {name!r}: {other}, and this arithmetic is of models that write text token by token"
    by_form = {form: repository for repository in known for form in _forms(repository)}
    near = difflib.get_close_matches(_plain(name).rpartition("/")[2], by_form, n=6, cutoff=0.6)
    found = list(dict.fromkeys(by_form[form] for form in near))[:3]
    hint = f", did you mean {' or '.join(found)}?" if found else ""
    return (
        f"unknown model {name!r}{hint} (give a catalogue name, as audit catalog models lists them, "
        "a model folder with config.json, or a GGUF file)"
    )
