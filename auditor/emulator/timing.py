"""How long one step takes: the emulator's own law, which the auditor does not know and does not fit.

Within a layer the linear part takes the slower of its compute and its bandwidth time, attention likewise; decode
batches are padded to the captured sizes; the host adds a fixed part, a part per sequence and, without a captured
graph, a launch time below which no layer gets. Efficiencies are drawn by the seed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from auditor.emulator.spec import Spec
from auditor.theory.kv.geometry import Recurrent

__all__ = ["CAPTURE_SIZES", "Law", "law"]

# The batch sizes that vLLM captures CUDA graphs for by default (1, 2, 4, multiples of 8, of 16 above 256).
CAPTURE_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))


@dataclass(frozen=True, slots=True)
class _Group:
    """Layers of one kind, per device: KV bytes per cached token and FLOPs per (query, key) pair of attention, or bytes
    of a sequence's state and FLOPs per token of recurrence.
    """

    count: int
    kv_bytes: float
    pair_flops: float
    window: int | None
    state_bytes: float = 0.0
    token_flops: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The drawn constants of one deployment; `step` is the law. Seconds, bytes and FLOPs per device."""

    groups: tuple[_Group, ...]
    layers: int
    dense_parameters: float
    expert_parameters: float
    experts: int
    experts_per_token: int
    parameter_bytes: float
    head_parameters: float
    peak: float
    bandwidth: float
    attention_peak: float
    kv_bandwidth: float
    expert_peak: float
    half_full: float
    half_full_prefill: float
    routing: float
    mixed_penalty: float
    graph_gap: float
    launch: float
    base: float
    per_sequence: float
    link: float
    link_seconds_per_token: float
    captured: bool
    drafts: int
    frontend: float
    frontend_per_token: float

    def step(self, contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> float:
        """Seconds for one step: `contexts` of decoding sequences, (new tokens, tokens before) of prefill chunks."""
        width = 1 + self.drafts
        batch = len(contexts)
        graph = self.captured and not chunks and batch <= CAPTURE_SIZES[-1]
        rows = (CAPTURE_SIZES[bisect_left(CAPTURE_SIZES, batch)] if graph else batch) * width
        tokens = rows + sum(new for new, _ in chunks)
        linear = self._linear(tokens, self.half_full_prefill if chunks else self.half_full)
        total = 0.0
        for group in self.groups:
            kernel = linear + self._attention(group, contexts, chunks)
            kernel += self.link + self.link_seconds_per_token * tokens if self.link else 0.0
            total += group.count * (kernel + self.graph_gap if graph else max(kernel, self.launch))
        outputs = rows + len(chunks)
        head = max(self.head_parameters * 2 / self.bandwidth, 2 * self.head_parameters * outputs / self.peak)
        return total + head + self.base + self.per_sequence * (batch + len(chunks))

    def _linear(self, tokens: int, half_full: float) -> float:
        """One layer's matrices: few tokens fill the compute units badly, and experts each see few of them."""
        used = self.dense_parameters / self.peak + self.expert_parameters * self.experts_per_token / self.expert_peak
        touched = 0.0
        if self.experts:
            touched = self.experts * (1 - (1 - self.experts_per_token / self.experts) ** tokens)
        streamed = (self.dense_parameters + self.expert_parameters * touched) * self.parameter_bytes
        return max(2 * used * (tokens + half_full), streamed / self.bandwidth) + self.routing

    def _attention(self, group: _Group, contexts: Sequence[int], chunks: Sequence[tuple[int, int]]) -> float:
        if group.state_bytes:
            return self._recurrence(group, len(contexts), sum(new for new, _ in chunks), len(chunks))
        window = group.window
        cached = sum(contexts) if window is None else sum(min(context, window) for context in contexts)
        decode = max(
            cached * group.kv_bytes / self.kv_bandwidth,
            cached * (1 + self.drafts) * group.pair_flops / self.attention_peak,
        )
        if not chunks:
            return decode
        pairs = held = 0.0
        for new, before in chunks:
            mean = before + (new + 1) / 2
            pairs += new * (mean if window is None else min(mean, window))
            held += new + before if window is None else min(new + before, window + new)
        prefill = max(pairs * group.pair_flops / self.attention_peak, held * group.kv_bytes / self.kv_bandwidth)
        return (decode + prefill) * (self.mixed_penalty if contexts else 1.0)

    def _recurrence(self, group: _Group, batch: int, new: int, chunks: int) -> float:
        """Every sequence's state is read and written once a step, whatever its context."""
        tokens = batch * (1 + self.drafts) + new
        moved = 2 * (batch + chunks) * group.state_bytes
        return max(moved / self.kv_bandwidth, tokens * group.token_flops / self.attention_peak)


def _group(spec: Spec, index: int) -> _Group:
    layers = spec.geometry.layers[index]
    heads = spec.geometry.attention_heads / spec.tensor_parallel
    if layers.kind == "mla":
        latent, indexer = layers.latent_dim or 0, spec.geometry.indexer
        seen = indexer.topk if indexer else None  # sparse attention reads so many tokens, however long the context
        return _Group(layers.count, latent * spec.kv_bytes, 2 * heads * 2 * latent, seen)
    kv_heads = max(1, layers.kv_heads // spec.tensor_parallel)
    wide = layers.qk_head_dim + layers.v_head_dim
    return _Group(layers.count + layers.readers, kv_heads * wide * spec.kv_bytes, 2 * heads * wide, layers.window)


def _recurrent(spec: Spec, layer: Recurrent) -> _Group:
    """The recurrence multiplies and adds each element of the matrix some six times a token."""
    matrix = layer.heads * layer.head_dim * layer.state_size / spec.tensor_parallel
    size = max(1.0, matrix * (spec.state_bytes or layer.state_bytes or 2.0))
    return _Group(layer.count, 0.0, 0.0, None, state_bytes=size, token_flops=6 * matrix)


def _peak(spec: Spec) -> float:
    flops = spec.device.flops
    for dtype in (spec.compute_dtype, "bf16", "fp16"):
        if dtype in flops:
            return flops[dtype]
    return max(flops.values())


def law(spec: Spec) -> Law:
    """The law of a deployment, its efficiencies drawn from ranges as seen on served models of the past years."""
    draw = Random(f"law {spec.seed}").uniform
    geometry = spec.geometry
    layers = geometry.layer_count
    experts = geometry.experts
    routed = experts.parameters * experts.layers / layers if experts else 0.0
    dense = geometry.active_parameters / layers - routed * (experts.per_token if experts else 0)
    peak, bandwidth, tensor = _peak(spec), spec.device.bandwidth, spec.tensor_parallel
    return Law(
        groups=(
            *(_group(spec, index) for index in range(len(geometry.layers))),
            *(_recurrent(spec, layer) for layer in geometry.recurrent),
        ),
        layers=layers,
        dense_parameters=dense / tensor,
        expert_parameters=routed / tensor,
        experts=experts.count if experts else 0,
        experts_per_token=experts.per_token if experts else 0,
        parameter_bytes=spec.weight_bits / 8,
        head_parameters=geometry.embedding_parameters / tensor,
        peak=peak * draw(0.56, 0.68),
        bandwidth=bandwidth * draw(0.83, 0.91),
        attention_peak=peak * draw(0.35, 0.5),
        kv_bandwidth=bandwidth * draw(0.7, 0.82),
        expert_peak=peak * draw(0.15, 0.25),
        half_full=draw(30, 60),
        half_full_prefill=draw(120, 220),
        routing=draw(10e-6, 20e-6) if experts else 0.0,
        mixed_penalty=draw(1.05, 1.2),
        graph_gap=draw(14e-6, 26e-6),
        launch=draw(80e-6, 120e-6),
        base=draw(0.5e-3, 0.9e-3),
        per_sequence=draw(4e-6, 8e-6),
        link=draw(8e-6, 14e-6) if tensor > 1 else 0.0,
        link_seconds_per_token=4 * geometry.hidden_size / draw(250e9, 350e9) if tensor > 1 else 0.0,
        captured=not spec.enforce_eager,
        drafts=spec.draft_tokens,
        frontend=draw(0.8e-3, 2e-3),
        frontend_per_token=draw(0.2e-6, 0.6e-6),
    )
