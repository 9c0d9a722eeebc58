"""Deployments drawn at random for the trials of classification, each with a law of time and the truth by that law.

Half follow the emulator's own law, half a law of this file: the linear layers of a step take what such layers were
measured to take on A40, A100 and H100, and batches run at the captured graph sizes above them. Nothing here knows the
auditor's roofline. A deployment's truth is its four times at the target by its own law: reading the weights, reading
the cache, multiplying, and everything else. What the law hides behind a longer part still counts as far as it takes
time of its own, but for launches, which cost nothing while kernels run.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from auditor import bounds
from auditor.catalog import accelerators, models
from auditor.emulator.memory import pool_size
from auditor.emulator.spec import Spec
from auditor.emulator.timing import CAPTURE_SIZES, Law
from auditor.emulator.timing import law as emulated
from auditor.emulator.virtual import StepLaw, VirtualSource
from auditor.errors import UsageError
from auditor.loads import Load
from auditor.measurement import Measurement, Served
from auditor.plan.make import make_plan
from auditor.plan.pace import Pace
from auditor.profile import Budget, Endpoint, Lengths, Probe, Profile, Traffic, TrafficClass
from auditor.theory.classify import Classification, classify
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.ladders import Ladders
from auditor.theory.settings import Settings

# Milliseconds of one layer's four products (QKV, output, gate and up, down; fp16, one device) by tokens in the step:
# medians of microsoft/vidur, data/profiling/compute/{a40,a100,h100}/*/mlp.csv and attention.csv. Steps are the widths
# of tiles: 136 tokens cost almost what 256 do.
_TOKENS = (
    *(1, 8, 16, 32, 48, 64, 72, 96, 128, 136, 160, 192, 208, 256, 264, 320, 384, 416, 512),
    *(640, 768, 1024, 1536, 2048, 3072, 4096),
)
_MEASURED: dict[tuple[str, int], tuple[float, ...]] = {
    ("a40", 202_375_168): (
        *(0.727, 0.734, 0.750, 0.804, 0.896, 0.918, 0.919, 0.890, 0.908, 1.149, 1.045, 1.030, 1.212, 1.310, 1.491),
        *(1.532, 1.604, 1.948, 2.051, 2.674, 2.867, 3.946, 5.478, 7.459, 11.313, 15.122),
    ),
    ("a100-sxm-80", 218_103_808): (
        *(0.276, 0.286, 0.291, 0.315, 0.301, 0.324, 0.355, 0.362, 0.377, 0.530, 0.510, 0.486, 0.542, 0.554, 0.775),
        *(0.788, 0.797, 1.013, 0.994, 1.397, 1.520, 2.175, 3.075, 4.128, 5.879, 7.828),
    ),
    ("a100-sxm-80", 855_638_016): (
        *(1.072, 1.096, 1.115, 1.120, 1.132, 1.125, 1.307, 1.334, 1.297, 1.950, 1.956, 2.013, 2.081, 2.117, 2.944),
        *(3.044, 3.058, 3.888, 3.910, 4.912, 5.947, 8.128, 11.281, 14.713, 22.202, 29.426),
    ),
    ("h100-sxm", 202_375_168): (
        *(0.156, 0.152, 0.161, 0.159, 0.162, 0.162, 0.202, 0.204, 0.180, 0.241, 0.206, 0.206, 0.259, 0.260, 0.265),
        *(0.264, 0.304, 0.345, 0.329, 0.431, 0.521, 0.565, 0.909, 1.084, 1.703, 2.214),
    ),
    ("h100-sxm", 855_638_016): (
        *(0.593, 0.575, 0.581, 0.596, 0.597, 0.600, 0.620, 0.627, 0.611, 0.698, 0.705, 0.783, 0.742, 0.719, 1.019),
        *(0.922, 1.191, 1.291, 1.169, 2.025, 2.073, 2.759, 3.938, 4.947, 7.390, 10.163),
    ),
}
# A step is seen to multiply where it takes so many times one token's time, of which products at the rate of long
# prompts would take this part.
_CLEAR, _PLAIN = 1.1, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Seconds by part at the target, and the shares of the peaks that the law reaches: of the bandwidth in reading
    weights and cache, of the compute peak in a prompt of so many tokens.
    """

    decode: Mapping[str, float]
    prefill: Mapping[str, float]
    weights: float
    cache: float
    flops: Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One deployment with its target: `batch` streams of `prompt` and `output` tokens each."""

    seed: int
    spec: Spec
    settings: Settings
    law: StepLaw
    truth: Truth
    batch: int
    prompt: int
    output: int

    @property
    def geometry(self) -> Geometry:
        return self.spec.geometry

    @property
    def device(self) -> Device:
        return self.spec.device

    @property
    def context(self) -> float:
        return self.prompt + self.output / 2


def leader(times: Mapping[str, float]) -> str:
    """The largest part where it is 1.3 times the second, else mixed."""
    (first, name), (second, _) = sorted(((seconds, name) for name, seconds in times.items()), reverse=True)[:2]
    return name if first >= 1.3 * second else "mixed"


def _chunks(spec: Spec, tokens: int) -> list[tuple[int, int]]:
    """The steps in which a prompt is read: (new tokens, tokens before)."""
    size = spec.max_num_batched_tokens
    return [(min(size, tokens - before), before) for before in range(0, tokens, size)]


# -------------------------------------------------------------------------------------------------- the emulator's law


def _emulated_decode(law: Law, batch: int, context: float) -> dict[str, float]:
    width = 1 + law.drafts
    graph = law.captured and batch <= CAPTURE_SIZES[-1]
    rows = (CAPTURE_SIZES[bisect_left(CAPTURE_SIZES, batch)] if graph else batch) * width
    return _parts(law, [context] * batch, [], rows, graph)


def _emulated_prefill(law: Law, tokens: int) -> dict[str, float]:
    found = _parts(law, [], [(tokens, 0)], tokens, False)
    found["overhead"] += law.frontend + law.frontend_per_token * tokens
    return found


def _emulated_flops(law: Law, spec: Spec, tokens: int) -> float:
    """The share of the peaks that a prompt's FLOPs reach while they are multiplied, tiles filled: attention's are held
    against the 16-bit peak.
    """
    plain = spec.device.flops["bf16"]
    peak = spec.device.flops.get(spec.compute_dtype, plain)
    routed = law.expert_parameters * law.experts_per_token
    least = 2 * law.layers * (law.dense_parameters + routed) * tokens / peak
    taken = 2 * law.layers * (law.dense_parameters / law.peak + routed / law.expert_peak) * tokens
    for group in law.groups:
        for new, before in _chunks(spec, tokens):
            scores = group.count * group.pair_flops * new * min(before + (new + 1) / 2, group.window or math.inf)
            least, taken = least + scores / plain, taken + scores / law.attention_peak
    return least / taken


def _parts(
    law: Law, contexts: Sequence[float], chunks: Sequence[tuple[int, int]], tokens: int, graph: bool
) -> dict[str, float]:
    """The four times of a step. A launch that outlasts its layer's kernels is what the layer takes."""
    used = law.dense_parameters / law.peak + law.expert_parameters * law.experts_per_token / law.expert_peak
    touched = law.experts * (1 - (1 - law.experts_per_token / law.experts) ** tokens) if law.experts else 0.0
    read = (law.dense_parameters + law.expert_parameters * touched) * law.parameter_bytes / law.bandwidth
    multiply = 2 * used * (tokens + (law.half_full_prefill if chunks else law.half_full))
    outputs = len(chunks) if chunks else tokens
    times = {
        "weights": read * law.layers + 2 * law.head_parameters / law.bandwidth,
        "compute": multiply * law.layers + 2 * law.head_parameters * outputs / law.peak,
        "kv": 0.0,
    }
    launched = 0.0
    for group in law.groups:
        cached = sum(min(c, group.window or math.inf) for c in contexts)
        kv = cached * group.kv_bytes / law.kv_bandwidth
        scores = cached * (1 + law.drafts) * group.pair_flops / law.attention_peak
        if group.state_bytes:
            kv, scores = 2 * len(contexts) * group.state_bytes / law.kv_bandwidth, 0.0
        for new, before in chunks:
            mean = before + (new + 1) / 2
            scores += new * min(mean, group.window or math.inf) * group.pair_flops / law.attention_peak
        times["kv" if kv >= scores else "compute"] += group.count * max(kv, scores)
        kernel = max(read, multiply) + law.routing + max(kv, scores) + law.link + law.link_seconds_per_token * tokens
        launched += group.count * law.launch if not graph and law.launch > kernel else 0.0
    whole = law.step(contexts, chunks)
    times["overhead"] = whole - max(times["weights"], times["compute"]) - times["kv"]
    times["overhead"] = max(times["overhead"], launched)
    return times


# ------------------------------------------------------------------------------------------------- the measured curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A law of time whose linear layers follow a measured curve, scaled to a model's size. Seconds, bytes, FLOPs."""

    layers: int
    scale: float
    curve: tuple[float, ...]
    head: float
    head_token: float
    kv_token: float
    window: tuple[tuple[int, int | None], ...]
    attention: float
    gap: float
    base: float
    per_sequence: float
    frontend: float
    frontend_per_token: float

    def linear(self, tokens: float) -> float:
        """All layers' products."""
        index = bisect_left(_TOKENS, tokens)
        if tokens >= _TOKENS[-1]:
            each = self.curve[-1] * tokens / _TOKENS[-1]
        elif _TOKENS[index] == tokens or tokens < _TOKENS[-8]:
            each = self.curve[index]  # tiles: a step costs what its next measured size does
        else:
            (a, b), (low, high) = _TOKENS[index - 1 : index + 1], self.curve[index - 1 : index + 1]
            each = low + (high - low) * (tokens - a) / (b - a)
        return self.layers * self.scale * each

    def kv(self, contexts: Sequence[float]) -> float:
        """Reading the cache."""
        return sum(count * sum(min(c, window or c) for c in contexts) * self.kv_token for count, window in self.window)

    def pairs(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Pairs of tokens that see each other, over all layers."""
        pairs = 0.0
        for new, before in chunks:
            mean = before + (new + 1) / 2
            pairs += sum(count * new * min(mean, window or mean) for count, window in self.window)
        return pairs

    def scores(self, chunks: Sequence[tuple[int, int]]) -> float:
        """Attention of prompts."""
        return self.pairs(chunks) * self.attention

    def step(self, contexts: Sequence[float], chunks: Sequence[tuple[int, int]]) -> float:
        """Graphs run at the captured size above the batch; steps that read prompts run without."""
        batch, new = len(contexts), sum(new for new, _ in chunks)
        rows = _captured(batch) + new if not chunks else batch + new
        seconds = self.linear(rows) + max(self.head, self.head_token * (batch + len(chunks)))
        seconds += self.kv(contexts) + self.scores(chunks) + self.layers * self.gap + self.base
        return seconds + self.per_sequence * (batch + len(chunks))

    def parts(self, contexts: Sequence[float], chunks: Sequence[tuple[int, int]]) -> dict[str, float]:
        """The four times of a step. Products multiply for as long as the curve shows them to."""
        rows = sum(new for new, _ in chunks) or _captured(len(contexts))
        floor, seen = self.linear(1), self.linear(rows)
        multiply = rows * self.linear(_TOKENS[-1]) / _TOKENS[-1]
        if seen > _CLEAR * floor and multiply > _PLAIN * seen:
            multiply = seen
        head = self.head_token * (len(contexts) + len(chunks))
        times = {
            "weights": floor + self.head,
            "compute": multiply + head + self.scores(chunks),
            "kv": self.kv(contexts),
        }
        whole = self.step(contexts, chunks) + (self.frontend + self.frontend_per_token * rows if chunks else 0.0)
        overhead = whole - max(times["weights"], times["compute"]) - times["kv"]
        return times | {"overhead": overhead}


def _curved_flops(law: Curve, spec: Spec, tokens: int) -> float:
    chunks = _chunks(spec, tokens)
    seconds = sum(law.linear(new) for new, _ in chunks) + law.scores(chunks)
    geometry = spec.geometry
    group = geometry.layers[0]
    wide = 2 * geometry.attention_heads * (group.qk_head_dim + group.v_head_dim)
    return (2 * geometry.active_parameters * tokens + wide * law.pairs(chunks)) / seconds / spec.device.flops["bf16"]


def _captured(batch: int) -> int:
    return CAPTURE_SIZES[bisect_left(CAPTURE_SIZES, batch)] if 0 < batch <= CAPTURE_SIZES[-1] else batch


def _curve(spec: Spec, draw: Random) -> tuple[Curve, float, float]:
    """The law, and the shares of the bandwidth that reading weights and the cache reaches."""
    geometry, device = spec.geometry, spec.device
    parameters, milliseconds = draw.choice([(p, t) for (key, p), t in _MEASURED.items() if key == device.key])
    layers, peak = geometry.layer_count, device.flops["bf16"]
    own = geometry.active_parameters / layers
    cache, attention = draw.uniform(0.6, 0.9), draw.uniform(0.2, 0.5)
    streamed = 2 * parameters / (milliseconds[0] * 1e-3) / device.bandwidth
    multiplied = 2 * parameters * _TOKENS[-1] / (milliseconds[-1] * 1e-3) / peak
    group = geometry.layers[0]
    law = Curve(
        layers=layers,
        scale=own / parameters * 1e-3,
        curve=milliseconds,
        head=2 * geometry.embedding_parameters / (device.bandwidth * streamed),
        head_token=2 * geometry.embedding_parameters / (peak * multiplied),
        kv_token=group.kv_heads * (group.qk_head_dim + group.v_head_dim) * spec.kv_bytes / (device.bandwidth * cache),
        window=tuple((each.count, each.window) for each in geometry.layers),
        attention=2 * geometry.attention_heads * (group.qk_head_dim + group.v_head_dim) / (peak * attention),
        gap=math.exp(draw.uniform(math.log(5e-6), math.log(150e-6))),
        base=draw.uniform(0.3e-3, 3e-3),
        per_sequence=draw.uniform(1e-6, 8e-6),
        frontend=draw.uniform(0.5e-3, 4e-3),
        frontend_per_token=draw.uniform(0.1e-6, 0.6e-6),
    )
    return law, streamed, cache


# --------------------------------------------------------------------------------------------------------------- draws

DENSE = (
    *("meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-3B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    *("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-32B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
    *("meta-llama/Llama-2-7b-chat-hf", "Qwen/Qwen3-4B", "google/gemma-3-12b-it", "Qwen/Qwen2.5-1.5B-Instruct"),
)
MOE = (
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/deepseek-moe-16b-chat",
    "microsoft/Phi-3.5-MoE-instruct",
    "zai-org/GLM-4.5-Air",
)
DEVICES = ("h100-sxm", "h200-sxm", "a100-sxm-80", "l40s", "b200", "h20", "rtx-4090", "l4")
CURVED = ("a40", "a100-sxm-80", "h100-sxm")
BOUNDS = {"decode": ("compute", "weights", "kv", "overhead"), "prefill": ("compute", "weights", "overhead")}


def draw_trial(seed: int, phase: str = "decode", *, tied: bool = False) -> Trial:
    """The trial of a seed: odd seeds follow a measured curve; seeds take turns at what bounds the phase. Where `tied`,
    no part is 1.3 times the next.
    """
    draw, bounds = Random(f"{phase} {seed}"), BOUNDS[phase]
    wanted = "mixed" if tied else bounds[seed // 2 % len(bounds)]
    while True:
        trial = _drawn(seed, draw)
        if trial is not None and leader(getattr(trial.truth, phase)) == wanted:
            return trial


def _drawn(seed: int, draw: Random) -> Trial | None:
    """Any deployment; None for one that does not start, or whose cache cannot hold the target."""
    curved = seed % 2 == 1
    device = accelerators.find(draw.choice(CURVED if curved else DEVICES))
    geometry = models.find(draw.choice(DENSE if curved or draw.random() < 0.6 else MOE))
    batch = round(math.exp(draw.uniform(0, math.log(320))))
    prompt = round(math.exp(draw.uniform(math.log(100), math.log(12_000))))
    output = round(math.exp(draw.uniform(math.log(30), math.log(600))))
    fp8 = not curved and "fp8" in device.flops and draw.random() < 0.4 and geometry.quantization is None
    spec = Spec(
        geometry=geometry,
        model=geometry.name,
        device=device,
        tensor_parallel=1 if curved or "NVLink" not in (device.interconnect or "") else draw.choice((1, 1, 2, 4, 8)),
        max_model_len=prompt + output + 4500,
        max_num_seqs=512,
        max_num_batched_tokens=draw.choice((2048, 8192)),
        weight_bits=8.0 if fp8 else 4.25 if geometry.quantization == "mxfp4" else 16.0,
        quantization="fp8" if fp8 else geometry.quantization,
        compute_dtype="fp8" if fp8 else "bf16",
        enforce_eager=not curved and draw.random() < 0.15,
        jitter=0.05,
        seed=seed,
    )
    try:
        slots = pool_size(spec).slots
    except UsageError:
        return None
    if batch * (prompt + output) > 0.95 * slots:
        return None
    law, truth = (_on_curve if curved else _on_emulator)(spec, (batch, prompt, output), draw)
    return Trial(
        seed=seed, spec=spec, settings=_settings(spec), law=law, truth=truth, batch=batch, prompt=prompt, output=output
    )


def _on_curve(spec: Spec, target: tuple[int, int, int], draw: Random) -> tuple[StepLaw, Truth]:
    batch, prompt, output = target
    law, weights, cache = _curve(spec, draw)
    truth = Truth(
        decode=law.parts([prompt + output / 2] * batch, []),
        prefill=law.parts([], [(min(prompt, spec.max_num_batched_tokens), 0)]),
        weights=weights,
        cache=cache,
        flops=lambda tokens: _curved_flops(law, spec, tokens),
    )
    return law, truth


def _on_emulator(spec: Spec, target: tuple[int, int, int], _draw: Random) -> tuple[StepLaw, Truth]:
    batch, prompt, output = target
    law = emulated(spec)
    truth = Truth(
        decode=_emulated_decode(law, batch, prompt + output / 2),
        prefill=_emulated_prefill(law, min(prompt, spec.max_num_batched_tokens)),
        weights=law.bandwidth / spec.device.bandwidth,
        cache=law.kv_bandwidth / spec.device.bandwidth,
        flops=lambda tokens: _emulated_flops(law, spec, tokens),
    )
    return law, truth


def _settings(spec: Spec) -> Settings:
    return Settings(
        engine="vllm",
        engine_version=spec.version,
        devices=spec.tensor_parallel,
        tensor_parallel=spec.tensor_parallel,
        compute_dtype=spec.compute_dtype,
        weight_bits=spec.weight_bits,
        quantization=spec.quantization,
        kv_bytes=spec.kv_bytes,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.max_num_seqs,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        enforce_eager=spec.enforce_eager,
        captured_batch=None if spec.enforce_eager else 512,
        vendor=spec.device.vendor,
    )


# ------------------------------------------------------------------------------------------------------------- ladders


def ladder_loads(trial: Trial) -> list[Load]:
    """The ladders that an audit of this deployment sends, whatever they cost."""
    traffic = Traffic(
        target_concurrency=trial.batch,
        classes=(
            TrafficClass(name="a", prompt_tokens=Lengths(p50=trial.prompt), output_tokens=Lengths(p50=trial.output)),
        ),
    )
    budget = Budget(duration=3600, requests=10**6, tokens=10**9)
    profile = Profile(
        version=1, name="trial", endpoint=Endpoint(url="emulator"), traffic=traffic, probe=Probe(budget=budget)
    )
    served = Served(engine="vllm", api="chat", max_model_len=trial.spec.max_model_len)
    pace = Pace(per_prompt_token=1e-4, per_step=0.02)
    plan = make_plan(profile, served, pace, trial.spec.max_num_batched_tokens)
    return [load for load in plan.loads if load.purpose in {"prefill", "decode"}]


def read(trial: Trial, measurements: Iterable[Measurement]) -> Ladders:
    """The ladders as classification takes them."""
    measured = list(measurements)
    decode = [m for m in measured if m.load.purpose == "decode"]
    return Ladders(
        prompts=tuple(point for m in measured if m.load.purpose == "prefill" for point in m.first_tokens()),
        steps=bounds.steps(decode),
        queued=bounds.queued(decode),
        batch=trial.batch,
        context=trial.context,
        prompt=trial.prompt,
    )


def classified(trial: Trial) -> tuple[Classification, Ladders]:
    """What the ladders tell of the trial, run in virtual time without sockets."""
    source = VirtualSource(trial.spec, trial.law)
    ladders = read(trial, map(source.measure, ladder_loads(trial)))
    return classify(trial.geometry, trial.settings, trial.device, ladders), ladders
