"""What watches the service: dashboards and rules, the Prometheus that runs them, and what they say beside the client.

Plain data, filled by `monitoring` (files, pages), `probe` (a live Prometheus) and `run`; checks judge it. Times are
seconds, shares 0..1, None means "not observed".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from auditor.measurement import Histogram

__all__ = [
    "FEWEST_OF_USERS",
    "Agreement",
    "Answer",
    "Coverage",
    "CoverageItem",
    "Document",
    "Flaw",
    "Observed",
    "Query",
    "RuleState",
    "Slice",
    "Target",
    "Watch",
]

# ---------------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageItem:
    """One concept (ttft, tps, memory, and running, waiting, preemptions ...) and how far up the ladder it got.

    `rung`: missing < proxy < named < valid < on_page < parses < returns_data < alerted; `names` are the metric names
    that carry it, `where` file and panel title or rule name, `dead` names that the engine's version or page does not
    have, `silent` names whose queries a live Prometheus answered with nothing, `alerts` rules that watch it, `buckets`
    the bounds of the histogram that carries it. `one_reader`: its page gives these names to one kind of Prometheus
    alone, and which one asks is not known.
    """

    concept: str
    rung: str
    names: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    note: str = ""
    buckets: tuple[float, ...] = ()
    silent: tuple[str, ...] = ()
    one_reader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One expression as Prometheus would be asked it, variables substituted: file and panel title or alert name in
    `where`, the `concepts` that it shows (ttft, tps, memory, running ...) and the series `names` it needs.

    `windows` are the ranges of its rates that are written as numbers, in seconds; `bare` says that it draws an engine's
    series one by one, as they are labelled; `matchers` are the labels that it asks for by a value written out.
    """

    text: str
    where: str
    concepts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    alert: str | None = None
    windows: tuple[float, ...] = ()
    bare: bool = False
    matchers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One way in which a query that shows a concept misleads.

    `kind` names the way, one word a rule looks for ("summed_ratio", "lifetime_average" ...); `note` says it in a
    sentence; `instead` is the query that would be right on the engine in use, where there is one.
    """

    kind: str
    concept: str
    where: str
    query: str
    note: str
    names: tuple[str, ...] = ()
    instead: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the dashboards and rules given cover; `offered` are the names on the engine's own page, by concept."""

    items: tuple[CoverageItem, ...]
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    invalid_queries: tuple[str, ...] = ()
    queries: tuple[Query, ...] = ()
    flaws: tuple[Flaw, ...] = ()


# ----------------------------------------------------------------------------------------------------------- Prometheus


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One scrape target of the Prometheus: `health` up, down or unknown, `interval` between scrapes in seconds.

    `serves` says that it scrapes the service: it carries the engine's series, or has the address of one of its pages.
    """

    job: str
    url: str
    health: str
    interval: float | None = None
    error: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one query returned over the window: how many series had a finite value, or why it failed.

    Of an alert's query the part that it compares was asked: that returns data while the alert is silent, and where it
    returns none the alert can never fire. `absent` are the names in a query without an answer of which there was no
    sample at all; where it is empty, labels, a rate window or missing traffic leave it without one. `last` is the
    latest finite value where one series came back, for comparison with what the client measured.
    """

    query: str
    series: int | None = None
    error: str | None = None
    last: float | None = None
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """One alerting rule as it is run by `source` (prometheus or grafana).

    `state` is inactive, pending, firing or unknown, `health` ok, err or unknown.
    """

    name: str
    query: str
    state: str
    health: str = "unknown"
    error: str | None = None
    source: Literal["prometheus", "grafana"] = "prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A dashboard or rule file that a server gave: its name in reports, its text, and what it is."""

    name: str
    text: str
    kind: Literal["dashboard", "rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a live Prometheus says of itself and of the service.

    `answers` are those of the panels' and alerts' queries; `labels` maps a label name to its values on the engine's
    series; `retention`, `lookback` and `window` (what the queries were asked over) are in seconds; `targets` are those
    that serve or are not up, of `active` ones in all, `dropped` those that relabelling left out; `names` are those of
    the engine's series as they are stored, which need not be spelled as its page spells them; `documents` are the
    dashboards and rules that it and Grafana hold; `problems` are lines on what could not be read.
    """

    url: str
    version: str | None = None
    retention: float | None = None
    lookback: float | None = None
    window: float | None = None
    targets: tuple[Target, ...] = ()
    active: int | None = None
    dropped: int | None = None
    names: tuple[str, ...] = ()
    rules: tuple[RuleState, ...] | None = None
    answers: tuple[Answer, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    documents: tuple[Document, ...] = ()
    problems: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------------- beside the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One quantity of a load as the server counted it beside the client's own number; None where one of them is not.

    `verdict`: agrees, differs or unknown; `note` says where the difference lies (queue, network, another replica).
    """

    quantity: str
    load: str
    server: float | None
    client: float | None
    unit: str
    verdict: Literal["agrees", "differs", "unknown"]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of the window, `start` seconds from its begin and `seconds` long: what was counted in it, by concept.

    `values` also hold, where shown, `in_flight` (the mean of requests that run or wait), the least that waited
    (`waiting_least`), and `up`.
    """

    start: float
    seconds: float
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)


FEWEST_OF_USERS = 200
"""Requests below which a page's histogram of lengths holds a few tries and an audit's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What users really sent and got, from histograms of the engine's page or of Prometheus over `window` seconds.

    A page's window is since the engine started (None where that is unknown). `histograms` by concept: prompt_len,
    output_len, and in passive mode ttft, tpot, e2e, queue_time; `values` are counters over the window (requests,
    refusals, aborted, errors, preemptions; `unknown` requests that nobody saw end) and peaks of gauges (running,
    waiting, in_flight, kv_usage), `up` the least share of a slice in which a target answered, `instances` how many
    there are. `slices` cut a passive audit's window in order of time; `engine` is the one whose series these are.
    """

    source: str
    window: float | None
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    passive: bool = False
    slices: tuple["Slice", ...] = ()
    engine: str | None = None
