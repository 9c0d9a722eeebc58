"""A pattern for metric names (`{__name__=~"..."}`) -> the names that it stands for.

Groups of alternatives are written out; `.*` and `.+` stand for the known names that fit. Anything more is a pattern for
which no name could be told. Nothing is matched as a regular expression: a file's own could take for ever.
"""

import re
from fnmatch import fnmatchcase
from itertools import islice

from auditor.catalog import metrics as catalogue

__all__ = ["alternatives"]

_MOST = 64  # names; more would be no panel
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_GLOB = re.compile(r"[\w:*]+")
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)(\?)?")


def alternatives(pattern: str) -> list[str]:
    """The names that the pattern stands for; none where that cannot be told."""
    plain = pattern.removeprefix("^").removesuffix("$")
    written = [text for part in _split(plain) for text in _written_out(part)]
    globs = [re.sub(r"\.[*+]", "*", text) for text in written]
    return list(dict.fromkeys(name for glob in globs for name in _names(glob)))[:_MOST]


def _split(pattern: str) -> list[str]:
    """The alternatives at the top: what stands between bars that are in no group."""
    parts, depth = [""], 0
    for character in pattern:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _written_out(text: str) -> list[str]:
    """Every text that groups of alternatives stand for, group by group from the inside; none of too many."""
    queue, found = [text], list[str]()
    while queue:
        one = queue.pop()
        group = _GROUP.search(one)
        if group is None:
            found.append(one)
            continue
        choices = [*group[1].split("|"), *([""] if group[2] else [])]
        queue += [one[: group.start()] + choice + one[group.end() :] for choice in choices]
        if len(queue) + len(found) > _MOST:
            return []
    return list(reversed(found))


def _names(glob: str) -> list[str]:
    if _NAME.fullmatch(glob):
        return [glob]
    if not _GLOB.fullmatch(glob) or glob.strip("*") == "" or glob.count("*") > 4:
        return []
    return list(islice((name for name in catalogue.samples() if fnmatchcase(name, glob)), _MOST))
