"""The formats by name. A format is a pure function of the report: the same report gives the same bytes."""

from collections.abc import Callable, Mapping

from auditor.evidence import Report
from auditor.report import html, json, markdown, terminal

__all__ = ["RENDERERS"]

RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "html": html.render,
    "json": json.render,
    "markdown": markdown.render,
    "terminal": terminal.render,
}
