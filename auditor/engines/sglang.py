"""SGLang: launch flags, defaults by version, what its server tells."""

from collections.abc import Mapping
from typing import Any

from auditor.engines.flag_words import SGLANG_SWITCHES, SGLANG_VALUES
from auditor.engines.flavour import Flag, Flavour, Reply
from auditor.engines.replies import Facts, field, models, owned_by, says_metric
from auditor.engines.sglang_defaults import defaults

__all__ = ["FLAVOUR"]

_GIB = 2**30
_STATE_DTYPE, _WINDOW_DTYPE = "SGLANG_MAMBA_SSM_DTYPE", "SGLANG_MAMBA_CONV_DTYPE"

_FLAGS = (
    Flag(("--model-path", "--model"), "model"),
    Flag(("--served-model-name",), "served_model_name"),
    Flag(("--host",), "host"),
    Flag(("--port",), "port"),
    Flag(("--api-key",), "api_key"),
    Flag(("--admin-api-key",), "api_key"),
    Flag(("--ssl-keyfile-password",), "secret"),
    Flag(("--tp-size", "--tp", "--tensor-parallel-size"), "tensor_parallel"),
    Flag(("--pp-size", "--pp", "--pipeline-parallel-size"), "pipeline_parallel"),
    Flag(("--dp-size", "--dp", "--data-parallel-size"), "data_parallel"),
    Flag(("--ep-size", "--ep", "--expert-parallel-size"), "expert_parallel"),
    Flag(("--enable-dp-attention",), "dp_attention", "on"),
    Flag(("--dtype",), "compute_dtype"),
    Flag(("--quantization",), "quantization"),
    Flag(("--kv-cache-dtype",), "kv_cache_dtype"),
    Flag(("--context-length",), "max_model_len", human=True),
    Flag(("--max-running-requests",), "max_num_seqs"),
    Flag(("--max-queued-requests",), "queue_limit"),
    Flag(("--chunked-prefill-size",), "max_num_batched_tokens"),
    Flag(("--mem-fraction-static",), "mem_fraction_static"),
    Flag(("--max-total-tokens",), "kv_pool_tokens", human=True),
    Flag(("--page-size",), "block_size"),
    Flag(("--swa-full-tokens-ratio",), "swa_full_tokens_ratio"),
    Flag(("--disable-hybrid-swa-memory",), "hybrid_kv_manager", "off"),
    Flag(("--dcp-size", "--decode-context-parallel-size"), "decode_context_parallel"),
    Flag(("--max-mamba-cache-size",), "mamba_slots"),
    Flag(("--mamba-full-memory-ratio",), "mamba_full_ratio"),
    Flag(("--mamba-ssm-dtype", _STATE_DTYPE), "mamba_ssm_cache_dtype"),
    Flag((_WINDOW_DTYPE,), "mamba_cache_dtype"),
    Flag(("--disable-cuda-graph",), "enforce_eager", "on"),
    Flag(("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"), "captured_batch"),
    Flag(("--attention-backend",), "attention_backend"),
    Flag(("--disable-radix-cache",), "prefix_caching", "off"),
    Flag(("--speculative-algorithm", "--speculative-algo"), "speculative.method"),
    Flag(("--speculative-draft-model-path", "--speculative-draft-model"), "speculative.model"),
    Flag(("--speculative-num-steps",), "speculative.num_steps"),
    Flag(("--speculative-eagle-topk",), "speculative.topk"),
    Flag(("--speculative-num-draft-tokens",), "speculative.num_speculative_tokens"),
    Flag(("--disaggregation-mode",), "disaggregated"),
)


def _derive(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The disaggregation mode of an instance is a word; a speculation without draft tokens verifies its steps and one
    more (speculative_hook.py); a chunked prefill size of -1 switches chunking off.
    """
    derived = dict(fields)
    if (role := derived.get("disaggregated")) is not None:
        derived["disaggregated"] = role in ("prefill", "decode")
        if derived["disaggregated"]:
            derived["disaggregated_role"] = role
    speculative = derived.get("speculative")
    if isinstance(speculative, dict) and "num_steps" in speculative:
        derived["speculative"] = {"num_speculative_tokens": speculative["num_steps"] + 1, **speculative}
    if derived.get("max_num_batched_tokens", 1) <= 0:
        del derived["max_num_batched_tokens"]
    return derived


def _recognise(replies: Mapping[str, Reply]) -> bool:
    return owned_by(replies, "sglang") or says_metric(replies, ["sglang:", "sglang_"]) or _info(replies) is not None


def _info(replies: Mapping[str, Reply]) -> str | None:
    """The path whose answer holds the server's settings: /server_info, or /get_server_info before 0.5.5."""
    for path in ("/server_info", "/get_server_info"):
        if isinstance(field(replies, path, "mem_fraction_static"), float):
            return path
    return None


_INFO_FIELDS = {
    "engine_version": "version",
    "kv_tokens": "max_total_num_tokens",
    "block_size": "page_size",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "max_num_batched_tokens": "chunked_prefill_size",
    "queue_limit": "max_queued_requests",
    "mem_fraction_static": "mem_fraction_static",
    "tensor_parallel": "tp_size",
    "pipeline_parallel": "pp_size",
    "data_parallel": "dp_size",
    "attention_backend": "attention_backend",
    "speculative": "speculative_algorithm",
    "speculative_tokens": "speculative_num_draft_tokens",
    "swa_full_tokens_ratio": "swa_full_tokens_ratio",
    "decode_context_parallel": "dcp_size",
    "mamba_slots": "max_mamba_cache_size",
    "mamba_full_ratio": "mamba_full_memory_ratio",
    "mamba_ssm_cache_dtype": "mamba_ssm_dtype",
}


def _read_served(replies: Mapping[str, Reply]) -> tuple[dict[str, Any], dict[str, str]]:
    facts = Facts()
    for entry in models(replies):
        facts.add("max_model_len", entry.get("max_model_len"), "/v1/models")
    path = _info(replies)
    if path is not None:
        _read_info(replies, path, facts)
    load = field(replies, "/v1/loads", "loads", 0)
    if isinstance(load, dict):
        facts.add("kv_tokens", load.get("max_total_num_tokens"), "/v1/loads")
        facts.add("max_num_seqs", load.get("max_running_requests"), "/v1/loads")
        facts.add("engine_version", field(replies, "/v1/loads", "version"), "/v1/loads")
    mode = field(replies, "/model_info", "disaggregation_mode")
    facts.add("disaggregated", mode in ("prefill", "decode") if isinstance(mode, str) else None, "/model_info")
    return facts.result()


def _read_info(replies: Mapping[str, Reply], path: str, facts: Facts) -> None:
    for name, key in _INFO_FIELDS.items():
        facts.add(name, field(replies, path, key), path)
    facts.add("max_model_len", field(replies, path, "context_length"), path)
    if "speculative_algorithm" in replies[path].json:
        facts.off("speculative", path)
    state = field(replies, path, "internal_states", 0)
    if isinstance(state, dict):
        facts.add("max_num_seqs", state.get("effective_max_running_requests_per_dp"), path)
    facts.add("max_num_seqs", field(replies, path, "max_running_requests"), path)
    tokens, page = facts.values.get("kv_tokens"), facts.values.get("block_size")
    if isinstance(tokens, int) and isinstance(page, int) and page > 1:
        facts.add("kv_blocks", tokens // page, path)
    size = field(replies, path, "internal_states", 0, "memory_usage", "kvcache")
    facts.add("kv_pool_bytes", int(size * _GIB) if isinstance(size, float) and size > 0 else None, path)
    mode = field(replies, path, "disaggregation_mode")
    facts.add("disaggregated", mode in ("prefill", "decode") if isinstance(mode, str) else None, path)
    radix_off = field(replies, path, "disable_radix_cache")
    facts.add("prefix_caching", not radix_off if isinstance(radix_off, bool) else None, path)
    graph = field(replies, path, "cuda_graph_config", "decode", "backend")
    off = field(replies, path, "disable_cuda_graph")
    facts.add("enforce_eager", (off or graph == "disabled") if isinstance(off, bool) else None, path)


FLAVOUR = Flavour(
    name="sglang",
    title="SGLang",
    commands=("sglang.launch_server", "sglang serve"),
    flags=_FLAGS,
    switches=SGLANG_SWITCHES,
    values=SGLANG_VALUES,
    positional_model=False,
    env={name: name for name in (_STATE_DTYPE, _WINDOW_DTYPE)},
    derive=_derive,
    derived_from={"memory_fraction": "mem_fraction_static"},
    info_paths=("/server_info", "/get_server_info", "/model_info", "/v1/loads"),
    metrics_paths=("/metrics",),
    prefix="sglang:",
    recognise=_recognise,
    read_served=_read_served,
    defaults=defaults,
)
