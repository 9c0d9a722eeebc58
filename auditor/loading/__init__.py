"""The only reader of the user's files: profile, dashboards, rules, traffic logs, model files."""

from auditor.loading.files import TextFile
from auditor.loading.monitoring import load_monitoring
from auditor.loading.profile import Loaded, load_profile, shipped_profiles
from auditor.loading.resolve import Here, read_model, resolve_device, resolve_draft, resolve_model

__all__ = [
    "Here",
    "Loaded",
    "TextFile",
    "load_monitoring",
    "load_profile",
    "read_model",
    "resolve_device",
    "resolve_draft",
    "resolve_model",
    "shipped_profiles",
]
