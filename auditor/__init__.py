"""serving-audit: is this LLM deployment ready to serve?

The names below are the public interface for checks and programs; `auditor.testing` helps to test a check. They are
loaded when first used, so that `import auditor` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.errors import AuditError, NothingMeasured, PreflightFailed, ProfileError, ToolError, UsageError
    from auditor.evidence import (
        Check,
        Conflict,
        Evidence,
        Finding,
        Location,
        Number,
        QuestionResult,
        Report,
        Rule,
        Waived,
    )
    from auditor.loads import Load, Plan
    from auditor.measurement import ClientHealth, Histogram, Measurement, MetricsPage, Sample, Served, Snapshot
    from auditor.profile import Profile
    from auditor.watch import Agreement, Coverage, CoverageItem, Flaw, Observed, Query, Watch

    __version__: str

__all__ = [
    "Agreement",
    "AuditError",
    "Check",
    "ClientHealth",
    "Conflict",
    "Coverage",
    "CoverageItem",
    "Evidence",
    "Finding",
    "Flaw",
    "Histogram",
    "Load",
    "Location",
    "Measurement",
    "MetricsPage",
    "NothingMeasured",
    "Number",
    "Observed",
    "Plan",
    "PreflightFailed",
    "Profile",
    "ProfileError",
    "Query",
    "QuestionResult",
    "Report",
    "Rule",
    "Sample",
    "Served",
    "Snapshot",
    "ToolError",
    "UsageError",
    "Waived",
    "Watch",
    "__version__",
]

_HOMES = ("auditor.evidence", "auditor.measurement", "auditor.watch", "auditor.profile", "auditor.errors")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("serving-audit")
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
