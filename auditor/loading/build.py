"""Plain YAML data -> the profile's dataclasses: units applied, types checked, every problem collected.

Two passes over the same type hints: the first walks the data, applies the units that the hints carry and finds unknown
keys; the second is pydantic's, strict, and finds what is missing or of the wrong type.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from auditor.loading.problems import Path, Problems, did_you_mean, dotted
from auditor.profile import Profile
from auditor.units import Unit

__all__ = ["build"]

_TRUE_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_STAND_INS: Mapping[str, Any] = {"version": 1, "name": "-", "endpoint": {"url": "http://127.0.0.1"}}
_SCALARS = {"string_type": "text", "int_type": "a whole number", "int_from_float": "a whole number"}
_WANTS = {
    **_SCALARS,
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "keys with values",
    "dataclass_type": "keys with values",
}


def build(data: Any, problems: Problems) -> Profile:
    """The profile that `data` declares; what has a problem is left out, so that the rest can still be checked."""
    if not isinstance(data, dict):
        problems.add((), "the file holds no profile; it needs keys such as version, name and endpoint")
        return _adapter().validate_python(dict(_STAND_INS))
    prepared = _prepare(Profile, data, (), problems)
    errors = _errors(prepared)
    for path, items in errors.items():
        _explain(path, items, _at(prepared, path), problems)
    while errors:
        for path, items in errors.items():
            problems.blamed.add(_drop(prepared, path[:-1] if _is_missing(items) else path))
        prepared = {**_STAND_INS, **prepared}
        errors = _errors(prepared)
    return _adapter().validate_json(json.dumps(prepared), strict=True)


def _errors(data: Any) -> dict[Path, list[Any]]:
    """Pydantic's errors by the path of the value; the members of a union each give one."""
    try:
        _adapter().validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        found: dict[Path, list[Any]] = {}
        for item in error.errors(include_url=False):
            found.setdefault(_data_path(item["loc"], data, missing=_is_missing([item])), []).append(item)
        return found
    return {}


def _is_missing(items: list[Any]) -> bool:
    return bool(items[0]["type"] == "missing")


@cache
def _adapter() -> TypeAdapter[Profile]:
    return TypeAdapter(Profile)


# ------------------------------------------------------------------------------------------ first pass: units and keys


def _prepare(hint: Any, value: Any, path: Path, problems: Problems) -> Any:
    """`value` with the units of its type hint applied."""
    literals = [word for member in get_args(hint) if get_origin(member) is Literal for word in get_args(member)]
    hint = _choose(hint, value)
    if isinstance(value, float) and not math.isfinite(value):
        problems.add(path, "needs a finite number")
        return value
    unit = next((mark for mark in get_args(hint)[1:] if isinstance(mark, Unit)), None) if _is_unit(hint) else None
    if unit is not None:
        return _with_unit(unit, value, path, problems, literals)
    if is_dataclass(hint) and isinstance(value, dict):
        return _prepare_dataclass(hint, value, path, problems)
    if get_origin(hint) is tuple and isinstance(value, list):
        return [_prepare(get_args(hint)[0], item, (*path, i), problems) for i, item in enumerate(value)]
    if isinstance(value, dict):
        inner = get_args(hint)[1] if len(get_args(hint)) == 2 else Any
        return {key: _prepare(inner, item, (*path, key), problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_prepare(Any, item, (*path, i), problems) for i, item in enumerate(value)]
    return value


def _prepare_dataclass(hint: Any, value: dict[str, Any], path: Path, problems: Problems) -> dict[str, Any]:
    hints = _hints(hint)
    for key in value.keys() - hints.keys():
        place = f" in {dotted(path)}" if path else ""
        extra = "; a key comes from the environment, see api_key_env" if key in ("api_key", "key", "token") else ""
        problems.add_unknown((*path, key), f"unknown key '{key}'{place}{did_you_mean(key, hints)}{extra}")
    # A section that is written but empty (`traffic:` with its keys commented out) is a section of defaults.
    optional = {f.name for f in fields(hint) if f.default is not MISSING or f.default_factory is not MISSING}
    return {
        key: _prepare(hints[key], item, (*path, key), problems)
        for key, item in value.items()
        if key in hints and not (item is None and key in optional and is_dataclass(hints[key]))
    }


def _with_unit(unit: Unit, value: Any, path: Path, problems: Problems, literals: list[str]) -> Any:
    try:
        return unit.parse(value)
    except ValueError as error:
        problems.add(path, f"{error}{''.join(f', or {word}' for word in literals)}")
        return value


def _is_unit(hint: Any) -> bool:
    return get_origin(hint) is Annotated


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _choose(hint: Any, value: Any) -> Any:
    """The member of a union that `value` is meant for: by its form, and never a unit for a literal such as `auto`."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = [member for member in get_args(hint) if member is not NoneType]
    if value is None or any(value in get_args(member) for member in members if get_origin(member) is Literal):
        return Any
    for member in members:
        composite = is_dataclass(member) or get_origin(member) not in (None, Annotated, Literal)
        if composite == isinstance(value, dict | list) and (not isinstance(value, list) or get_origin(member) is tuple):
            return member
    return Any


# -------------------------------------------------------------------------------------------- second pass: its problems


def _data_path(loc: tuple[str | int, ...], data: Any, *, missing: bool) -> Path:
    """Pydantic's location without the names of union members, which stand for nothing in the data."""
    path: Path = ()
    for step in loc[:-1] if missing else loc:
        known = _at(data, path)
        if step in (range(len(known)) if isinstance(known, list) else known if isinstance(known, dict) else ()):
            path = (*path, step)
    return (*path, loc[-1]) if missing else path


def _at(data: Any, path: Path) -> Any:
    """The value at `path`, None where there is none."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def _drop(data: dict[str, Any], path: Path) -> Path:
    """Take out the value at `path`, or the whole list it is an item of (indexes must not shift); gives what went."""
    while path and not isinstance(_at(data, path[:-1]), dict):
        path = path[:-1]
    if path:
        _at(data, path[:-1]).pop(path[-1], None)
    return path


# ------------------------------------------------------------------------------------------------------------- wording


def _explain(path: Path, items: list[Any], value: Any, problems: Problems) -> None:
    """Add pydantic's errors about one value as one problem."""
    if _is_missing(items):
        problems.add_missing(path)
        return
    words: list[str] = []
    hint = ""
    for item in items:
        if item["type"] == "literal_error":
            allowed = [word.strip("'") for word in item["ctx"]["expected"].replace(" or ", ", ").split(", ")]
            words += allowed
            hint = did_you_mean(str(value), allowed) or hint
        elif item["type"] in _WANTS:
            words.append(_WANTS[item["type"]])
        else:
            words.append(item["msg"])
    if isinstance(value, str) and "true or false" in words and value.lower() in _TRUE_WORDS:
        hint = f", did you mean {_TRUE_WORDS[value.lower()]}"
    if isinstance(value, int | float | bool) and words == ["text"]:
        hint = "; put it in quotes"
    problems.add(path, f"needs {_either(list(dict.fromkeys(words)))}{hint}")


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
