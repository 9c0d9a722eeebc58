"""`audit schema`: the JSON schema of a profile or a report."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from auditor.cli.output import write

__all__ = ["command", "report_schema"]


class Document(StrEnum):
    """What has a schema."""

    profile = "profile"
    report = "report"


Which = Annotated[Document, typer.Argument(metavar="[profile|report]", help="What to describe.")]


def command(which: Which = Document.profile) -> None:
    """Print the JSON schema of a profile, for editors, or of a JSON report.

    \b
    audit schema > profile.schema.json
    # yaml-language-server: $schema=profile.schema.json      (first line of a profile)
    """
    from auditor.loading.schema import profile_schema

    schema = profile_schema() if which == Document.profile else report_schema()
    write(json.dumps(schema, indent=2) + "\n")


def report_schema() -> dict[str, Any]:
    """The schema of what `-o json` writes: every field there, infinite numbers as text, loads summed up."""
    from auditor.evidence import Location, Report
    from auditor.loading.schema import DRAFT, Schemas
    from auditor.loads import Load
    from auditor.measurement import Measurement, MetricsPage
    from auditor.theory.device import Device

    number = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", None]}]}
    summary = {"type": "object"}
    overrides: dict[Any, dict[str, Any]] = {
        float: number,
        Location: {"type": "string"},
        Load: summary,
        Measurement: summary,
        MetricsPage: summary,
        tuple[Device, ...]: {"type": "array", "items": {"type": "string"}},
    }
    schemas = Schemas(written=False, overrides=overrides)
    root = schemas.of(Report)
    table = {"anyOf": [{"type": "object"}, {"type": "null"}]}
    properties = schemas.defs["Report"]
    properties["properties"]["products"] = {
        "description": "Both phases as matrix products at the target: FLOPs, bytes and FLOP/byte of one device.",
        **table,
    }
    properties["required"].append("products")
    return {"$schema": DRAFT, "title": "serving-audit report", **root, "$defs": dict(sorted(schemas.defs.items()))}
