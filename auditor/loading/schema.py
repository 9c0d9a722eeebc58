"""JSON Schema (draft 2020-12) of the profile for editors, and of any of the audit's dataclasses."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from auditor.loading.describe import DESCRIPTIONS
from auditor.loading.ranges import ABOVE_ZERO, AT_LEAST_ONE, UP_TO_ONE
from auditor.loading.rules import PERCENTILE
from auditor.profile import Profile, Slo
from auditor.units import Unit

__all__ = ["Schemas", "profile_schema"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
}


def profile_schema() -> dict[str, Any]:
    """The schema of a profile as people write it: units as text, unknown keys refused."""
    schemas = Schemas(descriptions=DESCRIPTIONS)
    root = schemas.of(Profile)
    return {"$schema": DRAFT, "title": "serving-audit profile", **root, "$defs": dict(sorted(schemas.defs.items()))}


@dataclass(slots=True)
class Schemas:
    """Turns type hints into schemas and collects those of dataclasses in `defs`.

    With `written` the data are as people write them: unit marks become their textual patterns, fields with a default
    may be absent and sections empty. Without it they are as the program prints them: every field is there. `overrides`
    replaces the schema of a type.
    """

    written: bool = True
    overrides: Mapping[Any, dict[str, Any]] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    defs: dict[str, Any] = field(default_factory=dict)

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type hint."""
        if hint in self.overrides:
            return dict(self.overrides[hint])
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if is_dataclass(hint):
            return self._reference(hint)
        arguments = get_args(hint)
        match get_origin(hint):
            case origin if origin is Annotated:
                unit = next((mark for mark in arguments[1:] if isinstance(mark, Unit)), None)
                return _of_unit(unit, arguments[0]) if unit and self.written else self.of(arguments[0])
            case origin if origin is Literal:
                return {"enum": list(arguments)}
            case origin if origin in (Union, UnionType):
                return _any_of([self.of(member) for member in arguments])
            case origin if origin is tuple and arguments[-1] is Ellipsis:
                return {"type": "array", "items": self.of(arguments[0])}
            case origin if origin is tuple:
                parts = [self.of(member) for member in arguments]
                return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
            case origin if isinstance(origin, type) and issubclass(origin, Mapping):
                return {"type": "object", "additionalProperties": self.of(arguments[1])}
        return {}

    def _reference(self, cls: Any) -> dict[str, Any]:
        if cls.__name__ not in self.defs:
            self.defs[cls.__name__] = {}
            self.defs[cls.__name__] = self._of_dataclass(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def _of_dataclass(self, cls: Any) -> dict[str, Any]:
        hints = get_type_hints(cls, include_extras=True)
        known = [f for f in fields(cls) if f.name in hints]
        return {
            "type": "object",
            "description": " ".join((cls.__doc__ or "").split("\n\n")[0].split()),
            "additionalProperties": False,
            "properties": {f.name: self._property(cls, f, hints[f.name]) for f in known},
            "required": [f.name for f in known if not (self.written and _has_default(f))],
        }

    def _property(self, cls: Any, item: "Field[Any]", hint: Any) -> dict[str, Any]:
        schema = self.of(hint)
        if self.written:
            schema = _bounded(item.name, schema)
            if cls is Slo and get_origin(hint) in (Union, UnionType):
                schema["anyOf"][0]["propertyNames"] = {"pattern": f"^{PERCENTILE.pattern}$"}
            if is_dataclass(hint) and _has_default(item):
                schema = _any_of([schema, {"type": "null"}])
            if isinstance(item.default, str | bool):
                schema["default"] = item.default
        text = self.descriptions.get(f"{cls.__name__}.{item.name}")
        return {"description": text, **schema} if text else schema


def _has_default(item: "Field[Any]") -> bool:
    return item.default is not MISSING or item.default_factory is not MISSING


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema that any of several satisfies, nested alternatives flattened."""
    flat = [part for schema in schemas for part in (schema["anyOf"] if schema.keys() == {"anyOf"} else [schema])]
    return {"anyOf": flat}


def _of_unit(unit: Unit, kind: type) -> dict[str, Any]:
    """A quantity as text with its unit and, where that is not ambiguous, as a bare number."""
    text = {"type": "string", "pattern": unit.pattern, "examples": [unit.example]}
    if not unit.numbers:
        return text
    number: dict[str, Any] = {"type": "integer" if kind is int else "number", "minimum": 0}
    return _any_of([text, number if kind is int else {**number, "maximum": 1}])


def _bounded(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the range that the field's name has in every section."""
    bounds: dict[str, Any] = {}
    if name in AT_LEAST_ONE:
        bounds = {"minimum": 1}
    elif name in UP_TO_ONE:
        bounds = {"exclusiveMinimum": 0, "maximum": 1}
    elif name in ABOVE_ZERO:
        bounds = {"exclusiveMinimum": 0}
    if schema.get("type") in ("integer", "number"):
        return {**schema, **bounds}
    if "anyOf" in schema:
        return {"anyOf": [_bounded(name, part) for part in schema["anyOf"]]}
    return schema
