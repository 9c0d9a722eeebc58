"""Published schemas that reports must fit, and what they say against one."""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import xmlschema

SCHEMAS = Path(__file__).parent / "schemas"


@cache
def junit_schema() -> xmlschema.XMLSchema:
    """JUnit XML as Jenkins' xUnit plugin takes it."""
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@cache
def sarif_schema() -> dict[str, Any]:
    """SARIF 2.1.0."""
    return json.loads(lzma.decompress((SCHEMAS / "sarif-2.1.0-rtm.5.json.xz").read_bytes()))


def problems(data: Any, schema: dict[str, Any]) -> list[str]:
    """What a JSON schema says against `data`, formats (URI references, dates) included where they can be checked."""
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    found = kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(data)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


@cache
def gitlab_schema() -> dict[str, Any]:
    """GitLab's code quality report."""
    return json.loads((SCHEMAS / "gitlab-code-quality.json").read_text())
