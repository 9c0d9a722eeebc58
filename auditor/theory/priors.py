"""What real engines reach of a device's peaks: priors with their spread, by class of hardware and engine.

Shares of bandwidth and of dense peaks are those of measured kernels: streaming weights reaches 0.80 to 0.85 of the
bandwidth (p95 0.85 to 0.90), large products 0.72 to 0.84 of the 16-bit, 0.64 to 0.74 of the fp8 and 0.41 to 0.55 of the
fp4 peak from A100 to GB300 (ai-dynamo/aiconfigurator, systems/data/*/gemm). What a layer costs beside its bytes and
FLOPs, and all spreads, come from published measurements of whole engines: aiconfigurator's silicon samples, NVIDIA's
NIM performance page, XiongjieDai/GPU-Benchmarks-on-LLM-Inference, ggml-org/llama.cpp benches/dgx-spark.md, discussion
4167, github sh1ng/llm-perf-bench, vllm-project/recipes; of AMD's ROCm/vllm docs/dev-docker, alpharomercoma/
MI300X-vs-H200, visorcraft/strix-halo-llm-perf and lhl/strix-halo-testing; of Apple's geerlingguy/ai-benchmarks.
"""

import re
from dataclasses import dataclass, replace

from auditor.theory.classes import Class, device_class, is_local
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry
from auditor.theory.settings import Settings
from auditor.theory.work import rate

__all__ = ["DecodeLaw", "PrefillLaw", "decode_law", "prefill_law", "products_rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaw:
    """Where the time of a step goes.

    Shares: `weights`, `experts` and `kv` of the bandwidth that reading dense weights, routed experts and the cache
    reaches; `products` of the peak that large matrix products reach, `attention` of the 16-bit peak. Seconds:
    `per_layer`, `per_expert_layer` (more for a layer with routed experts), `per_sequence`, `per_prompt` (a layer, for
    each prompt read in between). `unpack` FLOPs at the 32-bit rate unpack one weight. `low` and `high` scale the
    prediction to its 80 % band.
    """

    weights: float
    experts: float
    kv: float
    products: float
    per_layer: float
    per_expert_layer: float = 0.0
    per_sequence: float = 0.0
    per_prompt: float = 0.0
    attention: float = 0.4
    unpack: float = 0.0
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLaw:
    """Where the time of a prompt goes: shares as in `DecodeLaw`; `fixed` seconds and some for each layer and each layer
    with routed experts or latent attention; `scores` bytes moved for each score of unfused attention. `idle` is the
    share of those seconds that a prompt still costs where nothing else runs, the fast end of the band.
    """

    weights: float
    experts: float
    products: float
    attention: float
    per_layer: float
    per_expert_layer: float = 0.0
    per_latent_layer: float = 0.0
    fixed: float = 0.0
    scores: float = 0.0
    idle: float = 1.0
    low: float
    high: float
    source: str


def products_rate(device: Device, settings: Settings) -> float:
    """The peak of which a law's `products` are a share, in FLOP/s.

    llama.cpp multiplies quantised weights as int8 and 16-bit ones with 16-bit accumulation (ggml-cuda/mmq.cu,
    cublasGemmEx with CUBLAS_COMPUTE_16F), which GeForce runs at twice the rate; Metal uses the 32-bit units. On a CPU
    the 32-bit rate stands for what its vectors do: which of its instructions a build uses is not told.
    """
    if not is_local(settings, device):
        return rate(device, settings.compute_dtype)
    kind, plain = device_class(device), rate(device, "fp16")
    if kind in {"apple", "cpu"}:
        return device.flops.get("fp32", plain)
    if settings.weight_bits < 16 and device.vendor == "nvidia":
        return device.flops.get("int8", 2 * plain)
    return 2 * plain if kind == "geforce" else plain


# -------------------------------------------------------------------------------------------------------- whole engines

_PER_LAYER = {"vllm": 49e-6, "trtllm": 44e-6, "sglang": 30e-6}
_PER_LAYER_OTHER = 48e-6
_PER_EXPERT_LAYER = {"vllm": 15e-6, "trtllm": 3e-6, "sglang": 32e-6}
_PER_EXPERT_LAYER_OTHER = 15e-6
_HOPPER_EXPERTS = 22e-6  # more a layer where experts are repacked or scaled by block in software
_AMD_EXPERTS = 90e-6  # MiniMax-M2.7 on 2 MI300X: 14.9 and 31.8 ms a token of 1 and 16 (sgl-project/sglang pull 31044)
_FP4_LAYER = 10e-6  # dense layers quantise their activations anew for each product
_EAGER = 200e-6  # more a layer where kernels are launched one by one (vLLM before kernel graphs: sh1ng/llm-perf-bench)
_PRODUCTS = {"fp8": 0.59, "int8": 0.59, "fp4": 0.44}
_PRODUCTS_PLAIN = 0.73
# Of those shares, what products of routed experts reach.
_EXPERT_PRODUCTS: dict[Class, float] = {"hopper": 0.4, "blackwell": 0.6}

_SERVED = DecodeLaw(
    weights=0.87,
    experts=0.70,
    kv=0.90,
    products=_PRODUCTS_PLAIN,
    per_layer=_PER_LAYER_OTHER,
    per_sequence=6e-6,
    per_prompt=60e-6,
    low=0.82,
    high=1.20,
    source="served dense models on H100, H200 and B200",
)
_CLASSES: dict[Class, DecodeLaw] = {
    "hopper": _SERVED,
    "blackwell": replace(_SERVED, experts=0.90),
    "amd": replace(_SERVED, weights=0.75, experts=0.5, kv=0.60, per_layer=70e-6),
    "cpu": replace(_SERVED, weights=0.60, experts=0.45, kv=0.40, per_layer=400e-6),
    "other": replace(_SERVED, weights=0.65, experts=0.5, kv=0.60, per_layer=100e-6),
}
_NVIDIA_OTHER = replace(_SERVED, weights=0.85, kv=0.80, per_layer=55e-6)
# Of the shares that products and attention reach on NVIDIA's: a CPU's peak is an upper bound of what its tiles do.
_OF_NVIDIA: dict[Class, float] = {"amd": 0.67, "other": 0.67, "cpu": 0.2}


def _products(geometry: Geometry, settings: Settings, kind: Class) -> float:
    share = _PRODUCTS.get(settings.compute_dtype, _PRODUCTS_PLAIN)
    share *= _OF_NVIDIA.get(kind, 1.0)
    return share * _EXPERT_PRODUCTS.get(kind, 0.4) if geometry.experts is not None else share


def _served_decode(geometry: Geometry, settings: Settings, device: Device) -> DecodeLaw:
    kind = device_class(device)
    law = _CLASSES.get(kind, _NVIDIA_OTHER)
    known = kind in {"hopper", "blackwell"}
    per_layer = _PER_LAYER.get(settings.engine, _PER_LAYER_OTHER) + law.per_layer - _PER_LAYER_OTHER
    if settings.compute_dtype == "fp4" and geometry.experts is None:
        per_layer += _FP4_LAYER
    law = replace(law, per_layer=per_layer, products=_products(geometry, settings, kind))
    if geometry.experts is not None:
        extra = _PER_EXPERT_LAYER.get(settings.engine, _PER_EXPERT_LAYER_OTHER)
        extra += {"blackwell": 0.0, "amd": _AMD_EXPERTS}.get(kind, _HOPPER_EXPERTS)
        what = "served MoE models on H100, H200 and B200"
        law = replace(law, per_expert_layer=extra, low=0.74, high=1.36, source=what)
    if not known:
        low, high = (0.6, 2.5) if kind == "cpu" else (0.85, 1.25)
        law = _wider(law, low, high, f"carried over to {device.name}, where few were measured")
    return _eager(law) if settings.enforce_eager else law


def _eager(law: DecodeLaw) -> DecodeLaw:
    slow = replace(law, per_layer=law.per_layer + _EAGER)
    return _wider(slow, 0.85, 1.25, "without kernel graphs, few measured")


def _wider(law: DecodeLaw, low: float, high: float, why: str) -> DecodeLaw:
    return replace(law, low=law.low * low, high=law.high * high, source=f"{law.source}, {why}")


# An idle engine: Llama-2-7B and 70B in 7 and 26 ms at 128 tokens on 1 and 4 H100 (NVIDIA/TensorRT-LLM v0.6.1,
# docs/source/performance.md), Llama-3.1-8B in 14 ms (yobitelcomm.github.io/bench, vLLM 0.21).
_IDLE = 0.2


def _served_prefill(geometry: Geometry, settings: Settings, device: Device) -> PrefillLaw:
    kind, steps = device_class(device), _served_decode(geometry, replace(settings, enforce_eager=False), device)
    low, high, source = 0.76, 1.35, "single prompts through served dense models on H100, H200 and B200"
    if geometry.experts is not None:
        low, high, source = 0.65, 1.6, "single prompts through served MoE models on H100, H200 and B200"
    if kind not in {"hopper", "blackwell"}:
        lower, higher = (0.6, 2.5) if kind == "cpu" else (0.8, 1.3)
        low, high, source = low * lower, high * higher, f"{source}, carried over to {device.name}"
    return PrefillLaw(
        weights=steps.weights,
        experts=steps.experts,
        products=steps.products,
        attention=0.4 * _OF_NVIDIA.get(kind, 1.0),
        per_layer=0.48e-3,
        per_expert_layer=0.32e-3,
        per_latent_layer=1.9e-3,
        fixed=10e-3,
        idle=_IDLE,
        low=low,
        high=high,
        source=source,
    )


# ---------------------------------------------------------------------------------------------------- llama.cpp and kin


@dataclass(frozen=True, slots=True)
class _Local:
    """Shares of bandwidth for weights and cache, of the product peak for quantised and 16-bit weights, seconds a layer,
    the band of a step, seconds more for a layer with routed experts, and what of the products' share those of routed
    experts reach.
    """

    weights: float
    kv: float
    packed: float
    plain: float
    per_layer: float
    low: float
    high: float
    per_expert_layer: float = 0.0
    expert_products: float = 0.70


_LOCAL: dict[Class, _Local] = {
    "geforce": _Local(0.87, 0.63, 0.17, 0.42, 70e-6, 0.86, 1.25),
    "gddr": _Local(0.87, 0.63, 0.14, 0.40, 70e-6, 0.86, 1.25),
    "hbm": _Local(0.68, 0.63, 0.15, 0.40, 100e-6, 0.84, 1.32),
    "hopper": _Local(0.68, 0.63, 0.085, 0.22, 100e-6, 0.84, 1.32),
    "blackwell": _Local(0.68, 0.63, 0.085, 0.22, 100e-6, 0.75, 1.45),
    "gb10": _Local(0.87, 0.63, 0.13, 0.26, 50e-6, 0.88, 1.18),
    "apple": _Local(0.87, 0.63, 0.64, 0.64, 100e-6, 0.84, 1.30, 100e-6),
    "amd": _Local(0.80, 0.50, 0.33, 0.25, 60e-6, 0.72, 1.45),
    # Of the 32-bit rate: builds differ in instructions as much as cores do. 0.4 for prompts and 0.75 of the bandwidth
    # (llama.cpp issue 34, four cores), 0.16 where a build leaves out what the CPU could do.
    "cpu": _Local(0.75, 0.50, 0.25, 0.25, 20e-6, 0.60, 3.2),
    "other": _Local(0.65, 0.50, 0.20, 0.20, 100e-6, 0.65, 1.60),
}
# AMD's with memory that is the CPU's too, and Instinct's with matrix cores: Qwen3-8B Q4_K_M reads 5,839 and writes 161
# tok/s on an MI300X (ggml-org/llama.cpp discussion 14640), Llama 3 8B 3,227 and 106 on an RX 7900 XTX (pull 26284).
_APU = _Local(0.87, 0.50, 0.26, 0.26, 40e-6, 0.75, 1.35, 30e-6, 0.45)
_INSTINCT = _Local(0.68, 0.50, 0.08, 0.20, 130e-6, 0.70, 1.50)
_PROMPT_BANDS: dict[Class, tuple[float, float]] = {
    "cpu": (0.5, 2.2),
    **dict.fromkeys(("amd", "blackwell", "other"), (0.6, 1.7)),
}
_UNPACK_K, _UNPACK = 3.1, 1.7  # FLOPs to unpack one weight of a k-quant, and of a plainer format
_UNPACK_K_M1 = 10.0  # of a k-quant on Apple's first generation: 5.7 to 18 over M1 Max and M1 Ultra
_UNFUSED = 14.0  # bytes moved for each score: written in 32 bit, masked, normalised, read


def _local(device: Device) -> _Local:
    kind = device_class(device)
    if kind == "amd" and device.kind == "unified":
        return _APU
    return _INSTINCT if re.match(r"mi[123]\d\d", device.key) else _LOCAL[kind]


def _unpack(settings: Settings, device: Device) -> float:
    if settings.weight_bits >= 16:
        return 0.0
    if "_k" not in (settings.quantization or "").lower():
        return _UNPACK
    return _UNPACK_K_M1 if device.key.startswith("apple-m1") else _UNPACK_K


def _local_products(geometry: Geometry, settings: Settings, found: _Local) -> float:
    share = found.packed if settings.weight_bits < 16 else found.plain
    return share * found.expert_products if geometry.experts is not None else share


def _local_decode(geometry: Geometry, settings: Settings, device: Device) -> DecodeLaw:
    kind, found = device_class(device), _local(device)
    law = DecodeLaw(
        weights=found.weights,
        experts=found.weights,
        kv=found.kv,
        products=_local_products(geometry, settings, found),
        per_layer=found.per_layer,
        per_expert_layer=found.per_expert_layer,
        unpack=_unpack(settings, device),
        low=found.low,
        high=found.high,
        source=f"llama.cpp on {kind} devices",
    )
    if geometry.experts is not None:
        law = _wider(law, 0.88, 1.08, "few MoE models")
    return law if settings.engine == "llamacpp" else _wider(law, 0.9, 1.1, "taken for another engine")


def _local_prefill(geometry: Geometry, settings: Settings, device: Device) -> PrefillLaw:
    kind, found = device_class(device), _local(device)
    low, high = _PROMPT_BANDS.get(kind, (0.78, 1.24))
    if geometry.experts is not None:
        low, high = low * 0.8, high * 1.25
    return PrefillLaw(
        weights=found.weights,
        experts=found.weights,
        products=_local_products(geometry, settings, found),
        attention=found.plain * 0.8,
        per_layer=0.1e-3,
        scores=0.0 if settings.fused_attention or kind == "apple" else _UNFUSED,
        low=low,
        high=high,
        source=f"llama.cpp on {kind} devices",
    )


# --------------------------------------------------------------------------------------------------- which law speaks


def decode_law(geometry: Geometry, settings: Settings, device: Device) -> DecodeLaw:
    """The step law that speaks for this model, engine and device."""
    law = _local_decode if is_local(settings, device) else _served_decode
    return law(geometry, settings, device)


def prefill_law(geometry: Geometry, settings: Settings, device: Device) -> PrefillLaw:
    """The prompt law that speaks for this model, engine and device."""
    law = _local_prefill if is_local(settings, device) else _served_prefill
    return law(geometry, settings, device)
