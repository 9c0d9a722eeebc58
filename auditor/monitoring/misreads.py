"""What one query does to its series that makes it mislead: pure functions of a query that was read.

Sources: Prometheus, "Histograms and summaries" and "rate() then sum()"; the engines' own metric types (the catalogue);
NVIDIA/dcgm-exporter, etc/default-counters.csv (units of the framebuffer fields).
"""

from collections.abc import Iterator

import promql_parser as parser

from auditor.catalog.metrics import REPEATING
from auditor.monitoring.drawn import Known, Read, share_of_device
from auditor.monitoring.losing import number
from auditor.monitoring.traces import Trace
from auditor.panels import grouped, highest, mean, quantile, total
from auditor.watch import Flaw

__all__ = ["lifetime", "mixed_tokens", "renamed", "summed_ranks", "summed_shares", "total_without_reserved"]

_SHARES = ("share", "percent")
# Labels that tell one engine, replica, rank or device from another: a sum that keeps one adds up nothing.
_APART = frozenset(
    [
        *(
            "instance",
            "pod",
            "pod_name",
            "kubernetes_pod_name",
            "exported_pod",
            "exported_instance",
            "server",
            "replica",
        ),
        *("engine", "dp_rank", "gpu", "GPU", "UUID", "uuid", "device", "gpu_id", "WorkerId", "worker", "worker_id"),
        *("node", "host", "hostname", "Hostname", "container_id", "job_name", "instance_id", "endpoint"),
    ]
)
_TOKENS = {
    "prompt_tokens": "prompt",
    "prompt_len": "prompt",
    "generation_tokens": "generation",
    "output_len": "generation",
}


# ------------------------------------------------------------------------------------------------------------- lifetime


def lifetime(read: Read) -> Iterator[Flaw]:
    """Buckets, or a sum over its count, that were never taken over a window: an average since the engine started."""
    raw = [k for k in read.series if k.metric.type in ("histogram", "summary") and not k.trace.rated]
    raw = [k for k in raw if not k.trace.counted]
    parts: dict[str, dict[str, Known]] = {}
    for one in raw:
        parts.setdefault(one.trace.base, {}).setdefault(one.trace.part, one)
    for base, found in parts.items():
        if "bucket" in found:
            note = f"{base}_bucket counts since the engine started and is not rated, so the panel hardly moves"
            instead = quantile(read.series_for(found["bucket"].metric), by=found["bucket"].trace.grouping)
        elif {"sum", "count"} <= found.keys() and _divided(found["sum"].trace, found["count"].trace):
            note = f"{base}_sum / {base}_count is the mean since the engine started, so the panel hardly moves"
            instead = mean(read.series_for(found["sum"].metric), found["sum"].trace.grouping)
        else:
            continue
        names = tuple(one.trace.name for one in found.values())
        yield read.flaw("lifetime", next(iter(found.values())).metric.concept, note, names, instead)


def _divided(one: Trace, other: Trace) -> bool:
    """True where the two stand on the two sides of one division."""
    sides = {id(a.node): a.side for a in one.above if a.operator == "/"}
    return any(a.operator == "/" and sides.get(id(a.node), a.side) != a.side for a in other.above)


# ----------------------------------------------------------------------------------------------------------------- sums


def summed_shares(read: Read) -> Iterator[Flaw]:
    """A sum over shares: two caches that are half full show as one that is full."""
    several = _several(read) - read.asked
    for one in read.series:
        shares = one.metric.type == "gauge" and one.metric.unit in _SHARES and "_average_" not in one.metric.name
        kept = _kept_by_sum(one.trace) if shares else None
        if kept is None:
            continue
        apart = _APART & (kept | read.asked)
        if not apart or several - kept:
            most = "1" if one.metric.unit == "share" else "100"
            note = f"sum over {one.trace.name}, which is a {one.metric.unit} of 0 to {most}: replicas add up beyond it"
            instead = highest(read.series_for(one.metric), one.trace.grouping)
            yield read.flaw("summed_ratio", one.metric.concept, note, (one.trace.name,), instead)


def _several(read: Read) -> frozenset[str]:
    """The labels of data-parallel ranks of which the engine's page shows more than one."""
    pages = (page for page in read.place.pages if page.exporter is None)
    return frozenset(n for page in pages for n in ("engine", "dp_rank") if len(page.ranks.get(n, ())) > 1)


def _kept_by_sum(trace: Trace) -> frozenset[str] | None:
    """The labels that are kept by a sum right above the series; None where there is none, or something makes up for it.

    What `without` keeps is not known and stands for everything.
    """
    if trace.counted or trace.divides:
        return None
    for place, above in enumerate(trace.above):
        if isinstance(above.node, parser.BinaryExpr):
            if _other_number(trace, place) is None:
                return None  # weighted by another series, or compared into 0 and 1, before it is added
        elif above.aggregates:
            averaged = any(a.operator == "/" and a.side == "left" and _is_count(a.node) for a in trace.above[place:])
            summed = above.operator == "sum" and above.keeps is not None and not averaged
            return frozenset(above.keeps or ()) if summed else None
    return None


def _other_number(trace: Trace, place: int) -> float | None:
    """The number on the other side of a multiplication or division above the series; None for anything else."""
    above = trace.above[place]
    if not isinstance(above.node, parser.BinaryExpr) or above.operator not in ("*", "/"):
        return None
    return number(above.node.rhs if above.side == "left" else above.node.lhs)


def _is_count(node: parser.Expr) -> bool:
    """A division whose lower side is anything but a plain number makes an average, or something of one's own."""
    return isinstance(node, parser.BinaryExpr) and number(node.rhs) is None


def summed_ranks(read: Read) -> Iterator[Flaw]:
    """A sum over ranks that show the same figures again."""
    for page in read.place.pages:
        for label in REPEATING:
            if page.exporter is not None or len(page.ranks.get(label, ())) < 2:
                continue
            for one in read.series:
                if one.trace.name in page.types and _sums_over(one.trace, label):
                    names = (one.trace.name,)
                    many = len(page.ranks[label])
                    note = f"sum over {one.trace.name} counts each of {many} values of {label}, which show the same"
                    yield read.flaw("summed_ranks", one.metric.concept, note, names, _one_rank(one, label))


def _sums_over(trace: Trace, label: str) -> bool:
    sums = [a for a in trace.above if a.aggregates and a.operator == "sum"]
    kept = any(a.keeps is not None and label in a.keeps for a in sums)
    return bool(sums) and not kept and label not in trace.pinned and not trace.counted


def _one_rank(one: Known, label: str) -> str:
    name = f'{one.trace.name}{{{label}="0"}}'
    by = one.trace.grouping
    return total(name, by) if one.trace.rated else f"sum{grouped(by)}({name})"


# --------------------------------------------------------------------------------------------------------------- tokens


def mixed_tokens(read: Read) -> Iterator[Flaw]:
    """Prompt and generated tokens per second added up: a number that follows the prompts and is no decode rate."""
    rated = [k for k in read.series if k.metric.concept in _TOKENS and _per_second(k)]
    prompts = [k for k in rated if _TOKENS[k.metric.concept] == "prompt"]
    for one in (k for k in rated if _TOKENS[k.metric.concept] == "generation"):
        other = next((p for p in prompts if _added(one.trace, p.trace)), None)
        if other is not None:
            names = (other.trace.name, one.trace.name)
            note = f"{names[0]} and {names[1]} are added up: prompts dominate the sum, which is no decode rate"
            name = read.series_for(one.metric)
            instead = total(name, one.trace.grouping) if one.metric.type == "counter" else None
            yield read.flaw("mixed_tokens", "tps", note, names, instead)
            return


def _per_second(one: Known) -> bool:
    counts = one.metric.type == "counter" or one.trace.part == "sum"
    return counts and any(a.operator in ("rate", "irate") for a in one.trace.above) and not one.trace.divides


def _added(one: Trace, other: Trace) -> bool:
    """Added by `+`, or by one sum over a selector that takes both names; nothing weighs them before."""
    if one.selector is other.selector:
        return any(a.aggregates and a.operator == "sum" and "__name__" not in (a.keeps or ()) for a in one.above)
    sides = {id(a.node): a.side for a in one.above if a.operator == "+"}
    shared = next((a for a in other.above if sides.get(id(a.node), a.side) != a.side), None)
    if shared is None:
        return False
    return not any(_weighs(trace, shared.node) for trace in (one, other))


def _weighs(trace: Trace, until: parser.Expr) -> bool:
    """Multiplied or divided by something on the way up to the addition: prices, or a share of one's own."""
    for above in trace.above:
        if above.node is until:
            return False
        if above.operator in ("*", "/"):
            return True
    return False


# --------------------------------------------------------------------------------------------------------------- memory


def total_without_reserved(read: Read) -> Iterator[Flaw]:
    """Used over used and free: an exporter that counts reserved memory apart has a larger total."""
    below = [k for k in read.series if k.trace.divides and k.metric.engine == "dcgm"]
    concepts = {k.metric.concept for k in below}
    if {"gpu_memory", "gpu_memory_free"} <= concepts and "gpu_memory_reserved" not in concepts:
        names = tuple(dict.fromkeys(k.trace.name for k in below))
        note = f"{' + '.join(names)} is not all of the memory: DCGM counts what is reserved apart"
        instead = share_of_device(next(k for k in below if k.metric.concept == "gpu_memory"))
        yield read.flaw("unit", "memory", note, names, instead)


# ---------------------------------------------------------------------------------------------------------------- names


def renamed(read: Read) -> Iterator[Flaw]:
    """A name that Prometheus, or without one the page, has only in another spelling: it was written for another way of
    scraping. Or one that the page gives to one kind of Prometheus alone, while none says which it is.
    """
    places = [frozenset(page.types) for page in read.place.pages] if not read.scraped else [read.scraped]
    where = "in Prometheus" if read.scraped else "on the page"
    drawn = {one.trace.name for one in read.series}
    for one in read.series:
        spellings = read.place.spellings(one.trace.name) if not read.scraped else None
        if spellings:
            if not drawn.issuperset(spellings):
                note = "the page gives {} to a Prometheus 2 and {} to a Prometheus 3".format(*spellings)
                yield read.flaw("renamed_prefix", one.metric.concept, note, (one.trace.name,))
            continue
        for names in places:
            there = _spelled(one, names)
            if there is not None and there not in drawn:
                name = one.trace.name
                yield read.flaw(
                    "renamed_prefix", one.metric.concept, f"{name} is {where} only as {there}", (name,), there
                )
                break


def _spelled(one: Known, names: frozenset[str]) -> str | None:
    """The other spelling of a series among the names; None where it is there itself, or in no spelling."""
    metric, name = one.metric, one.trace.name
    if name in names:
        return None
    own = metric.name + (f"_{one.trace.part}" if metric.type in ("histogram", "summary") and one.trace.part else "")
    same = next((n for n in sorted(names) if _plain(n) == _plain(name)), None)
    return same or (own if own in names else None)


def _plain(name: str) -> str:
    return name.replace(":", "_")
