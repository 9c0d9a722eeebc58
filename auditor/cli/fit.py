"""`audit fit`: what fits into a deployment's memory, by arithmetic alone."""

from pathlib import Path
from typing import Annotated

import typer

from auditor.cli.output import write
from auditor.errors import UsageError

__all__ = ["command"]

Batch = Annotated[
    Path | None, typer.Option("--batch", metavar="FILE.jsonl", help="One JSON answer a line; - is stdin.")
]


def command(batch: Batch = None) -> None:
    """Say what fits into memory: weights, KV cache, requests."""
    from auditor.instruments.batch import answered
    from auditor.instruments.fit import brief

    if batch is None:
        raise UsageError("fit: --batch")
    with batch.open(encoding="utf-8") as lines:
        for line in answered(lines, brief):
            write(line)
