"""Time of a prompt and of a decode step: the physical limit, which nothing beats, and what engines reach.

A limit charges only the bytes that must cross the memory bus and the FLOPs that must be done, at full peak, and lets
them overlap (Williams, Waterman and Patterson, CACM 52(4), 2009). A prediction adds what priors say is lost.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from auditor.theory import links
from auditor.theory.device import Device
from auditor.theory.experts import coverage
from auditor.theory.kv.geometry import Geometry
from auditor.theory.priors import DecodeLaw, PrefillLaw, decode_law, prefill_law, products_rate
from auditor.theory.settings import Settings
from auditor.theory.speculation import drafting_bytes, yield_of
from auditor.theory.weights import streamed_bytes
from auditor.theory.work import (
    decode_attention_flops,
    decode_flops,
    decode_kv_bytes,
    decode_linear_flops,
    fastest,
    linear_devices,
    prefill_attention_flops,
    prefill_flops,
    prefill_linear_flops,
    rate,
    streamed,
)

__all__ = [
    "Limit",
    "Prediction",
    "decode_limit",
    "predict_decode",
    "predict_prefill",
    "prefill_limit",
    "token_limit",
]

Bound = Literal["weights", "kv", "compute", "overhead", "mixed"]
Largest = Literal["weights", "kv", "compute", "overhead", "mixed", "prompts", "busy"]
_DOMINATES = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The least seconds that physics allows, and why: FLOPs and bytes per device, their ratio and the device's ridge.

    `bound` is compute, or whichever of weights and kv moves more bytes.
    """

    seconds: float
    bound: Bound
    flops: float
    bytes: float
    intensity: float
    ridge: float
    weights_s: float
    kv_s: float
    compute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Expected seconds with an 80 % band, split into what costs them; `bound` is mixed where no part is 1.3 x the next.

    `links_s` is the part of `overhead_s` that devices spend on talking to each other, `prompts_s` the part of a decode
    step's time in which others' prompts are read, `prompts_compute_s` of it within `compute_s` and the rest within
    `overhead_s`, `busy_s` the part of a prompt's overhead that an idle engine spares it. `own` leaves out what others
    cost. `source` names the measurements behind the band.
    """

    seconds: float
    low: float
    high: float
    bound: Bound
    weights_s: float
    kv_s: float
    compute_s: float
    overhead_s: float
    links_s: float = 0.0
    prompts_s: float = 0.0
    prompts_compute_s: float = 0.0
    busy_s: float = 0.0
    source: str = ""

    @property
    def own(self) -> "Prediction":
        """What a step costs without others' prompts, and a prompt in an idle engine: the parts, and what bounds it."""
        compute = max(0.0, self.compute_s - self.prompts_compute_s)
        overhead = max(0.0, self.overhead_s - (self.prompts_s - self.prompts_compute_s) - self.busy_s)
        return replace(
            self,
            seconds=max(0.0, self.seconds - self.prompts_s - self.busy_s),
            bound=_bound(self.weights_s, self.kv_s, compute, overhead),
            compute_s=compute,
            overhead_s=overhead,
            prompts_s=0.0,
            prompts_compute_s=0.0,
            busy_s=0.0,
        )

    @property
    def largest(self) -> Largest:
        """The part that most of the time goes to, what others cost as one of them; mixed where none stands out."""
        own, others = self.own, max(self.prompts_s, self.busy_s)
        most = max(own.weights_s, own.kv_s, own.compute_s, own.overhead_s)
        if others >= _DOMINATES * most > 0:
            return "prompts" if self.prompts_s >= self.busy_s else "busy"
        return own.bound if others * _DOMINATES <= most else "mixed"


# --------------------------------------------------------------------------------------------------------------- limits


def decode_limit(  # noqa: PLR0917 (geometry, settings, device come first everywhere)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    batch: float,
    context: float,
    longest: float | None = None,
) -> Limit:
    """Least time of one step: max((W_stream + KV) / BW, FLOPs / PEAK) per device, with only k experts a layer read.

    `context` is the mean of the sequences, `longest` what none exceeds; without it twice the mean, as of replies that
    grow from prompts of one length.
    """
    longest = 2 * context if longest is None else longest
    weights = streamed_bytes(geometry, settings, batch, limit=True)
    kv = decode_kv_bytes(geometry, settings, batch, context, longest)
    flops = decode_flops(geometry, batch, context, longest) / linear_devices(settings)
    return _limit(device, settings, flops, weights, kv)


def token_limit(limit: Limit, settings: Settings) -> float:
    """The least seconds a token of a step: where tokens are drafted every one may be accepted."""
    return limit.seconds / (1 + settings.speculative_tokens)


def prefill_limit(
    geometry: Geometry, settings: Settings, device: Device, prompt_tokens: float, prompts: float = 1.0
) -> Limit:
    """Least time of one prompt alone, or of several read together: their FLOPs at peak or one reading of the weights,
    whichever is longer. Experts that are spread over data-parallel ranks may bring the whole instance to bear on it.
    """
    weights = streamed_bytes(geometry, settings, prompt_tokens, limit=True)
    devices = settings.tensor_parallel * settings.pipeline_parallel
    if geometry.experts is not None and settings.expert_parallel > settings.tensor_parallel:
        devices *= settings.data_parallel
    return _limit(device, settings, prompts * prefill_flops(geometry, prompt_tokens) / devices, weights, 0.0)


def _limit(device: Device, settings: Settings, flops: float, weights: float, kv: float) -> Limit:
    device, peak = device.at(weights + kv), fastest(device, settings)
    compute_s = flops / peak if peak else 0.0
    weights_s, kv_s = weights / device.bandwidth, kv / device.bandwidth
    bound: Bound = "compute" if compute_s > weights_s + kv_s else ("kv" if kv_s > weights_s else "weights")
    return Limit(
        seconds=max(compute_s, weights_s + kv_s),
        bound=bound,
        flops=flops,
        bytes=weights + kv,
        intensity=flops / max(1.0, weights + kv),
        ridge=peak / device.bandwidth,
        weights_s=weights_s,
        kv_s=kv_s,
        compute_s=compute_s,
    )


# ---------------------------------------------------------------------------------------------------------- predictions

# Reading weights and multiplying by them overlap in part: t^p = read^p + multiply^p fits the measured products of one
# layer of Llama-2-7B, 70B and Llama-3-8B, 1 to 32,768 tokens, on A40, A100 and H100 within 3 to 5 % for p from 1.2 to
# 1.7 (microsoft/vidur, data/profiling/compute).
_OVERLAP = 1.45
_STEP_TOKENS = 8192  # of a prompt that a step reads where the engine's limit is not known
_UBATCH = 512  # llama.cpp's (common/common.h)


def _together(read: float, multiply: float) -> float:
    """Seconds of matrix products that read for `read` and multiply for `multiply` seconds."""
    longer = max(read, multiply)
    if longer <= 0:
        return 0.0
    return float(longer * ((read / longer) ** _OVERLAP + (multiply / longer) ** _OVERLAP) ** (1 / _OVERLAP))


def predict_decode(  # noqa: PLR0917 (the six arguments of the law, in the order of its formula)
    geometry: Geometry,
    settings: Settings,
    device: Device,
    batch: float,
    context: float,
    prompt_per_output: float = 0.0,
) -> Prediction:
    """Expected seconds a token of each of `batch` sequences at `context` tokens (TPOT).

    A step reads weights and cache, multiplies, launches its kernels layer by layer and exchanges activations; `priors`
    says at which shares of the peaks. Between steps prompts are read, `prompt_per_output` of their tokens for each
    output token (continuous batching at steady state: the traffic's prompt / output ratio; 0 for decode alone). Where
    tokens are drafted, a step's time is shared by those that it is likely to yield.
    """
    limit = decode_limit(geometry, settings, device, batch, context)
    device, law = device.at(limit.bytes), decode_law(geometry, settings, device)
    stages = settings.pipeline_parallel
    # A token passes all stages one after the other; a batch of at least as many sequences keeps all of them busy.
    busy = min(stages, max(1.0, batch))
    alone = stages / busy
    tokens = batch * (1 + settings.speculative_tokens)
    weights = _weights(geometry, settings, device, (law.weights, law.experts), tokens / busy) * stages
    weights += drafting_bytes(geometry, settings) / (device.bandwidth * law.weights)
    peak = products_rate(device, settings) * linear_devices(settings) * law.products
    own = decode_linear_flops(geometry, tokens) / peak * alone if peak else 0.0
    kv = decode_kv_bytes(geometry, settings, batch, context) / (device.bandwidth * law.kv) * alone
    compute = _together(weights, own) - weights
    compute += max(0.0, _attention(geometry, settings, device, law.attention, tokens, context) * alone - kv)
    compute += _unpacking(geometry, settings, device, law)
    crossing = geometry.layer_count * _exchange(geometry, settings, device, tokens / settings.data_parallel)
    crossing += (stages - 1) * links.send(device, tokens * geometry.hidden_size * 2.0)
    overhead = (
        _kernels(geometry, law, 1 + settings.speculative_tokens) + batch / settings.data_parallel * law.per_sequence
    )
    between = _prompts_between(geometry, settings, device, law, batch, context, prompt_per_output)
    read, waited = (seconds / busy for seconds in between)  # the stages are at work on different ones
    found = yield_of(settings)  # each token of a step that yields several brings its own share of prompts
    weights, kv, crossing = (part / found.likely for part in (weights, kv, crossing))
    compute, overhead = compute / found.likely + read, overhead / found.likely + crossing + waited
    band = (_apart(law.low, found.likely / found.high), _apart(law.high, found.likely / found.low))
    step = _prediction(token_limit(limit, settings), (weights, kv, compute, overhead), band, law.source)
    return replace(step, links_s=crossing, prompts_s=read + waited, prompts_compute_s=read)


def _weights(
    geometry: Geometry, settings: Settings, device: Device, shares: tuple[float, float], tokens: float
) -> float:
    """Seconds in which one device reads what a step of `tokens` tokens needs of its weights."""
    dense, experts = streamed(geometry, settings)
    touched = coverage(geometry.experts, tokens) if geometry.experts else 0.0
    return (dense / shares[0] + touched * experts / shares[1]) / device.bandwidth


def _attention(  # noqa: PLR0917
    geometry: Geometry, settings: Settings, device: Device, share: float, tokens: float, context: float
) -> float:
    """Seconds of a step's attention if it were bound by compute, as MLA's can be."""
    peak = rate(device, "bf16") * linear_devices(settings) * share
    return decode_attention_flops(geometry, tokens, context) / peak if peak else 0.0


def _unpacking(geometry: Geometry, settings: Settings, device: Device, law: DecodeLaw) -> float:
    units = rate(device, "fp32") * linear_devices(settings)
    return law.unpack * geometry.active_parameters / units if units else 0.0


def _kernels(geometry: Geometry, law: DecodeLaw, drafts: int) -> float:
    """Seconds of launches and small kernels in all layers; each drafted token passes about one more layer."""
    experts = geometry.experts.layers if geometry.experts else 0
    return (geometry.layer_count + drafts - 1) * law.per_layer + experts * law.per_expert_layer


def _exchange(geometry: Geometry, settings: Settings, device: Device, tokens: float) -> float:
    """Seconds of one layer's communication for `tokens` tokens: two all-reduces under tensor parallelism; experts that
    are spread over data-parallel ranks are sent their tokens (8 bit) and send results back (16 bit).
    """
    seconds = 2 * links.all_reduce(device, settings.tensor_parallel, tokens * geometry.hidden_size * 2.0)
    experts, ranks = geometry.experts, settings.expert_parallel
    if experts is not None and ranks > settings.tensor_parallel:
        spread = tokens * experts.per_token * geometry.hidden_size
        share = experts.layers / max(1, geometry.layer_count)
        seconds += share * (links.all_to_all(device, ranks, spread) + links.all_to_all(device, ranks, 2.0 * spread))
    return seconds


def _prompts_between(  # noqa: PLR0917
    geometry: Geometry,
    settings: Settings,
    device: Device,
    law: DecodeLaw,
    batch: float,
    context: float,
    ratio: float,
) -> tuple[float, float]:
    """Seconds of compute and of overhead that prompts add to each step.

    A sequence of P prompt and O output tokens is on average at context P + O / 2, and P = ratio x O; while it decodes,
    each step bears the prompts of the others on its data-parallel rank, (batch - 1) / O of them. Their weights are read
    by the step anyway.
    """
    if ratio <= 0 or settings.disaggregated:
        return 0.0, 0.0
    output = max(1.0, context / (ratio + 0.5))
    prompt, each = ratio * output, max(0.0, batch / settings.data_parallel - 1) / output
    compute = _prompt_compute(geometry, settings, device, (law.products, law.attention), prompt)
    chunk = min(prompt, _step_tokens(settings))
    crossing = geometry.layer_count * prompt / chunk * _exchange(geometry, settings, device, chunk)
    return each * compute, each * (geometry.layer_count * law.per_prompt + crossing)


def _prompt_compute(
    geometry: Geometry, settings: Settings, device: Device, shares: tuple[float, float], tokens: float
) -> float:
    """Seconds of a prompt's products and attention at these shares of the peaks."""
    devices = settings.tensor_parallel
    peak, plain = products_rate(device, settings), rate(device, "bf16")
    linear = prefill_linear_flops(geometry, tokens) / (devices * peak * shares[0]) if peak else 0.0
    return linear + (prefill_attention_flops(geometry, tokens) / (devices * plain * shares[1]) if plain else 0.0)


def _step_tokens(settings: Settings) -> float:
    """The most tokens of prompts that a step reads."""
    if settings.engine == "llamacpp":
        return settings.ubatch or _UBATCH
    return settings.max_num_batched_tokens or _STEP_TOKENS


def predict_prefill(
    geometry: Geometry, settings: Settings, device: Device, prompt_tokens: float, prompts: float = 1.0
) -> Prediction:
    """Expected time of one prompt alone (TTFT less the network), or of several read together.

    Each chunk of tokens that a step takes reads the weights, multiplies and exchanges activations. A served prompt's
    fixed part is that of engines with a few sequences decoding. Under load TTFT also waits for other prompts and cannot
    be predicted from outside; judge it by measurement. The band's fast end is that of an engine that is idle.
    """
    limit = prefill_limit(geometry, settings, device, prompt_tokens, prompts)
    device, law = device.at(limit.bytes), prefill_law(geometry, settings, device)
    chunk = max(1.0, min(prompts * prompt_tokens, _step_tokens(settings)))
    chunks = max(1.0, prompts * prompt_tokens / chunk)
    weights = _weights(geometry, settings, device, (law.weights, law.experts), chunk)
    weights *= chunks * settings.pipeline_parallel
    compute = prompts * _prompt_compute(geometry, settings, device, (law.products, law.attention), prompt_tokens)
    scores = prompts * _scores(geometry, settings, device, law, prompt_tokens)
    stream = _together(weights, compute) - compute
    crossing = chunks * geometry.layer_count * _exchange(geometry, settings, device, chunk)
    overhead = law.fixed + _per_layers(geometry, law) * (chunks if settings.engine == "llamacpp" else 1.0)
    parts = (stream, scores, compute, overhead + crossing)
    found = _prediction(limit.seconds, parts, (law.low, law.high), law.source)
    busy = (1 - law.idle) * overhead
    low = max((found.seconds - busy) * law.low, limit.seconds)
    return replace(found, low=low, links_s=crossing, busy_s=busy)


def _scores(geometry: Geometry, settings: Settings, device: Device, law: PrefillLaw, tokens: float) -> float:
    """Seconds in which unfused attention writes and reads its scores: every pair of tokens, masked or not."""
    layers = sum(group.count + group.readers for group in geometry.layers)
    pairs = layers * geometry.attention_heads * tokens**2 / settings.tensor_parallel
    return law.scores * pairs / device.bandwidth


def _per_layers(geometry: Geometry, law: PrefillLaw) -> float:
    latent = sum(group.count for group in geometry.layers if group.latent_dim is not None)
    experts = geometry.experts.layers if geometry.experts else 0
    return geometry.layer_count * law.per_layer + experts * law.per_expert_layer + latent * law.per_latent_layer


def _apart(one: float, other: float) -> float:
    """Two independent factors as one: their logarithms add in squares. Both lie on the same side of 1."""
    size = math.hypot(math.log(one), math.log(other))
    return math.exp(size if one > 1 else -size)


def _prediction(limit: float, parts: tuple[float, ...], band: tuple[float, float], source: str) -> Prediction:
    """Put the parts together, never below the limit."""
    weights, kv, compute, overhead = parts
    seconds = max(sum(parts), limit)
    return Prediction(
        seconds=seconds,
        low=max(seconds * band[0], limit),
        high=seconds * band[1],
        bound=_bound(weights, kv, compute, overhead),
        weights_s=weights,
        kv_s=kv,
        compute_s=compute,
        overhead_s=overhead,
        source=source,
    )


def _bound(weights: float, kv: float, compute: float, overhead: float) -> Bound:
    parts: tuple[tuple[float, Bound], ...] = (
        (weights, "weights"),
        (kv, "kv"),
        (compute, "compute"),
        (overhead, "overhead"),
    )
    (largest, name), (second, _) = sorted(parts, key=lambda part: -part[0])[:2]
    return name if largest >= _DOMINATES * second else "mixed"
