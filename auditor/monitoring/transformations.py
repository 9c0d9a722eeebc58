"""Grafana's transformations of a panel: which of its queries still reach the screen.

Only what names a query is followed: `Value #B` is the value of query B, `filterByRefId` names it outright. A table that
joins, groups or calculates draws everything it is given.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from auditor.monitoring.documents import listing, mapping, text_of

__all__ = ["outputs"]

_VALUE = re.compile(r"Value #(\w+)")


def outputs(transformations: Any, refs: Collection[str]) -> frozenset[str] | None:
    """The references among `refs` whose results are still drawn; None where no transformation takes any away."""
    left, renamed = frozenset(refs), frozenset[str]()
    for name, options in _steps(transformations):
        left &= _kept(name, options, left, renamed)
        if name == "organize":
            renamed |= _values([key for key, new in mapping(options.get("renameByName")).items() if new])
    return None if left == frozenset(refs) else left


def _steps(transformations: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and options of each step that is on, in either of the schema's forms."""
    for entry in listing(transformations):
        node = mapping(entry)
        inner = mapping(node.get("spec")) or node
        if inner.get("disabled") not in (True, "true"):
            name = text_of(inner.get("id")) or text_of(node.get("group")) or text_of(node.get("kind"))
            yield name, mapping(inner.get("options"))


def _kept(name: str, options: Mapping[str, Any], refs: frozenset[str], renamed: frozenset[str]) -> frozenset[str]:
    if name == "organize":
        excluded = [key for key, off in mapping(options.get("excludeByName")).items() if off in (True, "true")]
        return refs - _values(excluded)
    if name == "filterByRefId":
        pattern = text_of(options.get("include"))
        return refs & _listed(pattern) if pattern else refs
    if name == "filterFieldsByName":
        dropped = _values(listing(mapping(options.get("exclude")).get("names")))
        kept = _values(listing(mapping(options.get("include")).get("names")))
        return (kept | (renamed & refs) if kept else refs) - dropped
    return refs


def _values(fields: list[Any]) -> frozenset[str]:
    found = (_VALUE.fullmatch(text_of(field)) for field in fields)
    return frozenset(match[1] for match in found if match)


def _listed(pattern: str) -> frozenset[str]:
    """Grafana takes a plain reference, or a regular expression between slashes that lists some (`/^(?:A|B)$/`)."""
    return frozenset(re.findall(r"\w+", pattern))
