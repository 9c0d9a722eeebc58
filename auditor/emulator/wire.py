"""The bytes of streamed events and JSON replies, field by field as vLLM 0.32 and SGLang 0.5.23 write them."""

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["DONE", "Usage", "Wire", "event"]

DONE = b"data: [DONE]\n\n"


def _dump(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def event(data: str) -> bytes:
    """One server-sent event."""
    return f"data: {data}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply; `cached` None where the server does not tell it."""

    prompt: int
    output: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """Writes one reply's events: `sglang` or vLLM, chat or completion."""

    sglang: bool
    chat: bool
    name: str
    created: int
    model: str
    fingerprint: str = ""

    def _start(self) -> str:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return f'{{"id":"{self.name}","object":"{kind}","created":{self.created},"model":{_dump(self.model)},"choices":'

    def usage_fields(self, usage: Usage, *, final: bool) -> str:
        """The usage object; `final` is the one of its own last event."""
        fields: dict[str, Any] = {
            "prompt_tokens": usage.prompt,
            "total_tokens": usage.prompt + usage.output,
            "completion_tokens": usage.output,
        }
        cached = None if usage.cached is None else {"cached_tokens": usage.cached}
        if not self.sglang:
            if cached:
                fields["prompt_tokens_details"] = cached
            elif self.chat and not final:
                fields["completion_tokens_details"] = None
        elif final and not self.chat:
            fields["reasoning_tokens"] = 0
        else:
            fields |= {"prompt_tokens_details": cached, "reasoning_tokens": 0, "completion_tokens_details": None}
        return _dump(fields)

    def role(self, usage: Usage | None = None) -> bytes:
        """The first event of a chat: a role and no token."""
        if self.sglang:
            delta = '{"reasoning_content":null,"role":"assistant","content":""}'
            return event(
                f'{self._start()}[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null,"matched_stop":null}}]}}'
            )
        counts = f',"usage":{self.usage_fields(usage, final=False)}' if usage else ""
        return event(
            f'{self._start()}[{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,'
            f'"finish_reason":null}}]{counts},"prompt_token_ids":null,"prompt_text":null}}'
        )

    def token(self, text: str, finish: str | None = None, usage: Usage | None = None) -> bytes:
        """An event with text; `finish` where the flavour puts the reason into the last token's event."""
        reason = _dump(finish)
        counts = f',"usage":{self.usage_fields(usage, final=False)}' if usage else ""
        if self.sglang:
            delta = f'"delta":{{"reasoning_content":null,"content":{_dump(text)}}}'
            body = delta if self.chat else f'"text":{_dump(text)}'
            tail = f'"logprobs":null,"finish_reason":{reason},"matched_stop":null}}]'
            if not self.chat and not usage:
                counts = ',"usage":null'
        elif self.chat:
            body = f'"delta":{{"content":{_dump(text)}}}'
            stop = ',"stop_reason":null' if finish else ""
            tail = f'"logprobs":null,"finish_reason":{reason}{stop},"token_ids":null}}]'
        else:
            body = f'"text":{_dump(text)}'
            tail = (f'"logprobs":null,"finish_reason":{reason},"stop_reason":null,"prompt_token_ids":null,'
                    '"token_ids":null}]')  # fmt: skip
        return event(f'{self._start()}[{{"index":0,{body},{tail}{counts}}}')

    def closing(self, finish: str) -> bytes:
        """SGLang's chats end with an event that holds only the reason."""
        return event(
            f'{self._start()}[{{"index":0,"delta":{{"reasoning_content":null}},"logprobs":null,'
            f'"finish_reason":"{finish}","matched_stop":null}}]}}'
        )

    def usage(self, usage: Usage) -> bytes:
        """The usage event: no choices."""
        tail = "" if self.sglang else f',"system_fingerprint":"{self.fingerprint}"'
        return event(f'{self._start()}[],"usage":{self.usage_fields(usage, final=True)}{tail}}}')

    def whole(self, text: str, finish: str, usage: Usage | None) -> dict[str, Any]:
        """The JSON reply where no stream was asked for."""
        counts = json.loads(self.usage_fields(usage, final=False)) if usage else None
        if self.sglang:
            return self._whole_sglang(text, finish, counts, usage.output if usage else 0)
        if counts is not None:
            counts = {**counts, "prompt_tokens_details": counts.get("prompt_tokens_details")}
            counts["completion_tokens_details"] = None
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None, "annotations": None,
                                 "audio": None, "function_call": None, "reasoning": None}  # fmt: skip
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish, "stop_reason": None, "token_ids": None,
                   "routed_experts": None}  # fmt: skip
        reply = {"id": self.name, "object": "chat.completion" if self.chat else "text_completion",
                 "created": self.created, "model": self.model, "choices": [choice], "service_tier": None,
                 "system_fingerprint": self.fingerprint, "usage": counts}  # fmt: skip
        if self.chat:
            reply |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return reply | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}

    def _whole_sglang(self, text: str, finish: str, counts: dict[str, Any] | None, output: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": text, "reasoning_content": None}
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish, "matched_stop": None}
        weights = {"weight_version": "default",
                   "weight_versions": [{"version": "default", "start": 0, "end": output}]}  # fmt: skip
        return {"id": self.name, "object": "chat.completion" if self.chat else "text_completion",
                "created": self.created, "model": self.model, "choices": [choice], "usage": counts,
                "metadata": weights}  # fmt: skip
