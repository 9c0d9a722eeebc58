"""What a Prometheus saw of a service over a window, cut in slices: exact counts from the samples at their edges.

`rate()` and `increase()` stretch what they see to the window's ends, so that their counts are estimates; differences of
samples are counts. What no sample shows (requests between the last scrape and a restart, while a target did not answer,
or in the past of a target that is new to Prometheus) is counted as unknown, by what came just before, and never as
good.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from auditor.catalog.metrics import REPEATING
from auditor.measurement import Histogram
from auditor.theory.buckets import added, clean
from auditor.watch import Observed, Slice

__all__ = ["Edges", "Read", "Track", "observed", "summed"]

# Ranks that show the same figures again, and the process that wrote them: one series.
_SAME = frozenset([*REPEATING, "pid", "le", "__name__"])
_REASON = "finished_reason"
_REASONS = {"abort": "aborted", "error": "errors"}
_Key = tuple[tuple[str, str], ...]
_State = dict[str, float]


class Track(Protocol):
    """One series over the window: its labels, and (time, value) in order of time."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Label name -> value, `__name__` included."""

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(seconds since 1970, value)."""


@dataclass(frozen=True, slots=True)
class Edges:
    """`count` + 1 moments, `step` seconds apart, from `start` on: the ends of `count` slices."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The last moment."""
        return self.start + self.step * self.count

    def place(self, time: float) -> int | None:
        """Which moment this is; None for a time between them or outside."""
        place = round((time - self.start) / self.step)
        near = abs(time - self.start - place * self.step) <= 0.1 * self.step
        return place if near and 0 <= place <= self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read at the edges: series of histograms (with their _bucket, _sum and _count) and counters by concept,
    gauges summed over series by name, and `up` of every target. `lows` are the least that each series of a concept
    counted within a slice: where that is less than at its begin, it restarted. `zero` are concepts whose counters come
    with the first event: absent means none.
    """

    source: str
    edges: Edges
    engine: str | None = None
    histograms: Mapping[str, Sequence[Track]] = field(default_factory=dict)
    counters: Mapping[str, Sequence[Track]] = field(default_factory=dict)
    gauges: Mapping[str, Sequence[Track]] = field(default_factory=dict)
    lows: Mapping[str, Sequence[Track]] = field(default_factory=dict)
    up: Sequence[Track] = ()
    zero: tuple[str, ...] = ()


def summed(histograms: Iterable[Histogram]) -> Histogram | None:
    """The sum of histograms; bounds that one of them lacks are left out. None for no histograms."""
    listed = list(histograms)
    if not listed:
        return None
    told = all(one.buckets for one in listed if one.count)  # the buckets of some are not those of all
    buckets = added(one.buckets for one in listed) if told else ()
    return Histogram(sum=sum(one.sum for one in listed), count=sum(one.count for one in listed), buckets=buckets)


def observed(read: Read) -> Observed:
    """The window as plain data; a concept that no series showed is absent."""
    alive = _Alive(read.up, read.edges)
    lows, counters = _by_reason(read.lows), _by_reason(read.counters)
    gains = {name: _gains(tracks, lows.get(name, ()), read.edges, alive) for name, tracks in read.histograms.items()}
    counts = {name: _gains(tracks, lows.get(name, ()), read.edges, alive) for name, tracks in counters.items()}
    gauges = {name: _values(tracks, read.edges) for name, tracks in read.gauges.items()}
    for gain in gains.values():
        _lose(gain, alive, read.edges)
    slices = tuple(_slice(i, read.edges, gains, counts, gauges, alive) for i in range(1, read.edges.count + 1))
    histograms = {c: found for c in gains if (found := summed(s.histograms[c] for s in slices if c in s.histograms))}
    values = {name: total for name, count in counts.items() if (total := count.total) is not None}
    values |= dict.fromkeys((name for name in read.zero if name not in values), 0.0)
    values |= {name: max(seen) for name, listed in gauges.items() if (seen := [x for x in listed if x is not None])}
    values["unknown"] = max((sum(found.unknown) for found in gains.values()), default=0.0)
    values["restarts"] = float(max((found.restarts for found in gains.values()), default=0))
    values |= alive.values([track for tracks in read.histograms.values() for track in tracks])
    if pending := [x for x in gauges.get("in_flight", [])[-1:] if x is not None]:
        values["pending"] = pending[0]
    return Observed(
        source=read.source,
        window=read.edges.end - read.edges.start,
        histograms=histograms,
        values=values,
        passive=True,
        slices=slices,
        engine=read.engine,
    )


def _slice(  # noqa: PLR0917
    i: int,
    edges: Edges,
    gains: Mapping[str, "_Gains"],
    counts: Mapping[str, "_Gains"],
    gauges: Mapping[str, Sequence[float | None]],
    alive: "_Alive",
) -> Slice:
    values = {name: found.parts[i].get("count", 0.0) for name, found in counts.items() if found.total is not None}
    values |= {name: value for name, listed in gauges.items() if (value := listed[i]) is not None}
    values |= {"unknown": max((found.unknown[i] for found in gains.values()), default=0.0)}
    return Slice(
        start=(i - 1) * edges.step,
        seconds=edges.step,
        histograms={concept: _histogram(found.parts[i]) for concept, found in gains.items() if found.parts[i]},
        values=values | ({"up": up} if (up := alive.share(i)) is not None else {}),
    )


def _by_reason(counters: Mapping[str, Sequence[Track]]) -> dict[str, list[Track]]:
    """The counters, and of finished requests those that were given up or broke apart as well."""
    found = {concept: list(tracks) for concept, tracks in counters.items()}
    for track in counters.get("requests", ()):
        if concept := _REASONS.get(track.labels.get(_REASON, "")):
            found.setdefault(concept, []).append(track)
    return found


# --------------------------------------------------------------------------------------------------------------- counts


@dataclass(slots=True)
class _Gains:
    """What all series of a concept gained, by slice and part (count, sum, le=...), how many events of each slice nobody
    saw, and how often a count restarted. A slice without any series is empty.
    """

    parts: list[_State]
    unknown: list[float]
    restarts: int = 0

    @property
    def total(self) -> float | None:
        """Events of the window; None where no series was there."""
        counts = [parts["count"] for parts in self.parts if "count" in parts]
        return sum(counts) if counts else None

    def add(self, i: int, gain: _State) -> None:
        """Add what one series gained in a slice."""
        for part, value in gain.items():
            self.parts[i][part] = self.parts[i].get(part, 0.0) + value


def _gains(tracks: Iterable[Track], lows: Iterable[Track], edges: Edges, alive: "_Alive") -> _Gains:
    found = _Gains([{} for _ in range(edges.count + 1)], [0.0] * (edges.count + 1))
    least = _states(lows, edges)
    for key, states in _states(tracks, edges).items():
        _count(states, _restarts(states, least.get(key, [])), alive.seen(dict(key)), found)
    return found


def _restarts(states: Sequence[_State], lows: Sequence[_State]) -> list[bool]:
    """At which edges a count is not one that went on: it fell since the one before, or lay below it in between."""
    known, low, found = states[0], math.inf, [False]
    for i, now in enumerate(states[1:], 1):
        low = min(low, lows[i].get("count", low)) if lows else low
        found.append(bool(known and now) and (_fell(known, now) or low < known["count"] * (1 - 1e-9)))
        known, low = (now, math.inf) if now else (known, low)
    return found


def _count(states: Sequence[_State], restarted: Sequence[bool], alive: Sequence[bool], found: _Gains) -> None:
    """Add one series' gains. One that appears counts from 0 if its target was scraped before, else nobody knows."""
    known, recent = states[0], 0.0
    for i, now in enumerate(states[1:], 1):
        if not now:
            continue
        if restarted[i]:
            gain = now
            found.restarts += 1
            found.unknown[i] += recent or now["count"]  # without a slice before it: as many again
        elif known:
            gain = {part: value - known.get(part, 0.0) for part, value in now.items()}
        elif alive[i - 1]:
            gain = now
        else:
            gain = {"count": 0.0}
            found.unknown[i] += now["count"]
        found.add(i, gain)
        known, recent = now, gain.get("count", 0.0)
    if known and not states[-1]:
        found.unknown[-1] += recent


def _fell(known: _State, now: _State) -> bool:
    """Whether any part is lower than it was: a new process may have counted more requests than the old one."""
    return any(now.get(part, 0.0) < value * (1 - 1e-9) for part, value in known.items())


def _lose(found: _Gains, alive: "_Alive", edges: Edges) -> None:
    """Count what may have come while a target did not answer: in proportion to the time, at the rate seen last.

    Where no target is there at all (taken out of discovery, or Prometheus itself was down) none answered.
    """
    if not alive.up:
        return
    recent = 0.0
    for i in range(1, edges.count + 1):
        now, share = found.parts[i].get("count", 0.0), alive.share(i) or 0.0
        found.unknown[i] += (1 - share) * max(now, recent)
        recent = now or recent


def _states(tracks: Iterable[Track], edges: Edges) -> dict[_Key, list[_State]]:
    """Each series' parts at every edge (empty where it has no sample); ranks of one engine count once, the highest."""
    found: dict[_Key, list[_State]] = {}
    for track in tracks:
        key = tuple(sorted((name, value) for name, value in track.labels.items() if name not in _SAME))
        states = found.setdefault(key, [{} for _ in range(edges.count + 1)])
        part = _part(track.labels)
        for time, value in track.points:
            place = edges.place(time)
            if place is not None and math.isfinite(value):
                states[place][part] = max(value, states[place].get(part, value))
    return {key: [state if "count" in state else {} for state in states] for key, states in found.items()}


def _part(labels: Mapping[str, str]) -> str:
    name = labels.get("__name__", "")
    if "le" in labels:
        return f"le={labels['le']}"
    return "sum" if name.endswith("_sum") else "count"


def _histogram(parts: _State) -> Histogram:
    count = parts.get("count", 0.0)
    bounds = [(float(part[3:]), value) for part, value in parts.items() if part.startswith("le=")]
    return Histogram(sum=parts.get("sum", 0.0), count=count, buckets=clean(bounds, count) if bounds else ())


def _values(tracks: Sequence[Track], edges: Edges) -> list[float | None]:
    """A gauge at every edge; it has one series, as it was added up when it was asked for."""
    found: list[float | None] = [None] * (edges.count + 1)
    for time, value in (point for track in tracks for point in track.points):
        place = edges.place(time)
        if place is not None and math.isfinite(value):
            found[place] = value
    return found


# -------------------------------------------------------------------------------------------------------------- targets


class _Alive:
    """Which targets were scraped with success, and when."""

    def __init__(self, tracks: Iterable[Track], edges: Edges) -> None:
        self.edges = edges
        self.up: dict[tuple[str, str], list[float | None]] = {}
        for track in tracks:
            self.up[_target(track.labels)] = _values([track], edges)

    def seen(self, labels: Mapping[str, str]) -> list[bool]:
        """At which moments the target of a series was up."""
        return [bool(share) for share in self.up.get(_target(labels), [None] * (self.edges.count + 1))]

    def share(self, i: int) -> float | None:
        """The share of a slice in which the target that answered least did; None where none was scraped."""
        return min((x for listed in self.up.values() if (x := listed[i]) is not None), default=None)

    def values(self, tracks: Sequence[Track]) -> dict[str, float]:
        """The least share of any slice, and how many targets had series of the engine at the end."""
        shares = [x for i in range(1, self.edges.count + 1) if (x := self.share(i)) is not None]
        ends = {_target(t.labels) for t in tracks if t.points and self.edges.place(t.points[-1][0]) == self.edges.count}
        return ({"up": min(shares)} if shares else {}) | {"instances": float(len(ends))}


def _target(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")
