"""The query that shows each concept of question 4, written with the series that an engine has.

A series is a name, or a selector (`name{label="value"}`) where one name carries several concepts. `names` maps the
catalogue's concepts to them, most preferred first.
"""

from collections.abc import Callable, Mapping

__all__ = ["Names", "mean", "offered_first", "quantile", "query", "scale", "share_of_gpu"]

Names = Mapping[str, tuple[str, ...]]

_RATE = "[5m]"


def query(concept: str, names: Names, at: float = 0.95) -> str | None:
    """The query that shows a concept (ttft, tps, memory, or the catalogue's own), TTFT at the quantile `at`.

    None where there is no series of it.
    """
    if concept == "ttft":
        return _first(names, "ttft", lambda name: quantile(name, at))
    if concept == "tps":
        total = _first(names, "generation_tokens", lambda name: f"sum({_rate(name)})")
        return total or _first(names, "tpot", lambda name: quantile(name, at))
    if concept == "memory":
        return _first(names, "kv_usage", lambda name: f"max({name})")
    if concept == "tpot":
        return _first(names, "tpot", lambda name: quantile(name, at))
    return _first(names, concept, lambda name: f"sum({_rate(name) if name.endswith('_total') else name})")


def quantile(name: str, at: float = 0.95) -> str:
    """The quantile of a histogram, over all of its series."""
    return f"histogram_quantile({at:g}, sum by (le) ({_rate(name, '_bucket')}))"


def mean(name: str) -> str:
    """The mean of a histogram over a window, over all of its series."""
    return f"sum({_rate(name, '_sum')}) / sum({_rate(name, '_count')})"


def share_of_gpu(used: str, free: str, reserved: str | None) -> str:
    """Device memory in use as a share of all of it."""
    parts = [used, free, *([reserved] if reserved else [])]
    return f"{used} / ({' + '.join(parts)})"


def scale(name: str) -> float:
    """What a limit in seconds is multiplied by to be compared with the series: some count milliseconds."""
    return 1000.0 if name.partition("{")[0].endswith("_ms") else 1.0


def offered_first(names: Names, offered: Names) -> Names:
    """The names of the engine's version, of each concept only those that its page has, where it has any of them."""
    on_page = {concept: tuple(n for n in listed if n in offered.get(concept, ())) for concept, listed in names.items()}
    return {concept: on_page[concept] or listed for concept, listed in names.items()}


def _first(names: Names, concept: str, written: Callable[[str], str]) -> str | None:
    listed = names.get(concept, ())
    return written(listed[0]) if listed else None


def _rate(name: str, part: str = "") -> str:
    base, brace, labels = name.partition("{")
    return f"rate({base}{part}{brace}{labels}{_RATE})"
