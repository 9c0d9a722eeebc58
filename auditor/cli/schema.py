"""`audit schema`: the JSON schema of a profile or a report."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from auditor.cli.output import write

__all__ = ["command"]


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
    if which == Document.profile:
        from auditor.loading.schema import profile_schema as schema
    else:
        from auditor.report.schema import report_schema as schema
    write(json.dumps(schema(), indent=2) + "\n")
