"""A dashboard as read, whatever program draws it, and which of a panel's queries it shows."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Dashboard", "Panel", "Target", "drawn", "is_promql", "prometheus_like"]

_OTHER_LANGUAGES = re.compile(r"loki|tempo|elastic|influx|sql|cloudwatch|stackdriver|postgres|json|infinity|__expr__")
_EXPRESSION = "__expr__"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its title, the PromQL texts that it draws, variables still in them, and the unit of all of them.

    `unit` is as the program names it (Grafana: "s", "ms", "percentunit" ...); empty where unknown or set by parts.
    """

    title: str
    queries: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. `variables` are the values that its template variables have by default, `unknown` those variables
    whose values the data gives; `unread` says which panels could not be read, and why.
    """

    title: str
    panels: tuple[Panel, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One query of a Grafana panel: the letter others refer to it by, the kind of its data source, its text.

    `text` is the PromQL, or Grafana's own expression over other targets ("$A / $B") where `source` is `__expr__`.
    """

    ref: str
    source: str
    text: str
    hidden: bool = False


def is_promql(source: str) -> bool:
    """True unless a data source's kind says that it speaks another language; old files hold only its name."""
    return not _OTHER_LANGUAGES.search(source.lower())


def prometheus_like(queries: Iterable[str]) -> tuple[str, ...]:
    """The texts that hold anything."""
    return tuple(query for query in queries if query.strip())


def drawn(targets: Sequence[Target], outputs: Collection[str] | None = None) -> tuple[str, ...]:
    """The PromQL that the panel draws: of hidden targets those that a shown expression needs, also through others.

    `outputs` are the references whose results the panel's transformations let through (None: all of them).
    """
    shown = [t for t in targets if not t.hidden and (outputs is None or t.ref in outputs)]
    needed: set[str] = set()
    queue = [t for t in shown if t.source == _EXPRESSION]
    expressions: dict[str, list[Target]] = {}
    for target in targets:
        if target.source == _EXPRESSION:
            expressions.setdefault(target.ref, []).append(target)
    while queue:
        more = set(re.findall(r"\w+", queue.pop().text)) - needed
        needed |= more
        queue += [t for ref in more for t in expressions.get(ref, ())]
    visible = set(shown)
    used = [t for t in targets if t in visible or (t.ref and t.ref in needed)]
    return prometheus_like(t.text for t in used if is_promql(t.source))
