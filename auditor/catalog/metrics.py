"""Metric names of engines, gateways and exporters, and what each measures. `metrics.yaml` is their only home.

Names are sample names as scraped: counters with their `_total`, histograms by family name. Within an engine the names
of one concept are alternatives, most preferred first: take the first that a page has, never their sum.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from auditor.errors import UsageError

__all__ = [
    "REPEATING",
    "Metric",
    "Source",
    "buckets",
    "engines",
    "family",
    "is_known",
    "kind",
    "lookup",
    "metrics",
    "names",
    "pools",
    "remedies",
    "samples",
    "selector",
    "source",
    "title",
    "valid",
    "version_key",
]

Type = Literal["counter", "gauge", "histogram", "summary"]
Kind = Literal["engine", "gateway", "exporter"]

REPEATING = ("tp_rank", "pp_rank", "attn_cp_rank", "moe_ep_rank")
"""Labels of ranks that each show the figures of their engine again (SGLang --enable-metrics-for-all-schedulers)."""

_NEWEST = (1 << 30,)
_AS_WRITTEN = ("name", "concept", "type", "unit", "replaced_by", "labels")
_PERCENTILE = re.compile(r"(\w[\w:]*)_p\d{2,3}")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of one engine.

    `since` is the first version that has it and `until` the first that has it no more; `hidden` the first that shows it
    only on request. `labels` are the label values that the concept needs where one name carries several concepts.
    `buckets` are the newest default bounds, `bucket_history` all of them with the version that brought each.
    """

    name: str
    concept: str
    type: Type
    engine: str
    unit: str = ""
    since: str | None = None
    hidden: str | None = None
    until: str | None = None
    replaced_by: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    bucket_history: tuple[tuple[str | None, tuple[float, ...]], ...] = ()

    @property
    def buckets(self) -> tuple[float, ...]:
        """The default bounds of the newest version; empty where they are not known or no defaults exist."""
        return self.bucket_history[-1][1] if self.bucket_history else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One engine, gateway or exporter. `prefixes`: its own, then how others rename its series on the way.

    `complete` says that every name of its page is listed, of versions up to `checked`, except those that start with one
    of `open` (plugins'); `lazy` that a series is on the page only after its first event.
    """

    name: str
    title: str
    kind: Kind
    prefixes: tuple[str, ...]
    metrics: tuple[Metric, ...]
    complete: bool = False
    checked: str | None = None
    open: tuple[str, ...] = ()
    lazy: bool = False


def engines() -> tuple[str, ...]:
    """Every engine, gateway and exporter that the catalogue knows, engines first."""
    return tuple(_catalogue())


def source(engine: str) -> Source:
    """The catalogue's entry of one engine; raises UsageError for one it does not know."""
    if engine not in _catalogue():
        raise UsageError(f"no metrics are known of {engine!r}; known: {', '.join(_catalogue())}")
    return _catalogue()[engine]


def is_known(engine: str) -> bool:
    """True if the catalogue has an entry for `engine` ("generic" and "auto" have none)."""
    return engine in _catalogue()


def title(engine: str) -> str:
    """How people call the engine ("llama.cpp"); the name itself where the catalogue has none."""
    return _catalogue()[engine].title if is_known(engine) else engine


def kind(engine: str) -> Kind:
    """Whether this is an engine, a gateway in front of one, or an exporter of hardware metrics."""
    return source(engine).kind


def metrics(engine: str) -> tuple[Metric, ...]:
    """All metrics of one engine over all its versions; empty for an engine without an entry ("generic")."""
    return _catalogue()[engine].metrics if is_known(engine) else ()


def names(engine: str, version: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Concept -> names that `version` (None: the newest) shows, most preferred first."""
    found: dict[str, list[str]] = {}
    for metric in metrics(engine):
        if valid(metric, version) and metric.name not in found.setdefault(metric.concept, []):
            found[metric.concept].append(metric.name)
    return {concept: tuple(listed) for concept, listed in found.items() if listed}


def remedies(engine: str, version: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """The engine's selectors by concept; under "gateway_ttft" and "exporter_memory" what others offer beside them."""
    gateways = [n for other in ("litellm", "otel_genai") for n in names(other).get("ttft", ())[:1]]
    exporters = [n for other in engines() if kind(other) == "exporter" for n in names(other).get("gpu_memory", ())[:1]]
    real = tuple(n for n in exporters if not n.startswith("*"))
    own: dict[str, list[str]] = {}
    for metric in metrics(engine):
        if valid(metric, version) and selector(metric) not in own.setdefault(metric.concept, []):
            own[metric.concept].append(selector(metric))
    listed = {concept: tuple(found) for concept, found in own.items() if found}
    return {**listed, "gateway_ttft": tuple(gateways), "exporter_memory": real}


def pools(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names of one concept that stand beside each other: older names of one another, and the same name
    under another prefix, are one.
    """
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(family(name), name)
    old = {m.name for own in first for m in lookup(own)[:1] if m.replaced_by in first}
    return tuple(name for own, name in first.items() if own not in old)


def selector(metric: Metric) -> str:
    """The metric as a query selects it: its name, and the label values that its concept needs."""
    labels = ",".join(f'{label}="{value}"' for label, value in metric.labels.items())
    return f"{metric.name}{{{labels}}}" if labels else metric.name


def lookup(sample_name: str, engine: str | None = None) -> tuple[Metric, ...]:
    """Every metric (of `engine`, or of any) that carries this sample name, exact names before renamed prefixes."""
    found = _carriers(sample_name)
    return found if engine is None else tuple(m for m in found if m.engine == engine)


@lru_cache(maxsize=8192)
def _carriers(sample_name: str) -> tuple[Metric, ...]:
    index = _index()
    found = index.get(sample_name) or index.get(_SUFFIX.sub("", sample_name), ()) or _by_ending(sample_name)
    if _SUFFIX.search(sample_name) and sample_name not in index:
        return tuple(m for m in found if m.type in ("histogram", "summary"))
    return found or _percentiles(sample_name)


def _percentiles(sample_name: str) -> tuple[Metric, ...]:
    """A distribution's percentile that a gateway computed itself, as a gauge: time_to_first_token_seconds_p99."""
    match = _PERCENTILE.fullmatch(sample_name)
    found = _carriers(match[1]) if match else ()
    open_ones = (m for m in found if m.type in ("histogram", "summary") and not _catalogue()[m.engine].complete)
    return tuple(replace(m, name=sample_name, type="gauge") for m in open_ones)


@cache
def samples() -> tuple[str, ...]:
    """Every sample name that is known outright, of all engines, also under renamed prefixes."""
    return tuple(
        name + suffix
        for name, found in _index().items()
        if not name.startswith("*")
        for suffix in (("_bucket", "_sum", "_count") if found[0].type == "histogram" else ("",))
    )


def family(sample_name: str) -> str:
    """The catalogue's own name for a sample: without _bucket, _sum, _count, and with the engine's own prefix."""
    found = lookup(sample_name)
    return found[0].name if found else sample_name


def valid(metric: Metric, version: str | None = None) -> bool:
    """True if `version` (None: the newest) shows this metric without being asked to."""
    key = version_key(version)
    gone = [version_key(v) for v in (metric.hidden, metric.until) if v is not None]
    return (metric.since is None or version_key(metric.since) <= key) and not any(key >= end for end in gone)


def buckets(metric: Metric, version: str | None = None) -> tuple[float, ...]:
    """The default histogram bounds (without +Inf) of one version; empty where they are not known."""
    key = version_key(version)
    bounds: tuple[float, ...] = ()
    for since, listed in metric.bucket_history:
        if since is None or version_key(since) <= key:
            bounds = listed
    return bounds


def version_key(version: str | None) -> tuple[int, ...]:
    """A version as numbers, to be compared: "v0.9.2" -> (0, 9, 2), "0.32.0+cpu" -> (0, 32), "b5427" -> (5427,).

    None, words ("HEAD") and builds without a tag ("0.1.dev5+g1a2b3c") count as the newest. Pre-releases and
    development versions count as the release they lead to.
    """
    match = re.match(r"[^0-9]{0,2}(\d+(?:\.\d+)*)", version.strip()) if version else None
    if match is None or len(match[1]) > 40:
        return _NEWEST
    numbers = [int(part) for part in match[1].split(".")]
    if numbers[:2] in ([0, 0], [0, 1]) and len(numbers) < 4 and "dev" in (version or ""):
        return _NEWEST
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# ------------------------------------------------------------------------------------------------------------- loading


@cache
def _catalogue() -> Mapping[str, Source]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files("auditor.catalog").joinpath("metrics.yaml").read_text(encoding="utf-8")
    return {name: _source(name, entry) for name, entry in yaml.load(text, loader)["engines"].items()}


@cache
def _index() -> Mapping[str, tuple[Metric, ...]]:
    """Sample or family name -> metrics, with the names that other prefixes give; exact names come first."""
    exact: dict[str, list[Metric]] = {}
    renamed: dict[str, list[Metric]] = {}
    for entry in _catalogue().values():
        own, *others = entry.prefixes
        for metric in entry.metrics:
            exact.setdefault(metric.name, []).append(metric)
            if own and metric.name.startswith(own):
                for prefix in others:
                    renamed.setdefault(prefix + metric.name[len(own) :], []).append(metric)
    return {name: tuple(exact.get(name, []) + renamed.get(name, [])) for name in exact | renamed}


def _by_ending(sample_name: str) -> tuple[Metric, ...]:
    """The metrics whose name has any prefix; a prefix of an engine whose names are all listed would be a lie."""
    if sample_name.startswith(_complete()):
        return ()
    plain = _SUFFIX.sub("", sample_name)
    return tuple(m for ending, found in _endings() for m in found if plain.endswith(ending))


@cache
def _complete() -> tuple[str, ...]:
    return tuple(entry.prefixes[0] for entry in _catalogue().values() if entry.complete)


@cache
def _endings() -> tuple[tuple[str, tuple[Metric, ...]], ...]:
    """What follows the `*`, the longest first."""
    found = ((name[1:], metrics) for name, metrics in _index().items() if name.startswith("*"))
    return tuple(sorted(found, key=lambda one: -len(one[0])))


def _source(name: str, entry: Mapping[str, Any]) -> Source:
    return Source(
        name=name,
        title=entry["title"],
        kind=entry["kind"],
        prefixes=tuple(entry["prefixes"]),
        complete=entry.get("complete", False),
        checked=str(entry["checked"]) if "checked" in entry else None,
        open=tuple(entry.get("open", ())),
        lazy=entry.get("lazy", False),
        metrics=tuple(_metric(name, item) for item in entry["metrics"]),
    )


def _metric(engine: str, item: Mapping[str, Any]) -> Metric:
    versions = {key: str(item[key]) for key in ("since", "hidden", "until") if key in item}
    history = tuple(_history(item.get("buckets", [])))
    rest: dict[str, Any] = {key: item[key] for key in _AS_WRITTEN if key in item}
    return Metric(engine=engine, bucket_history=history, **(rest | versions))


def _history(entry: list[Any]) -> list[tuple[str | None, tuple[float, ...]]]:
    if entry and not isinstance(entry[0], Mapping):
        return [(None, tuple(map(float, entry)))]
    return [(str(step["since"]), tuple(map(float, step["bounds"]))) for step in entry]
