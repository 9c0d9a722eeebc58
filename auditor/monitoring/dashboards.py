"""Dashboard documents -> panels with the Prometheus queries that they draw. Titles say where, they never judge.

Reads Grafana (classic and v2, wrapped by its API or a resource), Perses and Google Cloud Monitoring; each has its file.
"""

from collections.abc import Mapping
from typing import Any

from auditor.monitoring.boards import Dashboard, Panel
from auditor.monitoring.documents import mapping
from auditor.monitoring.google import google
from auditor.monitoring.grafana import classic
from auditor.monitoring.grafana_v2 import elements
from auditor.monitoring.perses import perses

__all__ = ["Dashboard", "Panel", "dashboard"]


def dashboard(document: Mapping[str, Any]) -> Dashboard | None:
    """The dashboard in a document, or None where the document is none."""
    root = mapping(document.get("dashboard", document))
    spec = mapping(root.get("spec"))
    for node in (root, spec, mapping(spec.get("config"))):
        for reader in (classic, elements, perses, google):
            found = reader(node)
            if found is not None:
                return found
    return None
