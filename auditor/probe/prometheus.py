"""Prometheus's HTTP API, version 1 (https://prometheus.io/docs/prometheus/latest/querying/api/), also as Thanos, Mimir,
VictoriaMetrics and Grafana's datasource proxy serve it: questions, answers as plain data, one line for each failure.

Times are seconds since 1970 by the server's clock, durations seconds.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from auditor.probe.api import Api, Refused, Unanswered, Unreachable
from auditor.profile import Profile
from auditor.watch import RuleState, Target

__all__ = ["Prometheus", "Refused", "Result", "Unanswered", "Unreachable", "of_profile", "seconds"]

_NEARLY = 1e-3  # of a step, or of a millisecond: what differences of times in floats may be off by
T = TypeVar("T")

_MOST_POINTS = 11_000  # of one series in one answer: Prometheus refuses to give more
_PATIENT = 0.8  # of the longest wait for an answer
_PART = re.compile(r"([0-9.]+)(ms|s|m|h|d|w|y)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


@dataclass(frozen=True, slots=True)
class Result:
    """One series of an answer: its labels, and (time, value) in order of time; values may be NaN or infinite.

    A native histogram is told by its count.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float | None:
        """The latest finite value."""
        return next((value for _, value in reversed(self.points) if math.isfinite(value)), None)


class Prometheus:
    """An open client for one Prometheus; use it by `async with`, or close it.

    `url` is its address with or without /api/v1, a path before it and user:password@; `key` is sent as a bearer token
    instead of these. Every method raises Unreachable where nothing at the address answers as Prometheus does, Refused
    where it answers one question with an error, both one line and both Unanswered.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        verify_tls: bool = True,
        ca: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 30.0,
        where: str = "monitoring.prometheus",
    ) -> None:
        endings = ("/graph", "/query", "/targets", "/alerts", "/rules", "/api/v1")
        asked: dict[str, Any] = {"key": key, "verify_tls": verify_tls, "ca": ca, "headers": headers, "wait": wait}
        self._api = Api(url, where=where, what="Prometheus", endings=endings, **asked)

    @property
    def _timeout(self) -> str:
        """What the server may take for one query: it then refuses that one, before this side gives up on the server."""
        return f"{max(1, round(1000 * _PATIENT * self._api.wait))}ms"

    @property
    def url(self) -> str:
        """The address without user and password."""
        return self._api.url

    async def __aenter__(self) -> "Prometheus":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def hidden(self, value: T) -> T:
        """A copy of plain data without the key and the password."""
        return self._api.hidden(value)

    async def close(self) -> None:
        """Let the connections go."""
        await self._api.close()

    async def query(self, text: str, at: float | None = None) -> tuple[Result, ...]:
        """What an expression gives at one moment (now); a scalar is one series without labels."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        return _results(await self._ask("query", {"query": text, **when, "timeout": self._timeout}))

    async def query_range(self, text: str, start: float, end: float, step: float) -> tuple[Result, ...]:
        """What an expression gives up to `end` every `step` seconds back to `start`, less often where that is too much.

        The last moment is `end` itself: of a young series, steps counted from `start` may meet none of its samples.
        """
        step = math.ceil(1000 * max(step, (end - start) / (_MOST_POINTS - 1), 0.001) - _NEARLY) / 1000
        first = round(end, 3) - step * math.floor((end - start) / step + _NEARLY)
        params = {"query": text, "start": f"{first:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return _results(await self._ask("query_range", {**params, "timeout": self._timeout}))

    async def now(self) -> float:
        """The server's own time: its clock need not be that of this machine.

        The first thing to ask: where this is not found, the address is not that of a Prometheus (Unreachable).
        """
        try:
            (answer,) = await self.query("time()") or (Result({}, ()),)
        except Refused as error:
            if error.said in ("HTTP 404", "HTTP 405"):
                raise Unreachable(f"{error}, as from no Prometheus; correct the address") from None
            raise
        if answer.last is None:
            raise Refused(f"{self._api.where}: {self.url} tells no time", "no time")
        return answer.last

    async def targets(self) -> tuple[Target, ...]:
        """Every target that is scraped, up or down."""
        data = _mapping(await self._ask("targets", {"state": "active"}))
        return tuple(self._target(entry) for entry in _entries(data.get("activeTargets")))

    async def dropped(self) -> int:
        """How many targets were discovered and then left out by relabelling."""
        data = _mapping(await self._ask("targets", {"state": "dropped"}))
        counts = data.get("droppedTargetCounts")
        if isinstance(counts, dict):
            return sum(count for count in counts.values() if isinstance(count, int))
        return len(list(_entries(data.get("droppedTargets"))))

    async def alerts(self) -> tuple[RuleState, ...]:
        """Every alerting rule as it runs."""
        return self.alerts_of(await self.groups())

    def alerts_of(self, groups: Sequence[Mapping[str, Any]]) -> tuple[RuleState, ...]:
        """The alerting rules of `groups`."""
        return tuple(
            RuleState(
                name=_text(rule.get("name")),
                query=_text(rule.get("query")),
                state=_text(rule.get("state")) or "unknown",
                health=_text(rule.get("health")) or "unknown",
                error=self._api.clean(_text(rule.get("lastError"))) or None,
            )
            for group in groups
            for rule in _entries(group.get("rules"))
            if rule.get("type") == "alerting"
        )

    async def groups(self) -> tuple[Mapping[str, Any], ...]:
        """The groups of recording and alerting rules as the server tells them."""
        return tuple(_entries(_mapping(await self._ask("rules", {})).get("groups")))

    async def flags(self) -> Mapping[str, str]:
        """The flags that it runs with ("query.lookback-delta": "5m")."""
        flags = _mapping(await self._ask("status/flags", {}))
        return {name: value for name, value in flags.items() if isinstance(value, str)}

    async def runtime(self) -> Mapping[str, Any]:
        """What it says of itself at run time ("storageRetention": "15d")."""
        return _mapping(await self._ask("status/runtimeinfo", {}))

    async def version(self) -> str | None:
        """Its version, where it tells one."""
        return _text(_mapping(await self._ask("status/buildinfo", {})).get("version")) or None

    async def label_values(
        self, label: str, match: Sequence[str] = (), start: float | None = None, end: float | None = None
    ) -> tuple[str, ...]:
        """The values that a label has on the series that any of the selectors matches."""
        data = await self._ask(f"label/{label}/values", _selected(match, start, end))
        return tuple(value for value in data if isinstance(value, str)) if isinstance(data, list) else ()

    async def series(
        self, match: Sequence[str], start: float | None = None, end: float | None = None
    ) -> tuple[Mapping[str, str], ...]:
        """The labels (with __name__) of every series that any of the selectors matches."""
        return tuple(_labels(entry) for entry in _entries(await self._ask("series", _selected(match, start, end))))

    async def _ask(self, path: str, params: Mapping[str, object]) -> Any:
        form = path in ("query", "query_range", "series")
        answer = await self._api.get(f"/api/v1/{path}", params, form=form)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            said = "the answer is not Prometheus's"
            raise Unreachable(f"{self._api.where}: {self.url} /api/v1/{path}: {said}; correct the address")
        return answer.get("data")

    def _target(self, entry: Mapping[str, Any]) -> Target:
        labels = _labels(_mapping(entry.get("labels")))
        interval = entry.get("scrapeInterval")
        return Target(
            job=labels.get("job", _text(entry.get("scrapePool"))),
            url=self._api.clean(_text(entry.get("scrapeUrl")), 300),
            health=_text(entry.get("health")) or "unknown",
            interval=seconds(interval) if isinstance(interval, str) else None,
            error=self._api.clean(_text(entry.get("lastError"))) or None,
            labels=labels,
        )


def of_profile(profile: Profile, key: str | None) -> Prometheus:
    """A client for the Prometheus that a profile names; the caller closes it."""
    endpoint, monitoring = profile.endpoint, profile.monitoring
    asked: dict[str, Any] = {"verify_tls": endpoint.verify_tls, "ca": endpoint.ca_file, "headers": monitoring.headers}
    return Prometheus(monitoring.prometheus or "", key=key, **asked)


def seconds(text: str) -> float | None:
    """A duration in Prometheus's words ("1h30m", "15d", "0s"); None where it is none."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    try:
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    except ValueError:
        return None


def _selected(match: Sequence[str], start: float | None, end: float | None) -> dict[str, object]:
    times = {"start": start, "end": end}
    return {"match[]": list(match), **{name: f"{at:.3f}" for name, at in times.items() if at is not None}}


def _results(data: Any) -> tuple[Result, ...]:
    found = _mapping(data)
    kind, result = found.get("resultType"), found.get("result")
    if kind == "scalar":
        return (Result({}, tuple(_points([result]))),)
    return tuple(Result(_labels(_mapping(entry.get("metric"))), tuple(_of_series(entry))) for entry in _entries(result))


def _of_series(entry: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    for name in ("value", "histogram"):
        if name in entry:
            yield from _points([entry[name]])
    for name in ("values", "histograms"):
        yield from _points(entry.get(name))


def _points(pairs: Any) -> Iterator[tuple[float, float]]:
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            at, value = pair
            try:
                yield float(at), float(value.get("count", "NaN") if isinstance(value, dict) else value)
            except (TypeError, ValueError):
                continue


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else iter(())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _labels(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: text for name, text in value.items() if isinstance(text, str)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
