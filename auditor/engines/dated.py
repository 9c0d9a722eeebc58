"""The release that a date stands for, where people note when they ran an engine instead of its version."""

import re
from functools import cache

__all__ = ["release_before"]

_MONTH = re.compile(r"\b(20\d\d-(?:0[1-9]|1[0-2]))\b")
# The newest stable release on PyPI when a month began; a month that is left out began with the one before it.
_VLLM = """
2024-01 0.2.6   2024-02 0.3.0   2024-03 0.3.3   2024-05 0.4.1   2024-06 0.4.3   2024-07 0.5.0   2024-08 0.5.3
2024-09 0.5.5   2024-10 0.6.2   2024-11 0.6.3   2024-12 0.6.4   2025-01 0.6.6   2025-02 0.7.1   2025-03 0.7.3
2025-04 0.8.2   2025-05 0.8.5   2025-06 0.9.0   2025-07 0.9.1   2025-08 0.10.0  2025-09 0.10.1  2025-10 0.10.2
2025-11 0.11.0  2025-12 0.11.2  2026-01 0.13.0  2026-02 0.15.0  2026-03 0.16.0  2026-04 0.18.1  2026-05 0.20.0
2026-06 0.22.0  2026-07 0.24.0  2026-08 0.26.0  2026-09 0.28.0  2026-10 0.30.0  2026-11 0.32.0  2026-12 0.33.0
"""
_SGLANG = """
2024-02 0.1.10  2024-03 0.1.12  2024-04 0.1.14  2024-06 0.1.16  2024-07 0.1.17  2024-08 0.2.8   2024-09 0.2.14
2024-10 0.3.2   2024-11 0.3.4   2024-12 0.3.6   2025-01 0.4.1   2025-02 0.4.2   2025-03 0.4.3   2025-04 0.4.4
2025-05 0.4.6   2025-07 0.4.8   2025-08 0.4.10  2025-09 0.5.1   2025-10 0.5.2   2025-11 0.5.4   2025-12 0.5.5
2026-01 0.5.7   2026-02 0.5.8   2026-03 0.5.9   2026-05 0.5.10  2026-06 0.5.12  2026-07 0.5.14  2026-08 0.5.16
2026-09 0.5.18  2026-10 0.5.21  2026-11 0.5.23
"""


@cache
def _releases(engine: str) -> tuple[tuple[str, str], ...]:
    words = {"vllm": _VLLM, "sglang": _SGLANG}.get(engine, "").split()
    return tuple(zip(words[::2], words[1::2], strict=True))


@cache
def release_before(engine: str, written: str) -> str | None:
    """The newest release of an engine before the month that a text names ("fork 2026-07"): few run newer ones.

    None where it names no month, or one before the first release that is known.
    """
    match = _MONTH.search(written)
    if match is None:
        return None
    return next((release for month, release in reversed(_releases(engine)) if month <= match[1]), None)
