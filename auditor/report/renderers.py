"""The formats by name. A format is a pure function of the report: the same report gives the same bytes."""

from collections.abc import Callable, Mapping

from auditor.evidence import Report
from auditor.report import csv, github, gitlab, html, json, junit, markdown, prometheus, sarif, terminal

__all__ = ["RENDERERS"]

RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "csv": csv.render,
    "github": github.render,
    "gitlab": gitlab.render,
    "html": html.render,
    "json": json.render,
    "junit": junit.render,
    "markdown": markdown.render,
    "prometheus": prometheus.render,
    "sarif": sarif.render,
    "terminal": terminal.render,
}
