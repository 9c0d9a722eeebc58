"""Monitoring files -> the queries of their panels and alerts, their recording rules, and what could not be read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from auditor.monitoring import dashboards, documents, promql, rules
from auditor.monitoring.variables import substitute

__all__ = ["Asked", "Read", "TextFile", "read"]

_TEMPLATE = "{{"  # Helm's, Jinja's; in PromQL only inside a string, and no label has such a value
_UNTITLED = "a panel without title"


class TextFile(Protocol):
    """A monitoring file as loaded: its name as the user wrote it, its text, and what the profile lists it as."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One expression as Prometheus would be asked it, and where it stands: file and panel title, or alert name.

    `raw` is the expression as written, variables still in it; `title` and `unit` are the panel's.
    """

    text: str
    where: str
    alert: str | None = None
    raw: str = ""
    title: str = ""
    unit: str = ""


@dataclass(slots=True)
class Read:
    """What the files hold, in order. `recordings` are the expressions of recording rules by their name."""

    queries: list[Asked] = field(default_factory=list)
    recordings: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def read(files: Iterable[TextFile]) -> Read:
    """Read the files as one set. What cannot be read is named with its reason and counts for nothing."""
    found = Read()
    for file in files:
        try:
            readable = [_document(document, file.name, found) for document in documents.documents(file.text)]
        except documents.Unreadable as error:
            found.unreadable.append(f"{file.name}: {error}")
            continue
        if not any(readable):
            found.unreadable.append(f"{file.name}: holds no dashboard and no rules")
    return found


def _document(document: Mapping[str, Any] | documents.Unreadable, name: str, into: Read) -> bool:
    """Add what a document holds; False where it is neither dashboard nor rules."""
    try:
        if isinstance(document, documents.Unreadable):
            raise document
        listed = rules.rules(document)
        if listed is not None:
            _rules(listed, name, into)
            return True
        board = dashboards.dashboard(document)
    except documents.Unreadable as error:
        into.unreadable.append(f"{name}: {error}")
        return True
    if board is None:
        return False
    into.unreadable += [f"{name}: {problem}" for problem in board.unread]
    for panel in board.panels:
        where = f"{name}: {panel.title or _UNTITLED}"
        for text in panel.queries:
            bounded = text[: promql.MAX_CHARACTERS + 1]  # what is too long is refused, and never searched
            plain = substitute(bounded, board.variables, board.unknown)
            _ask(Asked(plain, where, raw=bounded, title=panel.title, unit=panel.unit), into)
    return True


def _rules(listed: Iterable[rules.Rule], name: str, into: Read) -> None:
    for rule in listed:
        if rule.kind == "record":
            into.recordings[rule.name] = rule.expr
        else:
            _ask(Asked(rule.expr, f"{name}: alert {rule.name}", rule.name, raw=rule.expr), into)


def _ask(query: Asked, into: Read) -> None:
    """Take the query, unless it is too long, or still a template's source: what it becomes cannot be told."""
    if len(query.raw) > promql.MAX_CHARACTERS:
        into.unreadable.append(f"{query.where}: a query longer than {promql.MAX_CHARACTERS:,} characters")
    elif _TEMPLATE in query.text:
        into.unreadable.append(f"{query.where}: a template that was not rendered")
    else:
        into.queries.append(query)
