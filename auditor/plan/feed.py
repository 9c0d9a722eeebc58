"""Where the requests of the target loads come from: the traffic's classes, or the requests of a log in their order."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from auditor.loads import BLOCK_TOKENS, Logged, Shape
from auditor.plan.arrivals import ARRIVALS, spans
from auditor.plan.mix import clamped, mix
from auditor.profile import Profile, TrafficClass

__all__ = ["Feed", "feed"]

LAP = 1 << 32  # added to the numbers of blocks when a log begins anew: what it said then is not said again


@dataclass(frozen=True, slots=True)
class Feed:
    """Requests and when they arrive. `rows` are those of a log that tells more than lengths, and what they ask for:
    `shapes_of` them; empty where requests are made up from the classes.
    """

    profile: Profile
    limit: int | None
    rows: tuple[Logged, ...] = ()
    logged: tuple[Shape, ...] = ()

    def shapes(self, name: str, start: int, count: int) -> tuple[Shape, ...]:
        """`count` requests of the part of a plan with this name, `start` requests after its first."""
        if self.logged:
            return self.logged[start : start + count]
        rng = random.Random(f"{self.profile.probe.seed}/{name}")
        return tuple(mix(self.profile.traffic.classes, count, self.limit, rng))

    def arrivals(self, name: str, start: int, warmup: int, count: int) -> tuple[float, ...]:
        """When they arrive, in mean gaps: as in the log where it tells times, else as declared or by chance."""
        times = [row.at for row in self.rows[start : start + warmup + count] if row.at is not None]
        declared = self.profile.traffic.arrivals
        if declared is None and len(times) == warmup + count > 1 and times[-1] > times[0]:
            gap = (times[-1] - times[0]) / (len(times) - 1)
            return tuple((at - times[0]) / gap for at in times)
        rng = random.Random(f"{self.profile.probe.seed}/{name}/arrivals")
        return spans(ARRIVALS[declared or "poisson"], warmup, count, rng)


def feed(profile: Profile, limit: int | None, log: Sequence[Logged], most: int) -> Feed:
    """What a plan of at most `most` requests at the target sends: the busiest part of a log that tells times or shared
    blocks, begun anew where it is shorter; else the mix of the classes.
    """
    if most < 1 or not any(row.at is not None or row.blocks for row in log):
        return Feed(profile, limit)
    rows = tuple(islice(_again(_busiest(log, most)), most))
    return Feed(profile, limit, rows, tuple(_asked(profile.traffic.classes[0], rows, limit)))


def _busiest(log: Sequence[Logged], count: int) -> Sequence[Logged]:
    """The `count` requests in a row that came in the shortest time; all of a shorter log or one without times."""
    if len(log) <= count or any(row.at is None for row in log):
        return log
    times = [row.at or 0.0 for row in log]
    begin = min(range(len(log) - count + 1), key=lambda i: times[i + count - 1] - times[i])
    return log[begin : begin + count]


def _again(log: Sequence[Logged]) -> Iterator[Logged]:
    """The log over and over, each time one mean gap after its last request."""
    times = [row.at for row in log if row.at is not None]
    lasts = (times[-1] - times[0]) * len(times) / max(1, len(times) - 1) if times else 0.0
    for number, row in enumerate(cycle(log)):
        lap = number // len(log)
        at = None if row.at is None else row.at + lap * lasts
        yield replace(row, at=at, blocks=tuple(block + lap * LAP for block in row.blocks))


def _asked(cls: TrafficClass, rows: Sequence[Logged], limit: int | None) -> Iterator[Shape]:
    """The requests, cut where the context does not hold them. Blocks that came before may be in a cache."""
    seen: set[int] = set()
    for row in rows:
        shape = clamped(cls, row.prompt, row.output, None, limit)
        blocks = row.blocks[: (shape.prompt_tokens - 1) // BLOCK_TOKENS]
        known = next((i for i, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        yield replace(shape, blocks=blocks, prefix_tokens=known * BLOCK_TOKENS)
