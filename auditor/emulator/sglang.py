"""SGLang's HTTP interface as 0.5 speaks it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from auditor.emulator.dialect import Ask, Deployment, Refusal, error_events, number, streaming
from auditor.emulator.holdback import MAX_PREFILL_TOKENS
from auditor.emulator.http import Response, json_response
from auditor.emulator.memory import GIB, PoolSize
from auditor.emulator.pages import page
from auditor.emulator.spec import Spec
from auditor.emulator.tokens import TokenError, prompt_tokens, token_ids

__all__ = ["SglangDialect"]

FULL = "The request queue is full."
DEFAULT_COMPLETION_TOKENS = 16


def _flat(message: str, kind: str = "BadRequestError", code: int = 400) -> Response:
    return json_response({"object": "error", "message": message, "type": kind, "param": None, "code": code}, code)


class SglangDialect:
    """All but /health and /metrics needs the key; errors are flat; replies that would not fit are refused."""

    def guarded(self, path: str) -> bool:
        """Everything but health and metrics asks for the key."""
        return not path.startswith(("/health", "/metrics"))

    def get(self, path: str, deployment: Deployment, now: float) -> Response | None:
        """Information endpoints. /health and /health_generate run a generation: the server answers those."""
        spec = deployment.spec
        if path == "/ping":
            return Response(200)
        if path == "/metrics" and not spec.faults.no_metrics:
            body = page(spec, deployment.size, deployment.engines, deployment.started).encode()
            return Response(200, body, "text/plain; version=0.0.4; charset=utf-8", chunked=True)
        if path == "/v1/models":
            model = {"id": spec.model, "object": "model", "created": int(now), "owned_by": "sglang",
                     "root": spec.model, "parent": None, "max_model_len": spec.max_model_len}  # fmt: skip
            return json_response({"object": "list", "data": [model]})
        if path in ("/model_info", "/get_model_info"):
            return json_response(_model_info(spec))
        if path in ("/server_info", "/get_server_info"):
            return json_response(_server_info(deployment))
        if path == "/v1/loads":
            return json_response(_loads(deployment, now))
        return None

    def tokenize(self, body: Mapping[str, Any], deployment: Deployment) -> Response:
        """Tells the model's own limit, not the served one."""
        geometry = deployment.spec.geometry
        try:
            tokens = prompt_tokens(body, deployment.spec.template_tokens)
        except TokenError as error:
            return _flat(str(error))
        ids = token_ids(tokens, geometry.vocab_size)
        longest = geometry.max_position or deployment.spec.max_model_len
        return json_response({"tokens": ids, "count": len(ids), "max_model_len": longest})

    def bad_json(self) -> Response:
        """The body was no JSON; the real message also shows paths of the server's files."""
        message = ("1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', "
                   "'input': {}}\n\n  File \"/usr/lib/python3/site-packages/sglang/srt/entrypoints/http_server.py\", "
                   "line 1860")  # fmt: skip
        return _flat(message, "Bad Request")

    def check(self, body: Mapping[str, Any], chat: bool, spec: Spec, size: PoolSize) -> Ask | Refusal:
        """Check a generation request and resolve its limits. Any model name will do."""
        stream, usage, continuous = streaming(body)
        try:
            prompt = prompt_tokens(body, spec.template_tokens)
            asked = number(body, "max_completion_tokens", "max_tokens") if chat else number(body, "max_tokens")
            least = number(body, "min_tokens") or 0
        except TokenError as error:
            return Refusal(_flat(str(error)))
        except TypeError as error:
            name, value = error.args
            message = (f"1 validation error:\n  {{'type': 'int_parsing', 'loc': ('body', '{name}'), 'msg': 'Input "
                       "should be a valid integer, unable to parse string as an integer', "
                       f"'input': {value!r}}}")  # fmt: skip
            return Refusal(_flat(message, "Bad Request"))
        if not prompt:
            return Refusal(_flat("Prompt cannot be empty"))
        model = str(body.get("model") or spec.model)
        ask = Ask(prompt, chat, model, stream, 0, least, bool(body.get("ignore_eos")), usage, continuous)
        return self._limits(ask, asked, spec, size)

    def _limits(self, ask: Ask, asked: int | None, spec: Spec, size: PoolSize) -> Ask | Refusal:
        context, count = spec.max_model_len, len(ask.prompt)
        if asked is not None and asked < 1:
            return Refusal(_flat("1 validation error:\n  max_tokens must be positive", "Bad Request"))
        if count >= min(context, size.tokens):
            return Refusal(_flat(f"The input ({count} tokens) is longer than the model's context length ({context} "
                                 "tokens)."))  # fmt: skip
        if ask.chat and asked is not None and asked > context:
            return Refusal(_flat(f"max_completion_tokens is too large: {asked}.This model supports at most {context} "
                                 "completion tokens."))  # fmt: skip
        if asked is not None and count + asked > context:
            return Refusal(_flat(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {count + asked} tokens: {count} tokens from the input messages and {asked} tokens for the "
                "completion. Please reduce the number of tokens in the input messages or the completion to fit within "
                "the limit."))  # fmt: skip
        room = max(1, min(context, size.tokens - 1) - count - 1)
        wanted = asked if asked is not None else room if ask.chat else DEFAULT_COMPLETION_TOKENS
        limit = min(wanted, room)
        return replace(ask, limit=limit, least=min(ask.least, limit))

    def busy(self, ask: Ask, name: str, created: int) -> Response | bytes:
        """A real 503, or a 200 whose stream holds the error and a usage of zero."""
        if not ask.stream:
            return _flat(FULL, "503", 503)
        error = {"error": {"object": "error", "message": FULL, "type": "SERVICE_UNAVAILABLE", "param": None,
                           "code": 503}}  # fmt: skip
        zero = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0, "reasoning_tokens": 0}
        usage: dict[str, Any] = {"id": name, "object": "chat.completion.chunk" if ask.chat else "text_completion",
                 "created": created, "model": ask.model, "choices": [], "usage": zero}  # fmt: skip
        return error_events(error, usage) if ask.usage else error_events(error)


def _model_info(spec: Spec) -> dict[str, Any]:
    return {"model_path": spec.geometry.name, "served_model_name": spec.model, "tokenizer_path": spec.geometry.name,
            "is_generation": True, "preferred_sampling_params": None, "weight_version": "default",
            "load_format": "auto", "reasoning_parser": None, "tool_call_parser": None, "disaggregation_mode": "null",
            "has_image_understanding": spec.geometry.vision, "has_audio_understanding": False,
            "architectures": [spec.geometry.architecture]}  # fmt: skip


def _server_info(deployment: Deployment) -> dict[str, Any]:
    """The server's arguments, its API key among them, in clear as the real one tells them."""
    spec, size = deployment.spec, deployment.size
    drafts = spec.draft_tokens
    dtypes = {"bf16": "bfloat16", "fp16": "float16"}
    arguments: dict[str, Any] = {
        "model_path": spec.geometry.name, "tokenizer_path": spec.geometry.name, "served_model_name": spec.model,
        "context_length": spec.max_model_len, "dtype": dtypes.get(spec.compute_dtype, "auto"),
        "quantization": spec.quantization, "kv_cache_dtype": spec.kv_cache_dtype,
        "mem_fraction_static": spec.memory_fraction, "max_running_requests": spec.max_num_seqs,
        "max_queued_requests": spec.faults.queue_limit or None, "max_total_tokens": spec.pool_tokens,
        "chunked_prefill_size": spec.max_num_batched_tokens, "max_prefill_tokens": MAX_PREFILL_TOKENS,
        "schedule_policy": "fcfs", "schedule_conservativeness": spec.schedule_conservativeness,
        "page_size": spec.block_size, "disable_radix_cache": not spec.prefix_caching, "random_seed": spec.seed,
        "tp_size": spec.tensor_parallel, "pp_size": spec.pipeline_parallel, "dp_size": spec.data_parallel,
        "ep_size": 1, "api_key": spec.api_key, "admin_api_key": None, "enable_metrics": not spec.faults.no_metrics,
        "attention_backend": spec.attention_backend or "fa3", "disable_cuda_graph": spec.enforce_eager,
        "enable_mixed_chunk": False, "speculative_algorithm": "EAGLE" if drafts else None,
        "speculative_num_steps": drafts or None, "speculative_num_draft_tokens": drafts + 1 if drafts else None,
        "disaggregation_mode": "null",
    }  # fmt: skip
    state = arguments | {
        "effective_max_running_requests_per_dp": min(spec.max_num_seqs, size.running or spec.max_num_seqs),
        "last_gen_throughput": max(engine.counters.throughput for engine in deployment.engines),
        "memory_usage": {"weight": round(size.weights / GIB, 3), "kvcache": round(size.bytes / GIB, 3),
                         "token_capacity": size.tokens},
    }  # fmt: skip
    return arguments | {
        "status": "ready", "max_total_num_tokens": size.tokens, "max_req_input_len": spec.max_model_len - 6,
        "internal_states": [state for _ in deployment.engines], "version": spec.version,
    }  # fmt: skip


def _loads(deployment: Deployment, now: float) -> dict[str, Any]:
    spec = deployment.spec
    loads = []
    for engine in deployment.engines:
        pool, waiting = engine.scheduler.pool, engine.scheduler.waiting
        loads.append({
            "timestamp": now, "dp_rank": engine.index, "num_running_reqs": len(engine.scheduler.running),
            "num_waiting_reqs": len(waiting), "num_used_tokens": pool.used,
            "num_total_tokens": pool.used + sum(job.length for job in waiting),
            "max_total_num_tokens": pool.capacity, "max_running_requests": spec.max_num_seqs,
            "token_usage": round(pool.used / pool.capacity, 4), "gen_throughput": engine.counters.throughput,
            "cache_hit_rate": engine.counters.last_hit_rate, "utilization": 0.0,
            "memory": {"weight_gb": round(deployment.size.weights / GIB, 3),
                       "kv_cache_gb": round(deployment.size.bytes / GIB, 3), "token_capacity": pool.capacity},
            "queues": {"waiting": len(waiting), "grammar": 0, "paused": 0,
                       "retracted": sum(job.preemptions > 0 for job in waiting)},
        })  # fmt: skip
    stamp = datetime.fromtimestamp(now, UTC).isoformat()
    return {"timestamp": stamp, "version": spec.version, "accelerator": spec.device.name,
            "num_accelerators": spec.tensor_parallel, "loads": loads}  # fmt: skip
