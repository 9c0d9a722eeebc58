"""One device's memory as a bar: weights, what a step needs, graphs, the KV cache, and what nobody takes; and under it
what the target's requests hold of the cache.
"""

from collections.abc import Iterator, Sequence

from auditor import holding
from auditor.evidence import Evidence, Report
from auditor.report import svg
from auditor.report.picture import Bar, Picture, Table, bars
from auditor.theory.memory import Memory, memory
from auditor.units import in_gib, percent, plain, quantity

__all__ = ["picture"]

_TOP, _HIGH = 12.0, 34.0
_PARTS = (
    ("weights", "weights", "part0"),
    ("activations", "activations", "part1"),
    ("graphs", "captured graphs", "part2"),
    ("other", "libraries", "part3"),
    ("pool", "KV cache", "part4"),
    ("beyond", "outside the budget", "part5"),
    ("free", "free", "part6"),
)


def picture(report: Report) -> Picture | None:
    """The picture; None where model, hardware or settings are unknown, or the engine refuses these settings."""
    evidence = report.evidence
    found = _memory(evidence)
    if found is None or found.usable <= 0:
        return None
    held = _held(evidence)
    drawing, height = _drawing(found, held, evidence)
    return Picture(
        key="memory",
        question="K",
        title="Memory of one device",
        summary=_summary(found, held, evidence),
        drawing=drawing,
        height=height,
        table=_table(found),
        lines=tuple(_lines(found, held)),
    )


def _memory(evidence: Evidence) -> Memory | None:
    if evidence.theory is None:
        return None
    try:
        return memory(*evidence.theory)
    except ValueError:
        return None


def _held(evidence: Evidence) -> list[tuple[str, float]]:
    """(whose lengths, share of the pool that the target's requests hold); empty where either is unknown."""
    pool, target = evidence.pool(), evidence.share_of_target
    if pool is None or not target or not evidence.profile.traffic.classes:
        return []
    found = [("in the mean", None), ("all at p95 lengths", 0.95)]
    carried = [(words, holding.carried(evidence, pool[0].kv, quantile)) for words, quantile in found]
    return [(words, target / requests) for words, requests in carried if requests > 0]


def _parts(found: Memory) -> list[tuple[str, float, str]]:
    """(name, bytes, class) of what takes something, up to what is usable."""
    return [(name, size, cls) for key, name, cls in _PARTS if (size := max(0.0, getattr(found, key))) > 0]


# ------------------------------------------------------------------------------------------------------------- drawing


def _drawing(found: Memory, held: Sequence[tuple[str, float]], evidence: Evidence) -> tuple[str, float]:
    parts = _parts(found)
    whole = max(found.usable, sum(size for _, size, _ in parts))
    x = svg.Axis(0.0, whole, 1.0, svg.WIDTH - 1.0)
    shown, at = [], 0.0
    for _, size, cls in parts:
        shown.append(svg.rect(x(at), _TOP, x(at + size) - x(at), _HIGH, f"part {cls}"))
        at += size
    shown += _ends(found, x)
    keys, bottom = svg.legend(
        [svg.Key("bar", f"part {cls}", f"{name} {in_gib(size)}") for name, size, cls in parts], _TOP + _HIGH + 24
    )
    shown.append(keys)
    if not held:
        return "".join(shown), bottom + 6
    return "".join([*shown, *_demand(held, evidence, bottom + 28)]), bottom + 28 + 36 * len(held) + 8


def _ends(found: Memory, x: svg.Axis) -> Iterator[str]:
    """The usable memory's edge, and a bracket for how far the pool's end may lie off."""
    edge = x(found.usable)
    yield svg.line(edge, _TOP - 6, edge, _TOP + _HIGH + 6, "axis")
    spread = found.pool_high - found.pool_low
    if spread > 0.002 * found.usable and found.pool > 0:
        start = found.weights + found.activations + found.graphs + found.other
        low, high, y = x(start), x(min(found.usable, start + spread)), _TOP + _HIGH + 4
        yield svg.line(low, y, high, y, "interval")


def _demand(held: Sequence[tuple[str, float]], evidence: Evidence, top: float) -> Iterator[str]:
    most = max(1.0, *(share for _, share in held))
    x = svg.Axis(0.0, most, 1.0, svg.WIDTH - 1.0)
    yield svg.text(0, top, _demanded(evidence), "title")
    for position, (words, share) in enumerate(held):
        y = top + 20 + 36 * position
        yield svg.text(0, y, f"{words}: {percent(share)}")
        yield svg.rect(x(0), y + 5, x(1.0) - x(0), 12, "part part6")
        yield svg.rect(x(0), y + 5, x(share) - x(0), 12, f"part {'part4' if share <= 1 else 'over'}")
        yield svg.line(x(1.0), y + 2, x(1.0), y + 20, "axis")


# --------------------------------------------------------------------------------------------------------------- words


def _demanded(evidence: Evidence) -> str:
    pool, target = evidence.pool(), evidence.share_of_target or 0
    size = f"{plain(pool[0].kv.tokens)} tokens ({pool[1]})" if pool is not None else "the cache"
    return f"what {plain(target)} requests at once hold of {size}"


def _summary(found: Memory, held: Sequence[tuple[str, float]], evidence: Evidence) -> str:
    parts = ", ".join(f"{name} {in_gib(size)}" for name, size, _ in _parts(found))
    text = f"Of {in_gib(found.usable)} usable, computed: {parts}."
    if found.pool <= 0:
        text += " The weights leave no room for a cache."
    if held:
        shares = " and ".join(f"{percent(share)} of it {words}" for words, share in held)
        text += f" At the target, {_demanded(evidence).removeprefix('what ')}: {shares}."
    return text


def _table(found: Memory) -> Table:
    rows = [(name, quantity(size, "bytes"), percent(size / found.usable)) for name, size, _ in _parts(found)]
    rows.append(("usable", quantity(found.usable, "bytes"), "100 %"))
    low, high = (quantity(max(0.0, end), "bytes") for end in (found.pool_low, found.pool_high))
    notes = (f"The KV cache may be {low} to {high}.", *found.notes)
    return Table(head=("Part", "Size", "Share"), rows=tuple(rows), notes=notes)


def _lines(found: Memory, held: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"memory of one device, {in_gib(found.usable)} usable"
    parts = _parts(found)
    yield from bars([Bar(name, in_gib(size), size) for name, size, _ in parts], found.usable)
    if held:
        yield "what the target's requests hold of the KV cache, | all of it"
        most = max(1.0, *(share for _, share in held))
        yield from bars([Bar(words, percent(share), share) for words, share in held], most, 1.0)
