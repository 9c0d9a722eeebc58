"""What vLLM logged at start, each with its public source: weights and the memory left for the KV cache, in GiB."""

from dataclasses import dataclass, field
from typing import Any

from auditor.theory.device import Device
from auditor.theory.kv.geometry import Experts, Geometry, Layers
from auditor.theory.settings import Settings

__all__ = ["LOGS", "Log", "device_of", "model", "settings_of"]

_GIB = 1 << 30
ISSUE = "https://github.com/vllm-project/vllm/issues/10517"
PLANNER = "https://github.com/llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md"
RUNS = "https://github.com/ashishkamra/vllm-memory-estimator test_data/validation_db.json"
NOTES = "https://myoceane.fr/index.php/ai-vllm-a100-gemma-4/"
SERVER: dict[str, Any] = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}


@dataclass(frozen=True, slots=True)
class Log:
    """One start. `total` is the device's memory as PyTorch sees it."""

    source: str
    model: str
    device: str
    total: float
    version: str
    utilization: float
    devices: int
    weights: float
    left: float
    settings: dict[str, Any] = field(default_factory=lambda: dict(SERVER))


# hidden, intermediate, vocabulary, heads, KV heads, experts, experts a token, expert's width
MODELS: dict[str, tuple[int, int, int, int, int, int, int, int]] = {
    "llama-3.1-8b": (4096, 14336, 128256, 32, 8, 0, 0, 0),
    "llama-3.3-70b": (8192, 28672, 128256, 64, 8, 0, 0, 0),
    "qwen3-32b": (5120, 25600, 151936, 64, 8, 0, 0, 0),
    "gpt-oss-20b": (2880, 2880, 201088, 64, 8, 32, 4, 2880),
    "qwen3-235b": (4096, 12288, 151936, 64, 4, 128, 8, 1536),
    "qwen3-vl-30b": (2048, 6144, 151936, 32, 4, 128, 8, 768),
    "deepseek-r1": (7168, 18432, 129280, 128, 1, 256, 8, 2048),
    "gemma-4-31b": (5376, 21504, 262144, 32, 16, 0, 0, 0),
}
LOGS = (
    # an RTX 3090 and whole prompts of 20,000 and 29,000 tokens
    Log(ISSUE, "llama-3.1-8b", "rtx-3090", 23.58, "0.6.4", 0.90, 1, 14.99, 3.81, {"max_model_len": 20000}),
    Log(ISSUE, "llama-3.1-8b", "rtx-3090", 23.58, "0.6.4", 0.90, 1, 14.99, 2.89, {"max_model_len": 29000}),
    # the logits of 1,024 sequences, sorted
    Log(PLANNER, "gpt-oss-20b", "h100-sxm", 79.18, "0.11.0", 0.90, 1, 13.47, 50.28),
    Log(PLANNER, "qwen3-32b", "h100-sxm", 79.18, "0.11.0", 0.90, 1, 61.03, 4.45),
    Log(PLANNER, "qwen3-32b", "h100-sxm", 79.18, "0.11.0", 0.90, 2, 30.59, 34.49),
    Log(RUNS, "qwen3-235b", "h200-sxm", 139.81, "0.11.2", 0.92, 4, 109.61, 12.73),
    Log(RUNS, "llama-3.3-70b", "h200-sxm", 139.81, "0.16.0", 0.92, 4, 32.89, 90.30),
    Log(RUNS, "deepseek-r1", "h200-sxm", 139.81, "0.13.0", 0.92, 8, 79.74, 43.12),
    Log(RUNS, "llama-3.3-70b", "mi300x", 191.98, "0.16.0", 0.92, 1, 68.36, 102.19),
    Log(RUNS, "qwen3-235b", "mi300x", 191.98, "0.11.2", 0.92, 8, 56.65, 111.06),
    # workspaces of the experts that stay
    Log(RUNS, "deepseek-r1", "h200-sxm", 139.81, "0.14.1", 0.92, 8, 79.74, 41.43),
    Log(RUNS, "deepseek-r1", "mi300x", 191.98, "0.16.0", 0.92, 8, 81.31, 85.23),
    Log(RUNS, "qwen3-vl-30b", "h200-sxm", 139.81, "0.16.0", 0.92, 1, 58.23, 63.73),
    # no sort any more, graphs captured on trial
    Log(RUNS, "llama-3.3-70b", "h200-sxm", 139.81, "0.19.0", 0.92, 4, 32.89, 91.57),
    Log(RUNS, "llama-3.3-70b", "b200-sxm", 178.35, "0.18.0", 0.92, 4, 16.96, 142.94),
    Log(RUNS, "deepseek-r1", "h200-sxm", 139.81, "0.19.0", 0.92, 8, 79.74, 42.79),
    Log(RUNS, "gemma-4-31b", "h200-sxm", 139.81, "0.19.1", 0.92, 1, 58.90, 65.56),
    Log(RUNS, "llama-3.3-70b", "mi300x", 191.98, "0.18.0", 0.92, 1, 68.37, 104.99),
    Log(
        *(NOTES, "gpt-oss-20b", "a100-sxm-80", 79.15, "0.19.0", 0.65, 1, 13.72, 36.56),
        {"max_num_seqs": 256, "max_num_batched_tokens": 2048},
    ),
    # graphs subtracted
    Log(RUNS, "llama-3.3-70b", "h200-sxm", 139.81, "0.20.0", 0.92, 4, 32.89, 90.66),
    Log(RUNS, "qwen3-vl-30b", "h200-sxm", 139.81, "0.20.0", 0.92, 1, 58.23, 66.76),
    Log(RUNS, "deepseek-r1", "h200-sxm", 139.81, "0.20.0", 0.92, 8, 79.74, 41.24),
)


def model(name: str, **changes: Any) -> Geometry:
    """The figures of a config.json that decide activations; parameters are left out, weights being logged."""
    hidden, inner, vocabulary, heads, kv_heads, experts, used, width = MODELS[name]
    latent = name.startswith("deepseek")
    layers = Layers(
        kind="mla" if latent else "full",
        count=1,
        kv_heads=kv_heads,
        qk_head_dim=192 if latent else 128,
        v_head_dim=128,
        latent_dim=576 if latent else None,
    )
    facts: dict[str, Any] = {
        "name": name,
        "architecture": "",
        "layers": (layers,),
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "attention_heads": heads,
        "parameters": 0,
        "active_parameters": 0,
        "embedding_parameters": 0,
        "tied_embeddings": False,
        "experts": Experts(count=experts, per_token=used, layers=1, parameters=0) if experts else None,
        "intermediate_size": inner,
        "expert_size": width or None,
        "vision": "-vl-" in name or name.startswith("gemma"),
    }
    return Geometry(**{**facts, **changes})


def device_of(log: Log) -> Device:
    """The device with the memory that the log says."""
    vendor = "amd" if log.device.startswith("mi") else "nvidia"
    memory = int(log.total * _GIB)
    return Device(
        key=log.device,
        name=log.device,
        vendor=vendor,
        kind="gpu",
        memory_bytes=memory,
        usable_bytes=memory,
        bandwidth=0.0,
        flops={},
    )


def settings_of(log: Log) -> Settings:
    """The settings of the log, weights included."""
    return Settings(
        engine="vllm",
        engine_version=log.version,
        devices=log.devices,
        tensor_parallel=log.devices,
        memory_fraction=log.utilization,
        weight_bytes=log.weights * _GIB,
        **log.settings,
    )
