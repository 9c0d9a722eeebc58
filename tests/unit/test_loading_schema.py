"""The schemas: what loads conforms, what does not load for its form does not, and reports conform to theirs."""

import re
from dataclasses import fields
from typing import Any

import pytest

from auditor.loading import shipped_profiles
from auditor.loading.describe import DESCRIPTIONS
from auditor.loading.schema import Schemas, profile_schema
from auditor.profile import Profile
from auditor.yamlmarks import load

HEAD = "version: 1\nname: t\nendpoint: {url: 'http://h/v1'}\n"
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
KEYWORDS = {
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "examples",
    "default",
    "type",
    "enum",
    "anyOf",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "items",
    "prefixItems",
    "minItems",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
}


def errors(schema: dict[str, Any], value: Any, root: dict[str, Any], path: str = "$") -> list[str]:
    """What JSON Schema 2020-12 says against `value`, for the keywords that these schemas use (and no others)."""
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        return errors(target, value, root, path)
    if "anyOf" in schema:
        tried = [errors(part, value, root, path) for part in schema["anyOf"]]
        return [] if [] in tried else [f"{path}: fits none: {tried}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} is not in {schema['enum']}"]
    if "type" in schema:
        kind = TYPES[schema["type"]]
        if not isinstance(value, kind) or (isinstance(value, bool) and schema["type"] != "boolean"):
            return [f"{path}: {value!r} is no {schema['type']}"]
    return _of_value(schema, value, path) + _of_parts(schema, value, root, path)


def _of_value(schema: dict[str, Any], value: Any, path: str) -> list[str]:
    bad = []
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        bad.append("pattern")
    if isinstance(value, int | float):
        bad += ["minimum"] if value < schema.get("minimum", value) else []
        bad += ["maximum"] if value > schema.get("maximum", value) else []
        bad += ["exclusiveMinimum"] if value <= schema.get("exclusiveMinimum", value - 1) else []
    return [f"{path}: {value!r} breaks {name}" for name in bad]


def _of_parts(schema: dict[str, Any], value: Any, root: dict[str, Any], path: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, list):
        parts = schema.get("prefixItems", [schema.get("items", {})] * len(value))
        for index, (part, item) in enumerate(zip(parts, value, strict=True)):
            found += errors(part, item, root, f"{path}[{index}]")
    if isinstance(value, dict):
        found += [f"{path}: {key} is missing" for key in schema.get("required", []) if key not in value]
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, item in value.items():
            if key not in known and rest is False:
                found.append(f"{path}: {key} is not known")
            elif key in known or rest is not False:
                found += errors(known.get(key, rest), item, root, f"{path}.{key}")
            found += errors(schema.get("propertyNames", {}), key, root, f"{path}.{key} (name)")
    return found


def against_profile_schema(text: str) -> list[str]:
    schema = profile_schema()
    return errors(schema, load(text).value, schema)


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_every_shipped_profile_conforms(name):
    assert against_profile_schema(shipped_profiles()[name].read_text("utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "traffic: {request_rate: 5/s}",
        "traffic: {classes: [{name: a, share: 30%, prompt_tokens: {p50: 3k}, output_tokens: {p50: 1}}]}",
        "traffic:\nslo:\n",
        "slo: {ttft: {p95: 1.5s, p99.9: 2m}, error_rate: 0.01, classes: {a: {tps: {p05: 25/s}}}}",
        "deployment: {max_model_len: auto, max_num_seqs: 5, speculative: {method: eagle}, gpu_memory_utilization: 1}",
        "probe: {budget: {duration: 10m, tokens: 4M}}",
    ],
)
def test_what_loads_conforms(text):
    assert against_profile_schema(HEAD + text) == []


@pytest.mark.parametrize(
    "text",
    [
        "sloo: {}",
        "slo: {ttft: {p95: 1500}}",
        "slo: {ttft: {95: 1s}}",
        "slo: {ttft: {p100: 1s}}",
        "slo: {tps: {p05: 25}}",
        "slo: {error_rate: 5}",
        "traffic: {request_rate: 5}",
        "traffic: {optimize_for: latency}",
        "traffic: {classes: [{name: a}]}",
        "deployment: {count: 0}",
        "deployment: {count: true}",
        "deployment: {max_model_len: big}",
        "deployment: {gpu_memory_utilization: 1.5}",
        "deployment: {gpu_memory_utilization: 0}",
        "monitoring: {dashboards: a.json}",
        "waivers: [{rule: M401, reason: x}]",
    ],
)
def test_what_does_not_load_for_its_form_does_not_conform(text):
    assert len(against_profile_schema(HEAD + text)) == 1


def test_every_field_of_the_profile_is_described():
    schema = profile_schema()
    names = {f"{name}.{key}" for name, part in schema["$defs"].items() for key in part["properties"]}
    assert names == set(DESCRIPTIONS)
    assert {f.name for f in fields(Profile)} == schema["$defs"]["Profile"]["properties"].keys()
    assert schema["$defs"]["Slo"]["properties"]["ttft"]["description"] == DESCRIPTIONS["Slo.ttft"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$defs"]["Endpoint"]["properties"]["engine"]["default"] == "auto"


def test_a_hint_without_a_schema_takes_anything():
    assert Schemas().of(Any) == {}
    assert Schemas().of(tuple[float, int]) == {
        "type": "array",
        "prefixItems": [{"type": "number"}, {"type": "integer"}],
        "items": False,
        "minItems": 2,
    }
