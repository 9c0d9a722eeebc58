"""vLLM's HTTP interface as 0.18 to 0.32 speak it."""

from collections.abc import Mapping
from typing import Any

from auditor.emulator.dialect import Ask, Deployment, Refusal, error_events, nested_error, number, streaming
from auditor.emulator.http import Response, json_response
from auditor.emulator.memory import PoolSize
from auditor.emulator.pages import page
from auditor.emulator.spec import Spec
from auditor.emulator.tokens import TokenError, prompt_tokens, token_ids

__all__ = ["VllmDialect"]

BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
DEFAULT_COMPLETION_TOKENS = 16


def _bad(message: str, param: str | None, value: Any = None) -> Refusal:
    detail = f" (parameter={param}, value={value})" if value is not None else f" (parameter={param})"
    return Refusal(nested_error(message + detail, "BadRequestError", 400, param))


class VllmDialect:
    """Only /v1 needs the key; errors are nested; replies that would not fit the context are clamped."""

    def guarded(self, path: str) -> bool:
        """Only /v1 asks for the key."""
        return path.startswith("/v1")

    def get(self, path: str, deployment: Deployment, now: float) -> Response | None:
        """Information endpoints."""
        spec = deployment.spec
        if path in ("/health", "/ping"):
            return Response(200)
        if path == "/version":
            return json_response({"version": spec.version})
        if path == "/load":
            return json_response({"server_load": 0})  # stays 0 without --enable-server-load-tracking
        if path == "/metrics" and not spec.faults.no_metrics:
            body = page(spec, deployment.size, deployment.engines, deployment.started).encode()
            return Response(200, body, "text/plain; version=1.0.0; charset=utf-8")
        if path == "/v1/models":
            permission = {"id": "modelperm-emulated", "object": "model_permission", "created": int(now),
                          "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True,
                          "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False,
                          "organization": "*", "group": None, "is_blocking": False}  # fmt: skip
            model = {"id": spec.model, "object": "model", "created": int(now), "owned_by": "vllm",
                     "root": spec.geometry.name, "parent": None, "max_model_len": spec.max_model_len,
                     "permission": [permission]}  # fmt: skip
            return json_response({"object": "list", "data": [model]})
        return None

    def tokenize(self, body: Mapping[str, Any], deployment: Deployment) -> Response:
        """A prompt or messages."""
        spec = deployment.spec
        try:
            tokens = prompt_tokens(body, spec.template_tokens)
        except TokenError as error:
            return nested_error(str(error), "BadRequestError", 400)
        ids = token_ids(tokens, spec.geometry.vocab_size)
        return json_response(
            {"count": len(ids), "max_model_len": spec.max_model_len, "tokens": ids, "token_strs": None}
        )

    def bad_json(self) -> Response:
        """The body was no JSON."""
        message = "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body', 'msg': 'JSON decode error'}"
        return nested_error(message, "Bad Request", 400, "body")

    def check(self, body: Mapping[str, Any], chat: bool, spec: Spec, size: PoolSize) -> Ask | Refusal:  # noqa: ARG002
        """Check a generation request and resolve its limits."""
        model = body.get("model") or spec.model
        if model != spec.model:
            message = f"The model `{model}` does not exist. Valid aliases: {spec.model}."
            return Refusal(nested_error(message, "NotFoundError", 404, "model"))
        stream, usage, continuous = streaming(body)
        if body.get("stream_options") and not stream:
            return _bad("Stream options can only be defined when `stream=True`.", "stream_options")
        try:
            prompt = prompt_tokens(body, spec.template_tokens)
            asked = number(body, "max_completion_tokens", "max_tokens") if chat else number(body, "max_tokens")
            least = number(body, "min_tokens") or 0
        except TokenError as error:
            return _bad(str(error), "prompt")
        except TypeError as error:
            name, value = error.args
            message = (f"1 validation error:\n  {{'type': 'int_parsing', 'loc': 'body.{name}', 'msg': 'Input should be "
                       f"a valid integer, unable to parse string as an integer', 'input': {value!r}}}")  # fmt: skip
            return Refusal(nested_error(message, "Bad Request", 400, f"body.{name}"))
        if not prompt:
            return _bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        return self._limits(
            Ask(prompt, chat, model, stream, 0, least, bool(body.get("ignore_eos")), usage, continuous), asked, spec
        )

    def _limits(self, ask: Ask, asked: int | None, spec: Spec) -> Ask | Refusal:
        context = spec.max_model_len
        count = len(ask.prompt)
        if count > context:
            message = (f"This model's maximum context length is {context} tokens. However, your prompt contains "
                       f"{count} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                       "the length of the input prompt.")  # fmt: skip
            return _bad(message, "input_tokens", count)
        if asked is not None and asked > context:
            message = (f"max_tokens={asked} cannot be greater than max_model_len={context}. Please request fewer "
                       "output tokens.")  # fmt: skip
            return _bad(message, "max_tokens", asked)
        room = context - count
        wanted = asked if asked is not None else room if ask.chat else DEFAULT_COMPLETION_TOKENS
        limit = min(wanted, room)
        if limit < 1:
            return _bad(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
        if ask.least > wanted:
            return _bad(f"min_tokens must be less than or equal to max_tokens={wanted}, got {ask.least}.", "min_tokens")
        return Ask(ask.prompt, ask.chat, ask.model, ask.stream, limit, min(ask.least, limit), ask.ignore_eos, ask.usage,
                   ask.continuous)  # fmt: skip

    def busy(self, ask: Ask, name: str, created: int) -> Response | bytes:  # noqa: ARG002
        """A real 503, or a 200 whose stream holds the error."""
        if not ask.stream:
            return nested_error(BUSY, "Service Unavailable", 503)
        return error_events({"error": {"message": BUSY, "type": "Service Unavailable", "param": None, "code": 503}})
