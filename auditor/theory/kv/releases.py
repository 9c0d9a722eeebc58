"""Engine versions as numbers that compare, for rules that changed with them."""

import re
from functools import lru_cache

__all__ = ["NEWEST", "build", "release", "releases"]

NEWEST = 1 << 30

_RANGE = re.compile(r"(?<![\d.-])v?((\d{1,2})\.[\dx.]*[\dx]) ?(?:-|–|to) ?v?(\2\.\d+x?(?:\.(?:\d+|x))?)(?![\dx])")


@lru_cache(maxsize=1024)
def release(text: str | None) -> tuple[int, int, int]:
    """Three numbers of a release: "v0.5.9.post1" -> (0, 5, 9).

    What is missing counts as the newest: "0.5.x" is the last of 0.5, "0.1x" the last of 0.10 to 0.19, no version at all
    or a date the last of all.
    """
    written = re.sub(r"(?<=\d)x", "9", (text or "").strip())
    numbers = re.findall(r"\d+", re.split(r"[^\d.v]", written, maxsplit=1)[0])
    parts = [int(number) for number in numbers[:3]]
    if len(parts) < 2:
        return (NEWEST, NEWEST, NEWEST)
    return (parts[0], parts[1], parts[2] if len(parts) > 2 else NEWEST)


def releases(text: str | None) -> tuple[str, str] | None:
    """The ends of a range of releases, of which `release` gives the first: "0.19-0.2x" -> ("0.19", "0.2x"); None where
    the text is no range.
    """
    match = _RANGE.search(text or "")
    return (match[1], match[3]) if match else None


def build(text: str | None) -> int:
    """llama.cpp's build number: "b6325-ab12cd", "6123 (ab12cd)"; the newest where there is none (a year is none)."""
    match = re.search(r"(?:(?<![\w.])b(\d{3,6})|(?<![\w.-])(?!20\d\d(?!\d))(\d{4,6}))(?![\w.])", text or "")
    return int(match[1] or match[2]) if match else NEWEST
