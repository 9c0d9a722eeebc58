"""The API key that a flag names by its environment variable."""

import os

from auditor.errors import UsageError

__all__ = ["key_of"]


def key_of(name: str | None, flag: str = "--api-key-env") -> str | None:
    """The key in the variable that `flag` names. Raises UsageError where there is none, or none that HTTP can
    carry.
    """
    from auditor.loading.endpoint import key_fault, key_name_fault

    if name is None:
        return None
    if (fault := key_name_fault(name)) is not None:
        raise UsageError(f"{flag}: {fault}")
    key = os.environ.get(name, "").strip()
    if not key:
        raise UsageError(f"{flag} {name[:60]}: no such environment variable is set; export it first")
    if (fault := key_fault(key)) is not None:
        raise UsageError(f"{flag} {name[:60]}: the variable {fault}")
    return key
