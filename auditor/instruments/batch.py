"""Many questions in one process: JSON lines in, JSON lines out, one answer a line in the same order."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from auditor.errors import UsageError
from auditor.loading.problems import one_line

__all__ = ["answered"]


def answered(lines: Iterable[str], answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Iterator[str]:
    """The answer to each line that is not blank, as a line; it starts with the row's id, or else its line number.

    What a row gets wrong is its answer (`error`) and stops no other.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield json.dumps(_one(number, line, answer)) + "\n"


def _one(number: int, line: str, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"id": number, "error": f"line {number}: no JSON ({one_line(str(error))})"}
    if not isinstance(row, dict):
        return {"id": number, "error": f"line {number}: a JSON object is needed"}
    identity = {"id": row.get("id", number)}
    try:
        return {**identity, **answer(row)}
    except UsageError as error:
        return {**identity, "error": one_line(str(error))}
