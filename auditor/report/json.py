"""The report as JSON: everything in it, with provenance; requests summed up a load. Deterministic, pure ASCII.

An infinite number (an unbounded interval, a failed request's latency) is the string "inf"; "not observed" is null.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from auditor.evidence import Report
from auditor.fingerprints import fingerprints
from auditor.report.products import data as products_data
from auditor.report.products import of_evidence
from auditor.report.summaries import SUMMARIES

__all__ = ["dumps", "plain", "render"]

_LIMIT = 4_000


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else value


def _text(value: str) -> str:
    return value if len(value) <= _LIMIT else f"{value[:_LIMIT]} ... ({len(value) - _LIMIT} more characters)"


def plain(value: Any) -> Any:
    """Any of the audit's data as what JSON can hold; mappings sorted by key, over-long text cut with a count."""
    for kind, (summed_up, _) in SUMMARIES.items():
        if isinstance(value, kind):
            return plain(summed_up(value))
    if is_dataclass(value):
        return {name: plain(item) for name, item in _fields(value).items()}
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return _number(value) if isinstance(value, int | float) else _text(str(value))


def render(report: Report) -> str:
    """The report as one JSON object, two-space indented, keys in the order of the data model."""
    data, products = plain(report), of_evidence(report.evidence)
    for finding, mark in zip(data["findings"], fingerprints(report.name, report.findings), strict=True):
        finding["fingerprint"] = mark
    data["evidence"]["candidates"] = [device.key for device in report.evidence.candidates]
    data["products"] = plain(products_data(products)) if products is not None else None
    return dumps(data)


def dumps(data: Any) -> str:
    """JSON as every format writes it: indented, pure ASCII, a line of it never a command to a pipeline's runner."""
    text = json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    return re.sub("#(?=#)", r"\\u0023", text)
