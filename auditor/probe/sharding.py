"""One load cut into parts that processes or machines run by themselves, and their measurements put together. Pure.

Samples hold durations, each counted from the beginning of its own part: no clock is shared, and parts that begin some
milliseconds apart differ by that much in `start` and in nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from auditor.loads import Load, Turn, talks
from auditor.measurement import ClientHealth, Floor, Measurement, Sample, Snapshot

__all__ = ["Part", "merged", "placed", "split", "workers_for"]

STREAMS = 1000  # what one process carries with time to spare: 50 tokens/s each are half of a core at 10 us an event
_BUSY = 0.4  # share of a core that the requests of an open loop may take in one process
_REQUEST = 0.5e-3  # CPU seconds of a request beside its events: prompt, socket, decoding
_EVENT = 20e-6  # and of an event, where nothing was measured


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a load, and where its requests stand in the whole: index of each by its index in the part."""

    load: Load
    shapes: tuple[int, ...]
    warmup: tuple[int, ...]


def workers_for(load: Load, cores: int, floor: Floor | None = None) -> int:
    """How many processes should share a load: one where that is enough, and never more than there are cores.

    A closed loop needs one for each STREAMS; an open one for what its requests cost by the measured floor.
    """
    if load.arrivals and load.rate is not None:
        event = floor.cpu_per_event if floor is not None else _EVENT
        tokens = sum(s.output_tokens for s in load.shapes) / max(1, len(load.shapes))
        wanted = load.rate * (_REQUEST + tokens * event) / _BUSY
    else:
        wanted = load.concurrency / STREAMS
    return max(1, min(math.ceil(wanted), cores, len(load.shapes)))


def split(load: Load, parts: int) -> tuple[Part, ...]:
    """The load in `parts` parts: slots handed out in turn, and to each slot as many users; a conversation stays whole.

    Each part's id is its own, so that its prompts are no other's.
    """
    users = list(talks(load))
    slots = max(parts, min(load.concurrency, len(users)))
    return tuple(_part(load, number, range(number, slots, parts), users) for number in range(parts))


def _part(load: Load, number: int, mine: range, users: Sequence[tuple[Turn, ...]]) -> Part:
    """What the slots `mine` send: every `mine.stop`-th user from each of them on."""
    turns = [turn for at, user in enumerate(users) if at % mine.stop in mine for turn in user]
    warmup, shapes = [t.index for t in turns if t.warm], [t.index for t in turns if not t.warm]
    part = replace(
        load,
        id=f"{load.id}/{number}",
        concurrency=len(mine),
        shapes=tuple(load.shapes[i] for i in shapes),
        warmup=tuple(load.warmup[i] for i in warmup),
        arrivals=tuple(load.arrivals[i] for i in [*warmup, *(len(load.warmup) + i for i in shapes)])
        if load.arrivals
        else (),
    )
    return Part(part, tuple(shapes), tuple(warmup))


def placed(sample: Sample, load: Load, indexes: Sequence[int], worker: int) -> Sample:
    """A part's sample as one of the whole load."""
    return replace(sample, load=load.id, index=indexes[sample.index], worker=worker)


def merged(
    load: Load,
    samples: Sequence[Sample],
    results: Sequence[tuple[Part, Measurement]],
    snapshots: Sequence[Snapshot] = (),
    stopped: str | None = None,
) -> Measurement:
    """The whole load's measurement from its parts' and from their `samples`, already placed."""
    warmup = [
        placed(sample, load, part.warmup, number)
        for number, (part, measurement) in enumerate(results)
        for sample in measurement.warmup
    ]
    return Measurement(
        load=load,
        samples=tuple(sorted(samples, key=lambda sample: sample.index)),
        warmup=tuple(sorted(warmup, key=lambda sample: sample.index)),
        duration=max((measurement.duration for _, measurement in results), default=0.0),
        snapshots=tuple(snapshots),
        client=_health([measurement.client for _, measurement in results]),
        stopped=stopped,
    )


def _health(parts: Sequence[ClientHealth]) -> ClientHealth:
    """The worst lag, the busiest process, all that was in flight; the kernel's clock only where all had it."""
    clocks = {part.clock for part in parts}
    return ClientHealth(
        loop_lag_p99=_most([part.loop_lag_p99 for part in parts]),
        loop_lag_max=_most([part.loop_lag_max for part in parts]),
        peak_inflight=sum(part.peak_inflight for part in parts),
        cpu_share=_most([part.cpu_share for part in parts]),
        clock=clocks.pop() if len(clocks) == 1 else "loop",
        workers=len(parts),
        late_reads=_most([part.late_reads for part in parts]),
    )


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
