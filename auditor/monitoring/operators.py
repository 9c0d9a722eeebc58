"""PromQL's functions and operators by what they do to a series (Prometheus, "Query functions" and "Operators")."""

__all__ = ["COMPARISONS", "COUNTING", "PRESENCE", "RATES", "SETS"]

RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})
"""Functions that take how a series moves over a window."""

PRESENCE = frozenset(
    {"absent", "absent_over_time", "present_over_time", "count_over_time", "changes", "resets", "timestamp"}
)
"""Functions that tell whether or when a series is there, and nothing of its value."""

COUNTING = frozenset({"count", "count_values", "group"})
"""Aggregations that count series, whatever their values."""

COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
"""Operators that let through what compares, or with `bool` give 0 or 1."""

SETS = frozenset({"and", "unless"})
"""Operators that let through the left side where the right one allows."""
