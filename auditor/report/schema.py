"""The JSON schema of the JSON report, read off the data model that the report is made of."""

from typing import Any

from auditor.evidence import Report
from auditor.loading.schema import DRAFT, Schemas
from auditor.report.summaries import SUMMARIES
from auditor.theory.device import Device

__all__ = ["report_schema"]

_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", None]}]}
_KEYS = {"type": "array", "items": {"type": "string"}}


def report_schema() -> dict[str, Any]:
    """The schema of what `-o json` writes: every field there, infinite numbers as text, loads summed up."""
    schemas = Schemas(written=False, overrides={float: _NUMBER, tuple[Device, ...]: _KEYS})
    schemas.overrides = {**schemas.overrides, **{kind: schemas.of(summed) for kind, (_, summed) in SUMMARIES.items()}}
    root = schemas.of(Report)
    _add(
        schemas,
        "Report",
        "products",
        {
            "description": "Both phases as matrix products at the target: FLOPs, bytes and FLOP/byte of one device.",
            "anyOf": [{"type": "object"}, {"type": "null"}],
        },
    )
    _add(
        schemas,
        "Finding",
        "fingerprint",
        {
            "description": "The same in every run of this profile: made of its name, the rule and the subject.",
            "type": "string",
        },
    )
    return {"$schema": DRAFT, "title": "serving-audit report", **root, "$defs": dict(sorted(schemas.defs.items()))}


def _add(schemas: Schemas, kind: str, name: str, schema: dict[str, Any]) -> None:
    """A field that the report has beside the data model's."""
    schemas.defs[kind]["properties"][name] = schema
    schemas.defs[kind]["required"].append(name)
