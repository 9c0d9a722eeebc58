"""The deployment profile as the rest of the program sees it: validated, units applied, `auto` kept as written.

All durations are seconds, all rates per second, all shares 0..1. `loading` builds these objects; nothing here parses.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from auditor.theory.shape import Curve, at, curve, mean
from auditor.units import DURATION, RATE, SHARE, TOKENS

__all__ = [
    "Auto",
    "Budget",
    "Conflict",
    "Deployment",
    "Endpoint",
    "Guard",
    "Images",
    "Lengths",
    "Monitoring",
    "Objective",
    "Probe",
    "Profile",
    "SharedPrefix",
    "Slo",
    "Traffic",
    "TrafficClass",
    "Waiver",
    "is_loopback",
]

EngineName = Literal["auto", "vllm", "sglang", "llamacpp", "trtllm", "lmdeploy", "generic"]
Auto = Literal["auto"]
Duration = Annotated[float, DURATION]
Rate = Annotated[float, RATE]
Share = Annotated[float, SHARE]
Tokens = Annotated[int, TOKENS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the service answers. `url: emulator` starts the embedded emulator of `deployment`."""

    url: str
    engine: EngineName = "auto"
    model: str = "auto"
    api: Literal["auto", "chat", "completions"] = "auto"
    api_key_env: str | None = None
    api_key_file: str | None = None
    metrics: str | tuple[str, ...] | None = "auto"
    headers: Mapping[str, str] = field(default_factory=dict)
    verify_tls: bool = True
    ca_file: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def on_this_machine(self) -> bool:
        """Whether the service runs where the audit does: the emulator, or a loopback address."""
        return self.url == "emulator" or is_loopback(self.url)


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine; false for one that is no valid address."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is declared about the model, the hardware and the engine's settings. `count` is devices per replica.

    `price_per_hour` is of one replica, `prices` of one accelerator, by name: those to compare with.
    """

    model: str | None = None
    accelerator: str | None = None
    count: int = 1
    replicas: int = 1
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: int | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    engine_version: str | None = None
    max_model_len: Tokens | Auto | None = None
    max_num_seqs: int | Auto | None = None
    max_num_batched_tokens: Tokens | Auto | None = None
    gpu_memory_utilization: float | None = None
    mem_fraction_static: float | None = None
    block_size: int | Auto | None = None
    enforce_eager: bool | None = None
    speculative: Mapping[str, Any] | str | None = None
    disaggregated: bool | None = None
    price_per_hour: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    launch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A length distribution in tokens by percentile; `max` bounds the tail."""

    p50: Tokens
    p95: Tokens | None = None
    p99: Tokens | None = None
    max: Tokens | None = None

    @property
    def curve(self) -> Curve:
        """The distribution through these percentiles."""
        return curve(self.p50, self.p95, self.p99, self.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """A prefix that requests of a class share: its tokens, the share of requests that carry one, how many differ."""

    tokens: Tokens
    share: Share = 1.0
    distinct: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Pictures in the prompts of a class: their size in pixels, how many a prompt has, the share of prompts with any.

    Their tokens are part of the class's prompt tokens.
    """

    width: int
    height: int
    count: int = 1
    share: Share = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """One kind of request and its share of all requests. A request of a conversation of several `turns` is one turn:
    its prompt holds all that was said before.
    """

    name: str
    share: Share = 1.0
    prompt_tokens: Lengths
    output_tokens: Lengths
    shared_prefix: SharedPrefix | None = None
    images: Images | None = None
    turns: int = 1

    @property
    def fresh(self) -> Curve:
        """Prompt tokens that no cache can hold already: without the shared prefix, and one turn's part of the rest."""
        prefix = self.shared_prefix.tokens if self.shared_prefix else 0
        points = self.prompt_tokens.curve.points
        return Curve(tuple((u, max(0, n - prefix) // max(1, self.turns)) for u, n in points))

    def held(self, quantile: float | None, *, prefix_once: bool) -> float:
        """Tokens of KV cache that a request holds: at a quantile of the lengths when it ends, in the mean over its life
        for None. `prefix_once` leaves out the prefix that it shares with others.
        """
        prompt, reply = self.prompt_tokens.curve, self.output_tokens.curve
        kept = self._kept(quantile) if prefix_once else 0.0
        if quantile is None:
            return max(1.0, mean(prompt) - kept + mean(reply) / 2)
        return max(1.0, float(at(prompt, quantile)) - kept + at(reply, quantile))

    def _kept(self, quantile: float | None) -> float:
        """Prompt tokens of a request that it shares with others: no more than its prompt has."""
        shared, prompt = self.shared_prefix, self.prompt_tokens.curve
        if shared is None:
            return 0.0
        if quantile is not None:
            return min(shared.tokens, at(prompt, quantile)) * shared.share
        return mean(Curve(tuple((u, min(shared.tokens, n)) for u, n in prompt.points))) * shared.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The load the service must carry. Exactly one of `target_concurrency` (requests in flight) and `request_rate`.

    `arrivals` is how requests come that wait for no other: by chance (None: or as the log tells), one by one, in
    crowds, or more and more; "closed": none does, the users are so many workers that wait for their replies.
    """

    target_concurrency: int | None = None
    request_rate: Rate | None = None
    arrivals: Literal["poisson", "constant", "bursts", "ramp", "closed"] | None = None
    optimize_for: Literal["ttft", "tps", "cost"] | None = None
    classes: tuple[TrafficClass, ...] = ()
    log: str | None = None
    prompts: str | None = None

    @property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean prompt and output tokens over all requests; (0, 0) without classes."""
        total = sum(c.share for c in self.classes) or 1.0
        return (
            sum(c.share * mean(c.prompt_tokens.curve) for c in self.classes) / total,
            sum(c.share * mean(c.output_tokens.curve) for c in self.classes) / total,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service-level objectives. Keys of the mappings are percentiles ("p95"); `tps` is a floor, the others ceilings."""

    ttft: Mapping[str, Duration] | None = None
    first_answer: Mapping[str, Duration] | None = None
    tps: Mapping[str, Rate] | None = None
    e2e: Mapping[str, Duration] | None = None
    error_rate: Share | None = None
    classes: Mapping[str, "Slo"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One number of the SLOs: `share` of the requests (of class `cls`, None: of all) must stay within `limit`.

    `limit` is a floor for `tps` and a ceiling for the others; `path` is where the profile says it, `percentile` as
    written ("p95"), empty for the error rate.
    """

    metric: Literal["ttft", "first_answer", "tps", "e2e", "error_rate"]
    share: float
    limit: float
    path: str
    percentile: str = ""
    cls: str | None = None

    @property
    def seconds(self) -> float:
        """The limit as a ceiling in seconds: 1 / the floor for TPS."""
        if self.metric != "tps":
            return self.limit
        return 1 / self.limit if self.limit > 0 else math.inf

    @property
    def subject(self) -> str:
        """Class and percentile, for a finding's heading: "rag p95"."""
        return " ".join(part for part in (self.cls, self.percentile) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the probe may spend on the endpoint in all, whichever ends first."""

    duration: Duration = 600.0
    requests: int = 2000
    tokens: Tokens = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What ends the probe for the sake of the endpoint's other users: half of the latest requests are slower than
    `ttft` or `e2e`, or a larger share of them than `error_rate` fails.
    """

    ttft: Duration | None = None
    e2e: Duration | None = None
    error_rate: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How to measure. An endpoint that is not loopback is loaded only with `allow_load: true`."""

    budget: Budget = field(default_factory=Budget)
    confidence: float = 0.95
    seed: int = 0
    allow_load: bool = False
    guard: Guard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """What watches the service: dashboards and alert rules (globs, relative to the profile), exporters, Prometheus."""

    required: bool = True
    exporters: tuple[str, ...] = ()
    prometheus: str | None = None
    prometheus_key_env: str | None = None
    selector: Mapping[str, str] = field(default_factory=dict)
    grafana: str | None = None
    grafana_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    dashboards: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A rule that is known to fail, with a reason and the last day (ISO date) on which this is accepted."""

    rule: str
    reason: str
    expires: str
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One deployment to be audited."""

    version: int
    name: str
    endpoint: Endpoint
    deployment: Deployment = field(default_factory=Deployment)
    traffic: Traffic = field(default_factory=Traffic)
    slo: Slo = field(default_factory=Slo)
    probe: Probe = field(default_factory=Probe)
    monitoring: Monitoring = field(default_factory=Monitoring)
    waivers: tuple[Waiver, ...] = ()

    @property
    def key_names(self) -> Mapping[tuple[str, str], str]:
        """What the fields hold that say where a key is (a variable, or file:PATH), by their place in the profile."""
        fields = {
            ("endpoint", "api_key_env"): self.endpoint.api_key_env,
            ("endpoint", "api_key_file"): self.endpoint.api_key_file and f"file:{self.endpoint.api_key_file}",
            ("monitoring", "prometheus_key_env"): self.monitoring.prometheus_key_env,
            ("monitoring", "grafana_key_env"): self.monitoring.grafana_key_env,
        }
        return {path: name for path, name in fields.items() if name is not None}

    def objectives(self, metric: Literal["ttft", "first_answer", "tps", "e2e", "error_rate"]) -> tuple[Objective, ...]:
        """The SLOs on one metric: those on all requests first, then those of single classes on that class alone."""
        found: list[Objective] = []
        for cls, slo in ((None, self.slo), *self.slo.classes.items()):
            path = f"slo.classes.{cls}.{metric}" if cls else f"slo.{metric}"
            if metric == "error_rate":
                if slo.error_rate is not None:
                    rate = slo.error_rate
                    found.append(Objective(metric=metric, share=1 - rate, limit=rate, path=path, cls=cls))
                continue
            for percentile, limit in (getattr(slo, metric) or {}).items():
                below = float(percentile.removeprefix("p")) / 100
                share = 1 - below if metric == "tps" else below
                place = f"{path}.{percentile}"
                found.append(
                    Objective(metric=metric, share=share, limit=limit, path=place, percentile=percentile, cls=cls)
                )
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Conflict:
    """One setting said twice and differently: profile path, both values, both places ("launch --flag")."""

    field: str
    first: str
    first_where: str
    second: str
    second_where: str

    @property
    def with_served(self) -> bool:
        """Whether one side is what the endpoint serves; else profile and launch line differ."""
        return any(where.startswith("served") for where in (self.first_where, self.second_where))

    @property
    def on_capacity(self) -> bool:
        """Whether the setting sizes the KV cache or the batch, rather than says what is served and on what."""
        return self.field.rpartition(".")[2] in _CAPACITY

    @property
    def on_identity(self) -> bool:
        """Whether the setting says what is served and on what; most others change its speed, not the subject."""
        return self.field.rpartition(".")[2] in _IDENTITY

    def __str__(self) -> str:
        return f"{self.field} is {self.first} ({self.first_where}) and {self.second} ({self.second_where})"


_CAPACITY = {
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "queue_limit", "slots", "context", "block_size"),
    *("kv_cache_dtype", "kv_pool_tokens", "kv_pool_bytes", "prefix_caching"),
    *("gpu_memory_utilization", "mem_fraction_static", "memory_fraction"),
    *("mamba_cache_mode", "mamba_cache_dtype", "mamba_ssm_cache_dtype", "mamba_slots", "mamba_full_ratio"),
    *("decode_context_parallel", "swa_full_tokens_ratio"),
}
_IDENTITY = {
    *("model", "engine", "count", "accelerator", "tensor_parallel", "pipeline_parallel", "data_parallel"),
    *("expert_parallel", "quantization", "speculative", "disaggregated"),
}
