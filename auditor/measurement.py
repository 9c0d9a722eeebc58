"""What was seen: requests, server snapshots, served facts. Frozen plain data.

All times are seconds, all rates per second, all shares 0..1. None means "not observed", never 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from auditor.loads import Load
from auditor.theory.streams import Steps, clump, common_steps, time_at

__all__ = [
    "ClientHealth",
    "Floor",
    "Histogram",
    "Measurement",
    "MetricsPage",
    "Sample",
    "Served",
    "Snapshot",
    "accepted_length",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request as the client saw it. `start` counts from the start of its load; the rest from its own t0.

    t0 is when the request's last byte was handed to the socket, after connecting (`connect` apart). `arrivals` are the
    arrival times of events that stand for generated tokens; `ttft` is the first of them, `e2e` the last. `error` is
    None for a good request, else one word: connect, tls, timeout, stalled, cut_off, in_stream, http_4xx, http_429,
    http_5xx, protocol, not_streamed, cancelled. `rate_limited` marks a 429 that a gateway sent (rate-limit headers),
    not an engine's own refusal. `estimated` says that output_tokens was counted from events because the server sent no
    usage. `late` is how long after its time an open loop sent it: users wait from it on. `via`: headers of who answers.
    """

    load: str
    index: int
    cls: str
    start: float
    asked_prompt_tokens: int
    asked_output_tokens: int
    connect: float | None = None
    ttft: float | None = None
    first_answer: float | None = None
    e2e: float | None = None
    closed: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    first_tokens: int = 1
    estimated: bool = False
    arrivals: tuple[float, ...] = ()
    status: int | None = None
    error: str | None = None
    detail: str | None = None
    rate_limited: bool = False
    retry_after: float | None = None
    finish_reason: str | None = None
    server_id: str | None = None
    via: str | None = None
    worker: int = 0
    late: float | None = None

    @property
    def good(self) -> bool:
        """True if the request ended as it should."""
        return self.error is None

    @property
    def unreached(self) -> bool:
        """True if no connection came about: nobody answered, not even with a refusal."""
        return self.error in ("connect", "tls")

    @property
    def stay(self) -> float:
        """Seconds in flight: until the end of the reply was seen, else until its last token; 0 where there was none."""
        return self.closed or self.e2e or self.ttft or 0.0

    @property
    def tokens(self) -> int:
        """Tokens that it took, prompt and reply, as the server counted them; the prompt as asked where it did not."""
        prompt = self.asked_prompt_tokens if self.prompt_tokens is None else self.prompt_tokens
        return prompt + (self.output_tokens or 0)

    def within(self, begin: float, end: float) -> float:
        """The part of its time in flight that lies in an interval of its load."""
        inside = min(end, self.start + self.stay) - max(begin, self.start)
        return max(0.0, inside) / self.stay if self.stay > 0 else 0.0

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first event; None for a one-token reply or one that came all at once."""
        if self.ttft is None or self.e2e is None or self.output_tokens is None:
            return None
        rest, span = self.output_tokens - self.first_tokens, self.e2e - self.ttft
        return span / rest if rest > 0 and span > 0 and not self.buffered else None

    @property
    def tps(self) -> float | None:
        """Decode tokens per second of this stream, 1 / TPOT."""
        tpot = self.tpot
        return 1 / tpot if tpot else None

    @property
    def tokens_an_event(self) -> float | None:
        """Tokens that each event after the first carried, one at least; None without two events."""
        rest = (self.output_tokens or 0) - self.first_tokens
        return max(1.0, rest / (len(self.arrivals) - 1)) if len(self.arrivals) > 1 else None

    @property
    def clump(self) -> float | None:
        """Tokens that arrived together after each silence, where a proxy held them back; None where none did."""
        events, size = clump(self.arrivals), self.tokens_an_event
        return events * size if events is not None and size is not None else None

    @property
    def largest_gap(self) -> float | None:
        """The longest wait between two consecutive events, seconds."""
        return max((b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)), default=None)

    @property
    def buffered(self) -> bool | None:
        """True if a reply of ten tokens or more came all at once: one event, or faster than any decoder (5,000/s).

        None where that cannot be told: a failed request or a shorter reply.
        """
        if not self.good or self.ttft is None or self.e2e is None or (self.output_tokens or 0) < 10:
            return None
        rest = (self.output_tokens or 0) - self.first_tokens
        return len(self.arrivals) == 1 or rest > 5000 * (self.e2e - self.ttft)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A Prometheus histogram summed over its series: cumulative `buckets` as (upper bound, count) pairs."""

    sum: float
    count: float
    buckets: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The server's metrics at one moment (`at` seconds from the start of its load), by concept.

    `values` holds gauges and counters by concept (running, waiting, kv_usage, preemptions, prompt_tokens,
    generation_tokens, requests, refusals, prefix_hits, prefix_queries, spec_accepted, spec_drafts ...), counters
    summed and usage shares maximised over series and replicas; `histograms` ttft, tpot, e2e, queue_time, prompt_len,
    output_len. A concept absent from the page is absent here.
    """

    at: float
    phase: Literal["before", "during", "after"]
    values: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Floor:
    """What the client adds by itself: seconds of TTFT at p50 and p99, and CPU seconds an event takes."""

    ttft_p50: float
    ttft_p99: float
    cpu_per_event: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """How the client itself did: event-loop lag (s), the highest number in flight, its CPU share of a core.

    `clock` names what timed the reads: "kernel" receive times, the event "loop"'s, or "virtual". `workers` processes
    shared the load. `late_reads` is the share of reads too late for each byte to have a time of its own. `floor` is
    what it measures on a server that answers at once, on this machine, just before.
    """

    loop_lag_p99: float | None = None
    loop_lag_max: float | None = None
    peak_inflight: int = 0
    cpu_share: float | None = None
    clock: str = "loop"
    workers: int = 1
    floor: Floor | None = None
    late_reads: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one load gave. `started` is seconds from the start of the probe; `stopped` says why it ended early."""

    load: Load
    samples: tuple[Sample, ...]
    warmup: tuple[Sample, ...] = ()
    started: float = 0.0
    duration: float = 0.0
    snapshots: tuple[Snapshot, ...] = ()
    client: ClientHealth = field(default_factory=ClientHealth)
    stopped: str | None = None

    @property
    def judged(self) -> tuple[Sample, ...]:
        """The requests on which a verdict rests, in start order: all but those that the auditor itself cancelled."""
        return tuple(sorted((s for s in self.samples if s.error != "cancelled"), key=lambda s: (s.start, s.index)))

    @property
    def stay(self) -> float | None:
        """Mean seconds that a good request was in flight; None without one."""
        times = [s.stay for s in self.judged if s.good]
        return sum(times) / len(times) if times else None

    @property
    def silence(self) -> int:
        """How many requests failed one after the other at the end, in the order in which they ended.

        A service that goes cuts off what it has in flight at once: of what ended together good requests were first.
        """
        ended = sorted(self.judged, key=lambda s: (round(s.start + s.stay, 2), not s.good))
        return next((i for i, s in enumerate(reversed(ended)) if s.good), len(ended))

    @property
    def first_waits(self) -> tuple[tuple[float, float], ...]:
        """(start, TTFT) of the judged requests that got a first token, in start order."""
        return tuple((s.start, s.ttft) for s in self.judged if s.ttft is not None)

    def gauge(self, name: str) -> tuple[tuple[float, float], ...]:
        """A server gauge while the load ran, as (seconds from its start, value)."""
        return tuple((s.at, s.values[name]) for s in self.snapshots if s.phase == "during" and name in s.values)

    def moved(self, name: str) -> float | None:
        """How far a server counter moved from before the load to after its drain; None where it was not seen.

        A counter that is missing before and there afterwards started at 0; one that fell was reset and counts from 0,
        as in Prometheus' increase().
        """
        first = next((s for s in self.snapshots if s.phase == "before"), None)
        last = next((s for s in reversed(self.snapshots) if s.phase != "before"), None)
        if first is None or last is None or name not in last.values:
            return None
        before, after = first.values.get(name, 0.0), last.values[name]
        return after - before if after >= before else after

    @property
    def present(self) -> tuple[float, ...]:
        """Requests that ran or waited at the server, at each reading during the load that shows both."""
        seen = [s.values for s in self.snapshots if s.phase == "during"]
        return tuple(v["running"] + v["waiting"] for v in seen if {"running", "waiting"} <= v.keys())

    def time_near(self, level: float) -> float:
        """The share of the time with at least `level` in flight, warm-up included, until the last request was sent."""
        first, last = (edge([s.start for s in self.samples]) for edge in (min, max))
        everything = (*self.warmup, *self.samples)
        spans = [(s.start, s.start + s.stay) for s in everything]
        inside = [(max(a, first), min(b, last)) for a, b in spans if a < last and b > first]
        return time_at(inside, level) / (last - first) if last > first else float(len(spans) >= level)

    def cached_share(self, template: int) -> float | None:
        """The share of prompt tokens that a cache held beyond declared prefixes and `template` tokens of each prompt.

        By the replies' usage, else by the server's counters; None where neither tells.
        """
        told = [s for s in self.judged if s.good and s.cached_tokens is not None and s.prompt_tokens]
        if told:
            prefixes = {i: shape.prefix_tokens for i, shape in enumerate(self.load.shapes)}
            extra = sum(max(0, (s.cached_tokens or 0) - prefixes.get(s.index, 0) - template) for s in told)
            return extra / sum(s.prompt_tokens or 0 for s in told)
        hits, queries = self.moved("prefix_hits"), self.moved("prefix_queries")
        if hits is None or not queries:
            return None
        asked = sum(s.prompt_tokens for s in self.load.shapes) or 1
        declared = sum(s.prefix_tokens for s in self.load.shapes) / asked
        return max(0.0, hits / queries - declared - template * len(self.load.shapes) / asked)

    @property
    def held_back(self) -> float | None:
        """The share of the load's time in which requests wait although the KV cache is 85 % full or more.

        None where the server shows no queue or no KV usage.
        """
        seen = [s.values for s in self.snapshots if s.phase == "during" and {"waiting", "kv_usage"} <= s.values.keys()]
        held = [v for v in seen if v["waiting"] > 0 and v["kv_usage"] >= 0.85]
        return len(held) / len(seen) if seen else None

    @property
    def kv_pressed(self) -> bool | None:
        """Whether the KV cache ran short: preemptions, or waiting on a full cache. None where the server shows neither.

        Engines show it differently: vLLM admits and preempts, SGLang holds back.
        """
        preempted = self.moved("preemptions")
        if preempted is None and self.held_back is None:
            return None
        return (preempted or 0) > 0 or (self.held_back or 0) >= 0.1

    def first_tokens(self, round_trip: float = 0.0) -> list[tuple[int, float]]:
        """(tokens read, seconds to the first token less the round trip) of good requests, those from a cache left out.

        A tenth may come from a cache (a template, a first token that all prompts share) and does not count as read.
        """
        known = [(s, s.prompt_tokens or s.asked_prompt_tokens, s.cached_tokens or 0) for s in self.judged if s.good]
        return [(n - c, max(1e-6, s.ttft - round_trip)) for s, n, c in known if s.ttft is not None and 10 * c <= n]

    @property
    def mean_context(self) -> int:
        """Tokens that a stream of a ladder step holds in the mean: its prompt and half of its reply."""
        return (self.load.context or 0) + max((s.output_tokens or 0 for s in self.samples), default=0) // 2

    @property
    def steps(self) -> Steps | None:
        """The decode steps while all of the load's streams decode together; None where they never do."""
        each = [(s, s.tokens_an_event) for s in self.judged if s.good and s.output_tokens]
        streams = [(tuple(s.start + at for at in s.arrivals), size) for s, size in each if size is not None]
        return common_steps(streams) if len(streams) == len(self.judged) else None


def accepted_length(measurements: Iterable[Measurement]) -> float | None:
    """Tokens that a speculative step gave a stream: 1 + accepted / drafts over these loads; None without counters."""
    loads = tuple(measurements)
    drafts, accepted = (sum(m.moved(f"spec_{name}") or 0.0 for m in loads) for name in ("drafts", "accepted"))
    return 1 + accepted / drafts if drafts else None


# -------------------------------------------------------------------------------------------------------------- served


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """One metrics page: its names with types, bounds by histogram, values by rank label; whether a key is needed."""

    url: str
    types: Mapping[str, str]
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    exporter: str | None = None
    ranks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs_key: bool | None = None  # None: no key was sent, so nobody knows
    escaped: tuple[str, ...] = ()  # what some of its names become for a Prometheus that takes no `:` as UTF-8 (2.x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the endpoint itself says and does. `sources` tells where each field was read ("/version", "/props" ...).

    `kv_pool_bytes` is of one device. `first_ttft` is the TTFT of the first generation of this audit, which may have met
    a cold engine; `buffered` says that its reply came all at once; `words` are some that all have `tokens_per_word`,
    where the server told. `spent_requests` with `spent_tokens` of prompts and replies is what all this took.
    """

    engine: str
    api: Literal["chat", "completions"]
    model: str | None = None
    engine_version: str | None = None
    max_model_len: int | None = None
    kv_tokens: int | None = None
    kv_blocks: int | None = None
    kv_max_concurrency: float | None = None
    kv_pool_bytes: int | None = None
    block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    mamba_cache_mode: str | None = None
    mamba_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    mamba_slots: int | None = None
    mamba_full_ratio: float | None = None
    swa_full_tokens_ratio: float | None = None
    quantization: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    queue_limit: int | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    decode_context_parallel: int | None = None
    attention_backend: str | None = None
    speculative: str | None = None
    speculative_tokens: int | None = None
    disaggregated: bool | None = None
    enforce_eager: bool | None = None
    prefix_caching: bool | None = None
    replicas: int | None = None
    streaming: bool | None = None
    usage: bool | None = None
    min_tokens: bool | None = None
    ignore_eos: bool | None = None
    max_tokens_field: str = "max_tokens"
    cached_tokens: bool = False
    round_trip: float | None = None
    first_ttft: float | None = None
    buffered: bool | None = None
    tokens_per_word: float | None = None
    template_tokens: int = 0
    words: tuple[str, ...] = ()
    spent_requests: int = 0
    spent_tokens: int = 0
    pages: tuple[MetricsPage, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
