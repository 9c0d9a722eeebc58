"""vLLM: launch flags, defaults by version, what its server tells."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flag_words import VLLM_SWITCHES, VLLM_VALUES
from auditor.engines.flavour import Flag, Flavour, Reply
from auditor.engines.replies import Facts, field, info_labels, models, owned_by, says_metric
from auditor.engines.vllm_defaults import defaults

__all__ = ["FLAVOUR"]

_GIB = 2**30
_FROM_ENVIRONMENT = "VLLM_CPU_KVCACHE_SPACE"
_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}

_FLAGS = (
    Flag(("--model",), "model"),
    Flag(("--served-model-name",), "served_model_name", "many"),
    Flag(("--host",), "host"),
    Flag(("--port",), "port"),
    Flag(("--api-key",), "api_key", "many"),
    Flag(("--hf-token",), "secret"),
    Flag(("--tensor-parallel-size", "-tp"), "tensor_parallel"),
    Flag(("--pipeline-parallel-size", "-pp"), "pipeline_parallel"),
    Flag(("--data-parallel-size", "-dp"), "data_parallel"),
    Flag(("--enable-expert-parallel", "-ep"), "expert_parallel", "on"),
    Flag(("--decode-context-parallel-size", "-dcp"), "decode_context_parallel"),
    Flag(("--dtype",), "compute_dtype"),
    Flag(("--quantization", "-q"), "quantization"),
    Flag(("--kv-cache-dtype",), "kv_cache_dtype"),
    Flag(("--max-model-len",), "max_model_len", human=True),
    Flag(("--max-num-seqs",), "max_num_seqs"),
    Flag(("--max-num-batched-tokens",), "max_num_batched_tokens", human=True),
    Flag(("--max-num-queued-reqs",), "queue_limit"),
    Flag(("--gpu-memory-utilization", "--device-memory-utilization"), "gpu_memory_utilization"),
    Flag(("--kv-cache-memory-bytes", "--kv-cache-memory"), "kv_pool_bytes", human=True),
    Flag(("--num-gpu-blocks-override",), "kv_blocks"),
    Flag((_FROM_ENVIRONMENT,), "cpu_cache_gib"),
    Flag(("--block-size",), "block_size"),
    Flag(("--mamba-cache-mode",), "mamba_cache_mode"),
    Flag(("--mamba-cache-dtype",), "mamba_cache_dtype"),
    Flag(("--mamba-ssm-cache-dtype",), "mamba_ssm_cache_dtype"),
    Flag(("--performance-mode",), "performance_mode"),
    Flag(("--async-scheduling",), "async_scheduling", "on"),
    Flag(("--enforce-eager",), "enforce_eager", "on"),
    Flag(("--max-cudagraph-capture-size",), "captured_batch"),
    Flag(("--attention-backend",), "attention_backend"),
    Flag(("--enable-prefix-caching",), "prefix_caching", "on"),
    Flag(("--disable-hybrid-kv-cache-manager",), "hybrid_kv_manager", "off"),
    Flag(("--speculative-config", "-sc"), "speculative"),
    Flag(("--spec-method",), "speculative.method"),
    Flag(("--spec-model", "--speculative-model"), "speculative.model"),
    Flag(("--spec-tokens", "--num-speculative-tokens"), "speculative.num_speculative_tokens"),
    Flag(("--kv-transfer-config",), "kv_transfer"),
)


def _derive(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Expert parallelism is a switch whose degree is TP x DP; a KV connector between a prefill and a decode instance
    means that they are apart; the CPU's cache may be sized in GiB by the environment (vllm/platforms/cpu.py).
    """
    derived = dict(fields)
    if (gib := derived.pop("cpu_cache_gib", None)) is not None:
        derived.setdefault("kv_pool_bytes", gib * _GIB)
    if derived.get("expert_parallel") is True:
        derived["expert_parallel"] = derived.get("tensor_parallel", 1) * derived.get("data_parallel", 1)
    elif "expert_parallel" in derived:
        derived["expert_parallel"] = 1
    transfer = derived.get("kv_transfer")
    if isinstance(transfer, dict):
        role = _ROLES.get(transfer.get("kv_role", ""))
        connector = str(transfer.get("kv_connector", ""))
        if role or connector.startswith(("Nixl", "P2pNccl", "Mooncake")):
            derived |= {"disaggregated": True, **({"disaggregated_role": role} if role else {})}
    return derived


def _recognise(replies: Mapping[str, Reply]) -> bool:
    return owned_by(replies, "vllm") or says_metric(replies, ["vllm:"])


def _number(text: str | None, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text) if text is not None else None
    except ValueError:
        return None


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    facts.add("engine_version", field(replies, "/version", "version"), "/version")
    for entry in models(replies):
        facts.add("max_model_len", entry.get("max_model_len"), "/v1/models")
    series = info_labels(replies, "vllm:cache_config_info")
    engines = {labels.get("engine", "0") for labels in series}
    if len(engines) > 1:
        facts.add("data_parallel", len(engines), "/metrics, engine labels")
    if series:
        _read_cache_config(min(series, key=lambda s: _number(s.get("num_gpu_blocks"), int) or 0), facts)
        # registered at start where speculation is on (SpecDecodingProm in vllm/v1/spec_decode/metrics.py)
        if says_metric(replies, ["vllm:spec_decode_num"]):
            facts.add("speculative", "on", "/metrics, spec_decode counters")
        else:
            facts.off("speculative", "/metrics, no spec_decode counters")
    return facts.result()


def _read_cache_config(labels: Mapping[str, str], facts: Facts) -> None:
    """The engine's own KV figures; of several ranks or replicas those of the smallest pool."""
    source = "/metrics, cache_config_info"
    blocks, size = _number(labels.get("num_gpu_blocks"), int), _number(labels.get("block_size"), int)
    facts.add("kv_blocks", blocks, source)
    facts.add("block_size", size, source)
    facts.add("kv_tokens", _number(labels.get("kv_cache_size_tokens"), int), source)
    if blocks and size:  # before kv_cache_size_tokens existed; with several kinds of layers this is not the token count
        facts.add("kv_tokens", blocks * size, f"{source}, num_gpu_blocks x block_size")
    facts.add("kv_max_concurrency", _number(labels.get("kv_cache_max_concurrency"), float), source)
    facts.add("kv_cache_dtype", labels.get("cache_dtype"), source)
    facts.add("gpu_memory_utilization", _number(labels.get("gpu_memory_utilization"), float), source)
    caching = {"True": True, "False": False}.get(labels.get("enable_prefix_caching", ""))
    facts.add("prefix_caching", caching, source)
    facts.add("kv_pool_bytes", _number(labels.get("kv_cache_memory_bytes"), int), source)
    for name in ("mamba_cache_mode", "mamba_cache_dtype", "mamba_ssm_cache_dtype"):
        facts.add(name, labels.get(name), source)


FLAVOUR = Flavour(
    name="vllm",
    title="vLLM",
    commands=("vllm serve", "vllm.entrypoints.openai.api_server"),
    images=("vllm/vllm-openai", "vllm/vllm-openai-rocm", "rocm/vllm", "vllm/vllm-openai-cpu"),
    positional_model=True,
    flags=_FLAGS,
    switches=VLLM_SWITCHES,
    values=VLLM_VALUES,
    env={"VLLM_ATTENTION_BACKEND": "--attention-backend", _FROM_ENVIRONMENT: _FROM_ENVIRONMENT},
    derive=_derive,
    derived_from={"disaggregated": "kv_transfer", "memory_fraction": "gpu_memory_utilization"},
    info_paths=("/version",),
    metrics_paths=("/metrics",),
    prefix="vllm:",
    recognise=_recognise,
    read_served=_read_served,
    defaults=defaults,
)
