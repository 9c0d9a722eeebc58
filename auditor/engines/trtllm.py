"""TensorRT-LLM's trtllm-serve: launch flags and defaults from its source, not checked on a running engine."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flavour import NOTHING, Flag, Flavour, Reply
from auditor.engines.replies import Facts, field, models, owned_by, says_metric
from auditor.theory.device import Device
from auditor.theory.kv.geometry import Geometry

__all__ = ["FLAVOUR"]

# tensorrt_llm/commands/serve.py; every flag is written with underscores there and accepted with dashes nowhere, but a
# profile may use either.
_FLAGS = (
    Flag(("--served_model_name",), "served_model_name"),
    Flag(("--host",), "host"),
    Flag(("--port",), "port"),
    Flag(("--tensor_parallel_size", "--tp_size"), "tensor_parallel"),
    Flag(("--pipeline_parallel_size", "--pp_size"), "pipeline_parallel"),
    Flag(("--moe_expert_parallel_size", "--ep_size"), "expert_parallel"),
    Flag(("--max_batch_size",), "max_num_seqs"),
    Flag(("--max_num_tokens",), "max_num_batched_tokens"),
    Flag(("--max_seq_len",), "max_model_len"),
    Flag(("--kv_cache_dtype",), "kv_cache_dtype"),
    Flag(("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"), "memory_fraction"),
    Flag(("--kv_cache_config",), "kv_cache_config"),
    Flag(("--server_role",), "disaggregated"),
)
# Fields of KvCacheConfig (tensorrt_llm/llmapi/llm_args.py), which options files and dotted flags set.
_CACHE_FIELDS = {
    "free_gpu_memory_fraction": "memory_fraction",
    "max_tokens": "kv_pool_tokens",
    "tokens_per_block": "block_size",
    "dtype": "kv_cache_dtype",
    "enable_block_reuse": "prefix_caching",
}

_SWITCHES = frozenset(["--trust_remote_code", "--fail_fast_on_attention_window_too_large", "--enable_chunked_prefill"])
_VALUES = frozenset(
    [
        *("--tokenizer", "--custom_tokenizer", "--backend", "--custom_module_dirs", "--log_level", "--max_beam_width"),
        *("--context_parallel_size", "--cp_size", "--moe_cluster_parallel_size", "--cluster_size", "--gpus_per_node"),
        *("--num_postprocess_workers", "--revision", "--config", "--extra_llm_api_options", "--reasoning_parser"),
        *("--tool_parser", "--metadata_server_config_file", "--otlp_traces_endpoint", "--disagg_cluster_uri"),
        *("--media_io_kwargs", "--chat_template"),
    ]
)


def _derive(fields: Mapping[str, Any]) -> dict[str, Any]:
    derived = dict(fields)
    if "disaggregated" in derived:
        derived["disaggregated"] = str(derived["disaggregated"]).lower() in ("context", "generation")
    cache = derived.pop("kv_cache_config", {})
    for key, name in _CACHE_FIELDS.items():
        if key in cache:
            derived.setdefault(name, cache[key])
    if cache.get("max_attention_window"):
        derived["window_pools"] = True
    return derived


def _recognise(replies: Mapping[str, Reply]) -> bool:
    return owned_by(replies, "tensorrt_llm") or says_metric(replies, ["trtllm_", "trtllm:"])


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    facts.add("engine_version", field(replies, "/version", "version"), "/version")
    for entry in models(replies):
        facts.add("max_model_len", entry.get("max_model_len"), "/v1/models")
    for path in ("/server_info",):
        facts.add("max_num_seqs", field(replies, path, "max_batch_size"), path)
        facts.add("max_num_batched_tokens", field(replies, path, "max_num_tokens"), path)
    return facts.result()


def _defaults(
    _release: str | None, _device: Device | None, _geometry: Geometry | None = None, _said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Defaults of trtllm-serve: free_gpu_memory_fraction 0.9 (commands/serve.py), BuildConfig's batch limits
    (tensorrt_llm/builder.py: 2048 requests, 8192 tokens), KvCacheConfig's 32 tokens a block (llmapi/llm_args.py).
    """
    return {
        "memory_fraction": 0.9,
        "max_num_seqs": 2048,
        "max_num_batched_tokens": 8192,
        "block_size": 32,
        "enforce_eager": False,
    }


FLAVOUR = Flavour(
    name="trtllm",
    title="TensorRT-LLM",
    commands=("trtllm-serve",),
    seen_running=False,
    positional_model=True,
    flags=_FLAGS,
    switches=_SWITCHES,
    values=_VALUES,
    derive=_derive,
    info_paths=("/version", "/server_info"),
    metrics_paths=("/prometheus/metrics", "/metrics"),
    prefix="trtllm_",
    recognise=_recognise,
    read_served=_read_served,
    defaults=_defaults,
)
