"""What both engines' pages show: for each metric its help and what it reads.

Names, types and the versions that have them are the catalogue's; labels and bounds are those of vLLM 0.18-0.32
(vllm/v1/metrics) and SGLang 0.5 (srt/observability).
"""

from collections.abc import Callable, Iterable, Mapping

from auditor.catalog import metrics as catalogue
from auditor.emulator.engine import Engine
from auditor.emulator.exposition import Metric, Value, render
from auditor.emulator.holdback import SglangScheduler
from auditor.emulator.memory import GIB, PoolSize
from auditor.emulator.spec import Spec

__all__ = ["page"]


Read = Callable[[Engine], Value | Iterable[tuple[Mapping[str, str], Value]]]
Row = tuple[str, str, Read]  # the name without the engine's prefix, the help, what it reads


def _metrics(engine: str, version: str, rows: Iterable[Row]) -> Iterable[Metric]:
    """The rows that this version of the engine shows, under the catalogue's names."""
    prefix = catalogue.source(engine).prefixes[0]
    known = {metric.name: metric for metric in catalogue.metrics(engine)}
    for name, text, read in rows:
        found = known[prefix + name]
        if catalogue.valid(found, version):
            yield Metric(found.name, found.type, text, read)


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


VLLM: tuple[Row, ...] = (
    ("num_requests_running", "Number of requests in model execution batches.",
     lambda e: len(e.scheduler.running)),
    ("num_requests_waiting", "Number of requests waiting to be processed.",
     lambda e: len(e.scheduler.waiting)),
    ("num_requests_waiting_by_reason", "Number of waiting requests by reason.",
     lambda e: _by("reason", {"capacity": len(e.scheduler.waiting), "deferred": 0})),
    ("engine_sleep_state", "Engine sleep state; awake = 1 means engine is awake.",
     lambda _: _by("sleep_state", {"awake": 1, "weights_offloaded": 0, "discard_all": 0})),
    ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", _usage),
    ("gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.", _usage),
    ("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.",
     lambda e: e.counters.queried_tokens),
    ("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.",
     lambda e: e.counters.cached_tokens),
    ("num_preemptions_total", "Cumulative number of preemption from the engine.",
     lambda e: e.counters.preemptions),
    ("prompt_tokens_total", "Number of prefill tokens processed.",
     lambda e: sum(e.counters.prompt_tokens.values())),
    ("prompt_tokens_by_source_total", "Number of prompt tokens by source.", _sources),
    ("prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).",
     lambda e: e.counters.cached_tokens),
    ("generation_tokens_total", "Number of generation tokens processed.",
     lambda e: sum(e.counters.output_tokens.values())),
    ("request_success_total", "Count of successfully processed requests.", _finished),
    ("admission_rejections_total", "Number of admission attempts rejected by a queue limit.",
     lambda e: _by("reason", {"max_num_queued_reqs": e.counters.refusals, "max_num_queued_tokens": 0})),
    ("request_prompt_tokens", "Number of prefill tokens processed.",
     lambda e: e.counters.prompt_length),
    ("request_generation_tokens", "Number of generation tokens processed.",
     lambda e: e.counters.output_length),
    ("iteration_tokens_total", "Histogram of number of tokens per engine_step.",
     lambda e: e.counters.step_tokens),
    ("request_max_num_generation_tokens", "Histogram of maximum number of requested tokens.",
     lambda e: e.counters.output_length),
    ("request_params_n", "Histogram of the n request parameter.",
     lambda e: e.counters.choices),
    ("request_params_max_tokens", "Histogram of the max_tokens request parameter.",
     lambda e: e.counters.limit_length),
    ("time_to_first_token_seconds", "Histogram of time to first token in seconds.",
     lambda e: e.counters.ttft),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
     lambda e: e.counters.itl),
    ("time_per_output_token_seconds", "Histogram of time per output token in seconds.", lambda e: e.counters.itl),
    ("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds.",
     lambda e: e.counters.tpot),
    ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
     lambda e: e.counters.e2e),
    ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.",
     lambda e: e.counters.queue),
    ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.",
     lambda e: e.counters.inference),
    ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.",
     lambda e: e.counters.prefill),
    ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.",
     lambda e: e.counters.decode),
    ("request_num_preemptions", "Histogram of the number of times a request was preempted.",
     lambda e: e.counters.preempted),
    ("request_prefill_kv_computed_tokens", "New KV tokens computed during prefill.",
     lambda e: e.counters.computed_length),
    ("spec_decode_num_drafts_total", "Number of spec decoding drafts.",
           _speculating(lambda e: e.counters.drafts)),
    ("spec_decode_num_draft_tokens_total", "Number of draft tokens.",
           _speculating(lambda e: e.counters.draft_tokens)),
    ("spec_decode_num_accepted_tokens_total", "Number of accepted tokens.",
           _speculating(lambda e: e.counters.accepted_tokens)),
)  # fmt: skip


_CONFIG = "cache_config_info"


def _cache_config(spec: Spec, size: PoolSize) -> Row:
    """The gauge about the cache: its labels are the served facts, its value is 1."""
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
    return _CONFIG, help_text, lambda _: [(labels, 1.0)]


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


SGLANG: tuple[Row, ...] = (
    ("prompt_tokens_total", "Number of prefill tokens processed.",
     lambda e: _streaming(e.counters.prompt_tokens)),
    ("generation_tokens_total", "Number of generation tokens processed.",
     lambda e: _streaming(e.counters.output_tokens)),
    ("cached_tokens_total", "Number of cached prompt tokens.", _hits),
    ("num_requests_total", "Number of requests processed.",
     lambda e: _streaming(e.counters.ended)),
    ("num_aborted_requests_total", "Number of requests aborted.",
     lambda e: e.counters.aborted),
    ("queue_time_seconds", "Histogram of queueing time in seconds.",
     lambda e: e.counters.queue),
    ("num_retracted_reqs", "The number of retracted requests.",
     lambda e: sum(job.preemptions > 0 for job in e.scheduler.waiting)),
    ("num_retracted_requests_total", "Total number of retracted requests.", _retractions),
    ("time_to_first_token_seconds", "Histogram of time to first token in seconds.",
     lambda e: e.counters.ttft),
    ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds",
     lambda e: e.counters.e2e),
    ("request_time_per_output_token_seconds", "Per-request TPOT in seconds.",
     lambda e: e.counters.tpot),
    ("prompt_tokens_histogram", "Histogram of prompt token length.",
     lambda e: e.counters.prompt_length),
    ("uncached_prompt_tokens_histogram", "Histogram of uncached prompt token length.",
     lambda e: e.counters.computed_length),
    ("generation_tokens_histogram", "Histogram of generation token length.",
     lambda e: e.counters.output_length),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
     lambda e: e.counters.itl),
    ("realtime_tokens_total", "Total number of tokens processed.",
     lambda e: _by("mode", {"prefill_compute": e.counters.queried_tokens - e.counters.cached_tokens,
                            "prefill_cache": e.counters.cached_tokens, "decode": e.counters.decode_tokens})),
    ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.",
     lambda e: e.scheduler.pool.capacity),
    ("page_size", "KV cache page size in tokens.", lambda e: e.scheduler.pool.page),
    ("num_pages", "Number of KV cache pages.",
     lambda e: e.scheduler.pool.capacity // e.scheduler.pool.page),
    ("context_len", "Maximum context length.", lambda e: e.spec.max_model_len),
    ("num_running_reqs", "The number of running requests.", lambda e: len(e.scheduler.running)),
    ("num_queue_reqs", "The number of requests in the waiting queue.",
     lambda e: len(e.scheduler.waiting)),
    ("gen_throughput", "The generation throughput (token/s).", lambda e: e.counters.throughput),
    ("cache_hit_rate", "The prefix cache hit rate.", lambda e: e.counters.last_hit_rate),
    ("token_usage", "The token usage.", lambda e: round(_usage(e), 2)),
    ("full_token_usage", "The token usage for full attention layers.",
     lambda e: round(_usage(e), 2)),
    ("num_used_tokens", "The number of used tokens.", lambda e: e.scheduler.pool.used),
    ("kv_available_tokens", "Number of free token slots in the KV cache pool.",
     lambda e: e.scheduler.pool.free),
    ("kv_evictable_tokens", "Number of evictable (radix-cached) token slots.",
     lambda e: e.scheduler.pool.idle),
    ("kv_used_tokens", "Number of actively used token slots in the KV cache pool.",
     lambda e: e.scheduler.pool.used),
    ("spec_accept_length", "Mean acceptance length of speculative decoding.", _accepted),
    ("new_token_ratio", "The new token ratio.", _ratio),
    ("is_cuda_graph", "Whether the batch is using CUDA graph.",
     lambda e: not e.spec.enforce_eager),
)  # fmt: skip


def _vllm_labels(engine: Engine, metric: Metric) -> Mapping[str, str]:
    labels = {"engine": str(engine.index)}
    return labels if metric.name.endswith(_CONFIG) else labels | {"model_name": engine.spec.model}


_BY_RANK = ("queue_time", "num_retracted", "realtime")


def _sglang_labels(engine: Engine, metric: Metric) -> Mapping[str, str]:
    labels = {"engine_type": "unified", "model_name": engine.spec.model}
    if metric.kind == "gauge" or metric.name.partition(":")[2].startswith(_BY_RANK):
        labels |= {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
    if engine.spec.replicas * engine.spec.data_parallel > 1:
        labels["dp_rank"] = str(engine.index)
    return labels


def page(spec: Spec, size: PoolSize, engines: Iterable[Engine], created: float) -> str:
    """The metrics page of a deployment; every scheduler has its own series."""
    if spec.flavour == "vllm":
        rows = _metrics("vllm", spec.version, (*VLLM, _cache_config(spec, size)))
        return render(rows, engines, _vllm_labels, created)
    memory: tuple[Row, ...] = (
        ("weight_memory_usage_gb", "Memory used by model weights in GB.", lambda _: size.weights / GIB),
        ("kv_cache_memory_usage_gb", "Memory used by the KV cache pools in GB.", lambda _: size.bytes / GIB),
    )
    return render(_metrics("sglang", spec.version, (*SGLANG, *memory)), engines, _sglang_labels, None)
