"""Whose metrics page this is, and of which versions, told from the names and bounds on it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditor.catalog import metrics as catalogue
from auditor.catalog.metrics import Metric

__all__ = ["Recognised", "recognise"]

Bounds = Mapping[str, tuple[float, ...]]

# Concepts that every version of a complete engine has shown, under one name or another, from its start on.
_ALWAYS = frozenset({"ttft", "tpot", "e2e", "running", "waiting", "kv_usage", "generation_tokens", "prompt_tokens"})
_WHOLE = 5  # of them: a page that has so many is taken for the whole page, and what it lacks says something
_LATENCIES = frozenset({"ttft", "tpot", "e2e"})  # the same histograms in every build of a version


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """One program whose series a page has: an entry of the catalogue, and how many of its metrics were found.

    Its version is `since` or later (None: nothing says so) and earlier than `before`. `renamed` is the prefix that
    something on the way gave its series, where it is not the program's own.
    """

    name: str
    found: int
    since: str | None = None
    before: str | None = None
    renamed: str | None = None

    def __str__(self) -> str:
        """As people say it: "vLLM 0.11.0 or later, before 0.15.0"."""
        since = f" {self.since} or later" if self.since else ""
        before = f"{',' if since else ''} before {self.before}" if self.before else ""
        return f"{catalogue.title(self.name)}{since}{before}"


def recognise(names: Iterable[str], buckets: Bounds | None = None) -> tuple[Recognised, ...]:
    """The programs whose series are on a page, by its sample names and histogram bounds; the most likely one first.

    One page can carry several (an engine and the gateway before it). Empty for a page of nothing that is known.
    """
    sampled = sorted(name for name in names if not name.endswith("_created"))
    by_source: dict[str, dict[str, Metric]] = {}
    for name in sampled:
        for metric in catalogue.lookup(name)[:1]:
            by_source.setdefault(metric.engine, {})[name] = metric
    found = [_recognised(source, held, buckets or {}) for source, held in by_source.items()]
    return tuple(sorted(found, key=lambda one: (-one.found, one.name)))


def _recognised(source: str, held: Mapping[str, Metric], buckets: Bounds) -> Recognised:
    own = {metric.name: metric for metric in held.values()}
    since, before = _latest(m.since for m in own.values()), _earliest(m.until for m in own.values())
    for metric in own.values():
        low, high = _by_bounds(metric, buckets)
        since, before = _latest([since, low]), _earliest([before, high])
    before = _earliest([before, *_missing(source, own, since)])
    if since and before and catalogue.version_key(since) >= catalogue.version_key(before):
        since = before = None  # a page put together from several versions
    return Recognised(name=source, found=len(own), since=since, before=before, renamed=_renamed(source, held))


def _by_bounds(metric: Metric, buckets: Bounds) -> tuple[str | None, str | None]:
    """The versions in which a histogram had these bounds by default; nothing where they are others' own."""
    served = tuple(b for b in buckets.get(metric.name, ()) if b != float("inf"))
    for place, (since, bounds) in enumerate(metric.bucket_history):
        if served == bounds:
            later = metric.bucket_history[place + 1 :]
            return since, later[0][0] if later else None
    return None, None


def _missing(source: str, own: Mapping[str, Metric], since: str | None) -> Iterable[str | None]:
    """The later versions that brought a histogram which a whole page of theirs has, and this one has not."""
    entry = catalogue.source(source)
    if not entry.complete or entry.lazy or len({m.concept for m in own.values()} & _ALWAYS) < _WHOLE:
        return
    for metric in entry.metrics:
        later = metric.since and catalogue.version_key(metric.since) > catalogue.version_key(since or "0")
        if later and metric.type == "histogram" and metric.concept in _LATENCIES and metric.name not in own:
            yield metric.since


def _renamed(source: str, held: Mapping[str, Metric]) -> str | None:
    own, *others = catalogue.source(source).prefixes
    if any(name.startswith(own) for name in held):
        return None
    return next((p for p in others if any(name.startswith(p) for name in held)), None)


def _latest(versions: Iterable[str | None]) -> str | None:
    return max((v for v in versions if v is not None), key=catalogue.version_key, default=None)


def _earliest(versions: Iterable[str | None]) -> str | None:
    return min((v for v in versions if v is not None), key=catalogue.version_key, default=None)
