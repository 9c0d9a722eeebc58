"""vLLM's version as a tuple of numbers, for rules that hold from one release on."""

import re
from functools import lru_cache

__all__ = ["NEWEST", "release"]

NEWEST = (999,)

_NUMBERS = re.compile(r"(?<![\d.])v?(\d+)\.(\d+x?)(?:\.(\d+x?))?")


@lru_cache(maxsize=1024)
def release(text: str | None) -> tuple[int, ...]:
    """ "v0.18.2rc1" -> (0, 18, 2). An x stands for the newest it can be ("0.1x" -> (0, 19)); unknown for the newest."""
    found = _NUMBERS.search(text or "")
    if found is None:
        return NEWEST
    return tuple(int(part.replace("x", "9")) for part in found.groups() if part)
