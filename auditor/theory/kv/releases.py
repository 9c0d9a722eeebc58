"""Engine versions as numbers that compare, for rules that changed with them."""

import re
from functools import lru_cache

__all__ = ["NEWEST", "build", "release"]

NEWEST = 1 << 30


@lru_cache(maxsize=1024)
def release(text: str | None) -> tuple[int, int, int]:
    """Three numbers of a release: "v0.5.9.post1" -> (0, 5, 9).

    What is missing counts as the newest: "0.5.x" is the last of 0.5, no version at all or a date the last of all.
    """
    numbers = re.findall(r"\d+", re.split(r"[^\d.v]", (text or "").strip(), maxsplit=1)[0])
    parts = [int(number) for number in numbers[:3]]
    if len(parts) < 2:
        return (NEWEST, NEWEST, NEWEST)
    return (parts[0], parts[1], parts[2] if len(parts) > 2 else NEWEST)


def build(text: str | None) -> int:
    """llama.cpp's build number: "b6325-ab12cd", "6123 (ab12cd)"; the newest where there is none (a year is none)."""
    match = re.search(r"(?:(?<![\w.])b(\d{3,6})|(?<![\w.-])(?!20\d\d(?!\d))(\d{4,6}))(?![\w.])", text or "")
    return int(match[1] or match[2]) if match else NEWEST
