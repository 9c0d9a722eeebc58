"""The query that shows each concept of question 4, written with the series that an engine has, and what shows it now.

A series is a name, or a selector (`name{label="value"}`) where one name carries several concepts. `names` maps the
catalogue's concepts to them, most preferred first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from auditor.watch import Coverage, Flaw, Query

__all__ = [
    "Names",
    "advice",
    "as_stored",
    "asked",
    "grouped",
    "highest",
    "mean",
    "offered_first",
    "quantile",
    "queries",
    "query",
    "rests_on",
    "scale",
    "share_of_gpu",
    "stored",
    "total",
]

Names = Mapping[str, tuple[str, ...]]

_ASKED = {
    "ttft": ("ttft",),
    "tps": ("generation_tokens", "gen_throughput", "tpot"),
    "memory": ("kv_usage", "kv_used", "kv_free", "gpu_memory", "gpu_memory_free"),
}
_RATE = "[5m]"


def query(concept: str, names: Names, at: float = 0.95) -> str | None:
    """The query that shows a concept (ttft, tps, memory, or the catalogue's own), TTFT at the quantile `at`.

    None where there is no series of it.
    """
    if concept == "ttft":
        return _first(names, "ttft", lambda name: quantile(name, at))
    if concept == "tps":
        counted = _first(names, "generation_tokens", total)
        return counted or _first(names, "tpot", lambda name: quantile(name, at))
    if concept == "memory":
        return _first(names, "kv_usage", highest)
    if concept == "tpot":
        return _first(names, "tpot", lambda name: quantile(name, at))
    return _first(names, concept, lambda name: f"sum({_rate(name) if name.endswith('_total') else name})")


def advice(concept: str, shown: str | None, names: Names, title: str) -> str:
    """How to show a concept on an engine that people call `title`: the query `shown` or, where there is none because
    the engine has no metric of it, what to run beside it. `names` also hold what others offer (gateways, exporters).
    """
    if shown:
        return f"add a panel with {shown} (for {title})"
    if concept == "memory":
        exporters = names.get("exporter_memory", ())[:2]
        example = f", and draw {' or '.join(exporters)}" if exporters else ""
        return f"{title} shows no KV usage: run a GPU exporter (DCGM, nvidia_gpu_exporter){example}"
    gateways = names.get("gateway_ttft", ())
    example = f" and draw {quantile(gateways[0])}" if concept == "ttft" and gateways else ""
    parts = [*names.get("queue_time", ())[:1], *names.get("prefill_time", ())[:1]] if concept == "ttft" else []
    proxy = f"; until then the sum of {' and '.join(parts)} is its proxy" if len(parts) > 1 else ""
    return f"{title} has no metric of it: put a gateway that measures it in front{example}{proxy}"


def quantile(name: str, at: float = 0.95, by: tuple[str, ...] = ()) -> str:
    """The quantile of a histogram, over all of its series or for each value of the labels `by`."""
    return f"histogram_quantile({at:g}, sum by ({', '.join(('le', *by))}) ({_rate(name, '_bucket')}))"


def mean(name: str, by: tuple[str, ...] = ()) -> str:
    """The mean of a histogram over a window, over all of its series or for each value of the labels `by`."""
    return f"sum{grouped(by)}({_rate(name, '_sum')}) / sum{grouped(by)}({_rate(name, '_count')})"


def total(name: str, by: tuple[str, ...] = ()) -> str:
    """A counter per second."""
    return f"sum{grouped(by)}({_rate(name)})"


def highest(name: str, by: tuple[str, ...] = ()) -> str:
    """The highest of all series, or for each value of the labels `by`."""
    return f"max{grouped(by)}({name})"


def grouped(by: tuple[str, ...]) -> str:
    """What stands between an aggregation and its bracket: " by (pod) ", or nothing."""
    return f" by ({', '.join(by)}) " if by else ""


def share_of_gpu(used: str, free: str, reserved: str | None) -> str:
    """Device memory in use as a share of all of it."""
    parts = [used, free, *([reserved] if reserved else [])]
    return f"{used} / ({' + '.join(parts)})"


def scale(name: str) -> float:
    """What a limit in seconds is multiplied by to be compared with the series: some count milliseconds."""
    return 1000.0 if name.partition("{")[0].endswith("_ms") else 1.0


def offered_first(names: Names, offered: Names) -> Names:
    """The names of the engine's version, of each concept only those that its page has, where it has any of them.

    A page that has a concept under other names than the version should have is of another version: its names count.
    """
    on_page = {
        concept: tuple(n for n in listed if n.partition("{")[0] in offered.get(concept, ()))
        for concept, listed in names.items()
    }
    return {concept: on_page[concept] or offered.get(concept) or listed for concept, listed in names.items()}


def stored(name: str, spellings: Collection[str]) -> str:
    """The series as a Prometheus stores it: clients may write `_` for `:` to one scraper and not to another.

    `spellings` are the names that it has; the series itself where it has it, or has none like it.
    """
    base, brace, labels = name.partition("{")
    parts = [base + suffix for suffix in ("", "_bucket", "_sum", "_count")]
    if not spellings or any(part in spellings for part in parts):
        return name
    plain = base.replace(":", "_")
    other = next((n for n in sorted(spellings) if n.replace(":", "_") in (plain, f"{plain}_bucket")), None)
    return f"{other.removesuffix('_bucket')}{brace}{labels}" if other is not None else name


def as_stored(names: Names, spellings: Collection[str]) -> Names:
    """The series of each concept as a Prometheus stores them."""
    held = frozenset(spellings)
    return {concept: tuple(stored(name, held) for name in listed) for concept, listed in names.items()}


def _first(names: Names, concept: str, written: Callable[[str], str]) -> str | None:
    listed = names.get(concept, ())
    return written(listed[0]) if listed else None


def _rate(name: str, part: str = "") -> str:
    base, brace, labels = name.partition("{")
    return f"rate({base}{part}{brace}{labels}{_RATE})"


# ------------------------------------------------------------------------------------------------------ what is shown


def asked(concept: str) -> str | None:
    """Which of ttft, tps and memory (what question 4 asks for) a concept of the catalogue shows; each shows itself."""
    return next((name for name, listed in _ASKED.items() if concept == name or concept in listed), None)


def rests_on(coverage: Coverage, flaws: Iterable[Flaw], concept: str) -> bool:
    """Whether every query that shows a concept has one of these flaws."""
    flawed = [(flaw.where, set(flaw.names)) for flaw in flaws]
    shown = queries(coverage, concept)
    return bool(shown) and all(any(q.where == w and n & set(q.names) for w, n in flawed) for q in shown)


def queries(coverage: Coverage, concept: str | None = None) -> tuple[Query, ...]:
    """The panels' queries of a concept (None: of all); alerts left out."""
    return tuple(q for q in coverage.queries if q.alert is None and (concept is None or concept in q.concepts))
