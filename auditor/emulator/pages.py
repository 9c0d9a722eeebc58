"""The metric names of both engines, each with what it reads: the emulator's one table of names.

Names, labels, types and bounds as vLLM 0.18-0.32 (vllm/v1/metrics) and SGLang 0.5 (srt/observability) expose them.
"""

from collections.abc import Callable, Iterable, Mapping

from auditor.emulator.engine import Engine
from auditor.emulator.exposition import Metric, Value, render
from auditor.emulator.holdback import SglangScheduler
from auditor.emulator.memory import GIB, PoolSize
from auditor.emulator.spec import Spec

__all__ = ["page"]


def _by(label: str, values: Mapping[str, float]) -> Iterable[tuple[Mapping[str, str], Value]]:
    return [({label: name}, value) for name, value in values.items()]


def _finished(engine: Engine) -> Iterable[tuple[Mapping[str, str], Value]]:
    counts = engine.counters.finished
    reasons = ("stop", "length", "abort", "error", "repetition")
    values = {reason: float(counts.get(reason, 0)) for reason in reasons}
    return _by("finished_reason", {**values, "abort": float(engine.counters.aborted)})


def _sources(engine: Engine) -> Iterable[tuple[Mapping[str, str], Value]]:
    cached, prompts = engine.counters.cached_tokens, sum(engine.counters.prompt_tokens.values())
    return _by("source", {"local_compute": max(0, prompts - cached), "local_cache_hit": cached,
                          "external_kv_transfer": 0})  # fmt: skip


def _speculating(read: Callable[[Engine], float]) -> Callable[[Engine], Iterable[tuple[Mapping[str, str], Value]]]:
    return lambda engine: [({}, float(read(engine)))] if engine.spec.draft_tokens else []


def _usage(engine: Engine) -> float:
    return engine.scheduler.pool.used / engine.scheduler.pool.capacity


VLLM = (
    Metric("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.",
           lambda e: len(e.scheduler.running)),
    Metric("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.",
           lambda e: len(e.scheduler.waiting)),
    Metric("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.",
           lambda e: _by("reason", {"capacity": len(e.scheduler.waiting), "deferred": 0}), (0, 20)),
    Metric("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 1 means engine is awake.",
           lambda _: _by("sleep_state", {"awake": 1, "weights_offloaded": 0, "discard_all": 0})),
    Metric("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", _usage),
    Metric("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.",
           lambda e: e.counters.queried_tokens),
    Metric("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.",
           lambda e: e.counters.cached_tokens),
    Metric("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.",
           lambda e: e.counters.preemptions),
    Metric("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
           lambda e: sum(e.counters.prompt_tokens.values())),
    Metric("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.", _sources),
    Metric("vllm:prompt_tokens_cached_total", "counter", "Number of cached prompt tokens (local + external).",
           lambda e: e.counters.cached_tokens),
    Metric("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
           lambda e: sum(e.counters.output_tokens.values())),
    Metric("vllm:request_success_total", "counter", "Count of successfully processed requests.", _finished),
    Metric("vllm:admission_rejections_total", "counter", "Number of admission attempts rejected by a queue limit.",
           lambda e: _by("reason", {"max_num_queued_reqs": e.counters.refusals, "max_num_queued_tokens": 0}), (0, 30)),
    Metric("vllm:request_prompt_tokens", "histogram", "Number of prefill tokens processed.",
           lambda e: e.counters.prompt_length),
    Metric("vllm:request_generation_tokens", "histogram", "Number of generation tokens processed.",
           lambda e: e.counters.output_length),
    Metric("vllm:iteration_tokens_total", "histogram", "Histogram of number of tokens per engine_step.",
           lambda e: e.counters.step_tokens),
    Metric("vllm:request_max_num_generation_tokens", "histogram", "Histogram of maximum number of requested tokens.",
           lambda e: e.counters.output_length),
    Metric("vllm:request_params_n", "histogram", "Histogram of the n request parameter.",
           lambda e: e.counters.choices),
    Metric("vllm:request_params_max_tokens", "histogram", "Histogram of the max_tokens request parameter.",
           lambda e: e.counters.limit_length),
    Metric("vllm:time_to_first_token_seconds", "histogram", "Histogram of time to first token in seconds.",
           lambda e: e.counters.ttft),
    Metric("vllm:inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.",
           lambda e: e.counters.itl),
    Metric("vllm:request_time_per_output_token_seconds", "histogram", "Histogram of time_per_output_token_seconds.",
           lambda e: e.counters.tpot),
    Metric("vllm:e2e_request_latency_seconds", "histogram", "Histogram of e2e request latency in seconds.",
           lambda e: e.counters.e2e),
    Metric("vllm:request_queue_time_seconds", "histogram", "Histogram of time spent in WAITING phase for request.",
           lambda e: e.counters.queue),
    Metric("vllm:request_inference_time_seconds", "histogram", "Histogram of time spent in RUNNING phase for request.",
           lambda e: e.counters.inference),
    Metric("vllm:request_prefill_time_seconds", "histogram", "Histogram of time spent in PREFILL phase for request.",
           lambda e: e.counters.prefill),
    Metric("vllm:request_decode_time_seconds", "histogram", "Histogram of time spent in DECODE phase for request.",
           lambda e: e.counters.decode),
    Metric("vllm:request_num_preemptions", "histogram", "Histogram of the number of times a request was preempted.",
           lambda e: e.counters.preempted, (0, 30)),
    Metric("vllm:request_prefill_kv_computed_tokens", "histogram", "New KV tokens computed during prefill.",
           lambda e: e.counters.computed_length),
    Metric("vllm:spec_decode_num_drafts_total", "counter", "Number of spec decoding drafts.",
           _speculating(lambda e: e.counters.drafts)),
    Metric("vllm:spec_decode_num_draft_tokens_total", "counter", "Number of draft tokens.",
           _speculating(lambda e: e.counters.draft_tokens)),
    Metric("vllm:spec_decode_num_accepted_tokens_total", "counter", "Number of accepted tokens.",
           _speculating(lambda e: e.counters.accepted_tokens)),
)  # fmt: skip


def _cache_config(spec: Spec, size: PoolSize) -> Metric:
    """The cache_config_info gauge: its labels are the served facts, its value is 1."""
    labels = {
        "block_size": str(size.page),
        "cache_dtype": spec.kv_cache_dtype,
        "enable_prefix_caching": str(spec.prefix_caching),
        "gpu_memory_utilization": str(spec.memory_fraction),
        "is_attention_free": "False",
        "kv_cache_memory_bytes": str(int(spec.pool_bytes)) if spec.pool_bytes is not None else "None",
        "num_cpu_blocks": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": {4.0: "float32", 2.0: "bfloat16"}.get(spec.state_bytes or 0.0, "auto"),
        "num_gpu_blocks": str(size.slots // size.page),
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
        "user_specified_block_size": "False",
        "kv_cache_size_tokens": str(size.tokens),
        "kv_cache_max_concurrency": str(size.requests),
    }
    help_text = "Information of the LLMEngine CacheConfig"
    return Metric("vllm:cache_config_info", "gauge", help_text, lambda _: [(labels, 1.0)])


def _streaming(values: Mapping[bool, int]) -> Iterable[tuple[Mapping[str, str], Value]]:
    return _by("is_streaming", {str(streamed).lower(): count for streamed, count in values.items() if count})


def _hits(engine: Engine) -> Iterable[tuple[Mapping[str, str], Value]]:
    cached = engine.counters.cached_tokens
    return _by("cache_source", {"device": cached}) if cached else []


def _retractions(engine: Engine) -> Iterable[tuple[Mapping[str, str], Value]]:
    count = engine.counters.preemptions
    return [({}, float(count))] if count else []  # the real one is absent until the first


def _accepted(engine: Engine) -> float:
    counters = engine.counters
    return 1 + counters.accepted_tokens / counters.drafts if counters.drafts else 0.0


def _ratio(engine: Engine) -> float:
    return engine.scheduler.ratio if isinstance(engine.scheduler, SglangScheduler) else 0.0


SGLANG = (
    Metric("sglang:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
           lambda e: _streaming(e.counters.prompt_tokens)),
    Metric("sglang:generation_tokens_total", "counter", "Number of generation tokens processed.",
           lambda e: _streaming(e.counters.output_tokens)),
    Metric("sglang:cached_tokens_total", "counter", "Number of cached prompt tokens.", _hits),
    Metric("sglang:num_requests_total", "counter", "Number of requests processed.",
           lambda e: _streaming(e.counters.ended)),
    Metric("sglang:num_aborted_requests_total", "counter", "Number of requests aborted.",
           lambda e: e.counters.aborted),
    Metric("sglang:queue_time_seconds", "histogram", "Histogram of queueing time in seconds.",
           lambda e: e.counters.queue),
    Metric("sglang:num_retracted_reqs", "gauge", "The number of retracted requests.",
           lambda e: sum(job.preemptions > 0 for job in e.scheduler.waiting)),
    Metric("sglang:num_retracted_requests_total", "counter", "Total number of retracted requests.", _retractions,
           (0, 5, 9)),
    Metric("sglang:time_to_first_token_seconds", "histogram", "Histogram of time to first token in seconds.",
           lambda e: e.counters.ttft),
    Metric("sglang:e2e_request_latency_seconds", "histogram", "Histogram of End-to-end request latency in seconds",
           lambda e: e.counters.e2e),
    Metric("sglang:request_time_per_output_token_seconds", "histogram", "Per-request TPOT in seconds.",
           lambda e: e.counters.tpot, (0, 5, 20)),
    Metric("sglang:prompt_tokens_histogram", "histogram", "Histogram of prompt token length.",
           lambda e: e.counters.prompt_length),
    Metric("sglang:uncached_prompt_tokens_histogram", "histogram", "Histogram of uncached prompt token length.",
           lambda e: e.counters.computed_length),
    Metric("sglang:generation_tokens_histogram", "histogram", "Histogram of generation token length.",
           lambda e: e.counters.output_length),
    Metric("sglang:inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.",
           lambda e: e.counters.itl),
    Metric("sglang:realtime_tokens_total", "counter", "Total number of tokens processed.",
           lambda e: _by("mode", {"prefill_compute": e.counters.queried_tokens - e.counters.cached_tokens,
                                  "prefill_cache": e.counters.cached_tokens, "decode": e.counters.decode_tokens})),
    Metric("sglang:max_total_num_tokens", "gauge", "Maximum total number of tokens in the KV cache pool.",
           lambda e: e.scheduler.pool.capacity),
    Metric("sglang:page_size", "gauge", "KV cache page size in tokens.", lambda e: e.scheduler.pool.page),
    Metric("sglang:num_pages", "gauge", "Number of KV cache pages.",
           lambda e: e.scheduler.pool.capacity // e.scheduler.pool.page),
    Metric("sglang:context_len", "gauge", "Maximum context length.", lambda e: e.spec.max_model_len),
    Metric("sglang:num_running_reqs", "gauge", "The number of running requests.", lambda e: len(e.scheduler.running)),
    Metric("sglang:num_queue_reqs", "gauge", "The number of requests in the waiting queue.",
           lambda e: len(e.scheduler.waiting)),
    Metric("sglang:gen_throughput", "gauge", "The generation throughput (token/s).", lambda e: e.counters.throughput),
    Metric("sglang:cache_hit_rate", "gauge", "The prefix cache hit rate.", lambda e: e.counters.last_hit_rate),
    Metric("sglang:token_usage", "gauge", "The token usage.", lambda e: round(_usage(e), 2)),
    Metric("sglang:full_token_usage", "gauge", "The token usage for full attention layers.",
           lambda e: round(_usage(e), 2)),
    Metric("sglang:num_used_tokens", "gauge", "The number of used tokens.", lambda e: e.scheduler.pool.used),
    Metric("sglang:kv_available_tokens", "gauge", "Number of free token slots in the KV cache pool.",
           lambda e: e.scheduler.pool.free),
    Metric("sglang:kv_evictable_tokens", "gauge", "Number of evictable (radix-cached) token slots.",
           lambda e: e.scheduler.pool.idle),
    Metric("sglang:kv_used_tokens", "gauge", "Number of actively used token slots in the KV cache pool.",
           lambda e: e.scheduler.pool.used),
    Metric("sglang:spec_accept_length", "gauge", "Mean acceptance length of speculative decoding.", _accepted),
    Metric("sglang:new_token_ratio", "gauge", "The new token ratio.", _ratio),
    Metric("sglang:is_cuda_graph", "gauge", "Whether the batch is using CUDA graph.",
           lambda e: not e.spec.enforce_eager),
)  # fmt: skip


def _vllm_labels(engine: Engine, name: str) -> Mapping[str, str]:
    labels = {"engine": str(engine.index)}
    return labels if name == "vllm:cache_config_info" else labels | {"model_name": engine.spec.model}


_BY_RANK = frozenset(
    metric.name for metric in SGLANG if metric.kind == "gauge" or metric.name.startswith(
        ("sglang:queue_time", "sglang:num_retracted", "sglang:realtime"))
)  # fmt: skip


def _sglang_labels(engine: Engine, name: str) -> Mapping[str, str]:
    labels = {"engine_type": "unified", "model_name": engine.spec.model}
    if name in _BY_RANK:
        labels |= {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    if engine.spec.replicas * engine.spec.data_parallel > 1:
        labels["dp_rank"] = str(engine.index)
    return labels


def page(spec: Spec, size: PoolSize, engines: Iterable[Engine], created: float) -> str:
    """The metrics page of a deployment; every scheduler has its own series."""
    if spec.flavour == "vllm":
        return render((*VLLM, _cache_config(spec, size)), engines, _vllm_labels, spec.version, created)
    memory = (
        Metric("sglang:weight_memory_usage_gb", "gauge", "Memory used by model weights in GB.",
               lambda _: size.weights / GIB),
        Metric("sglang:kv_cache_memory_usage_gb", "gauge", "Memory used by the KV cache pools in GB.",
               lambda _: size.bytes / GIB),
    )  # fmt: skip
    return render((*SGLANG, *memory), engines, _sglang_labels, spec.version, None)
