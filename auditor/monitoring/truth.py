"""The server's own account of a load beside the client's: what a panel shows against what users felt.

Engines count from when a request reached them, and their panels with them: what lies between them and the users (the
network, a gateway, a proxy that buffers) is on no panel. Histogram means compare the same requests only where both
sides counted as many; elsewhere another replica, another label or other users are the difference.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from auditor.evidence import Evidence
from auditor.measurement import Histogram, Measurement, Sample
from auditor.profile import Objective
from auditor.theory import buckets
from auditor.theory.judging import rank
from auditor.units import count, percent, quantity
from auditor.watch import Agreement

__all__ = ["Frame", "agreements", "compared", "gained", "mean_tpot"]

NEAR = 0.1  # of the client's number: both sides agree so far
LEAST = {"s": 0.01, "s a token": 0.001, "requests": 1.0, "tokens": 0.0, "share": 0.03}  # or within this
COUNTED = 0.02  # of requests and tokens, which both sides count: a reply or two that ended as the page was read
PERCENT = (50.0, 200.0)  # times the client's share: a gauge in percent that is taken for a share
Verdict = Literal["agrees", "differs", "unknown"]
_BLIND = 0.95  # the percentile that panels draw, where no SLO names one


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a load's numbers are held against: TTFT objectives over all classes, the KV pool of one replica in tokens
    and its block size where the engine tells them, how many replicas and pages there are.
    """

    objectives: tuple[Objective, ...] = ()
    pool: int | None = None
    block: int = 1
    replicas: int = 1
    pages: int = 1


def gained(measurement: Measurement, concept: str) -> Histogram | None:
    """What a histogram gained over a load and its drain, bucket by bucket; None where it was not seen on both sides.

    One that is new or was reset counts from 0, as `Measurement.moved` does for counters.
    """
    first = next((s for s in measurement.snapshots if s.phase == "before"), None)
    last = next((s for s in reversed(measurement.snapshots) if s.phase == "after"), None)
    if first is None or last is None or concept not in last.histograms:
        return None
    before, after = first.histograms.get(concept, Histogram(sum=0.0, count=0.0)), last.histograms[concept]
    if after.count < before.count:
        return after
    under = dict(before.buckets)
    moved = tuple((bound, total - under.get(bound, 0.0)) for bound, total in after.buckets)
    return Histogram(sum=after.sum - before.sum, count=after.count - before.count, buckets=moved)


def agreements(measurements: Iterable[Measurement], frame: Frame) -> tuple[Agreement, ...]:
    """Both accounts of every load at the target that has the server's page before and after it."""
    loads = [
        m for m in measurements if m.load.purpose == "slo" and {"before", "after"} <= {s.phase for s in m.snapshots}
    ]
    return tuple(found for m in loads for found in _Sides(m, frame).all())


def compared(evidence: Evidence) -> tuple[Agreement, ...]:
    """`agreements` of all that was measured."""
    served, pool = evidence.served, evidence.served_pool
    frame = Frame(
        objectives=tuple(o for o in evidence.profile.objectives("ttft") if o.cls is None),
        pool=pool.kv.tokens if pool is not None else None,
        block=(served.block_size if served else None) or 1,
        replicas=max(1, evidence.profile.deployment.replicas),
        pages=sum(page.exporter is None for page in served.pages) if served else 0,
    )
    return agreements(evidence.measurements, frame)


class _Sides:
    """One load, warm-up included, as both sides saw it."""

    def __init__(self, measurement: Measurement, frame: Frame) -> None:
        self.load, self.frame = measurement, frame
        self.samples: tuple[Sample, ...] = (*measurement.warmup, *measurement.samples)
        self.ttft, self.tpot, self.queue = (gained(measurement, c) for c in ("ttft", "tpot", "queue_time"))
        self.first = [s.ttft for s in self.samples if s.ttft is not None]
        self.lost = sum(s.ttft is None for s in self.samples)

    def all(self) -> Iterator[Agreement]:
        """Every quantity that one of the sides knows."""
        yield from filter(None, (self._requests(), self._tokens("prompt_tokens"), self._tokens("generation_tokens")))
        yield from filter(None, (self._ttft(), self._tpot(), self._usage()))
        yield from self._panels()

    @property
    def same(self) -> bool:
        """Whether the server's histogram of first tokens holds the client's requests and no others."""
        return self.ttft is not None and abs(self.ttft.count - len(self.first)) <= self._slack

    @property
    def _slack(self) -> float:
        return max(LEAST["requests"], COUNTED * len(self.first))

    def _counts(self, server: float) -> bool:
        """Whether the server counted what came here; what failed on the way may have got a first token there."""
        return -self._slack <= server - len(self.first) <= self.lost + self._slack

    def _told(  # noqa: PLR0917
        self, quantity: str, server: float, client: float | None, unit: str, note: str = "", unsure: str = ""
    ) -> Agreement:
        """An agreement; `note` explains a difference, and `unsure` why there is nothing to compare."""
        verdict: Verdict = "unknown" if unsure or client is None else _verdict(_near(server, client, unit))
        note = unsure or (note if verdict == "differs" else "")
        return Agreement(
            quantity=quantity,
            load=self.load.load.id,
            server=server,
            client=client,
            unit=unit,
            verdict=verdict,
            note=note,
        )

    # -------------------------------------------------------------------------------------------------------- counters

    def _requests(self) -> Agreement | None:
        if self.ttft is None:
            return None
        server, here = self.ttft.count, len(self.first)
        found = self._told(
            "requests", server, float(here), "requests", unsure="" if here else "no first token came here"
        )
        if not here or self._counts(server):
            return replace(found, verdict="agrees", note="") if here else found
        return replace(found, verdict="differs", note=self._elsewhere(server, here))

    def _elsewhere(self, server: float, here: int) -> str:
        """Who else counted, or what the page does not see."""
        if server > here:
            return f"{count(server - here, 'request')} more than were sent: other users, whose times are in its means"
        if server == 0:
            return "the page counted none of these requests: it belongs to another replica, engine or model"
        if self.frame.replicas > self.frame.pages:
            return f"{self.frame.pages} of {self.frame.replicas} replicas are read: the panel misses the others"
        return f"only {percent(server / here)} of the requests: another replica answered the rest"

    def _tokens(self, concept: str) -> Agreement | None:
        server = self.load.moved(concept)
        prompts = concept == "prompt_tokens"
        known = [(s.prompt_tokens if prompts else s.output_tokens, s) for s in self.samples if s.ttft is not None]
        if server is None or not known:
            return None
        told = [n for n, _ in known if n is not None]
        client = float(sum(told)) if told else None
        name = "prompt tokens" if prompts else "output tokens"
        if client is None or len(told) < len(known) or any(s.estimated for _, s in known):
            return self._told(name, server, client, "tokens", unsure="the replies do not tell all of them")
        if self.ttft is not None and not self.same:
            return self._told(name, server, client, "tokens", unsure="not the same requests")
        if self.lost and server > client:
            return self._told(name, server, client, "tokens", unsure=f"{count(self.lost, 'request')} failed on the way")
        cached = sum(s.cached_tokens or 0 for _, s in known) if prompts else 0
        if cached and _near(server, client - cached, "tokens"):
            aside = f"without {quantity(cached, 'tokens')} that came from its cache"
            return replace(self._told(name, server, client - cached, "tokens"), note=aside)
        note = "the page counts other requests too, or the replies' usage counts what it does not"
        return self._told(name, server, client, "tokens", note=note)

    # ----------------------------------------------------------------------------------------------------------- means

    def _ttft(self) -> Agreement | None:
        server, client = _mean_of(self.ttft), _mean(self.first)
        if server is None or client is None:
            return None
        if not self.same:
            return self._told("mean TTFT", server, client, "s", unsure="not the same requests")
        return replace(self._told("mean TTFT", server, client, "s"), note=self._parts(server, client))

    def _parts(self, server: float, client: float) -> str:
        """Where a first token's time goes: waiting and reading in the engine, the rest on the way."""
        queue, between = _mean_of(self.queue), client - server
        inside = f"{quantity(server, 's')} in the engine"
        if queue is not None and queue <= server * (1 + NEAR):
            inside = f"{quantity(queue, 's')} in its queue, {quantity(max(0.0, server - queue), 's')} until the token"
        if between < -LEAST["s"]:
            return f"{inside}; the server counts {quantity(-between, 's')} more than passed here: not the same requests"
        return f"{inside}, {quantity(max(0.0, between), 's')} between engine and client, which no panel of it shows"

    def _tpot(self) -> Agreement | None:
        server, client = _mean_of(self.tpot), mean_tpot(self.samples, self.tpot)
        if server is None or client is None or self.tpot is None:
            return None
        timed = sum(s.tpot is not None for s in self.samples)
        by_token = self.tpot.count > 2 * timed  # each token's own time, not one of each request that has ended
        ended = all(s.good for s in self.samples) if by_token else abs(self.tpot.count - timed) <= self._slack
        if not self.same or not ended:
            return self._told("mean time per token", server, client, "s a token", unsure="not the same requests")
        slower = client > server
        note = (
            "tokens are held up on the way to the client, or read late there"
            if slower
            else "the panel's tokens are slower than here"
        )
        return self._told("mean time per token", server, client, "s a token", note=note)

    # ------------------------------------------------------------------------------------------------------- KV in use

    def _usage(self) -> Agreement | None:
        """The mean over the readings in which nothing waits: what waits holds no cache, and nobody here knows who."""
        seen = [s for s in self.load.snapshots if s.phase == "during" and "kv_usage" in s.values]
        free = [s for s in seen if not s.values.get("waiting")]
        server = _mean([s.values["kv_usage"] for s in free])
        if server is None:
            return None
        if not self.frame.pool:
            return self._told("mean KV usage", server, None, "share", unsure="the size of the pool is not known")
        if self.ttft is not None and not self.same:
            return self._told("mean KV usage", server, None, "share", unsure="not the same requests")
        if self.frame.replicas > 1 or any(shape.prefix_tokens for shape in self.load.load.shapes):
            unsure = "replicas share the load" if self.frame.replicas > 1 else "requests share the blocks of prefixes"
            return self._told("mean KV usage", server, None, "share", unsure=unsure)
        held = [sum(_held(s, reading.at, self.frame.block) for s in self.samples) for reading in free]
        client = math.fsum(held) / len(held) / self.frame.pool
        note = "the gauge is not the share of the pool in use"
        if client and PERCENT[0] <= server / client <= PERCENT[1]:
            note = "the gauge is in percent where a share is expected"
        return self._told("mean KV usage", server, client, "share", note=note)

    # ---------------------------------------------------------------------------------------------------------- panels

    def _panels(self) -> Iterator[Agreement]:
        """The quantile that histogram_quantile would draw of this load, beside the requests' own."""
        if self.ttft is None or not self.first:
            return
        table = buckets.clean(self.ttft.buckets, self.ttft.count) if self.ttft.buckets else ()
        limits: dict[float, Objective | None] = {o.share: o for o in self.frame.objectives}
        for share, objective in sorted((limits or {_BLIND: None}).items(), key=lambda item: item[0]):
            drawn, felt = buckets.interpolated(table, share), rank(self.first, share)
            if drawn is not None:
                name = f"TTFT p{share * 100:g} on a panel"
                if self.same:
                    yield self._told(name, drawn, felt, "s", note=_unlike(table, share, drawn, felt, objective))
                else:
                    yield self._told(name, drawn, felt, "s", unsure="not the same requests")


def _unlike(table: buckets.Buckets, share: float, drawn: float, felt: float, objective: Objective | None) -> str:
    """Why a panel's quantile is another than the requests', and whether the SLO lies between them."""
    low, high = buckets.holding(table, share) or (0.0, math.inf)
    if high == math.inf:
        why = f"above the highest bound, {low:g} s, a panel shows that bound"
    elif low <= felt <= high * (1 + NEAR):
        why = f"a panel draws a line through its bucket, {low:g} s to {high:g} s, and knows nothing inside"
    else:
        why = f"the engine's own time lies between {low:g} s and {high:g} s: the rest passes outside of it"
    if objective is not None and (drawn <= objective.limit) != (felt <= objective.limit):
        why += f"; the limit of {objective.limit:g} s lies between the two"
    return why


# ---------------------------------------------------------------------------------------------------------------- parts


def _verdict(near: bool) -> Verdict:
    return "agrees" if near else "differs"


def _near(server: float, client: float, unit: str) -> bool:
    share = COUNTED if unit == "tokens" else NEAR
    return abs(server - client) <= max(LEAST[unit], share * abs(client))


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_of(histogram: Histogram | None) -> float | None:
    return histogram.sum / histogram.count if histogram is not None and histogram.count > 0 else None


def mean_tpot(samples: Sequence[Sample], server: Histogram | None) -> float | None:
    """The mean seconds a token as the server takes it: over requests, or over tokens where it counts each token's."""
    timed = [s for s in samples if s.tpot is not None]
    if server is None or server.count <= 2 * len(timed):
        return _mean([s.tpot for s in timed if s.tpot is not None])
    seconds = math.fsum((s.e2e or 0.0) - (s.ttft or 0.0) for s in timed)
    tokens = sum((s.output_tokens or 0) - s.first_tokens for s in timed)
    return seconds / tokens if tokens else None


def _held(sample: Sample, at: float, block: int) -> float:
    """Tokens of cache that a request holds at a moment of its load, in whole blocks; 0 before and after it."""
    inside = at - sample.start
    if not 0 <= inside <= sample.stay:
        return 0.0
    size = sample.tokens_an_event or 1.0

    prompt = sample.asked_prompt_tokens if sample.prompt_tokens is None else sample.prompt_tokens
    tokens = prompt + size * sum(arrival <= inside for arrival in sample.arrivals)
    return math.ceil(tokens / block) * block
